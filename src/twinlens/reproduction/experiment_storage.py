"""The directory of an experiment.

OUT/
  experiment.json        name, options, versions, claims, figures and time; written last, when all else is complete
  results.json           the numbers
  figures/NAME.png, .pdf, .svg
  (run directories of evaluations, if the experiment makes any)
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from twinlens.data.sources import open_data
from twinlens.errors import RunError
from twinlens.report.figures import save_figure, styled_figure
from twinlens.reproduction.claims import Claim
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.support.code_digest import source_digest
from twinlens.support.fields import fields_of, from_json, to_json
from twinlens.support.files import write_json
from twinlens.support.versions import environment

FORMAT = 2
_FILE = "experiment.json"
_SIZE = (6.9, 2.6)  # inches, the width of two columns; the function that draws may change it


@dataclass(frozen=True, kw_only=True)
class StoredExperiment:
    """A completed experiment, as experiment.json holds it."""

    name: str
    title: str
    source: str
    smoke: str
    options: ExperimentOptions
    versions: Mapping[str, str]
    claims: tuple[Claim, ...]
    figures: tuple[str, ...]
    seconds: float
    content: str = ""
    """Hash of the model's file, the weights and the data that the options name."""
    format: int = FORMAT

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.options.out


def command(name: str, options: ExperimentOptions) -> str:
    """Return the command that runs an experiment with these options."""
    words = ["twinlens", "reproduce", name]
    for option in fields_of(ExperimentOptions):
        value = getattr(options, option.name)
        if option.name == "out" or value == option.default:
            continue
        flag = f"--{option.name.replace('_', '-')}"
        words += [flag] if value is True else [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def store(
    name: str, experiment: Experiment, options: ExperimentOptions, outcome: Outcome, seconds: float
) -> StoredExperiment:
    """Write a completed experiment into its directory. The same numbers give the same bytes of figures."""
    stored = StoredExperiment(
        name=name,
        title=experiment.title,
        source=experiment.source,
        smoke=experiment.smoke(options),
        options=options,
        versions=environment(),
        claims=outcome.claims,
        figures=tuple(outcome.figures),
        seconds=round(seconds, 1),
        content=_content(options),
    )
    (options.out / "figures").mkdir(parents=True, exist_ok=True)
    for figure_name, draw in outcome.figures.items():
        with styled_figure(_SIZE) as figure:
            draw(figure)
            save_figure(figure, options.out / "figures" / figure_name)
    write_json(options.out / "results.json", outcome.numbers)
    write_json(options.out / _FILE, to_json(stored))
    return stored


def read_stored(path: Path) -> StoredExperiment | None:
    """Read the experiment in a directory; None if there is no complete one."""
    file = path / _FILE
    if not file.exists():
        return None
    remedy = "Remove the directory, and start again."
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(file)!r} cannot be read: {error} {remedy}") from None
    try:
        if (stored_format := content.get("format", 1)) != FORMAT:
            raise ValueError(f"its format is {stored_format}, and this version reads {FORMAT}")
        content["options"]["out"] = path  # it may have been moved
        return from_json(StoredExperiment, content, _FILE)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{str(path)!r} was written by another version of twinlens: {error}. {remedy}") from None


def find_stored(name: str, options: ExperimentOptions) -> StoredExperiment | None:
    """Return the experiment in the directory, or None if it has to be run, also if another version of twinlens ran it.

    Raises:
        RunError: if the directory holds another experiment, or one with other options.
    """
    stored = read_stored(options.out)
    if stored is None:
        return None
    if stored.name != name or replace(stored.options, allow_code=options.allow_code) != options:
        raise RunError(
            f"`out` {str(options.out)!r} holds another experiment: {command(stored.name, stored.options)!r}, not "
            f"{command(name, options)!r}. Choose another directory, or use the same options."
        )
    if stored.content != _content(options):
        raise RunError(
            f"`out` {str(options.out)!r} was made with another model, weights or data. Choose another directory."
        )
    return stored if stored.versions["twinlens"] == environment()["twinlens"] else None


def _content(options: ExperimentOptions) -> str:
    """Hash the files that the options name."""
    digest = hashlib.blake2b(digest_size=16)
    for spec in filter(None, (options.model, options.weights)):
        path = Path(spec.rpartition(":")[0] or spec)
        if path.is_file():
            digest.update(source_digest(path).encode() if path.suffix == ".py" else path.read_bytes())
    if options.data is not None:
        samples = open_data(options.data, classes=options.classes)
        for index, position in enumerate(samples.positions.tolist()):
            digest.update(samples.identify(index, samples.fingerprint(position)))
    return digest.hexdigest() if options.model or options.weights or options.data else ""
