"""What every experiment of the paper has in common: what is asked of it, what it claims, and what it leaves on disk.

OUT/
  experiment.json        what was asked: name, options, versions
  results.json           the numbers
  claims.json            the paper's claims, each with what was measured and whether it holds here
  figures/NAME.png, .pdf, .svg
  (run directories of evaluations, where the experiment makes some)
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlens.files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tell = Callable[[str, int, int], None]
"""Is told what an experiment is doing, how many steps of it are done, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person can choose for any experiment; what an experiment does not use it refuses."""

    out: Path
    """Directory of the experiment."""

    paper: bool = False
    """Whether to take the paper's own sizes and settings instead of those that take minutes on two cores."""

    data: str | None = None
    """Data as `open_data` takes it, instead of what comes inside packages."""

    classes: str | None = None
    """A file with the index of each class name, for folders of images."""

    model: str | None = None
    """A model as `load_model` takes it, for experiments on a trained network."""

    weights: str | None = None
    """A file with the weights of that model."""

    limit: int | None = None
    """Number of samples, or of trials for synthetic data."""

    seed: int = 0
    """Seed of all that is random."""

    device: str = "cpu"
    """Where networks are trained and asked."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something that the paper says about an experiment, held against what was measured."""

    text: str
    """The claim, in our words."""

    source: str
    """Where the paper makes it, such as "Fig. 5a"."""

    measured: str
    """What was measured here, with numbers."""

    holds: bool | None
    """Whether it holds here; None where the data cannot tell."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment found."""

    numbers: Mapping[str, Any]
    """Everything that was measured, as results.json holds it."""

    claims: tuple[Claim, ...]
    """The paper's claims about it."""

    figures: Mapping[str, Callable[[Figure], None]] = field(default_factory=dict)
    """By name, what draws each figure; the first is the one that the page shows largest."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the paper."""

    title: str
    """What it asks, in a line; the claims are the answers."""

    source: str
    """Where the paper has it."""

    run: Callable[[Options, Tell], Outcome]
    """Does it."""


def write_json(path: Path, content: Any) -> None:
    """Writes JSON, whole."""
    with written_whole(path) as unfinished:
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        unfinished.write_text(text + "\n", encoding="utf-8")


def write_outcome(name: str, experiment: Experiment, options: Options, outcome: Outcome) -> None:
    """Writes what an experiment found into its directory."""
    asked = {
        key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(options).items()
    }
    about = {"name": name, "title": experiment.title, "source": experiment.source, "options": asked}
    versions = {package: version(package) for package in ("twinlens", "torch", "numpy")}
    write_json(options.out / "experiment.json", about | {"versions": versions | {"python": platform.python_version()}})
    write_json(options.out / "results.json", outcome.numbers)
    write_json(options.out / "claims.json", [dataclasses.asdict(claim) for claim in outcome.claims])
