"""Which steps of a sweep soundness judges false, for the data set and for any weighting of its samples.

The point estimate and every bootstrap resample go through the same function: a resample is a weight per sample, and
every decision over the data set is repeated under these weights.

Shapes: N samples, L levels of the soundness sweep, F features.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.metrics.performance import Performance, measure, total, weighted_mean
from twinlens.metrics.protocols import Protocol
from twinlens.metrics.steps import evidence
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats, Integers

_USUAL_STEP = 0.02  # share of the features in a step for which epsilon is meant where steps are judged from two sides
_BLOCK = 256  # samples that are judged at once under many weightings
_MOST_FEATURES = 2**53  # beyond which shares are not exact


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was decided under one weighting of the samples."""

    performance: Floats
    """(L,) over the weighted data set."""

    values: Floats
    """(L,) the soundness at each level, within [0, 1]."""

    per_sample: Floats
    """(N, L) the soundness of each sample; NaN where no kept feature has attribution. Extrapolated values may leave
    [0, 1]: clipped sample by sample, errors would no longer cancel in the mean."""

    judged_false: NDArray[np.bool_]
    """(N, L) whether the features that a sample gained at a level were judged false."""


class Judge:
    """Judges every step of a soundness sweep (the paper's Algorithm 3): a step that gains less than epsilon is false.

    Without an opposite sweep the gain is that in performance since the previous level. With one (the estimator
    "two_sided") it is the share of each sample's range of log-odds that `step_effects` computes. The latter judges
    pairs of steps as well, and extrapolates to steps of one feature. Its threshold is epsilon for a step of two percent
    of the features, and grows with the square root of the step as the sum of many small effects does.
    """

    def __init__(
        self,
        table: ProbeTable,
        performance: Performance,
        *,
        epsilon: float,
        protocol: Protocol,
        opposite: ProbeTable | None,
        extrapolate: bool = True,
    ) -> None:
        self.measured, self.epsilon, self.protocol = measure(table, performance, protocol), epsilon, protocol
        self.kept, self.added = table.kept_mass, table.added_mass
        self.mass = table.kept_mass + protocol.mass_offset
        self.effects = None if opposite is None else step_effects(table, opposite)
        self.features: NDArray[Any] = table.counts[:, None] if table.settings.segmented else table.counts[0]
        self.sizes = _step_sizes(table)
        self.extrapolate = extrapolate and self.effects is not None and self.sizes.shape[-1] > 1
        gain = self.measured.gain if self.effects is None else self.effects
        self.by_sample = gain.ndim == 2
        self._false, self._false_mass = np.ones_like(self.kept, dtype=bool), self.added
        if self.by_sample:  # then no weighting of the samples changes a verdict
            self._false = self._judge(gain, self.sizes)
            # Soundness is linear in the verdicts, so extrapolating these extrapolates soundness.
            self._false_mass = self.added * (self._extrapolate(self._false, gain) if self.extrapolate else self._false)

    def __call__(self, weights: Floats) -> Judgement:
        """Decide for samples of these weights (N,)."""
        mean, gain = self.measured.weighted(weights)
        counted = self._count(mean, gain)
        per_sample = self._share(slice(None), counted)
        return Judgement(
            performance=mean,
            values=self._limited(weighted_mean(per_sample, weights)),
            per_sample=per_sample,
            judged_false=self._false & counted,
        )

    def replicate(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return performance and values (R, L) for several weightings of the samples (R, N)."""
        measured = [self.measured.weighted(row) for row in weights]
        counted = np.array([self._count(mean, gain) for mean, gain in measured])
        alike = bool((counted == counted[:1]).all())
        totals, weight = np.zeros((2, *counted.shape))
        # Some samples at a time: what is computed for every weighting then stays in the processor's cache.
        for start in range(0, len(self.kept), _BLOCK):
            block = slice(start, start + _BLOCK)
            share = self._share(block, counted[0])
            undefined = np.isnan(share)
            holes = bool(undefined.any())
            if holes:
                share[undefined] = 0.0
            for r, row in enumerate(weights[:, block]):
                if not alike:
                    share = self._share(block, counted[r])
                    if holes:
                        share[undefined] = 0.0
                totals[r] += total(share, row)
                weight[r] += row.sum()
                if holes:
                    weight[r] -= total(undefined.astype(np.float64), row)
        with np.errstate(invalid="ignore"):
            values = totals / weight
        return np.stack([mean for mean, _ in measured]), self._limited(values)

    def _count(self, mean: Floats, gain: Floats) -> NDArray[np.bool_]:
        """Return the levels (L,) whose false steps count: those judged false for all samples, once judging starts."""
        counted = np.ones(len(mean), dtype=bool) if self.by_sample else self._judge(gain, self.sizes)
        return counted if self.protocol.start_level is None else counted & (mean > self.protocol.start_level)

    def _share(self, samples: slice, counted: NDArray[np.bool_]) -> Floats:
        """Return the share of the kept attribution that is not false, for some of the samples (B, L)."""
        # In place where possible: allocating is half of the cost of a resample.
        false_steps = self._false_mass[samples] * counted
        share = np.cumsum(false_steps, axis=1, out=None if self.protocol.lag else false_steps)
        if self.protocol.lag:
            share -= false_steps
        np.subtract(self.kept[samples], share, out=share)
        with np.errstate(invalid="ignore"):  # 0 / 0 is undefined where no kept feature has attribution
            share /= self.mass[samples]
        return np.asarray(share)

    def _limited(self, values: Floats) -> Floats:
        return np.clip(values, 0, 1) if self.extrapolate else values

    def _judge(self, gain: Floats, sizes: Floats) -> NDArray[np.bool_]:
        usual = _USUAL_STEP * self.features
        least = self.epsilon if self.effects is None else self.epsilon * np.sqrt(sizes / usual)
        return gain < least if self.protocol.strict else gain <= least

    def _extrapolate(self, judged: NDArray[np.bool_], effects: Floats) -> Floats:
        """Combine the verdicts (N, L) on steps and on pairs of steps; the result is no longer just 0 or 1."""
        sizes = self.sizes
        pairs = self._judge(effects[:, 1:] + effects[:, :-1], sizes[..., 1:] + sizes[..., :-1])
        single, joined = extrapolation_weights(sizes.mean(axis=-1, keepdims=sizes.ndim > 1))
        return np.asarray(single * judged + joined * of_pairs(pairs))


def of_pairs(judged: NDArray[np.bool_]) -> Floats:
    """Return for each step (N, L) the share of its two pairs (N, L - 1) that was judged false.

    The first and the last step belong to one pair.
    """
    after, before = np.pad(judged, ((0, 0), (0, 1)), mode="edge"), np.pad(judged, ((0, 0), (1, 0)), mode="edge")
    return (after.astype(np.float64) + before) / 2


def extrapolation_weights(features: Any) -> tuple[Any, Any]:
    """Return the weights of the values for steps of h and of 2h that sum to the value for steps of one feature.

    That value lies on the line through both over the square root of the step: a step is a sum of effects, whose mean
    grows with the number of features and whose spread with its root.

    Args:
        features: features in a step of h, at least 1; one number, or one for each of several samples.
    """
    root = np.sqrt(features)
    slope = (root - 1) / (root * (math.sqrt(2) - 1))
    return 1 + slope, 0.0 - slope


def _step_sizes(table: ProbeTable) -> Floats:
    """Count the features of each step (L,), or of each sample's steps (N, L) where their numbers differ.

    An empty step, where there are more levels than features, counts as one.
    """
    rows = slice(None) if table.settings.segmented else slice(1)
    kept = table.counts[rows, None] - table.removed[rows]
    sizes = np.maximum(np.diff(kept, prepend=0, axis=1), 1.0)
    return np.asarray(sizes if table.settings.segmented else sizes[0])


@checked
def opposite_schedule(schedule: Schedule, features: int | None) -> Schedule:
    """Return the sweep that removes, most relevant first, the features that the steps of a soundness sweep add.

    It starts from the original input and omits the last step, which makes it no longer than the other sweep.

    Args:
        schedule: of the soundness sweep.
        features: how many features each sample has; None where segments differ in number.

    Example:
        >>> opposite_schedule(Schedule(by="area", order="lerf", levels=(0.8, 0.6, 0.5, 0.0)), features=10).levels
        (0.0, 0.2, 0.4, 0.5)
    """
    if features is None:
        shares = sorted({0.0, *(round(1 - share, 12) for share in schedule.levels[: max(1, len(schedule.levels) - 1)])})
        return Schedule(by="area", order="morf", levels=tuple(shares), rounding="complement")
    if not 1 <= features <= _MOST_FEATURES:
        raise ValueError(f"`features` must be at least 1 and at most {_MOST_FEATURES}; got {features}.")
    round_or_floor = round if schedule.rounding == "round" else int
    kept = [features - min(round_or_floor(features * share), features - (share < 1)) for share in schedule.levels]
    counts = sorted({0, *kept[: max(1, len(kept) - 1)]})
    return Schedule(by="area", order="morf", levels=tuple(count / features for count in counts))


def step_effects(table: ProbeTable, opposite: ProbeTable) -> Floats:
    """Measure the effect of each step's features on their sample, (N, L), as a share of its range of log-odds.

    Regression models and scores use the predicted value instead of the log-odds. A step is measured from two sides:
    what the log-odds of the target gain when its features join the more relevant ones, and what they lose when its
    features are taken from the less relevant ones. The effect is the mean of both. This is the step's Shapley value if
    features interact in pairs at most. The first and the last step are measured from one side.

    Args:
        table: a soundness sweep, by area, least relevant first.
        opposite: probes of the same samples and maps by `opposite_schedule`.
    """
    _refuse_other_probes(table, opposite)
    joined, left = evidence(table), evidence(opposite)
    gain = np.diff(joined, axis=1, prepend=np.nan)
    # Without segments all samples have the same counts removed, and one row is enough.
    rows = slice(None) if table.settings.segmented else slice(1)
    kept = table.counts[rows, None] - table.removed[rows]
    before, after = (
        _where_removed(opposite.removed[rows], left, counts)
        for counts in (np.pad(kept, ((0, 0), (1, 0)))[:, :-1], kept)
    )
    loss = before - after
    sides = np.stack([gain, loss])
    effect = np.sum(sides, axis=0, where=np.isfinite(sides)) / np.maximum(np.isfinite(sides).sum(axis=0), 1)
    every = np.concatenate([joined, left], axis=1)
    spread = every.max(axis=1, keepdims=True) - every.min(axis=1, keepdims=True)
    return np.asarray(np.divide(effect, spread, out=np.zeros_like(effect), where=spread > 0))


def _where_removed(removed: Integers, answers: Floats, counts: Integers) -> Floats:
    """Look up the answers (N, M) at the levels that remove these counts (n, L) of features; NaN where none does."""
    matched = np.empty((len(answers), counts.shape[1]))
    for column, count in enumerate(counts.T):
        match = removed == count[:, None]
        position = np.broadcast_to(match.argmax(axis=1)[:, None], (len(answers), 1))
        answer = np.take_along_axis(answers, position, axis=1)[:, 0]
        matched[:, column] = np.where(match.any(axis=1), answer, np.nan)
    return matched


def _refuse_other_probes(table: ProbeTable, opposite: ProbeTable) -> None:
    settings = opposite.settings
    expected = opposite_schedule(
        table.settings.schedule, None if table.settings.segmented else math.prod(table.settings.spatial)
    )
    same = dataclasses.replace(settings, schedule=table.settings.schedule) == table.settings
    if not same or opposite.ids != table.ids or not set(expected.levels) <= set(settings.schedule.levels):
        raise ValueError(
            "`opposite` must hold the same samples, probed with the same seed and imputer, by opposite_schedule: by "
            f"area, most relevant first, {len(expected.levels)} levels from 0 to {expected.levels[-1]:g}; "
            f"got {opposite!r}."
        )
    if settings.schedule.order != "morf" or settings.schedule.by != "area":
        raise ValueError(f"`opposite` must remove by area, most relevant first; got {opposite!r}.")
