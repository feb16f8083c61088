"""Records of checks: the results of other papers' tests of a run's methods, in RUN/checks/NAME.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from twinlens.errors import RunError, first_line
from twinlens.run.directory import Run, read_json
from twinlens.support.estimate import Estimate
from twinlens.support.fields import JSON, check_types, from_json, to_json
from twinlens.support.files import write_text

FOLDER = "checks"
_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class CheckColumn:
    """One number that a check measures for each method."""

    title: str
    better: Literal["higher", "lower", "neither"]
    """Which values are better."""
    beside: str | None = None
    """Title in the run's main table, for columns that appear next to soundness and completeness."""

    @property
    def heading(self) -> str:
        """The title with an arrow towards better values."""
        return f"{self.title}{self.arrow}"

    @property
    def arrow(self) -> str:
        """The arrow, with a space before it; empty if neither direction is better."""
        return {"higher": " ↑", "lower": " ↓", "neither": ""}[self.better]


@dataclass(frozen=True, kw_only=True)
class MethodCheck:
    """Result of a check for one method, or for another row."""

    values: tuple[Estimate, ...]
    """One estimate per column."""
    course: tuple[Estimate, ...] = ()
    """One estimate per step."""


@dataclass(frozen=True, kw_only=True)
class CheckText:
    """Description of a check."""

    title: str
    """Its name in the literature."""
    question: str
    source: str
    reading: str
    """How to read its numbers."""
    columns: tuple[CheckColumn, ...]
    """The numbers that it measures for each row."""
    rows: str = "method"
    """What its rows are: methods, or something else for a check of the measurement itself, such as imputers."""
    step_title: str | None = None
    """What differs between steps, for a check with steps."""
    course_title: str | None = None
    """What is measured at each step."""
    ordered: bool = True
    """Whether steps follow each other and are drawn as lines; otherwise the page has a table of them."""


@dataclass(frozen=True, kw_only=True)
class Check(CheckText):
    """Record of a check: its description, options and results."""

    format: int = _FORMAT
    name: str
    steps: tuple[str, ...] = ()
    options: Mapping[str, JSON] = field(default_factory=dict)
    samples: int
    methods: Mapping[str, MethodCheck]
    """The result of each row, by its name."""
    notes: tuple[str, ...] = ()
    line: str | None = None
    """The result in a sentence, for a check that is about the run as a whole."""
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        check_types(self)
        for name, method in self.methods.items():
            lengths = (("values", method.values, self.columns), ("course", method.course, self.steps))
            for part, estimates, titles in lengths:
                if len(estimates) != len(titles):
                    raise ValueError(
                        f"`methods.{name}.{part}` must hold {len(titles)} estimates; got {len(estimates)}."
                    )


def check_writable(run: Run) -> None:
    """Refuse a run in which no check can be stored, before anything is computed."""
    path = run.path / FOLDER / ".writable"
    try:
        write_text(path, "")
        path.unlink()
    except OSError as error:
        raise RunError(
            f"{run} cannot be written, and the check would have no place: {error.strerror or first_line(error)}. Copy "
            "the run, or allow writing."
        ) from None


def store_check(run: Run, check: Check) -> None:
    """Write a check into its run, replacing any check of the same name."""
    run.write_json(f"{FOLDER}/{check.name}.json", to_json(check))


def check_files(run: Run) -> list[Path]:
    """List the files of a run's checks."""
    return sorted(path for path in (run.path / FOLDER).glob("*.json") if not path.name.startswith("."))


def read_check(path: Path) -> Check:
    """Read a stored check; refuse damaged files and those of other versions of twinlens."""
    remedy = f"Run `twinlens check {path.stem}` again, or remove the file."
    stored = read_json(path, remedy)
    version = stored.get("format") if isinstance(stored, dict) else None
    if isinstance(version, int) and version != _FORMAT:
        raise RunError(f"{str(path)!r} has format {version}, and this twinlens reads {_FORMAT}. {remedy}")
    try:
        check = from_json(Check, stored, path.name)
        if check.name != path.stem:
            raise ValueError(f"`name` must be {path.stem!r}; got {check.name!r}.")
    except (ValueError, TypeError) as error:
        raise RunError(f"{str(path)!r} is damaged: {error} {remedy}") from None
    return check
