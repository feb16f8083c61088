"""Models that are not modules: functions of tensors or arrays, and estimators of scikit-learn and alike.

Shapes: N samples, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.errors import DataError
from twinlens.models.loading import LoadedModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """How a fitted estimator is called."""

    owner: Any
    """The estimator or pipeline."""
    ask: Callable[[Any], Any]
    """From rows to probabilities, decisions or values."""
    scale: str
    """What `ask` returns: "probabilities", or "logits" for decisions and values."""
    regression: bool

    @property
    def classes(self) -> list[Any]:
        """The classes by index, as in labels; none for a regression."""
        return [] if self.regression else np.asarray(getattr(self.owner, "classes_", ())).tolist()

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The classes by index, if they have names."""
        return tuple(map(str, self.classes)) if any(isinstance(label, str) for label in self.classes) else None

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The columns that it was fitted to, if they have names."""
        names = getattr(self.owner, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def indices(self, labels: object) -> NDArray[Any]:
        """Return the index of each label among the classes; for a regression, the values as floating-point numbers."""
        values = np.asarray(labels)
        if not self.classes:
            return values.astype(np.float64) if self.regression and values.dtype.kind in "iuf" else values
        index = {label: k for k, label in enumerate(self.classes)}
        for position, label in enumerate(values.reshape(-1).tolist()):
            if label not in index:
                first = ", ".join(map(repr, self.classes[:8]))
                raise DataError(
                    f"`labels` must be classes that `model` was fitted to, {first}; the one at {position} is {label!r}."
                )
        return np.array([index[label] for label in values.reshape(-1).tolist()], dtype=np.int64)


def find_estimator(model: object) -> Estimator | None:
    """Return how a fitted estimator is called; None for other objects.

    Example:
        >>> from sklearn.linear_model import LogisticRegression, Ridge
        >>> [find_estimator(kind).ask.__name__ for kind in (LogisticRegression(), Ridge())]
        ['predict_proba', 'predict']
        >>> find_estimator(nn.Linear(2, 2)) is None
        True
    """
    if isinstance(model, (nn.Module, type)) or not hasattr(model, "predict"):
        return None
    if type(model).__name__ == "Booster":
        raise TypeError(
            "`model` is a Booster, which does not tell its classes. Pass the estimator around it, such as "
            "XGBClassifier or LGBMRegressor, or a function from rows to the probabilities of all classes."
        )
    regression = _is_regressor(model)
    for name, scale in (("predict_proba", "probabilities"), ("decision_function", "logits")):
        if not regression and callable(ask := getattr(model, name, None)):
            return Estimator(owner=model, ask=ask, scale=scale, regression=False)
    return Estimator(owner=model, ask=model.predict, scale="logits", regression=True) if regression else None


def _is_regressor(model: Any) -> bool:
    tags = getattr(model, "__sklearn_tags__", None)
    kind = tags().estimator_type if callable(tags) else getattr(model, "_estimator_type", None)
    return kind == "regressor" if kind is not None else not hasattr(model, "predict_proba")


class FunctionModel(nn.Module):
    """A function as a module without weights.

    It gets NumPy arrays instead of tensors with `arrays`, and a data frame with `columns`, for an estimator that was
    fitted to one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        arrays: bool,
        columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.function, self.arrays, self.columns = function, arrays, columns

    def forward(self, inputs: Tensor | None = None, **tokens: Tensor) -> Any:
        """Call the function; with tokens, by the names of their parts."""
        if inputs is None:
            return self.function(**tokens)
        if not self.arrays:
            return self.function(inputs)
        if inputs.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "`model` is called with NumPy arrays and has no gradients, which this method needs. Choose one that "
                "only calls the model, such as kernel_shap or occlusion, or pass your own function as the method."
            )
        rows: Any = inputs.detach().cpu().numpy()
        if self.columns is not None:
            import pandas as pd  # noqa: PLC0415 (only for estimators that were fitted to data frames)

            rows = pd.DataFrame(rows, columns=list(self.columns))
        answer = self.function(rows)
        return answer if isinstance(answer, Tensor) else torch.as_tensor(np.asarray(answer)).to(inputs.device)


def from_function(model: Any, *, on_arrays: bool) -> LoadedModel:
    """Return an estimator or a function as a model that can be called.

    A function takes NumPy arrays and returns probabilities if `on_arrays`, otherwise tensors and logits.
    """
    estimator = find_estimator(model)
    if estimator is None:
        if not callable(model) or isinstance(model, type):
            raise TypeError(
                "`model` must be a spec such as 'timm:resnet50', an nn.Module, a function from a batch to logits, or a "
                f"fitted estimator of scikit-learn; got {type(model).__name__}."
            )
        name = getattr(model, "__qualname__", type(model).__qualname__)
        module = FunctionModel(model, arrays=on_arrays)
        return LoadedModel(name=name, module=module, scale="probabilities" if on_arrays else "logits")
    module = FunctionModel(estimator.ask, arrays=True, columns=estimator.feature_names)
    last = estimator.owner.steps[-1][1] if hasattr(estimator.owner, "steps") else estimator.owner  # of a pipeline
    return LoadedModel(
        name=type(last).__qualname__, module=module, classes=estimator.class_names, scale=estimator.scale
    )
