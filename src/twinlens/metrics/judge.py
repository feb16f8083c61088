"""Which steps of a sweep soundness judges false, for the data set and for any weighting of its samples.

The point estimate and every bootstrap resample go through the same function: a resample is a weight per sample, and
every decision over the data set is repeated under these weights.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.metrics.performance import Performance, measure, total, weighted_mean
from twinlens.metrics.protocols import Protocol
from twinlens.probing.maps import check_maps
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import check_segments, count_removed, kept_mass, rank_features
from twinlens.support.arrays import ArrayLike, Floats

_BLOCK = 256  # samples that are judged at once under many weightings


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was decided under one weighting of the samples."""

    performance: Floats
    """(L,) over the weighted data set."""

    values: Floats
    """(L,) the soundness at each level."""

    per_sample: Floats
    """(N, L) the soundness of each sample; NaN where no kept feature has attribution."""

    judged_false: NDArray[np.bool_]
    """(N, L) whether the features that a sample gained at a level were judged false."""


class Judge:
    """Judges each step of a soundness sweep (the paper's Algorithm 3): a step that gains less than epsilon is false."""

    def __init__(self, table: ProbeTable, performance: Performance, *, epsilon: float, protocol: Protocol) -> None:
        self.measured, self.epsilon, self.protocol = measure(table, performance, protocol), epsilon, protocol
        self.kept = table.kept_mass
        self.mass = table.kept_mass + protocol.mass_offset
        self.by_sample = self.measured.gain.ndim == 2
        self._false, self._false_mass = np.ones_like(self.kept, dtype=bool), table.added_mass
        if self.by_sample:  # then no weighting of the samples changes a verdict
            self._false = self._judge(self.measured.gain)
            self._false_mass = table.added_mass * self._false

    def __call__(self, weights: Floats) -> Judgement:
        """Decide for samples of these weights (N,)."""
        mean, gain = self.measured.weighted(weights)
        counted = self._count(mean, gain)
        per_sample = self._share(slice(None), counted)
        return Judgement(
            performance=mean,
            values=weighted_mean(per_sample, weights),
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
        return np.stack([mean for mean, _ in measured]), values

    def _count(self, mean: Floats, gain: Floats) -> NDArray[np.bool_]:
        """Return the levels (L,) whose false steps count: those judged false for all samples, once judging starts."""
        counted = np.ones(len(mean), dtype=bool) if self.by_sample else self._judge(gain)
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

    def _judge(self, gain: Floats) -> NDArray[np.bool_]:
        return gain < self.epsilon if self.protocol.strict else gain <= self.epsilon


def find_false_features(
    table: ProbeTable, judged_false: NDArray[np.bool_], maps: ArrayLike, segments: ArrayLike | None
) -> torch.Tensor:
    """Return where features (N, *S) have attribution and joined at a level that was judged false.

    Args:
        table: probes by area, least relevant first.
        judged_false: (N, L) for its first levels.
        maps: the maps that were probed.
        segments: those that were probed, if any; by default those that the table holds in memory.
    """
    settings, last = table.settings, judged_false.shape[1]
    values = check_maps(maps, settings.spatial, ids=table.ids, reading=settings.reading).clamp(min=0)
    segments = table.segments if segments is None else segments
    if settings.segmented and segments is None:
        raise ValueError(
            "`segments` must be those that were probed; got none, and a stored run does not hold them. Of tokens they "
            "are imputer.segments(tokens)."
        )
    own = None if segments is None else check_segments(segments, settings.spatial, table.ids)
    ranking = rank_features(values, ids=table.ids, seed=settings.seed, segments=own)
    mass = kept_mass(ranking, count_removed(ranking, settings.schedule), "lerf")
    differ = ~np.isclose(mass.cpu().numpy(), table.kept_mass, rtol=1e-9).all(axis=1)
    if differ.any():
        name = table.ids[int(np.flatnonzero(differ)[0])]
        raise ValueError(f"`maps` must be those that were probed; the map of sample {name!r} is another one.")
    # A feature joins at the first level that removes no more features than its rank. A feature that never joins gets
    # the step past the end, which judges nothing.
    levels = len(table.levels)
    fewest_first = torch.from_numpy(table.removed[:, ::-1].copy()).to(ranking.rank.device)
    step = levels - torch.searchsorted(fewest_first, ranking.rank.long(), right=True)
    step = torch.where(ranking.rank < 0, levels, step)  # not a feature, never judged
    judged = np.pad(judged_false, ((0, 0), (0, levels + 1 - last)))
    false = torch.from_numpy(judged).to(step.device).gather(1, step)
    return false.reshape(values.shape) & (values > 0)
