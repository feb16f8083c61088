"""Checks of a run: what other tests of the literature say of its methods, each stored as a record of its own.

RUN/checks/NAME.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from twinlens.errors import RunError
from twinlens.run.directory import Run, read_json
from twinlens.run.manifest import Manifest
from twinlens.support.estimate import Estimate
from twinlens.support.fields import JSON, check_types, from_json, to_json

FOLDER = "checks"
_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class CheckColumn:
    """What a check measures of each method."""

    title: str
    """Its name."""

    better: Literal["higher", "lower", "neither"]
    """Which methods are better by it."""

    beside: str | None = None
    """Its heading in the table of the run, where it stands beside soundness and completeness."""

    @property
    def heading(self) -> str:
        """The name with an arrow towards the better methods."""
        return f"{self.title}{self.arrow}"

    @property
    def arrow(self) -> str:
        """The arrow, with a space before it; nothing where neither more nor less is better."""
        return {"higher": " ↑", "lower": " ↓", "neither": ""}[self.better]


@dataclass(frozen=True, kw_only=True)
class MethodCheck:
    """What a check found of one method."""

    values: tuple[Estimate, ...]
    """One number for each column."""

    course: tuple[Estimate, ...] = ()
    """One number for each step."""


@dataclass(frozen=True, kw_only=True)
class CheckText:
    """What a check is about."""

    title: str
    """Its name in the literature."""

    question: str
    """What it asks."""

    source: str
    """Where it was published."""

    reading: str
    """How its numbers are to be read."""

    columns: tuple[CheckColumn, ...]
    """What it measures."""

    step_title: str | None = None
    """What goes on from step to step, where there are steps."""

    course_title: str | None = None
    """What is measured at each step."""


@dataclass(frozen=True, kw_only=True)
class Check(CheckText):
    """A check of a run: what it asks, how, and what came out."""

    format: int = _FORMAT
    """Version of the layout."""

    name: str
    """Its name on the command line."""

    steps: tuple[str, ...] = ()
    """The steps."""

    options: Mapping[str, JSON] = field(default_factory=dict)
    """What it was asked."""

    samples: int
    """Number of samples."""

    methods: Mapping[str, MethodCheck]
    """What was found of each method."""

    notes: tuple[str, ...] = ()
    """What a reader has to know beside."""

    versions: Mapping[str, str]
    """Versions of the packages that made it."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.format != _FORMAT:
            raise ValueError(f"`format` must be {_FORMAT}; got {self.format}.")
        for name, found in self.methods.items():
            for what, there, wanted in (("values", found.values, self.columns), ("course", found.course, self.steps)):
                if len(there) != len(wanted):
                    raise ValueError(f"`methods.{name}.{what}` must hold {len(wanted)} numbers; got {len(there)}.")


def store_check(run: Run[Manifest], check: Check) -> None:
    """Write a check into its run; one of the same name is replaced."""
    run.write_json(f"{FOLDER}/{check.name}.json", to_json(check))


def check_files(run: Run[Manifest]) -> list[Path]:
    """List the files of a run's checks."""
    return sorted(path for path in (run.path / FOLDER).glob("*.json") if not path.name.startswith("."))


def read_check(path: Path) -> Check:
    """Read a stored check."""
    remedy = f"Make it again by `twinlens check {path.stem}`, or remove the file."
    stored = read_json(path, remedy)
    try:
        check = from_json(Check, stored, path.name)
        if check.name != path.stem:
            raise ValueError(f"`name` must be {path.stem!r}; got {check.name!r}.")
    except (ValueError, TypeError) as error:
        raise RunError(f"{str(path)!r} is damaged: {error} {remedy}") from None
    return check
