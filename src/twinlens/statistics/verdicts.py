"""Results of comparing methods: differences of pairs, the ranking, the best method, and sentences about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from twinlens.statistics.margin import describe_undecided
from twinlens.support.estimate import Estimate

BETTER = {"soundness_rank": "sounder", "completeness_share": "more complete"}
"""Adjective of the better method, by metric."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The difference between two methods or two runs by one metric."""

    metric: str
    """The metric."""

    first: str
    """Name of the first."""

    second: str
    """Name of the second."""

    difference: Estimate
    """First minus second, such as the difference of areas. Interval and p-value are adjusted for all contrasts of the
    metric."""

    p_alone: float | None
    """Two-sided p-value of no difference without this adjustment; None where there is no difference."""

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.difference.decided

    def row(self) -> dict[str, object]:
        """Return the contrast as a row of a table; `p_value` is for it alone, `p_adjusted` for all contrasts."""
        difference = self.difference
        return {
            "metric": self.metric,
            "first": self.first,
            "second": self.second,
            "difference": difference.value,
            "low": difference.low,
            "high": difference.high,
            "samples": difference.samples,
            "p_value": self.p_alone,
            "p_adjusted": difference.p,
        }


@dataclass(frozen=True, kw_only=True)
class Pair(Contrast):
    """Two methods compared by one metric."""

    wins: float | None
    """Share of the resamples in which the first method is better, ties counting half; None with fewer than ten
    samples."""

    sample_wins: float | None
    """Share of the samples on which the first method is better, ties counting half; None if the metric has no value per
    sample."""

    def row(self) -> dict[str, object]:
        """Return the pair as a row of a table."""
        return super().row() | {"wins": self.wins, "sample_wins": self.sample_wins}


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Rank of one method by one metric."""

    metric: str
    """The metric."""

    method: str
    """The method."""

    area: Estimate
    """Area of its curve; the interval is for this method alone."""

    rank: int
    """1 for the best."""

    best_rank: int
    """One more than the number of methods that are significantly better."""

    worst_rank: int
    """Number of methods that are not significantly worse, this one included."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Methods compared on the same samples."""

    confidence: float
    """Confidence of all intervals; a difference is significant if its interval excludes 0."""

    ranking: tuple[Rank, ...]
    """Each method by each metric, best first."""

    pairs: tuple[Pair, ...]
    """Each pair of methods by each metric."""

    pareto: Mapping[str, float]
    """Methods on the Pareto front of the soundness–completeness plane, with the share of resamples in which they are
    on it. Empty unless both metrics are compared, on at least ten samples."""

    baselines: tuple[str, ...] = ()
    """Baseline methods: compared, but never on the front and never the best."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence per pair of methods."""
        ranks = {(row.metric, row.method): row for row in self.ranking}
        by_pair: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.pairs:
            by_pair.setdefault((pair.first, pair.second), []).append(pair)
        return tuple(_verdict(pairs, ranks) for pairs in by_pair.values())

    def clear_best(self, metric: str) -> str | None:
        """Return the method that is significantly better than each other one by a metric, baselines left out.

        None where no method is, or where there is no other method.
        """
        ranked = [row.method for row in self.ranking if row.metric == metric and row.method not in self.baselines]
        if len(ranked) < 2:
            return None
        against = [pair for pair in self.pairs if pair.metric == metric and ranked[0] in (pair.first, pair.second)]
        clear = all(pair.decided for pair in against if not {pair.first, pair.second} & set(self.baselines))
        return ranked[0] if clear else None

    def among(self, methods: Collection[str]) -> Comparison:
        """Return the comparison with only the pairs of these methods."""
        kept = set(methods)
        return dataclasses.replace(self, pairs=tuple(p for p in self.pairs if {p.first, p.second} <= kept))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per metric and pair of methods."""
        frame = pd.DataFrame([pair.row() for pair in self.pairs])
        return frame.astype({name: float for name in frame.columns[3:] if name != "samples"})


def _verdict(pairs: Sequence[Pair], ranks: Mapping[tuple[str, str], Rank]) -> str:
    clauses = []
    for pair in pairs:
        one, other = (ranks[pair.metric, name] for name in (pair.first, pair.second))
        if pair.decided:
            better, worse = (pair.first, pair.second) if one.rank < other.rank else (pair.second, pair.first)
            word = BETTER.get(pair.metric, f"better in {pair.metric}")
            clauses.append(f"{better} is {word} than {worse} by {pair.difference.magnitude}")
            continue
        without = [each.method for each in (one, other) if each.area.value is None]
        if without:
            clauses.append(f"{pair.metric} is not decided ({' and '.join(without)} not reached)")
        else:
            count = f"{pair.difference.samples:,} samples"
            clauses.append(describe_undecided(pair.difference, pair.metric, samples=count))
    if not pairs[0].decided:
        clauses[0] = f"{pairs[0].first} and {pairs[0].second}: {clauses[0]}"
    return "; ".join(clauses) + "."
