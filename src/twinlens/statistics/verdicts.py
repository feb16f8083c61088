"""What a comparison of methods says: pairs, standings, who is clearly the best, and all of it in words."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from twinlens.support.plotting import COLOURS, html_table, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BETTER = {"soundness": "sounder", "completeness": "more complete"}
"""What is said of the better one of two, by metric."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A number of two, methods or runs, compared by one metric."""

    metric: str
    """The metric."""

    first: str
    """Name of one."""

    second: str
    """Name of the other."""

    difference: float
    """The number of the first minus that of the second, such as the areas of their curves; NaN where one is not
    defined."""

    low: float
    """Lower end of the difference's interval, which holds for all that are compared by the metric at once; NaN where
    there is none."""

    high: float
    """Upper end of this interval."""

    p_value: float
    """Two-sided bootstrap p-value of no difference, for this one by itself; NaN where there is no difference."""

    p_adjusted: float
    """The p-value for all that are compared at once: below 1 minus the confidence exactly where the interval excludes
    0."""

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class Pair(Difference):
    """Two methods compared by one metric."""

    wins: float
    """Share of the resamples in which the first method is better; ties count half."""

    sample_wins: float | None
    """Share of the samples on which the first method is better, ties counting half; None if the metric has no value per
    sample."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The place of one method by one metric."""

    metric: str
    """The metric."""

    method: str
    """The method."""

    area: float
    """Area of its curve."""

    low: float
    """Lower end of the area's interval, for this method by itself; NaN where there is none."""

    high: float
    """Upper end of the area's interval."""

    rank: int
    """1 for the best."""

    best_rank: int
    """The rank behind all methods that are significantly better."""

    worst_rank: int
    """The rank before all methods that are significantly worse."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods compared on the same samples."""

    confidence: float
    """Confidence of all intervals; a difference is significant if its interval excludes 0."""

    standings: tuple[Standing, ...]
    """Each method by each metric, best first."""

    pairs: tuple[Pair, ...]
    """Each pair of methods by each metric."""

    pareto: Mapping[str, float]
    """Methods on the Pareto front of the soundness–completeness plane, to the share of resamples in which they are on
    it; controls are left out. Empty unless both metrics are compared."""

    controls: tuple[str, ...] = ()
    """Methods that do not look at the model: compared, but never on the front and never the best."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence per pair of methods."""
        standings = {(standing.metric, standing.method): standing for standing in self.standings}
        by_pair: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.pairs:
            by_pair.setdefault((pair.first, pair.second), []).append(pair)
        return tuple(_verdict(pairs, standings) for pairs in by_pair.values())

    def clear_best(self, metric: str) -> str | None:
        """Return the method that is significantly better than each other one by a metric, controls left out.

        None where the data leave the first place open, or there is no other method.
        """
        ranked = [row.method for row in self.standings if row.metric == metric and row.method not in self.controls]
        if len(ranked) < 2:
            return None
        against = [pair for pair in self.pairs if pair.metric == metric and ranked[0] in (pair.first, pair.second)]
        clear = all(pair.decided for pair in against if not {pair.first, pair.second} & set(self.controls))
        return ranked[0] if clear else None

    def among(self, methods: Collection[str]) -> Comparison:
        """Return the same comparison with the pairs of some of the methods alone."""
        kept = set(methods)
        return dataclasses.replace(self, pairs=tuple(p for p in self.pairs if {p.first, p.second} <= kept))

    def _repr_html_(self) -> str:
        heads = ["metric", "method", "area", "interval", "rank"]
        body = [
            [
                html.escape(standing.metric),
                html.escape(standing.method),
                f"{standing.area:z.3f}",
                "" if math.isnan(standing.low) else f"[{standing.low:z.3f}, {standing.high:z.3f}]",
                f"{standing.rank} ({standing.best_rank} to {standing.worst_rank})",
            ]
            for standing in self.standings
        ]
        verdicts = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in self.verdicts)
        return f"{html_table(heads, body)}<details><summary>In words</summary><ul>{verdicts}</ul></details>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the area of each method with its interval, by metric."""
        axes = new_axes(ax)
        metrics = list(dict.fromkeys(standing.metric for standing in self.standings))
        methods = list(dict.fromkeys(standing.method for standing in self.standings))
        for k, metric in enumerate(metrics):
            rows = [standing for standing in self.standings if standing.metric == metric]
            y = [methods.index(row.method) + 0.6 * ((k + 0.5) / len(metrics) - 0.5) for row in rows]
            reach = np.clip([[row.area - row.low for row in rows], [row.high - row.area for row in rows]], 0, None)
            colour = COLOURS[k % len(COLOURS)]
            axes.errorbar([row.area for row in rows], y, xerr=reach, fmt="o", color=colour, label=metric, markersize=4)
        axes.set_yticks(range(len(methods)), methods)
        axes.invert_yaxis()
        axes.set_xlabel("area")
        axes.legend()
        return axes

    def to_frame(self) -> pd.DataFrame:
        """Return one row per metric and pair of methods."""
        return pd.DataFrame([vars(pair) for pair in self.pairs])

    def standings_frame(self) -> pd.DataFrame:
        """Return one row per metric and method."""
        return pd.DataFrame([vars(standing) for standing in self.standings])


def _verdict(pairs: Sequence[Pair], standings: Mapping[tuple[str, str], Standing]) -> str:
    clauses = []
    for pair in pairs:
        one, other = (standings[pair.metric, name] for name in (pair.first, pair.second))
        size = f"{abs(pair.difference):z.3f}"
        ends = (pair.low, pair.high) if pair.difference >= 0 else (-pair.high, -pair.low)
        between = f"[{ends[0]:z.3f}, {ends[1]:z.3f}]"
        if pair.decided:
            better, worse = (pair.first, pair.second) if one.rank < other.rank else (pair.second, pair.first)
            word = BETTER.get(pair.metric, f"better in {pair.metric}")
            clauses.append(f"{better} is {word} than {worse} by {size} {between}")
            continue
        without = [each.method for each in (one, other) if math.isnan(each.area)]
        if without:
            clauses.append(f"{pair.metric} is not decided ({' and '.join(without)} not reached)")
        elif math.isnan(pair.low):
            clauses.append(f"{pair.metric} is not decided ({size}, without an interval)")
        else:
            clauses.append(f"{pair.metric} does not differ ({size} {between})")
    if not pairs[0].decided:
        clauses[0] = f"{pairs[0].first} and {pairs[0].second}: {clauses[0]}"
    return "; ".join(clauses) + "."
