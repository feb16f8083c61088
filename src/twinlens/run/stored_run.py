"""A run with its results, read from its directory."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import torch

from twinlens.errors import RunError, first_line, unknown
from twinlens.imputation.imputers import Imputer, restore_imputer
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.run.analysis import Analysis
from twinlens.run.check_records import Check, check_files, read_check
from twinlens.run.directory import Run, check_name, read_json, read_run
from twinlens.run.manifest import Manifest
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.pairs_table import pairs_digest, read_pairs
from twinlens.run.results import Results
from twinlens.run.table_reader import TableReader
from twinlens.statistics.verdicts import Comparison
from twinlens.support.fields import from_json, to_json
from twinlens.support.files import read_whole

_REMEDY = "Start the run again with the same command to write it anew."


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run with its results; curves and maps are read from its directory on demand."""

    run: Run = field(repr=False)
    results: Results = field(repr=False)
    """The content of results.json."""
    reader: TableReader = field(repr=False)
    own: Mapping[str, Metric] = field(default_factory=dict, repr=False)
    """The metrics as Python objects, among them custom ones, which no file can hold."""
    imputer: Imputer | None = field(default=None, repr=False)
    """The imputer as a Python object; None for that of run.json."""
    compared: Comparison | None = field(default=None, repr=False)
    """The comparison of the methods, if it was just computed."""
    failures: Mapping[str, Exception] = field(default_factory=dict, repr=False)
    """The errors of methods that failed in this call, by name."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a run that has results."""
        run = read_run(path)
        file = run.path / "results.json"
        if not file.exists():
            raise RunError(f"{run} has no results yet. Start it again with the same command to resume it.")
        stored = read_json(file, _REMEDY)
        try:
            results = from_json(Results, stored, "results.json")
            _check_settings(results)
            for name in (*results.methods, *results.incomplete):
                check_name(name)
                if name not in run.manifest.methods:
                    raise unknown("methods", name, run.manifest.methods, or_else=", as in run.json")
        except (ValueError, TypeError) as error:
            raise RunError(f"{str(file)!r} is damaged: {error} {_REMEDY}") from None
        if run.manifest.rounds is not None:  # the current round has no results yet
            run = Run(run.path, dataclasses.replace(run.manifest, data=results.data))
        return cls(run, results, TableReader(run))

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def manifest(self) -> Manifest:
        """The content of run.json."""
        return self.run.manifest

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are complete."""
        return list(self.results.methods)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(self.results.settings.metrics)

    @property
    def title(self) -> str:
        """Model, data and accuracy in a line."""
        data, quality = self.results.data, self.results.describe_quality() or "no results yet"
        return f"{self.results.model.name} on {data.samples} samples of {data.name}: {quality}"

    @cached_property
    def metric_values(self) -> dict[str, Metric]:
        """The metrics as values, except custom ones that are not at hand."""
        return {**self.results.settings.values(), **self.own}

    def curve(self, method: str, metric: str) -> Curve:
        """Read a method's curve with its probe table."""
        if method not in self.methods:
            raise unknown("method", method, self.methods)
        metrics = self.results.methods[method].metrics
        if metric not in metrics:
            raise unknown("metric", metric, metrics)
        if metric not in self.metric_values:
            raise RunError(f"{metric} is a custom metric, or has a custom performance. Pass it to evaluation.ask(…).")
        curve = self.reader.curve(method, self.metric_values[metric])
        self.reader.forget()
        return curve

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all samples, in the order of maps and tables."""
        return self.run.load_original(self.manifest.shards).ids

    def maps(self, method: str, *, signed: bool = False) -> torch.Tensor:
        """Read the maps of all samples (N, *S): their positive part, or signed, as with sign="signed"."""
        return torch.cat([self.run.load_maps(method, k, signed=signed) for k in range(self.manifest.shards)])

    def checks(self) -> dict[str, Check]:
        """Read the checks of the run by name."""
        return {path.stem: read_check(path) for path in check_files(self.run)}

    def comparison(self) -> Comparison | None:
        """Return how each pair of methods compares; None if there is nothing to compare."""
        results = self.results
        if results.pairs_digest is None or self.compared is not None:
            return None if results.pairs_digest is None else self.compared
        path = self.path / PAIRS
        text = read_whole(path).decode(errors="replace") if path.exists() else ""
        pairs = read_pairs(text, self.metrics) if pairs_digest(text) == results.pairs_digest else ()
        ranked = {(row.metric, row.method) for row in results.ranking}
        if not pairs or not ranked >= {(pair.metric, name) for pair in pairs for name in (pair.first, pair.second)}:
            raise RunError(
                f"{str(path)!r} is missing or damaged, or belongs to later settings. Use what `ask` returned, or open "
                f"the run again. {_REMEDY}"
            )
        return Comparison(
            confidence=results.confidence,
            ranking=results.ranking,
            pairs=pairs,
            pareto=results.front,
            baselines=results.never_best,
        )

    @property
    def incomplete(self) -> dict[str, tuple[str, ...]]:
        """Methods of the run without results, or without those of some metrics, each with those metrics."""
        added = {name: tuple(self.metrics) for name in self.manifest.methods if name not in self.results.methods}
        return {**added, **self.results.incomplete}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for every table of this run: which methods are incomplete, and what to do."""
        return tuple(
            f"{method} is incomplete: {', '.join(metrics) or 'maps'} {'are' if len(metrics) != 1 else 'is'} missing. "
            + (
                f"It failed: {first_line(self.failures[method])}"
                if method in self.failures
                else "Evaluate it again in the same directory to compute what is missing."
            )
            for method, metrics in self.incomplete.items()
        )

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each method took, maps and probes together."""
        return self.run.seconds()


def _check_settings(results: Results) -> None:
    """Refuse settings whose metrics or imputer cannot be rebuilt, by the name of the field."""
    settings = results.settings
    try:
        settings.values()
        restore_imputer(settings.imputer)
    except KeyError as error:
        raise ValueError(f"`settings` must have {error}; it is missing.") from None
    measured = [*results.soundness_up_to, *(name for method in results.methods.values() for name in method.metrics)]
    for name in measured:
        if name not in settings.metrics:
            raise unknown("settings.metrics", name, settings.metrics)


def write_results(run: Run, analysis: Analysis) -> None:
    """Write results.json, results.csv and pairs.csv."""
    run.write_text(PAIRS, analysis.pairs)  # before results.json, which holds its digest
    run.write_json("results.json", to_json(analysis.results))
    analysis.results.write_csv(run.path / "results.csv")


def unfinished_results(manifest: Manifest, reason: str) -> Results:
    """Return the results of a run that lacks units of other jobs: no numbers, and the reason as a warning."""
    return Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        settings=manifest.settings,
        accuracy=math.nan,
        soundness_up_to={},
        methods={},
        incomplete={name: tuple(manifest.settings.metrics) for name in manifest.methods},
        warnings=(reason,),
    )


def run_labels(runs: Sequence[StoredRun]) -> list[str]:
    """Return a short name of each run: that of its directory, or its path if two directories share a name."""
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in runs]
    # The same run may occur twice.
    before = [names[:k].count(name) for k, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]
