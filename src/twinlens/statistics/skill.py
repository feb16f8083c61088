"""Skill: what a method's maps know of their own inputs, measured against the same maps exchanged between the samples.

Exchanged maps have the same values and the same shapes, but each belongs to another input. What is left of a metric
with them is owed to the kind of maps; own minus exchanged is what the method knows about *this* input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.statistics.bootstrap import Bootstrap, Score, bootstrap
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats
from twinlens.support.resampling import around, check_confidence


@dataclass(frozen=True, kw_only=True)
class Skill:
    """What a metric gains from own maps over exchanged ones."""

    value: float
    """Difference of the areas, positive where own maps are better; NaN where one of the areas is not defined."""

    own: float
    """Area of the curve of own maps."""

    exchanged: float
    """Area of the curve of exchanged maps."""

    low: float
    """Lower end of the skill's interval; NaN where there is none, as for soundness by the paper's estimator and
    accuracy."""

    high: float
    """Upper end."""

    p_value: float
    """Two-sided p-value of no skill, below 1 minus the confidence exactly where the interval excludes 0."""

    confidence: float
    """Nominal coverage of the interval."""

    samples: int
    """Number of samples, which both curves have in common."""

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"skill not reached (own {self.own:z.3f}, exchanged {self.exchanged:z.3f}, {self.samples} samples)"
        shown = math.isfinite(self.low)
        between = f" [{self.low:z.3f}, {self.high:z.3f}]" if shown else ""
        return (
            f"skill {self.value:z.3f}{between} (own {self.own:z.3f}, exchanged {self.exchanged:z.3f}, "
            f"{f'p = {self.p_value:.3f}' if shown else 'without an interval'}, {self.samples} samples)"
        )


@checked
def skill(
    own: Curve | Bootstrap,
    exchanged: Curve | Bootstrap,
    *,
    confidence: float = 0.95,
    high: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Skill:
    """Measure how much better a method's own maps are than the same maps exchanged between the samples.

    Both curves are resampled alike, so that what a sample does to both cancels out of the difference. Two-sided
    soundness is taken as it was measured in steps: the step is in both curves, and to extrapolate them would add noise
    to the difference and nothing else.

    Args:
        own: the curve of own maps, or its bootstrap.
        exchanged: the curve of exchanged maps, by the same metric and of the same samples in any order, or its
            bootstrap with the same seed.
        confidence: confidence of the interval.
        high: for soundness, the predictive level up to which areas are taken; by default each curve's own area.
        resamples: number of resamples; bootstraps have theirs.
        seed: seed of the resampling; bootstraps have theirs.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.rand(60, 4, generator=torch.manual_seed(0)) - 0.5
        >>> def completeness(maps):  # of a model that adds up its features
        ...     return tl.completeness(lambda x: torch.stack([0 * x[:, 0], x.sum(1)], dim=1), x, (x.sum(1) > 0).long(),
        ...                            maps, imputer=tl.ConstantImputer(0.0), performance="probability")
        >>> maps = (x * x.sum(1, keepdim=True).sign()).clamp(min=0)
        >>> found = tl.skill(completeness(maps), completeness(maps.roll(1, 0)))
        >>> print(found)
        skill 0.107 [0.087, 0.127] (own 0.151, exchanged 0.044, p = 0.001, 60 samples)
    """
    check_confidence(confidence)
    drawn = [
        given if isinstance(given, Bootstrap) else bootstrap(given.in_steps(), resamples=resamples, seed=seed)
        for given in (own, exchanged)
    ]
    areas = [each.areas_up_to(high) for each in drawn]
    score = _score(drawn, areas)
    found = around(np.array([score.area]), score.trusted(score.replicates[:, None]), score.samples)
    [low], [upper] = found.ends(confidence)
    return Skill(
        value=score.area,
        own=areas[0][0],
        exchanged=areas[1][0],
        low=float(low),
        high=float(upper),
        p_value=float(found.p_values()[0]),
        confidence=confidence,
        samples=score.samples,
    )


def score_skill(own: Curve, exchanged: Curve, *, high: float | None, resamples: int, seed: int) -> Score:
    """Return the skill, as measured and in each resample; the arguments are those of `skill`."""
    drawn = [bootstrap(curve.in_steps(), resamples=resamples, seed=seed) for curve in (own, exchanged)]
    return _score(drawn, [each.areas_up_to(high) for each in drawn])


def _score(drawn: Sequence[Bootstrap], areas: Sequence[tuple[float, Floats]]) -> Score:
    """Subtract the areas of exchanged maps from those of own maps."""
    _refuse_others(*drawn)
    curve, (own, exchanged) = drawn[0].curve, areas
    sign = 1.0 if curve.higher_is_better else -1.0
    return Score(
        kind="skill",
        area=sign * (own[0] - exchanged[0]),
        replicates=sign * (own[1] - exchanged[1]),
        per_sample=None,
        samples=len(curve.table),
        higher_is_better=True,
        has_interval=curve.has_interval,
        limits=(-math.inf, math.inf),
    )


def _refuse_others(own: Bootstrap, exchanged: Bootstrap) -> None:
    """Refuse curves of other samples or another metric, which have no paired difference."""
    one, other = own.curve, exchanged.curve
    if type(one) is not type(other):
        raise ValueError(f"`exchanged` must be a {type(one).__name__} as `own` is; got a {type(other).__name__}.")
    differ = sorted(set(one.table.ids) ^ set(other.table.ids))
    if differ:
        raise ValueError(
            f"`exchanged` must be measured on the same samples as `own`; {len(differ)} ids are in one only, such as "
            f"{differ[0]!r}. Give the same `ids` to both, or take the common samples with ProbeTable.take."
        )
    if len(own.values) != len(exchanged.values):
        raise ValueError(
            f"`exchanged` must be resampled as often as `own`, {len(own.values)} times; got {len(exchanged.values)}."
        )
