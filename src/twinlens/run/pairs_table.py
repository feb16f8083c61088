"""pairs.csv: the comparison of each pair of methods by each metric, in a file of its own because of its size."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable

from twinlens.statistics.verdicts import Pair
from twinlens.support.estimate import Estimate
from twinlens.support.files import csv_text

FILE = "pairs.csv"
_NUMBERS = ("difference", "low", "high", "p_value", "p_adjusted", "wins", "sample_wins")


def pairs_text(pairs: Iterable[Pair]) -> str:
    """Write pairs as CSV, with all digits; undefined numbers are empty."""
    rows = [pair.row() for pair in pairs]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(rows[0] if rows else [])
    table.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in row.values()] for row in rows)
    return text.getvalue()


def read_pairs(text: str, metrics: Iterable[str]) -> tuple[Pair, ...]:
    """Read what `pairs_text` wrote for these metrics."""
    names = {csv_text(name): name for name in metrics}
    pairs = []
    for row in csv.DictReader(io.StringIO(text, newline="")):
        numbers = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
        difference = Estimate(
            value=numbers["difference"],
            low=numbers["low"],
            high=numbers["high"],
            samples=int(row["samples"]),
            p=numbers["p_adjusted"],
        )
        pairs.append(
            Pair(
                metric=names[row["metric"]],
                first=row["first"],
                second=row["second"],
                difference=difference,
                p_alone=numbers["p_value"],
                wins=numbers["wins"],
                sample_wins=numbers["sample_wins"],
            )
        )
    return tuple(pairs)


def pairs_digest(text: str) -> str:
    """Hash a table of pairs; results.json holds the digest of its own."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
