"""Agreement of two rankings of the same methods, measured on the same samples under two conditions.

Shapes: R resamples, M methods, K pairs of methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from twinlens.statistics.bootstrap import Area
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.verdicts import Pair
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate

Areas = Mapping[str, Mapping[str, Area]]
"""The area of each method, by metric and then by method."""


def kendall(one: Mapping[str, Area], other: Mapping[str, Area]) -> Estimate:
    """Return Kendall's tau-b of two rankings of the same methods, with its interval over samples.

    Both are resampled alike. Ties, and methods without an area, count as undecided pairs. The interval is too narrow
    where methods are practically tied: their true order is arbitrary.
    """
    first, second = (_stacked(areas, list(one)) for areas in (one, other))
    tau = _tau(first, second)
    samples = min(area.estimate.samples for areas in (one, other) for area in areas.values())
    value = None if np.isnan(tau[0]) else float(tau[0])
    return Estimate.of(value, tau[1:], samples=samples).clipped(-1.0, 1.0)


def _stacked(areas: Mapping[str, Area], names: list[str]) -> Floats:
    """Return areas (1 + R, M), those as measured in the first row."""
    values = [np.nan if (value := areas[name].estimate.value) is None else value for name in names]
    return np.concatenate([[values], np.stack([areas[name].replicates for name in names], axis=1)])


def _tau(one: Floats, other: Floats) -> Floats:
    """Return tau-b (R,) of rows (R, M)."""
    first, second = np.triu_indices(one.shape[1], 1)
    signs = [np.nan_to_num(np.sign(rows[:, first] - rows[:, second])) for rows in (one, other)]
    length = np.sqrt((signs[0] ** 2).sum(axis=1) * (signs[1] ** 2).sum(axis=1))
    tau = np.full(len(one), np.nan)
    np.divide((signs[0] * signs[1]).sum(axis=1), length, out=tau, where=length > 0)
    return tau


@dataclass(frozen=True, kw_only=True)
class VerdictChanges:
    """Comparisons of two methods that are decided under the first condition, and what the second makes of them."""

    same: tuple[Pair, ...]
    """Decided in the same way."""
    reversed: tuple[Pair, ...]
    """Decided the other way round."""
    lost: tuple[Pair, ...]
    """No longer decided."""

    @staticmethod
    def between(one: Areas, other: Areas) -> VerdictChanges:
        """Compare all pairs of methods under both conditions."""
        after = {(pair.metric, pair.first, pair.second): pair for pair in compare_areas(other).pairs}
        kinds: dict[str, list[Pair]] = {"same": [], "reversed": [], "lost": []}
        for pair in compare_areas(one).pairs:
            then = after[pair.metric, pair.first, pair.second]
            if pair.decided:
                kinds[_change(pair, then)].append(pair)
        return VerdictChanges(**{kind: tuple(pairs) for kind, pairs in kinds.items()})

    @property
    def decided(self) -> int:
        """Number of comparisons decided under the first condition."""
        return len(self.same) + len(self.reversed) + len(self.lost)

    def share(self, pairs: tuple[Pair, ...]) -> float | None:
        """Return which share of the decided comparisons these are."""
        return len(pairs) / self.decided if self.decided else None

    def without(self, baselines: Collection[str]) -> int:
        """Count the reversed comparisons of two methods that are no baselines."""
        return sum(not {pair.first, pair.second} & {*baselines} for pair in self.reversed)

    def describe(self, names: Mapping[str, str]) -> str:
        """Count what became of the verdicts, and list the reversed ones as they were; `names` are those of metrics."""
        if not self.decided:
            return "there is no verdict to reverse"
        turned = ", ".join(f"{_better(pair)} in {names[pair.metric]}" for pair in self.reversed)
        lost = f"{len(self.lost)} {'is' if len(self.lost) == 1 else 'are'} no longer decided"
        verb = "is" if len(self.reversed) <= 1 else "are"
        count = len(self.reversed) or "none"
        return f"{count} of {self.decided} verdicts {verb} reversed{': ' * bool(turned)}{turned}; {lost}"


def _change(before: Pair, then: Pair) -> str:
    if not then.decided:
        return "lost"
    return "same" if ((before.difference.value or 0.0) > 0) == ((then.difference.value or 0.0) > 0) else "reversed"


def _better(pair: Pair) -> str:
    """Name the better method first; more is better in both metrics of the headline pair."""
    ahead = (pair.difference.value or 0.0) > 0
    return f"{pair.first} over {pair.second}" if ahead else f"{pair.second} over {pair.first}"
