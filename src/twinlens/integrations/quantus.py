"""Our metrics as metrics of Quantus, to be called or passed to `quantus.evaluate`.

    from twinlens.integrations.quantus import Soundness

    scores = Soundness(sign="positive")(model=model, x_batch=x_batch, y_batch=y_batch, a_batch=a_batch, device="cpu")

Quantus passes one batch at a time. Batches are collected, and all samples of a call are probed and judged together at
its end. The batch size does not matter, and an estimator that judges the data set as a whole sees all of it.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.integrations.scoring import metric_classes, sample_metric, scores_of
from twinlens.metrics.measuring import probe_samples

try:
    from quantus.helpers.enums import DataType, EvaluationCategory, ModelType, ScoreDirection
    from quantus.metrics.base import Metric
except ModuleNotFoundError as error:
    raise ImportError("twinlens.integrations.quantus needs Quantus: pip install quantus") from error

Array = NDArray[Any]
_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("abs", "normalise", "return_aggregate", "disable_warnings", "display_progressbar"), False),
    **dict.fromkeys(("normalise_func", "normalise_func_kwargs", "default_plot_func")),
    "aggregate_func": np.mean,
}
"""The arguments of every metric of Quantus, with its usual defaults."""
_OPTIONAL = ("s_batch", "channel_first", "explain_func", "explain_func_kwargs", "model_predict_kwargs", "device")
_CALL: dict[str, Any] = {**dict.fromkeys(_OPTIONAL), "softmax": False, "batch_size": 64}


class SampleMetric(Metric):  # type: ignore[type-arg]
    """A metric that scores each sample by itself; it also takes the settings of every Quantus metric, such as `abs`."""

    data_applicability = {DataType.IMAGE, DataType.TIMESERIES, DataType.TABULAR}  # noqa: RUF012 (as Quantus has it)
    model_applicability = {ModelType.TORCH, ModelType.TF}  # noqa: RUF012
    evaluation_category = EvaluationCategory.FAITHFULNESS
    score_direction = ScoreDirection.HIGHER
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = cls.kind

    def __init__(self, **options: Any) -> None:
        settings = {name: options.pop(name, default) for name, default in _SETTINGS.items()}
        self.metric, self.how = sample_metric(self.kind, options)
        super().__init__(**settings)
        if not self.metric.about.higher_is_better:
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]  # as the order of ROAD decides
        self._maps: list[Array] = []

    def __call__(self, model: Any, x_batch: Array, y_batch: Array, a_batch: Array | None = None, **call: Any) -> Any:
        """Score explanations with the interface of Quantus; with `softmax`, the model returns probabilities.

        Returns:
            One score per sample, or one for all with `return_aggregate`.
        """
        batches = {"model": model, "x_batch": x_batch, "y_batch": y_batch, "a_batch": a_batch}
        return super().__call__(**batches, **{**_CALL, **call})

    def custom_preprocess(self, **_: Any) -> None:
        """Forget the explanations of an earlier call, which may have failed."""
        self._maps = []

    def evaluate_batch(self, *, a_batch: Array, **_: Any) -> list[float]:
        """Collect the explanations of a batch; scores come at the end."""
        self._maps.append(a_batch)
        return []

    def custom_postprocess(self, *, model: Any, x_batch: Array, y_batch: Any, **_: Any) -> None:
        """Probe and judge all samples of the call."""

        def ask(batch: Tensor) -> Tensor:
            return torch.as_tensor(model.predict(model.shape_input(batch.numpy(), batch.shape, True, batched=True)))

        output = "probabilities" if model.softmax else "logits"
        how: Any = {**self.how, "output": output, "progress": self.display_progressbar}
        maps = np.concatenate(self._maps)
        tables = probe_samples(self.metric, ask, torch.as_tensor(x_batch), y_batch, maps, how)
        self.evaluation_scores = scores_of(self.metric.read(tables)).tolist()


Soundness, Completeness, Road, Deletion, Insertion = metric_classes(SampleMetric)
