"""Models and data of built-in suites that no spec can name: scikit-learn's, transformers, and the laboratory's.

Shapes: N samples, S = spatial shape of a map.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from twinlens.data.samples import Samples, from_arrays
from twinlens.data.sources import open_data
from twinlens.imputation.imputers import MeanImputer, TokenImputer
from twinlens.laboratory.tasks import TASKS, Task
from twinlens.models.loading import LoadedModel
from twinlens.models.preprocessing import Preprocessing
from twinlens.suites.digit_vit import trained_vit
from twinlens.suites.small_transformers import GRAMMAR, SENTENCES, Language, load_transformer
from twinlens.support.arrays import Floats

_LABORATORY_SAMPLES, _LANGUAGE_SAMPLES = 120, 200


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskSource:
    """A model and its data."""

    model: Any
    """The model as `evaluate` takes it."""

    samples: Samples
    """The samples."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of `evaluate`."""

    effects: Floats | None = None
    """(N, *S) the Shapley value of each feature, where it is known."""


def _sklearn(data: str, model: str) -> TaskSource:
    """Fit a model on two thirds of a data set of scikit-learn; the others are the samples."""
    sets: Any = importlib.import_module("sklearn.datasets")
    ensembles: Any = importlib.import_module("sklearn.ensemble")
    kinds = {"forest": ensembles.RandomForestClassifier, "boosting": ensembles.GradientBoostingClassifier}
    table = getattr(sets, f"load_{data}")()
    held_out = np.arange(len(table.target)) % 3 == 0
    fitted = kinds[model](random_state=0).fit(table.data[~held_out], table.target[~held_out])
    samples = from_arrays(
        table.data[held_out],
        table.target[held_out],
        classes=[str(name) for name in table.target_names],
        name=f"{data} of scikit-learn",
        feature_names=[str(name) for name in table.feature_names],
    )
    # A removed column has the mean of the training data.
    return TaskSource(
        model=fitted, samples=samples, options={"imputer": MeanImputer(table.data[~held_out].mean(axis=0))}
    )


def _digits_vit() -> TaskSource:
    grey = Preprocessing(mean=(0.0,), std=(1.0,))
    model = LoadedModel(name="digit-vit", module=trained_vit(), preprocessing=grey, classes=tuple("0123456789"))
    return TaskSource(model=model, samples=open_data("mnist"))


def _language(language: Language) -> TaskSource:
    tokens, labels = language.sentences(_LANGUAGE_SAMPLES, seed=0)
    samples = from_arrays(tokens, labels, name=language.name, tokenizer=list(language.words))
    imputer = TokenImputer(language.mask, special=language.special)
    return TaskSource(model=load_transformer(language), samples=samples, options={"imputer": imputer})


class LaboratoryModel(nn.Module):
    """The model of a task of the laboratory as a module, which methods with gradients need."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.function = task.model

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the logits of three classes."""
        return self.function(inputs).to(inputs.dtype)


def _laboratory(name: str) -> TaskSource:
    task = TASKS[name](_LABORATORY_SAMPLES, seed=0)
    samples = from_arrays(
        task.inputs.numpy(), task.labels, name=f"laboratory: {name}", classes=("no", "yes", "undecided")
    )
    return TaskSource(
        model=LaboratoryModel(task), samples=samples, options={"imputer": task.imputer}, effects=task.effects
    )


SOURCES: dict[str, Callable[[], TaskSource]] = {
    **{
        f"{data}/{model}": partial(_sklearn, data, model)
        for data in ("breast_cancer", "wine", "digits")
        for model in ("forest", "boosting")
    },
    "mnist/vit": _digits_vit,
    **{language.name: partial(_language, language) for language in (SENTENCES, GRAMMAR)},
    **{f"laboratory/{name.replace(' ', '-')}": partial(_laboratory, name) for name in TASKS},
}
"""Sources by name."""
