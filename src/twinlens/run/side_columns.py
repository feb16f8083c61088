"""What stands beside soundness and completeness in every table of a run: what its maps are like, and what checks found.

Sparseness comes with every run. Other columns cost more calls of the model and are there once `twinlens check` has made
them, on as many samples as it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.run.check_records import Check, CheckValue

if TYPE_CHECKING:
    from twinlens.run.stored_run import StoredRun


@dataclass(frozen=True, kw_only=True)
class SideColumn:
    """One column of a table of methods."""

    name: str
    """Its name in data frames and CSV files."""

    heading: str
    """What stands above it, perhaps in two lines, with an arrow towards the better methods where there are better
    ones."""

    summary: str
    """What it says, in a sentence."""

    descending: bool
    """Whether methods with a large value come first when the table is sorted by it."""

    values: Mapping[str, CheckValue]
    """The number of each method that has one."""

    @property
    def short(self) -> str:
        """The heading in one line."""
        return self.heading.replace("-\n", "").replace("\n", " ")


def side_columns(evaluation: StoredRun) -> tuple[SideColumn, ...]:
    """Return the columns of a run: sparseness, and those of its checks that belong beside."""
    methods = evaluation.results.methods
    sparse = {name: found.properties["sparseness"] for name, found in methods.items() if found.properties}
    own = SideColumn(
        name="sparseness",
        heading="sparse-\nness",
        summary="Gini index of the maps: 0 where attribution is spread evenly, near 1 where few features have it all",
        descending=True,
        values=sparse,
    )
    checks = evaluation.checks().values() if methods else ()
    return (*([own] if sparse else []), *(column for check in checks for column in _of_check(check, list(methods))))


def _of_check(check: Check, methods: Sequence[str]) -> list[SideColumn]:
    return [
        SideColumn(
            name=check.name.replace("-", "_"),
            heading=f"{column.beside}{column.arrow}",
            summary=f"{check.title}, {column.title}, on {check.samples} samples. {check.question}",
            descending=column.better != "lower",
            values={name: check.methods[name].values[k] for name in methods if name in check.methods},
        )
        for k, column in enumerate(check.columns)
        if column.beside is not None
    ]


def join_columns(runs: Sequence[Sequence[SideColumn]]) -> list[SideColumn]:
    r"""List the columns of several runs, each name once; their values are those of the first run that has one.

    Example:
        >>> column = SideColumn(name="sparseness", heading="sparse-\nness", summary="", descending=True, values={})
        >>> [each.short for each in join_columns([[column], [column]])]
        ['sparseness']
    """
    found: dict[str, SideColumn] = {}
    for columns in runs:
        for column in columns:
            found.setdefault(column.name, column)
    return list(found.values())
