"""Checks of a run: what other tests of the literature say of its methods, each stored as a record of its own.

RUN/checks/NAME.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from twinlens.errors import RunError
from twinlens.run.directory import Run, read_json
from twinlens.run.manifest import Manifest
from twinlens.support.arrays import Floats
from twinlens.support.fields import JSON, check_types, from_json, to_json
from twinlens.support.resampling import Interval, interval_of_mean

FOLDER = "checks"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class CheckValue:
    """One number of a method, with its interval."""

    value: float | None
    """The number, a mean over samples; None where no sample has one."""

    low: float | None = None
    """Lower end of the 95% interval; None where there is none."""

    high: float | None = None
    """Upper end."""

    defined: int
    """Number of samples with a value."""

    @staticmethod
    def of(found: Interval[float], defined: int) -> CheckValue:
        """Take a number over from its interval."""
        known = found.low == found.low  # NaN where resamples say nothing
        low, high = (found.low, found.high) if known else (None, None)
        return CheckValue(value=found.value, low=low, high=high, defined=int(defined))

    @staticmethod
    def of_mean(values: Floats, ids: Sequence[str], seed: int = 0) -> CheckValue:
        """Take the mean of values (N,), with its interval over samples; NaN is left out."""
        return CheckValue.of(interval_of_mean(values, ids, seed=seed), int(np.isfinite(values).sum()))

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        between = "" if self.low is None or self.high is None else f" [{self.low:z.3f}, {self.high:z.3f}]"
        return f"{self.value:z.3f}{between}"


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

    values: tuple[CheckValue, ...]
    """One number for each column."""

    course: tuple[CheckValue, ...] = ()
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
