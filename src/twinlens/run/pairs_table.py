"""pairs.csv: each pair of methods by each metric. It grows with the square of the methods, and so has its own file."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import math
from collections.abc import Iterable

from twinlens.statistics.verdicts import Pair
from twinlens.support.files import csv_text

FILE = "pairs.csv"
_FIELDS = tuple(field.name for field in dataclasses.fields(Pair))
_NUMBERS = _FIELDS[3:-1]


def pairs_text(pairs: Iterable[Pair]) -> str:
    """Write pairs as CSV, numbers to their last bit; what is not defined is left empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_FIELDS)
    for pair in pairs:
        table.writerow([_cell(getattr(pair, name)) for name in _FIELDS])
    return text.getvalue()


def read_pairs(text: str, metrics: Iterable[str]) -> tuple[Pair, ...]:
    """Read what `pairs_text` wrote of these metrics.

    Example:
        >>> pair = Pair(metric="completeness", first="a", second="b", difference=0.1, low=0.0, high=0.2, p_value=0.05,
        ...             p_adjusted=0.1, wins=0.9, sample_wins=None)
        >>> read_pairs(pairs_text([pair]), ["completeness"]) == (pair,)
        True
    """
    rows = csv.reader(io.StringIO(text, newline=""))
    next(rows)
    names = {csv_text(name): name for name in metrics}
    return tuple(
        Pair(
            metric=names[metric],
            first=first,
            second=second,
            **{name: float(cell or "nan") for name, cell in zip(_NUMBERS, numbers, strict=True)},
            sample_wins=float(wins) if wins else None,
        )
        for metric, first, second, *numbers, wins in rows
    )


def pairs_digest(text: str) -> str:
    """Hash a table of pairs; results.json holds the digest of its own."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _cell(value: str | float | None) -> str:
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None or math.isnan(value) else repr(float(value))
