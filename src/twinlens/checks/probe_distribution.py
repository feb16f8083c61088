"""Distribution: how far are the probed inputs from those that the model knows?

Features are removed in a random order, which no map guides. On inputs that the model knows, it is as often right as it
is confident, and its answers are as varied as the classes. Far from them it is confident and wrong, or gives one answer
to everything.

Shapes: N samples, L levels, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.errors import short_repr
from twinlens.imputation.imputers import (
    ConstantImputer,
    Imputer,
    UnavailableImputer,
    find_imputer,
    restore_imputer,
)
from twinlens.probing.answers import CLASSIFICATION, as_two, find_logits
from twinlens.probing.model_call import Labels
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import resample_mean
from twinlens.support.signatures import lists_options

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_MOST_ANSWERS = 0.5  # of the answers, from which on one class is a collapse
_RESAMPLES = 1000


class _Recorder(nn.Module):
    """A model that records how confident each answer is: the probability of the class that it predicts."""

    def __init__(self, model: nn.Module, *, probabilities: bool) -> None:
        super().__init__()
        self.model, self.probabilities = model, probabilities
        self.confidence: list[Tensor] = []

    def forward(self, *inputs: Any, **named: Any) -> Any:
        answer = self.model(*inputs, **named)
        values = find_logits(answer)[0].detach().double()
        if values.dim() == 1 or values.shape[1] == 1:
            one = values.reshape(-1)
            values = torch.stack([1 - one, one], dim=1) if self.probabilities else as_two(one)
        self.confidence.append((values if self.probabilities else values.softmax(dim=1)).amax(dim=1).cpu())
        return answer


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeDistribution:
    """A model's answers while features are removed in a random order."""

    levels: tuple[float, ...]
    """Shares of features removed, the first of them 0."""
    confidence: Floats
    """(N, L) probability of the predicted class."""
    correct: NDArray[np.bool_]
    """(N, L) whether the label was predicted."""
    predicted: NDArray[np.int64]
    """(N, L) the predicted class."""
    ids: tuple[str, ...]
    seed: int = 0
    """Seed of the resamples."""

    def common(self, level: int) -> int:
        """Return the most frequent answer at a level."""
        return int(np.bincount(self.predicted[:, level]).argmax())

    @cached_property
    def shares(self) -> dict[str, tuple[Estimate, ...]]:
        """Accuracy, mean confidence and the share of the most frequent answer, at each level."""
        common = np.array([self.common(level) for level in range(len(self.levels))])
        rows = {
            "accuracy": self.correct,
            "confidence": self.confidence,
            "most frequent answer": self.predicted == common,
        }
        return {
            name: tuple(
                Estimate.of_mean(column.astype(np.float64), self.ids, seed=self.seed).clipped(0.0, 1.0)
                for column in values.T
            )
            for name, values in rows.items()
        }

    @cached_property
    def excess(self) -> list[Estimate]:
        """By how much mean confidence exceeds accuracy at each level; the intervals hold for all levels together."""
        columns = (self.confidence - self.correct).T
        replicates = [resample_mean(column, self.ids, _RESAMPLES, self.seed)[1] for column in columns]
        differences = Estimate.of_differences(
            columns.mean(axis=1), np.stack(replicates, axis=1), samples=len(self.ids), reach=1.0
        )
        return [each.clipped(-1.0, 1.0) for each in differences]

    @property
    def collapse(self) -> float | None:
        """The first level at which clearly more than half of the answers are one class, if not from the start."""
        shares = self.shares["most frequent answer"]
        if (shares[0].value or 0.0) > _MOST_ANSWERS:
            return None
        return next(
            (level for level, s in zip(self.levels, shares, strict=True) if (s.low or 0.0) > _MOST_ANSWERS), None
        )

    def describe(self, name: str) -> str:
        """Return what happens under an imputer, in a sentence."""
        accuracy, confidence, collapse = self.correct.mean(axis=0), self.confidence.mean(axis=0), self.collapse
        worst = int((confidence - accuracy).argmax())
        half = int(np.abs(np.array(self.levels) - 0.5).argmin())
        numbers = f"{confidence[worst]:.1%} against {accuracy[worst]:.1%}"
        most = f"with {self.levels[worst]:.0%} removed, {numbers}{_interval(self.excess[worst])}"
        texts = [
            f"Under {name}, accuracy is {accuracy[0]:.1%} with nothing and {accuracy[half]:.1%} with "
            f"{self.levels[half]:.0%} of the features removed at random",
            f"confidence exceeds it most {most}"
            if self.excess[worst].decided and confidence[worst] > accuracy[worst]
            else f"confidence nowhere clearly exceeds it (most {most})",
            "no class clearly gets more than half of the answers"
            if collapse is None
            else f"one class gets more than half of the answers from {collapse:.0%} on",
        ]
        return "; ".join(texts) + "."


def _interval(excess: Estimate) -> str:
    return "" if excess.interval is None else ", a difference of {:.1%} to {:.1%}".format(*excess.interval)


@checked
@lists_options
def probe_distribution(
    model: nn.Module,
    inputs: ArrayLike,
    labels: Labels,
    *,
    levels: Sequence[float] = LEVELS,
    imputer: Imputer = ConstantImputer(0.0),
    **how: Unpack[ProbeOptions],
) -> ProbeDistribution:
    """Remove features in a random order, and record how confident and how right a classifier is.

    Args:
        model: a module that returns logits, or probabilities with output="probabilities".
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) classes.
        levels: shares of features removed, increasing; 0 is always measured.
        imputer: fills in removed features.

    Example:
        >>> x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> model = nn.Linear(8, 2)
        >>> zero = ConstantImputer(0.0)
        >>> answers = probe_distribution(model, x, model(x).argmax(1), levels=(0.5,), imputer=zero)
        >>> answers.correct[:, 0].all(), answers.correct[:, 1].all()
        (np.True_, np.False_)
    """
    chosen = check_levels("levels", levels, decreasing=False, ends=True)
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be an nn.Module; got {short_repr(model)}.")
    imputer = find_imputer(imputer)
    recorder = _Recorder(model, probabilities=how.get("output") == "probabilities")
    prober = Prober(recorder, inputs, labels, imputer=imputer, **how)
    if prober.respondent.regression or prober.respondent.multi_label:
        raise ValueError("`labels` must be integers, one class for each sample: confidence is that of a classifier.")
    ranked = prober.rank_checked(torch.zeros(len(prober.ids), *prober.spatial))  # ties: a random order of each sample
    schedule = Schedule(by="area", order="morf", levels=(0.0, *(level for level in chosen if level)))
    table = prober.sweep(ranked, schedule, imputer)
    return ProbeDistribution(
        levels=schedule.levels,
        # Rows are called sample by sample, each at all levels.
        confidence=torch.cat(recorder.confidence).reshape(table.removed.shape).numpy(),
        correct=table.correct,
        predicted=table.predicted.astype(np.int64),
        ids=prober.ids,
        seed=how.get("seed", 0),
    )


@partial(
    CheckDefinition,
    title="Distribution of the probes",
    source="Blücher et al. 2024, Decoupling pixel flipping and occlusion strategy for consistent XAI benchmarks",
    rows="answer",
    columns=(
        CheckColumn(title="nothing removed", better="neither"),
        CheckColumn(title="half removed", better="neither"),
        CheckColumn(title="mean", better="neither"),
    ),
    step_title="share of features removed at random",
    course_title="share",
    options=("limit", "levels"),
)
def distribution_check(run: CheckedRun) -> CheckResult:
    """How far are the probed inputs from those that the model knows?

    Features are removed in a random order, under every imputer of the run. Confidence is the mean probability of the
    predicted class: where it is far above the accuracy, the model is confident and wrong, as on inputs unlike any that
    it knows. The share of the most frequent answer shows whether answers collapse into one class. What soundness and
    completeness say about levels where that happens depends on how the model fails, not only on the maps.
    """
    removals = {name: _measure(run, imputer) for name, imputer in _imputers(run).items()}
    rows: dict[str, MethodCheck] = {}
    for name, removal in removals.items():
        half = int(np.abs(np.array(removal.levels) - 0.5).argmin())
        for answer, course in removal.shares.items():
            mean = Estimate(value=float(np.mean([each.value for each in course])), samples=len(run.samples))
            rows[f"{name}: {answer}"] = MethodCheck(values=(course[0], course[half], mean), course=course)
    line, *notes = (removal.describe(name) for name, removal in removals.items())
    levels = next(iter(removals.values())).levels
    steps = tuple(f"{level:.0%}" for level in levels)
    return CheckResult(methods=rows, samples=len(run.samples), steps=steps, notes=tuple(notes), line=line)


def _measure(run: CheckedRun, imputer: Imputer) -> ProbeDistribution:
    manifest = run.evaluation.run.manifest
    return probe_distribution(
        run.model,
        run.inputs,
        run.samples.labels,
        levels=run.options.levels or LEVELS,
        imputer=imputer,
        ids=run.samples.ids,
        seed=run.seed,
        output=manifest.model.scale,
        features=manifest.data.feature_kind,
        segments=run.segments,
        batch_size=manifest.execution.batch_size,
    )


def _imputers(run: CheckedRun) -> dict[str, Imputer]:
    """Return every imputer with which the run was probed, its own first."""
    if run.evaluation.results.model.task != CLASSIFICATION:
        raise ValueError("`name` distribution needs a classification model, whose answers have a confidence.")
    described = [run.evaluation.results.settings.imputer, *(s.imputer for s in run.evaluation.run.manifest.sweeps)]
    imputers: dict[str, Imputer] = {}
    for each in described:
        imputer = restore_imputer(each)
        if isinstance(imputer, UnavailableImputer):
            imputer = run.evaluation.imputer or imputer
        if imputer not in imputers.values():
            imputers[f"{each['name']}" if str(each["name"]) not in imputers else f"{each['name']} {len(imputers)}"] = (
                imputer
            )
    return imputers
