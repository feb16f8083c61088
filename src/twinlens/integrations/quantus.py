"""Our metrics as metrics of Quantus: for a call of their own, and for `quantus.evaluate`.

    from twinlens.integrations.quantus import Soundness

    scores = Soundness(sign="positive")(model=model, x_batch=x_batch, y_batch=y_batch, a_batch=a_batch, device="cpu")

Quantus hands over a batch at a time. What is gathered from batches are explanations alone; all samples of a call are
probed and judged together at its end. So the batch size changes nothing, and an estimator that judges the data set as a
whole, such as the paper's in accuracy, has all of it.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.integrations.scoring import check_by_sample, offers, scores_of, split_options
from twinlens.metrics.measuring import probe_samples

try:
    from quantus.helpers.enums import DataType, EvaluationCategory, ModelType, ScoreDirection
    from quantus.metrics.base import Metric
except ModuleNotFoundError as error:
    raise ImportError("twinlens.integrations.quantus needs Quantus: pip install quantus") from error

Array = NDArray[Any]


class SampleMetric(Metric):  # type: ignore[type-arg]
    """A metric that scores each sample by itself."""

    data_applicability = {DataType.IMAGE, DataType.TIMESERIES, DataType.TABULAR}  # noqa: RUF012 (as Quantus has it)
    model_applicability = {ModelType.TORCH, ModelType.TF}  # noqa: RUF012
    evaluation_category = EvaluationCategory.FAITHFULNESS
    score_direction = ScoreDirection.HIGHER
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        abs: bool = False,
        normalise: bool = False,
        normalise_func: Callable[..., Array] | None = None,
        normalise_func_kwargs: dict[str, Any] | None = None,
        return_aggregate: bool = False,
        aggregate_func: Callable[..., Any] = np.mean,
        default_plot_func: Callable[..., None] | None = None,
        disable_warnings: bool = False,
        display_progressbar: bool = False,
        **options: Any,
    ) -> None:
        self.metric, self.how = split_options(self.kind, options)
        check_by_sample(self.metric)
        super().__init__(
            abs=abs,
            normalise=normalise,
            normalise_func=normalise_func,
            normalise_func_kwargs=normalise_func_kwargs,
            return_aggregate=return_aggregate,
            aggregate_func=aggregate_func,
            default_plot_func=default_plot_func,
            disable_warnings=disable_warnings,
            display_progressbar=display_progressbar,
        )
        if not self.metric.about.higher_is_better:
            self.score_direction = ScoreDirection.LOWER  # type: ignore[misc]  # as the order of ROAD decides
        self._maps: list[Array] = []

    def __call__(
        self,
        model: Any,
        x_batch: Array,
        y_batch: Array,
        a_batch: Array | None = None,
        s_batch: Array | None = None,
        channel_first: bool | None = None,
        explain_func: Callable[..., Any] | None = None,
        explain_func_kwargs: dict[str, Any] | None = None,
        model_predict_kwargs: dict[str, Any] | None = None,
        softmax: bool = False,
        device: str | None = None,
        batch_size: int = 64,
        **kwargs: Any,
    ) -> list[float]:
        """Score explanations as every metric of Quantus does; with `softmax`, the model returns probabilities.

        Returns:
            One score per sample, or one for all with `return_aggregate`.
        """
        scores: list[float] = super().__call__(
            model=model,
            x_batch=x_batch,
            y_batch=y_batch,
            a_batch=a_batch,
            s_batch=s_batch,
            channel_first=channel_first,
            explain_func=explain_func,
            explain_func_kwargs=explain_func_kwargs,
            model_predict_kwargs=model_predict_kwargs,
            softmax=softmax,
            device=device,
            batch_size=batch_size,
            **kwargs,
        )
        return scores

    def custom_preprocess(self, **_: Any) -> None:
        """Start with nothing gathered, whatever became of the call before."""
        self._maps = []

    def evaluate_batch(self, *, a_batch: Array, **_: Any) -> list[float]:
        """Gather the explanations of a batch; scores come at the end."""
        self._maps.append(a_batch)
        return []

    def custom_postprocess(self, *, model: Any, x_batch: Array, y_batch: Any, **_: Any) -> None:
        """Probe and judge all samples of the call."""

        def ask(batch: Tensor) -> Tensor:
            return torch.as_tensor(model.predict(model.shape_input(batch.numpy(), batch.shape, True, batched=True)))

        output = "probabilities" if model.softmax else "logits"
        how = {**self.how, "output": output, "progress": self.display_progressbar}
        tables = probe_samples(
            self.metric,
            ask,
            torch.as_tensor(x_batch),
            y_batch,
            np.concatenate(self._maps),
            how,  # type: ignore[arg-type]
        )
        self.evaluation_scores = scores_of(self.metric.read(tables)).tolist()


@offers("soundness")
class Soundness(SampleMetric):
    """Share of the attribution that rests on predictive features: the more, the better."""

    kind = name = "soundness"


@offers("completeness")
class Completeness(SampleMetric):
    """Probability lost with the features that the map marks: the more, the better."""

    kind = name = "completeness"


@offers("road")
class Road(SampleMetric):
    """Probability lost as features are removed by rank and imputed linearly (ROAD)."""

    kind = name = "road"


@offers("deletion")
class Deletion(SampleMetric):
    """Probability lost as the most relevant features are set to a constant first: the more, the better."""

    kind = name = "deletion"


@offers("insertion")
class Insertion(SampleMetric):
    """Probability still lost as the most relevant features are put into a blurred input: the less, the better."""

    kind = name = "insertion"
    score_direction = ScoreDirection.LOWER
