"""Skill: how much better a method's maps are than the same maps exchanged between the samples.

Exchanged maps have the same values and shapes, but belong to other inputs. What a metric gives them is due to the kind
of maps; own minus exchanged measures what the method says about *this* input.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from twinlens.metrics.curves import Curve
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arguments import checked
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import check_confidence


@checked
def skill(
    own: Curve,
    exchanged: Curve,
    *,
    confidence: float = 0.95,
    high: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
    groups: Mapping[str, str] | None = None,
) -> Estimate:
    """Measure how much better a method's own maps are than the same maps exchanged between the samples.

    Both curves are resampled alike, and variation between samples cancels out of the difference.

    Args:
        own: the curve of own maps.
        exchanged: the curve of exchanged maps, by the same metric and of the same samples in any order.
        confidence: confidence of the interval.
        high: for soundness, the predictive level up to which areas are taken; by default each curve's own area.
        resamples: number of resamples.
        seed: seed of the resampling.
        groups: from each id to its group: samples that exchanged their maps with each other, as returned by
            `twinlens.probing.exchange_groups`. How good a map is for any input cancels out within a group. By default
            samples count as independent, which widens the interval.

    Returns:
        The difference of the areas, positive where own maps are better, with the p-value of no skill. Soundness by the
        paper's estimator and accuracy has no interval, nor has any skill of fewer than ten samples, or of fewer than
        six groups: flipping the signs of five differences cannot reach 5%.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.rand(60, 4, generator=torch.manual_seed(0)) - 0.5
        >>> def completeness(maps):  # of a model that adds up its features
        ...     return tl.completeness(lambda x: torch.stack([0 * x[:, 0], x.sum(1)], dim=1), x, (x.sum(1) > 0).long(),
        ...                            maps, imputer=tl.ConstantImputer(0.0), performance="probability")
        >>> maps = (x * x.sum(1, keepdim=True).sign()).clamp(min=0)
        >>> skill = tl.skill(completeness(maps), completeness(maps.roll(1, 0)))
        >>> print(f"{skill}, p = {skill.p:.3f}")
        0.107 [0.087, 0.127], p = 0.001
    """
    check_confidence(confidence)
    _refuse_others(own, exchanged)
    pair = (bootstrap(each, resamples=resamples, seed=seed, groups=groups) for each in (own, exchanged))
    (mine, my_replicates), (theirs, their_replicates) = (each.areas_up_to(high) for each in pair)
    sign = 1.0 if own.higher_is_better else -1.0
    value, replicates = sign * (mine - theirs), sign * (my_replicates - their_replicates)
    # Maps that rank the features of all inputs alike do so for unseen inputs, too.
    same = np.array_equal(own.table.probability, exchanged.table.probability)
    trusted = replicates if own.has_interval else np.full(len(replicates), np.nan)
    [estimate] = Estimate.of_differences(
        np.array([value]),
        trusted[:, None],
        samples=len(own.table),
        groups=None if groups is None else len({groups[name] for name in own.table.ids}),
        reach=0.0 if same else max(own.reach, exchanged.reach),
        confidence=confidence,
    )
    return estimate


def _refuse_others(own: Curve, exchanged: Curve) -> None:
    if type(own) is not type(exchanged):
        raise ValueError(f"`exchanged` must be a {type(own).__name__} as `own` is; got a {type(exchanged).__name__}.")
    if differ := sorted(set(own.table.ids) ^ set(exchanged.table.ids)):
        raise ValueError(
            f"`exchanged` must be measured on the same samples as `own`; {len(differ)} ids are in one only, such as "
            f"{differ[0]!r}. Give the same `ids` to both, or take the common samples with ProbeTable.take."
        )
