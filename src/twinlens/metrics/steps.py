"""Steps of a ranking: what each of them does for the model, from one pair of sweeps.

The features of a map are cut into steps of equal size, the most relevant first. The effect of a step is seen from two
sides: what the log-odds of the target gain when its features join the more relevant ones, and what they lose when its
features are taken from the less relevant ones. The mean of both is the step's Shapley value, exactly so if features
interact in pairs at most: one of two partners is in each context. The first step has nothing to join, the last one
nothing to be taken from; these are seen from one side. For a regression model the prediction replaces the log-odds.

Soundness, completeness and calibration are read from these effects without any threshold. Where the negative part of a
map ranks the features, effects have the opposite sign: a step is good if its features lower the log-odds.

Only the sum of a step's features is seen: what speaks for the target and what speaks against it cancel. How much this
hides is estimated from pairs of neighbouring steps with opposite signs. Merged into one step, they would hide the
smaller of both effects. Where signs are mixed at random, steps of half the size reveal √2 times as much again, which is
added to the information of the pair as far as both sides see it.

Shapes: N samples, K steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.support.arrays import Floats, Integers

STEPS = 20
"""Number of steps by default: 5% of the features each. Their levels contain ROAD's, 0.1 to 0.9."""

_MOST_STEPS = 1000
_ROUNDING = 1e-5  # effects that differ by less, relative to the largest, are equal
_CERTAIN = 1e-12  # probabilities are kept this far from 0 and 1, where log-odds are infinite


def check_steps(steps: int) -> None:
    """Refuse a number of steps that cannot be ranked."""
    if not 2 <= steps <= _MOST_STEPS:
        raise ValueError(f"`steps` must be at least 2 and at most {_MOST_STEPS}, such as {STEPS}; got {steps}.")


def step_schedules(features: int | None, steps: int = STEPS) -> tuple[Schedule, Schedule]:
    """Return the pair of sweeps: in the first, features join by rank; in the second, they are removed by rank.

    Both contain the original input, whose answers are known: the model is called for the other levels alone.

    Args:
        features: number of features of each sample; None where segments make it differ.
        steps: number of steps; no more than there are features.
    """
    if features is None:
        shares = [round(k / steps, 12) for k in range(steps + 1)]
        joining = Schedule(by="area", order="lerf", levels=tuple(round(1 - share, 12) for share in shares[1:]))
        return joining, Schedule(by="area", order="morf", levels=tuple(shares[:-1]), rounding="complement")
    count = min(steps, features)
    kept = [round(features * k / count) for k in range(count + 1)]
    return (
        Schedule(
            by="area",
            order="lerf",
            levels=tuple(_level(1 - k / count, features - kept[k], features) for k in range(1, count + 1)),
        ),
        Schedule(by="area", order="morf", levels=tuple(_level(k / count, kept[k], features) for k in range(count))),
    )


def _level(share: float, count: int, features: int) -> float:
    """Return the share as a round number where it removes `count` features, and the exact share otherwise."""
    level = round(share, 12)
    return level if round(features * level) == count else count / features


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """The steps of each sample's ranking, the most relevant first."""

    effects: Floats
    """(N, K) what the features of a step do for the log-odds of the target, or against it."""

    attribution: Floats
    """(N, K) share of the map's attribution on the features of a step; NaN for a map without attribution."""

    information: Floats
    """(N, K) what the features of a step that speak for the target do for it, including what others cancel."""

    sizes: Floats
    """(N, K) number of features of a step."""

    @staticmethod
    def of(joining: ProbeTable, leaving: ProbeTable) -> Steps:
        """Read the steps from probe tables of the same samples and maps, by `step_schedules`."""
        _check_pair(joining, leaving)
        kept = joining.counts[:, None] - joining.removed
        joined = evidence(joining)
        # With few features a level may remove all of them, and the last step is still seen from one side.
        left = np.where(leaving.removed < leaving.counts[:, None], evidence(leaving), np.nan)
        missing = np.full((len(joined), 1), np.nan)
        sides = np.stack(
            [
                np.concatenate([missing, np.diff(joined, axis=1)], axis=1),
                np.concatenate([-np.diff(left, axis=1), missing], axis=1),
            ]
        )
        if joining.settings.schedule.part == "negative":
            sides = -sides
        defined = np.isfinite(sides)
        sizes, total = np.diff(kept, axis=1, prepend=0).astype(float), joining.kept_mass[:, -1:]
        effects = np.sum(sides, axis=0, where=defined) / np.maximum(defined.sum(axis=0), 1) * (sizes > 0)
        with np.errstate(invalid="ignore"):
            attribution = joining.added_mass / total
        information = np.maximum(effects, 0.0) + _hidden(np.where(defined, sides, effects), sizes)
        return Steps(effects=effects, attribution=attribution, information=information, sizes=sizes)

    def ranks(self) -> Floats:
        """Return the share (N, K) of the features of other steps that matter less than those of a step; ties half."""
        each = np.divide(self.effects, self.sizes, out=np.zeros_like(self.effects), where=self.sizes > 0)
        ranks = np.empty_like(each)
        for row, values, sizes in zip(ranks, each, self.sizes, strict=True):
            order, near = np.argsort(values), _ROUNDING * np.abs(values).max()
            below = np.concatenate([[0.0], np.cumsum(sizes[order])])
            less = below[np.searchsorted(values[order], values - near, side="left")]
            no_more = below[np.searchsorted(values[order], values + near, side="right")] - sizes
            others = below[-1] - sizes
            row[:] = np.where(others > 0, (less + no_more) / 2 / np.where(others > 0, others, 1.0), 0.5)
        return ranks

    def soundness(self) -> Floats:
        """Return the mean rank (N, K) of the attribution on the first steps, up to and including each.

        At the last step it is the chance that a feature drawn in proportion to its attribution matters more than a
        feature drawn at random from the other steps.
        """
        with np.errstate(invalid="ignore"):
            return np.cumsum(self.attribution * self.ranks(), axis=1) / np.cumsum(self.attribution, axis=1)

    def completeness(self) -> Floats:
        """Return the share (N, K) of the predictive information on the first steps, up to and including each.

        NaN for a sample without a step that speaks for the target.
        """
        with np.errstate(invalid="ignore"):
            return np.asarray(np.cumsum(self.information, axis=1) / self.information.sum(axis=1, keepdims=True))

    def calibration(self, shares: Floats) -> Floats:
        """Return how far (N, L) the share of information is from each share (L,) of attribution that is included."""
        attribution, information = (
            np.pad(each, ((0, 0), (1, 0))) for each in (np.cumsum(self.attribution, axis=1), self.completeness())
        )
        distance = np.full((len(attribution), len(shares)), np.nan)
        for row, of_map, of_model in zip(distance, attribution, information, strict=True):
            if np.isfinite(of_map[-1] + of_model[-1]):
                row[:] = np.abs(np.interp(shares, of_map, of_model) - shares)
        return distance

    def kept(self) -> Floats:
        """Return the share of features (N, K) on the first steps, up to and including each."""
        return np.asarray(np.cumsum(self.sizes, axis=1) / self.sizes.sum(axis=1, keepdims=True))


def _hidden(sides: Floats, sizes: Floats) -> Floats:
    """Estimate the information (N, K) that cancels within steps, from what cancels between them, (2, N, K)."""
    one, other = sides[..., :-1], sides[..., 1:]
    cancelled = np.where(one * other < 0, np.minimum(np.abs(one), np.abs(other)), 0.0).min(axis=0)
    pairs = np.pad(cancelled, ((0, 0), (1, 1)))
    # Half for each step of a pair; a step is in two pairs, and their mean counts. One feature hides nothing.
    return np.where(sizes > 1, np.sqrt(2) * (pairs[:, :-1] + pairs[:, 1:]) / 4, 0.0)


def evidence(table: ProbeTable) -> Floats:
    """Return the log-odds of the target (N, L), or the prediction of a regression model."""
    if table.task == "regression":
        return table.predicted
    probability = np.clip(table.probability, _CERTAIN, 1 - _CERTAIN)
    return np.asarray(np.log(probability) - np.log1p(-probability))


def _check_pair(joining: ProbeTable, leaving: ProbeTable) -> None:
    """Refuse tables that are not the two sides of the same steps."""
    kept: Integers = joining.counts[:, None] - joining.removed
    first, second = joining.settings.schedule, leaving.settings.schedule
    orders, same = (first.order, second.order), first.part == second.part and joining.ids == leaving.ids
    if not same or kept.shape != leaving.removed.shape or orders != ("lerf", "morf"):
        raise ValueError(
            "`opposite` must hold the same samples as the table, probed by the second of `step_schedules`; got "
            f"{leaving!r}."
        )
    if not np.array_equal(kept[:, :-1], leaving.removed[:, 1:]) or (joining.removed[:, -1] != 0).any():
        raise ValueError("`table` and `opposite` must be probed by `step_schedules`: their levels do not match.")
