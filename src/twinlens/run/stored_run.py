"""A run with its results, read from its directory."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from twinlens.errors import RunError, first_line, short_repr, unknown
from twinlens.imputation.imputers import Imputer, restore_imputer
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep
from twinlens.run.analysis import Analysis
from twinlens.run.check_records import Check, check_files, read_check
from twinlens.run.directory import Run, RunDirectory, check_name, is_name, read_json, read_run
from twinlens.run.manifest import Manifest
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.pairs_table import pairs_digest, pairs_text, read_pairs
from twinlens.run.queries import FOLDER as QUERIES
from twinlens.run.queries import PAIRS as PAIRS_KEY
from twinlens.run.queries import check_replaceable, query_content, query_digest, query_files
from twinlens.run.results import CurveResults, Results
from twinlens.run.table_reader import TableReader
from twinlens.statistics.verdicts import Comparison
from twinlens.support.fields import from_json, to_json
from twinlens.support.files import as_path, read_whole, write_json

_REMEDY = "Start the run again with the same command to write it anew."
_ASK_AGAIN = "Remove it, and ask again with the same settings."
R = TypeVar("R", bound="StoredRun")


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A run with its results; curves and maps are read from its directory on demand."""

    run: Run = field(repr=False)
    results: Results = field(repr=False)
    """The content of results.json, or of the file of a query."""
    reader: TableReader = field(repr=False)
    own: Mapping[str, Metric] = field(default_factory=dict, repr=False)
    """The metrics as Python objects, among them custom ones, which no file can hold."""
    imputer: Imputer | None = field(default=None, repr=False)
    """The imputer as a Python object; None for that of run.json."""
    compared: Comparison | None = field(default=None, repr=False)
    """The comparison of the methods, if it was just computed."""
    failures: Mapping[str, Exception] = field(default_factory=dict, repr=False)
    """The errors of methods that failed in this call, by name."""
    query: str | None = None
    """Name of the query, if these are results with other settings (see `ask`); None for the run's own results."""
    query_file: Path | None = field(default=None, repr=False)
    """Where the query is stored; None if it is not."""
    pairs: str = field(default="", repr=False)
    """The content of pairs.csv, for a query."""
    outdated: str | None = field(default=None, repr=False)
    """What the run has measured since a query was stored; None if nothing."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], results: str | os.PathLike[str] | None = None) -> Self:
        """Open a run that has results: its own, or those of a query, by its name or file."""
        run = read_run(path)
        file = run.path / "results.json"
        if not file.exists():
            raise RunError(f"{run} has no results yet. Start it again with the same command to resume it.")
        own = _read_results(run, file, read_json(file, _REMEDY), _REMEDY)
        if run.manifest.rounds is not None:  # the current round has no results yet
            run = Run(run.path, dataclasses.replace(run.manifest, data=own.data))
        opened = cls(run, own, TableReader(run))
        return opened if results is None else opened.open_query(results)

    def queries(self) -> list[str]:
        """Return the names of the queries that are stored with the run."""
        return [path.stem for path in query_files(self.run)]

    def open_query(self, results: str | os.PathLike[str]) -> Self:
        """Open the results of a query of this run, by its name or file."""
        file = self._find_query(results)
        stored = read_json(file, _ASK_AGAIN)
        pairs = stored.pop(PAIRS_KEY, None) if isinstance(stored, dict) else None
        own = _read_results(self.run, file, stored, _ASK_AGAIN)
        rounds = self.manifest.rounds is not None
        same = [(each.model, each.seed, None if rounds else each.data) for each in (own, self.results)]
        if same[0] != same[1] or not is_name(file.stem):
            raise RunError(f"{str(file)!r} holds no query of {self.run}: its model, data, seed or name is another.")
        run, reader = self.run, self.reader
        if own.data != self.results.data:  # of another round
            run = Run(run.path, dataclasses.replace(run.manifest, data=own.data))
            reader = TableReader(run)
        query = type(self)(
            run,
            own,
            reader,
            query=file.stem,
            query_file=file,
            pairs="\n".join(map(str, pairs)) if isinstance(pairs, list) else "",
        )
        return dataclasses.replace(query, outdated=_measured_since(query, self.results))

    def _find_query(self, results: str | os.PathLike[str]) -> Path:
        if is_name(results):
            file = self.path / QUERIES / f"{results}.json"
            if file.exists():
                return file
        try:
            file = as_path(results)
            if file.suffix == ".json" and file.is_file():
                return file
        except (ValueError, OSError, ImportError):  # not a path
            pass
        names = self.queries()
        if not names:
            raise RunError(f"`results` is {short_repr(results)}, and {self.run} has no queries: `ask` stores them.")
        raise unknown("results", results, names)

    @property
    def file(self) -> Path | None:
        """Where these results are stored; None for a query that is not."""
        return self.path / "results.json" if self.query is None else self.query_file

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
        query = "" if self.query is None else f"; query {self.query}"
        return f"{self.results.model.name} on {data.samples} samples of {data.name}: {quality}{query}"

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
        path = self.path / PAIRS if self.query is None else self.query_file
        text = self.pairs
        if self.query is None:
            text = read_whole(path).decode(errors="replace") if path is not None and path.exists() else ""
        pairs = read_pairs(text, self.metrics) if pairs_digest(text) == results.pairs_digest else ()
        ranked = {(row.metric, row.method) for row in results.ranking}
        if not pairs or not ranked >= {(pair.metric, name) for pair in pairs for name in (pair.first, pair.second)}:
            remedy = f"or belongs to later results: open the run again. {_REMEDY}" if self.query is None else _ASK_AGAIN
            raise RunError(f"{str(path)!r} is missing or damaged. {remedy}")
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
        if self.query is not None:  # methods that the run has measured since are in `outdated`
            return dict(self.results.incomplete)
        added = {name: tuple(self.metrics) for name in self.manifest.methods if name not in self.results.methods}
        return {**added, **self.results.incomplete}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for every table of this run: whether a query is outdated, which methods are incomplete, what to do."""
        incomplete = tuple(
            f"{method} is incomplete: {', '.join(metrics) or 'maps'} {'are' if len(metrics) != 1 else 'is'} missing. "
            + (
                f"It failed: {first_line(self.failures[method])}"
                if method in self.failures
                else "Evaluate it again in the same directory to compute what is missing."
            )
            for method, metrics in self.incomplete.items()
        )
        if self.outdated is None:
            return incomplete
        return (f"The query {self.query} is outdated: {self.outdated}. Ask again to include them.", *incomplete)

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each method took, maps and probes together."""
        return self.run.seconds()


def _read_results(run: Run, file: Path, stored: Any, remedy: str) -> Results:
    """Read the content of results.json, or of the file of a query."""
    try:
        results = from_json(Results, stored, file.name)
        _check_settings(results)
        for name in (*results.methods, *results.incomplete):
            check_name(name)
            if name not in run.manifest.methods:
                raise unknown("methods", name, run.manifest.methods, or_else=", as in run.json")
    except (ValueError, TypeError) as error:
        raise RunError(f"{str(file)!r} is damaged: {error} {remedy}") from None
    return results


def _measured_since(query: StoredRun, own: Results) -> str | None:
    """Return what a run has measured since a query was stored; None if the same query would be answered the same."""
    results, reader = query.results, query.reader
    if results.data != own.data:
        return f"the run has {own.data.samples} samples now, and not {results.data.samples}"
    grown = []
    for method in query.manifest.methods:
        curves = results.methods[method].metrics if method in results.methods else None
        if curves is None:
            more = method not in results.incomplete or reader.complete(method)
        else:
            more = any(
                reader.readable(method, sweeps)
                for name, metric in query.metric_values.items()
                if (sweeps := _missing_sweeps(query, metric, curves.get(name)))
            )
        if more:
            grown.append(method)
    return f"the run has new measurements of {', '.join(grown)}" if grown else None


def _missing_sweeps(query: StoredRun, metric: Metric, curve: CurveResults | None) -> tuple[Sweep, ...]:
    """Return the sweeps that were missing when a method's curve was read, or those of its control; empty if none."""
    settings, features = query.results.settings, query.reader.features
    if curve is None:
        return tuple(metric.sweeps(features))
    if curve.skill is None and curve.area.value is not None and settings.control != "none":
        return settings.exchanged(metric, features)
    return ()


def _check_settings(results: Results) -> None:
    """Refuse settings whose metrics or imputer cannot be rebuilt, by the name of the field."""
    settings = results.settings
    settings.values()
    restore_imputer(settings.imputer)
    measured = [*results.soundness_up_to, *(name for method in results.methods.values() for name in method.metrics)]
    for name in measured:
        if name not in settings.metrics:
            raise unknown("settings.metrics", name, settings.metrics)


def write_results(run: Run, analysis: Analysis) -> None:
    """Write results.json, results.csv and pairs.csv."""
    run.write_text(PAIRS, analysis.pairs)  # before results.json, which holds its digest
    run.write_json("results.json", to_json(analysis.results))
    analysis.results.write_csv(run.path / "results.csv")


def store_query(answer: R, name: str | None = None, folder: Path | None = None) -> R:
    """Store a query in its run, or in another folder, and return it with its file.

    A file of the run is replaced only by the same query, which may have more to read by now; a file elsewhere, which
    may be of another run, never. A query without a name has one that is derived from its settings; if it is taken, a
    digest is added.
    """
    pairs = answer.pairs if answer.compared is None else pairs_text(answer.compared.pairs)
    content = query_content(answer.results, pairs)
    with nullcontext() if folder is not None else RunDirectory(answer.path):
        answer.run.check_there()
        file = (folder or answer.path / QUERIES) / f"{name or answer.query}.json"
        try:
            check_replaceable(file, content, own=folder is None)
        except RunError:
            if name is not None:
                raise
            file = file.with_name(f"{answer.query}-{query_digest(answer.results.settings)}.json")
            check_replaceable(file, content, own=folder is None)
        write_json(file, content)
    return dataclasses.replace(answer, query=file.stem, query_file=file)


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
    queries = ["" if run.query is None else f" ({run.query})" for run in runs]
    names = [run.path.resolve().name + query for run, query in zip(runs, queries, strict=True)]
    if len(set(names)) < len(names):
        names = [str(run.path) + query for run, query in zip(runs, queries, strict=True)]
    # The same run may occur twice.
    before = [names[:k].count(name) for k, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]
