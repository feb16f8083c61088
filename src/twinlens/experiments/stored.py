"""What an experiment has left in its directory: written once it has ended, read again for the page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlens.experiments.outcome import Claim, Experiment, Options, Outcome, write_json, write_outcome
from twinlens.report.figures import save_figure, styled_figure
from twinlens.runs import RunError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (6.9, 2.6)  # inches, as wide as two columns; who draws may change it


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An experiment that has ended."""

    name: str
    """Its name on the command line."""

    title: str
    """What it asks, in a line."""

    source: str
    """Where the paper has it."""

    options: Mapping[str, Any]
    """What was asked."""

    claims: tuple[Claim, ...]
    """The paper's claims about it, as they were found."""

    path: Path
    """Its directory."""

    figures: tuple[str, ...]
    """Names of its figures, the largest first."""

    seconds: float | None
    """How long it took; None where nobody wrote it down."""

    def overview(self) -> dict[str, Any]:
        """Gives the most important of it as plain values."""
        claims = [dataclasses.asdict(claim) for claim in self.claims]
        return {"experiment": self.name, "directory": str(self.path), "claims": claims, "seconds": self.seconds}


def store(name: str, experiment: Experiment, options: Options, outcome: Outcome, seconds: float) -> Stored:
    """Writes what an experiment found, the figures first: whoever finds claims finds everything."""
    write_figures(outcome.figures, options.out / "figures")
    write_json(options.out / "timings.json", {"seconds": round(seconds, 1)})
    write_outcome(name, experiment, options, outcome)
    return read_stored(options.out)


def write_figures(figures: Mapping[str, Callable[[Figure], None]], directory: Path) -> list[Path]:
    """Writes figures as PDF, SVG and PNG, each drawn by its function. The same numbers give the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, draw in figures.items():
        with styled_figure(_SIZE) as figure:
            draw(figure)
            files += save_figure(figure, directory / name)
    # The order of the figures, which a directory does not keep.
    write_json(directory / "figures.json", list(figures))
    return files


def read_stored(path: Path) -> Stored:
    """Reads an experiment that has ended."""
    about, claims = _read(path / "experiment.json"), _read(path / "claims.json")
    timings = path / "timings.json"
    return Stored(
        name=about["name"],
        title=about["title"],
        source=about["source"],
        options=about["options"],
        claims=tuple(Claim(**claim) for claim in claims),
        path=path,
        figures=tuple(_read(path / "figures" / "figures.json")),
        seconds=_read(timings)["seconds"] if timings.exists() else None,
    )


def find_stored(name: str, options: Options) -> Stored | None:
    """Gives what is there already, if it was asked for with the same options, or None where nothing is.

    What another version of twinlens found is found anew.
    """
    path = options.out
    if not (path / "claims.json").exists():
        return None
    about, asked = _read(path / "experiment.json"), dataclasses.asdict(options)
    for option in ("name", *(key for key in asked if key != "out")):
        there = about["name"] if option == "name" else about["options"].get(option)
        here = name if option == "name" else asked[option]
        if there != here:
            raise RunError(
                f"`out` {str(path)!r} holds another experiment: {option} is {there!r} there and {here!r} here. Choose "
                "another directory, or ask for the same."
            )
    return read_stored(path) if about["versions"]["twinlens"] == version("twinlens") else None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(path)!r} cannot be read: {error} Remove the directory, and start again.") from None
