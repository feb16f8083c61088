"""The directory of an experiment: written when it has ended, read again for the page.

OUT/
  experiment.json        what was done: name, options, versions
  results.json           the numbers
  claims.json            the paper's claims and our own, each with what was measured and what became of it
  timings.json           how long it took
  figures/NAME.png, .pdf, .svg
  (run directories of evaluations, where the experiment makes some)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlens.errors import RunError
from twinlens.report.figures import save_figure, styled_figure
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.support.fields import JSON, fields_of, from_json, to_json
from twinlens.support.files import write_json
from twinlens.support.versions import environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.9, 2.6)  # inches, as wide as two columns; the function that draws may change it


@dataclass(frozen=True, kw_only=True)
class StoredExperiment:
    """An experiment that has ended, as its directory holds it."""

    name: str
    """Its name on the command line."""

    title: str
    """The question that it asks, in a line."""

    source: str
    """Where the paper has it."""

    options: Mapping[str, JSON]
    """The `ExperimentOptions` that it was done with."""

    smoke: str
    """What stands for the paper's data and model in a smoke run; empty otherwise."""

    claims: tuple[Claim, ...]
    """The paper's claims about it and our own, as they were found."""

    path: Path
    """Its directory."""

    figures: tuple[str, ...]
    """Names of its figures, the largest first."""

    seconds: float | None
    """How long it took; None where that was not written."""

    def overview(self) -> dict[str, JSON]:
        """Return the most important of it as plain values."""
        return {
            "experiment": self.name,
            "smoke": self.smoke,
            "directory": str(self.path),
            "claims": to_json(self.claims),
            "seconds": self.seconds,
        }


def store(
    name: str, experiment: Experiment, options: ExperimentOptions, outcome: Outcome, seconds: float
) -> StoredExperiment:
    """Write what an experiment found, the claims last: a directory with claims is complete."""
    about = {
        "name": name,
        "title": experiment.title,
        "source": experiment.source,
        "smoke": experiment.smoke(options),
        "options": to_json(options),
    }
    write_figures(outcome.figures, options.out / "figures")
    write_json(options.out / "timings.json", {"seconds": round(seconds, 1)})
    write_json(options.out / "experiment.json", about | {"versions": environment()})
    write_json(options.out / "results.json", outcome.numbers)
    write_json(options.out / "claims.json", to_json(outcome.claims))
    return read_stored(options.out)


def write_figures(figures: Mapping[str, Callable[[Figure], None]], directory: Path) -> list[Path]:
    """Write figures as PDF, SVG and PNG, each drawn by its function. The same numbers give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in figures.items():
        with styled_figure(_SIZE) as figure:
            draw(figure)
            files += save_figure(figure, directory / name)
    # The order of the figures, which a directory does not keep.
    write_json(directory / "figures.json", list(figures))
    return files


def read_stored(path: Path) -> StoredExperiment:
    """Read an experiment that has ended."""
    about, claims = _read(path / "experiment.json"), _read(path / "claims.json")
    timings = path / "timings.json"
    try:
        known = {name: about[name] for name in ("name", "title", "source", "smoke", "options")}
        judged = tuple(from_json(Claim, claim, "claims.json") for claim in claims)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{str(path)!r} was written by another version of twinlens: {error}. Remove it, and start again."
        ) from None
    return StoredExperiment(
        **known,
        claims=judged,
        path=path,
        figures=tuple(_read(path / "figures" / "figures.json")),
        seconds=_read(timings)["seconds"] if timings.exists() else None,
    )


def find_stored(name: str, options: ExperimentOptions) -> StoredExperiment | None:
    """Return the experiment that is in the directory already, or None where it has to be done.

    What another version of twinlens found is found anew.

    Raises:
        RunError: if the directory holds another experiment, or one with other options.
    """
    path = options.out
    if not (path / "claims.json").exists():
        return None
    about, wanted = _read(path / "experiment.json"), to_json(options)
    compared = [("name", about["name"], name)]
    compared += [
        (option.name, about["options"].get(option.name, option.default), wanted[option.name])
        for option in fields_of(ExperimentOptions)
        if option.name not in ("out", "allow_code")
    ]
    for option, stored, requested in compared:
        if stored != requested:
            raise RunError(
                f"`out` {str(path)!r} holds another experiment: {option} is {stored!r} there and {requested!r} here. "
                "Choose another directory, or ask for the same."
            )
    return read_stored(path) if about["versions"]["twinlens"] == environment()["twinlens"] else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(path)!r} cannot be read: {error} Remove the directory, and start again.") from None
