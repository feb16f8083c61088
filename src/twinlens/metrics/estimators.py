"""How soundness judges a step, for the data set as it is and for any weighting of its samples.

The point estimate and every bootstrap resample go through the same function: a resample is a weight per sample, and
what depends on the whole data set is decided anew under these weights.

Shapes: N samples, L levels of the soundness sweep, F features.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from twinlens.core.arrays import Floats
from twinlens.core.ordering import Schedule
from twinlens.core.probe_table import ProbeTable
from twinlens.errors import unknown
from twinlens.metrics.performance import Performance, measure, weighted_mean
from twinlens.metrics.protocols import Protocol

ESTIMATORS = ("paper", "two_sided")
"""How soundness judges a step: by its gain in performance, or by what its features do from two sides."""

StepSizes = Literal[1, 2, 3]
STEP_SIZES: StepSizes = 3
"""From how many step sizes (h, 2h, 4h) the two-sided estimator is extrapolated, where the caller names none."""

_SURE = 1e-12  # probabilities nearer to 0 or 1 than this count as this near, so that log-odds stay finite


def check_epsilon(epsilon: float) -> None:
    """Refuse a threshold below zero, or one that is not a number."""
    if not epsilon >= 0:
        raise ValueError(f"`epsilon` must be >= 0, such as 0.01; got {epsilon!r}.")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was decided under one weighting of the samples."""

    performance: Floats
    """(L,) over the weighted data set."""

    values: Floats
    """(L,) the soundness at each level, within [0, 1]."""

    per_sample: Floats
    """(N, L) the soundness of each sample; NaN where nothing that is kept has any attribution. Where it is extrapolated
    it may leave [0, 1]: cut off for each sample, errors that cancel in the mean would not."""

    judged_false: NDArray[np.bool_]
    """(N, L) whether the features that a sample gained at a level were judged false."""


class Judge:
    """Judges every step of a soundness sweep (the paper's Algorithm 3): false is what gains less than epsilon.

    What is gained depends on the estimator: "paper" takes the gain in performance since the previous level,
    "two_sided" the share of each sample's range of log-odds that `step_effects` computes. The latter judges joined
    steps as well, and extrapolates to steps of one feature.
    """

    def __init__(
        self,
        table: ProbeTable,
        performance: Performance,
        *,
        epsilon: float,
        protocol: Protocol,
        estimator: str,
        opposite: ProbeTable | None,
        step_sizes: int = STEP_SIZES,
    ) -> None:
        if estimator not in ESTIMATORS:
            raise unknown("estimator", estimator, ESTIMATORS)
        check_epsilon(epsilon)
        if step_sizes not in get_args(StepSizes):
            raise unknown("step_sizes", step_sizes, map(str, get_args(StepSizes)))
        if estimator == "two_sided" and opposite is None:
            raise ValueError(
                "`opposite` must be given for estimator='two_sided': probes of the same samples and maps by "
                "`twinlens.opposite_schedule`. `twinlens.soundness` makes them itself."
            )
        self.measured, self.epsilon, self.protocol = measure(table, performance, protocol), epsilon, protocol
        self.kept, self.added = table.kept_mass, table.added_mass
        self.mass = table.kept_mass + protocol.mass_offset
        self.effects = None if estimator == "paper" or opposite is None else step_effects(table, opposite)
        self.shares = np.ones(1) if self.effects is None else _size_weights(table, step_sizes)
        gain = self.measured.gain if self.effects is None else self.effects
        # Where each sample is judged by itself, no weighting changes a decision, and one will do for all resamples.
        fixed = gain.ndim == 2 and protocol.start_level is None
        self._fixed = self._decide(self.measured.mean, gain) if fixed else None

    def __call__(self, weights: Floats) -> Judgement:
        """Decide for samples of these weights (N,)."""
        mean, gain = self.measured.weighted(weights)
        judged, per_sample = self._fixed or self._decide(mean, gain if self.effects is None else self.effects)
        values = weighted_mean(per_sample, weights)
        return Judgement(
            performance=mean,
            values=values if len(self.shares) == 1 else np.clip(values, 0, 1),
            per_sample=per_sample,
            judged_false=judged,
        )

    def _decide(self, mean: Floats, gain: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Find the false steps, and the share of the kept attribution that is not false, (N, L) each."""
        judged = self._judge(mean, gain)
        # Soundness is linear in what is judged false, so that to extrapolate the verdicts is to extrapolate it.
        false = judged if len(self.shares) == 1 else self._extrapolate(mean, gain)
        # In place where possible: allocating is half of the cost of a resample.
        false_steps = self.added * false
        share = np.cumsum(false_steps, axis=1, out=None if self.protocol.lag else false_steps)
        if self.protocol.lag:
            share -= false_steps
        np.subtract(self.kept, share, out=share)
        with np.errstate(invalid="ignore"):  # where nothing kept has attribution, 0 / 0 is the undefined that it is
            share /= self.mass
        return judged, share

    def _judge(self, mean: Floats, gain: Floats) -> NDArray[np.bool_]:
        judged = gain < self.epsilon if self.protocol.strict else gain <= self.epsilon
        if self.protocol.start_level is not None:
            judged = judged & (mean > self.protocol.start_level)
        return np.broadcast_to(judged, self.kept.shape)

    def _extrapolate(self, mean: Floats, effects: Floats) -> Floats:
        """Weigh the verdicts on steps as they are, joined by two and joined by four: (N, L), no longer 0 or 1 alone."""
        verdicts = [self._judge(mean, join_steps(effects, 2**size)) for size in range(len(self.shares))]
        return np.asarray(np.einsum("r,rnl->nl", self.shares, np.stack(verdicts)))


def join_steps(effects: Floats, count: int) -> Floats:
    """Join every `count` neighbouring steps, and return for each step (N, L) the effect of the one it is now part of.

    The last joined step may hold fewer.

    Example:
        >>> join_steps(np.array([[0.1, 0.2, 0.4]]), 2)
        array([[0.3, 0.3, 0.4]])
    """
    steps = effects.shape[1]
    sums = np.add.reduceat(effects, np.arange(0, steps, count), axis=1)
    return np.repeat(sums, count, axis=1)[:, :steps]


def extrapolation_weights(features: float, sizes: int) -> Floats:
    """Weigh values that were found with steps of h, 2h, 4h, … so that their sum is the value for steps of one feature.

    It is that of the polynomial through all of them (Lagrange). With steps of one feature, the first one is all.

    Args:
        features: features in a step of h, at least 1.
        sizes: number of step sizes.

    Example:
        >>> extrapolation_weights(2, 2)
        array([ 1.5, -0.5])
    """
    each = features * 2.0 ** np.arange(sizes)
    return np.array([np.prod([(1 - other) / (size - other) for other in each if other != size]) for size in each])


def _size_weights(table: ProbeTable, sizes: int) -> Floats:
    """Weigh the step sizes that a sweep is long enough for."""
    features, levels = math.prod(table.settings.spatial), table.removed.shape[1]
    per_step = (features - table.removed[0, -1]) / levels  # below one where there are more levels than features
    return extrapolation_weights(max(1.0, per_step), min(sizes, int(math.log2(levels)) + 1))


def opposite_schedule(schedule: Schedule, features: int) -> Schedule:
    """Return the sweep that takes away, most relevant first, what the steps of a soundness sweep add.

    It starts from the untouched input and leaves out the last step, which makes it no longer than the other.

    Example:
        >>> opposite_schedule(Schedule(by="area", order="lerf", levels=(0.8, 0.6, 0.5, 0.0)), features=10).levels
        (0.0, 0.2, 0.4, 0.5)
    """
    round_or_floor = round if schedule.rounding == "round" else int
    kept = [features - min(round_or_floor(features * share), features - (share < 1)) for share in schedule.levels]
    counts = sorted({0, *kept[: max(1, len(kept) - 1)]})
    return Schedule(by="area", order="morf", levels=tuple(count / features for count in counts))


def step_effects(table: ProbeTable, opposite: ProbeTable) -> Floats:
    """Measure what the features of each step do for their sample, (N, L), in shares of its range of log-odds.

    A step is looked at from two sides: what the log-odds of the target gain when its features join the more relevant
    ones, and what they lose when its features are taken from the less relevant ones. The effect is the mean of both.
    Were the step a player in a game, this would be its Shapley value, exactly so if features interact in pairs at most:
    one of two partners is in each context. The first step has no side to join, the last one none to be taken from;
    these are seen from one side.

    Args:
        table: a soundness sweep, by area, least relevant first.
        opposite: probes of the same samples and maps by `opposite_schedule`.
    """
    _refuse_other_probes(table, opposite)
    features = math.prod(table.settings.spatial)
    kept = features - table.removed[0]
    joined, left = _log_odds(table), _log_odds(opposite)
    gain = np.diff(joined, axis=1, prepend=np.nan)
    at_count = {int(count): column for column, count in enumerate(opposite.removed[0])}
    loss = np.full_like(gain, np.nan)
    for step, (before, after) in enumerate(zip([0, *kept[:-1]], kept, strict=True)):
        if before in at_count and after in at_count:
            loss[:, step] = left[:, at_count[before]] - left[:, at_count[after]]
    sides = np.stack([gain, loss])
    effect = np.sum(sides, axis=0, where=np.isfinite(sides)) / np.maximum(np.isfinite(sides).sum(axis=0), 1)
    every = np.concatenate([joined, left], axis=1)
    spread = every.max(axis=1, keepdims=True) - every.min(axis=1, keepdims=True)
    return np.asarray(np.divide(effect, spread, out=np.zeros_like(effect), where=spread > 0))


def _log_odds(table: ProbeTable) -> Floats:
    probability = np.clip(table.probability, _SURE, 1 - _SURE)
    return np.asarray(np.log(probability) - np.log1p(-probability))


def _refuse_other_probes(table: ProbeTable, opposite: ProbeTable) -> None:
    if table.task != "classification":
        raise ValueError("`estimator` 'two_sided' works with log-odds, and a regression model has none; use 'paper'.")
    settings = opposite.settings
    wanted = opposite_schedule(table.settings.schedule, math.prod(table.settings.spatial))
    same = dataclasses.replace(settings, schedule=table.settings.schedule) == table.settings
    if not same or opposite.ids != table.ids or not set(wanted.levels) <= set(settings.schedule.levels):
        raise ValueError(
            "`opposite` must hold the same samples, probed with the same seed and imputer, by opposite_schedule: by "
            f"area, most relevant first, {len(wanted.levels)} levels from 0 to {wanted.levels[-1]:g}; got {opposite!r}."
        )
    if settings.schedule.order != "morf" or settings.schedule.by != "area":
        raise ValueError(f"`opposite` must remove by area, most relevant first; got {opposite!r}.")
