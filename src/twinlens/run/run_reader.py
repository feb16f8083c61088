"""Evaluations: a run with its results, to be read, shown and asked again."""

from __future__ import annotations

import dataclasses
import html
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch

from twinlens.errors import RunError, first_line, unknown
from twinlens.imputation.imputers import Imputer, restore_imputer
from twinlens.metrics.catalogue import MetricRequests, find_metrics
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.options import Part
from twinlens.run.analysis import Analysis, analyse
from twinlens.run.check_records import Check, check_files, read_check
from twinlens.run.directory import Run, RunDirectory, read_json, read_run
from twinlens.run.manifest import Manifest
from twinlens.run.notebook_cells import check_cell, skill_cell, value_cell
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.pairs_table import pairs_digest, read_pairs
from twinlens.run.results import CurveResults, Results
from twinlens.run.side_columns import side_columns
from twinlens.run.table_reader import TableReader
from twinlens.run.wording import describe_stopping, find_headlines, name_of
from twinlens.statistics.verdicts import Comparison
from twinlens.support.arguments import checked
from twinlens.support.fields import JSON, convert, from_json, to_json
from twinlens.support.files import read_whole
from twinlens.support.plotting import COLOURS, draw_arrow, html_table, marker_fill, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a run; curves and maps are read from its directory when they are needed."""

    run: Run[Manifest] = field(repr=False)
    """The run directory."""

    results: Results = field(repr=False)
    """What results.json holds."""

    reader: TableReader = field(repr=False)
    """Reads the run's probe tables."""

    own: Mapping[str, Metric] = field(default_factory=dict, repr=False)
    """Metrics at hand, among them those with a function of yours, which no file can hold."""

    imputer: Imputer | None = field(default=None, repr=False)
    """The imputer at hand; None for that of run.json."""

    failures: Mapping[str, Exception] = field(default_factory=dict, repr=False)
    """Why methods failed that were to be evaluated just now, by name."""

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        samples = self.results.data.samples
        return f"Evaluation({len(self.methods)} methods{failed}, {samples} samples, in {str(self.path)!r})"

    def _repr_html_(self) -> str:
        results, heads = self.results, ["method"]
        judged = [metric for metric in results.sides if any(results.control(name, metric) for name in self.methods)]
        for metric in self.metrics:
            heads += [results.about(metric).short, *(["skill ↑"] if metric in judged else [])]
        beside, body = side_columns(self), []
        heads += [html.escape(column.short) for column in beside]
        for method in results.best_first():
            name = html.escape(method)
            row = [f"<i>{name} (control)</i>" if results.methods[method].control else name]
            for metric in self.metrics:
                row += [
                    value_cell(results, method, metric),
                    *([skill_cell(results, method, metric)] if metric in judged else []),
                ]
            body.append([*row, *(check_cell(column.values.get(method)) for column in beside)])
        stopped = [describe_stopping(results.stopping)] if results.stopping else []
        said = "".join(f"<li>{html.escape(text)}</li>" for text in (*self.notes, *stopped, *find_headlines(results)))
        return f"<p><b>{html.escape(self.title)}</b></p>{f'<ul>{said}</ul>' if said else ''}{html_table(heads, body)}"

    @property
    def title(self) -> str:
        """What was evaluated, in a line."""
        data, quality = self.results.data, self.results.describe_quality() or "no results yet"
        return f"{self.results.model.name} on {data.samples} samples of {data.name}: {quality}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the soundness–completeness plane.

        Each method is an arrow, from what its maps score when they are exchanged between the samples to what they score
        themselves. A marker is left empty towards the side on which a method does no better than exchanged maps.
        """
        axes, plane = new_axes(ax), self.results.plane
        if not plane:
            raise ValueError("`metrics` must hold soundness and completeness for the plane; ask for both.")
        for k, method in enumerate(self.methods):
            x, y = (self.results.area(method, metric) for metric in plane)
            if x is None or y is None:
                continue
            colour, exchanged = COLOURS[k % len(COLOURS)], exchanged_point(self.results, method)
            fill = marker_fill([self.results.knows(method, metric) for metric in plane], colour)
            axes.plot(x, y, "o", color=colour, label=method, **fill)
            if exchanged is not None:
                draw_arrow(axes, exchanged, (x, y), colour)
        axes.set_xlabel(f"{name_of(self.results, plane[0])} (area)")
        axes.set_ylabel(f"{name_of(self.results, plane[1])} (area)")
        axes.legend()
        return axes

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are complete."""
        return list(self.results.methods)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(self.results.question.metrics)

    @cached_property
    def metric_values(self) -> dict[str, Metric]:
        """The metrics themselves, but for those that are, or measure by a function of, the user's and not at hand."""
        return {**self.results.question.values(), **self.own}

    def curve(self, method: str, metric: str) -> Curve:
        """Read a method's curve, with the probe table that it came from."""
        if method not in self.methods:
            raise unknown("method", method, self.methods)
        known = self.results.methods[method].metrics
        if metric not in known:
            raise unknown("metric", metric, known)
        if metric not in self.metric_values:
            raise RunError(f"{metric} was measured by a function of yours, or is yours. Ask again: evaluation.ask(…).")
        curve = self.reader.curve(method, self.metric_values[metric])
        self.reader.forget()
        return curve

    def ids(self) -> tuple[str, ...]:
        """Return the names of all samples, in the order of maps and tables."""
        return self.run.load_untouched(self.run.manifest.shards).ids

    def maps(self, method: str) -> torch.Tensor:
        """Read the maps of all samples (N, *S)."""
        return torch.cat([self.run.load_maps(method, shard) for shard in range(self.run.manifest.shards)])

    def checks(self) -> dict[str, Check]:
        """Read the checks that `twinlens check` stored in the run, by their names."""
        return {path.stem: read_check(path) for path in check_files(self.run)}

    def comparison(self) -> Comparison | None:
        """Read how each pair of methods compares, from pairs.csv; None where there was nothing to compare."""
        results = self.results
        if results.pairs_digest is None:
            return None
        path = self.path / PAIRS
        text = read_whole(path).decode(errors="replace") if path.exists() else ""
        pairs = read_pairs(text, self.metrics) if pairs_digest(text) == results.pairs_digest else ()
        ranked = {(row.metric, row.method) for row in results.ranking}
        if not pairs or not ranked >= {(pair.metric, name) for pair in pairs for name in (pair.first, pair.second)}:
            raise RunError(
                f"{str(path)!r} is missing or damaged, or answers a question that was asked since. Take what `ask` "
                "returned, or open the run again. Start the run again with the same command, and it is written anew."
            )
        return Comparison(
            confidence=results.confidence,
            standings=results.ranking,
            pairs=pairs,
            pareto=results.front,
            controls=results.beside,
        )

    @property
    def incomplete(self) -> dict[str, tuple[str, ...]]:
        """Methods of the run that the results lack, or lack metrics of, each with those metrics."""
        added = {name: tuple(self.metrics) for name in self.run.manifest.methods if name not in self.results.methods}
        return {**added, **self.results.incomplete}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any table of this run has to know: which methods are incomplete, and what to do."""
        return tuple(
            f"{method} is incomplete: {', '.join(lacking) or 'maps'} {'are' if len(lacking) != 1 else 'is'} missing. "
            + (
                f"It failed: {first_line(self.failures[method])}"
                if method in self.failures
                else "Evaluate it again in the same directory, and what is missing is computed."
            )
            for method, lacking in self.incomplete.items()
        )

    def overview(self) -> dict[str, JSON]:
        """Return the most important numbers as plain values: the accuracy, areas and skill, and what they say."""
        results = self.results
        return {
            "run": str(self.path),
            "model": results.model.name,
            "data": results.data.name,
            "samples": results.data.samples,
            "skipped": to_json(results.data.skipped),
            "stopping": to_json(results.stopping),
            "accuracy": to_json(results.accuracy),
            "incomplete": to_json(self.incomplete),
            "areas": {
                method: {metric: curve.area for metric, curve in found.metrics.items()}
                for method, found in results.methods.items()
            },
            "skill": {
                method: {metric: curve.control.skill for metric, curve in found.metrics.items() if curve.control}
                for method, found in results.methods.items()
            },
            "properties": {
                method: {name: found.value for name, found in own.properties.items()}
                for method, own in results.methods.items()
            },
            "headlines": to_json(find_headlines(results)),
            "warnings": to_json(results.warnings),
        }

    def summary(self) -> pd.DataFrame:
        """Return one row per method and metric.

        Columns: `value` (the area of the curve) with its interval `low` to `high`; `control`, the same for maps
        exchanged between the samples; `skill`, by how much own maps are better, with `skill_low`, `skill_high` and the
        p-value `p` of no skill. What a reader should know is in `frame.attrs["warnings"]`. What an incomplete method
        lacks has a row without numbers.
        """
        rows = [
            {"method": method, "metric": metric, **_numbers(curve)}
            for method, found in self.results.methods.items()
            for metric, curve in found.metrics.items()
        ]
        rows += [
            {"method": method, "metric": metric} for method, lacking in self.incomplete.items() for metric in lacking
        ]
        frame = pd.DataFrame(rows, columns=["method", "metric", *_NUMBERS]).astype(dict.fromkeys(_NUMBERS, float))
        frame.attrs["warnings"] = [*self.notes, *self.results.warnings]
        return frame

    def properties(self) -> pd.DataFrame:
        """Return what stands beside soundness and completeness, one row per method and property.

        Of every run there are "sparseness" (the Gini index) and "entropy" of the maps; of checks that were made, such
        as "max_sensitivity", "class_similarity" and "ceiling", what the table of the run shows of them. Columns:
        `value`, a mean over samples, with its interval `low` to `high`, and `samples`, the number of samples with one.
        """
        found = [
            (method, name, value)
            for method, own in self.results.methods.items()
            for name, value in own.properties.items()
        ]
        made = [
            (method, column.name, value) for column in side_columns(self) for method, value in column.values.items()
        ]
        found += [each for each in made if each[1] not in ("sparseness", "entropy")]
        rows = [(method, name, value.value, value.low, value.high, value.samples) for method, name, value in found]
        frame = pd.DataFrame(rows, columns=["method", "property", "value", "low", "high", "samples"])
        return frame.astype(dict.fromkeys(("value", "low", "high"), float) | {"samples": int})

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each method took, its maps and its probes together."""
        total: dict[str, float] = {}
        for path in sorted(self.path.glob("timings*.json")):
            for name, seconds in _read_timings(path).items():
                method = name.partition("/")[0]
                total[method] = total.get(method, 0.0) + seconds
        return total

    def ask(self, metrics: MetricRequests, *, resamples: int | None = None) -> Evaluation:
        """Ask another question of the same probes; no model is called, and results.json is written anew.

        Args:
            metrics: names, metrics as values, or a table from names of your own to either. Their imputer
                is the run's where they have none of their own.
            resamples: behind intervals and comparisons; as before by default.

        Returns:
            The new results.

        Raises:
            RunError: if probes are missing that no stored sweep holds, or another process is at work in the run.
        """
        main = self.imputer or restore_imputer(self.results.question.imputer)
        neighbours = self.run.manifest.data.has_neighbours
        values = {name: metric.bound(main, neighbours=neighbours) for name, metric in find_metrics(metrics).items()}
        for name, metric in values.items():
            if not any(self.reader.readable(method, metric.sweeps(self.reader.features)) for method in self.methods):
                raise RunError(
                    f"{self.run} has no probes for {name}: it needs levels or an imputer that were not measured. Run "
                    "evaluate with this metric on the same directory; only what is missing is computed."
                )
        question = self.results.question.asking(values, main, resamples)
        with RunDirectory(self.path, Manifest) as directory:
            self.run.check_there()
            there = directory.manifest or self.run.manifest
            # Another process may have added methods since this run was opened: they belong to it now.
            grown = (there.methods, there.sweeps) != (self.reader.manifest.methods, self.reader.manifest.sweeps)
            self.run.write_manifest(dataclasses.replace(there, question=question, data=self.run.manifest.data))
            reader = TableReader(self.run) if grown else self.reader
            reader.properties |= {m: found.properties for m, found in self.results.methods.items() if found.properties}
            return write_analysis(reader, analyse(reader, values, question), values, main)


_NUMBERS = ("value", "low", "high", "control", "skill", "skill_low", "skill_high", "p")


def _numbers(curve: CurveResults) -> dict[str, float | None]:
    control = curve.control
    ends = curve.area_interval or (None, None)
    skill = (control.value, control.skill, control.low, control.high, control.p) if control else (None,) * 5
    return dict(zip(_NUMBERS, (curve.area, *ends, *skill), strict=True))


def exchanged_point(results: Results, method: str) -> tuple[float, float] | None:
    """Return a method's place on the plane with exchanged maps; None where that is not known on both sides."""
    controls = [results.control(method, metric) for metric in results.plane]
    values = [control.value for control in controls if control is not None and control.value is not None]
    return (values[0], values[1]) if len(values) == 2 else None


@checked
def open_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Open the results of a run that has ended."""
    run = read_run(path)
    file = run.path / "results.json"
    if not file.exists():
        raise RunError(f"{run} has no results yet. Start it again with the same command, and it goes on.")
    remedy = "Start the run again with the same command, and it is written anew."
    stored = read_json(file, remedy)
    try:
        results = from_json(Results, stored, "results.json")
        _check_question(results)
    except (ValueError, TypeError) as error:
        raise RunError(f"{str(file)!r} is damaged: {error} {remedy}") from None
    if run.manifest.rounds is not None:  # of which the one that is being measured has no results yet
        run = Run(run.path, dataclasses.replace(run.manifest, data=results.data))
    return Evaluation(run, results, TableReader(run))


def run_labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return a short name of each run: that of its directory, or its path where two directories share a name."""
    names = [evaluation.path.resolve().name for evaluation in evaluations]
    if len(set(names)) < len(names):
        names = [str(evaluation.path) for evaluation in evaluations]
    # One run may be there twice.
    before = [names[:k].count(name) for k, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]


def _check_question(results: Results) -> None:
    """Refuse a question whose metrics or imputer cannot be made again, by the name of the field."""
    question = results.question
    try:
        question.values()
        restore_imputer(question.imputer)
    except KeyError as error:
        raise ValueError(f"`question` must have {error}; it is missing.") from None
    measured = [*results.soundness_up_to, *(name for found in results.methods.values() for name in found.metrics)]
    for name in measured:
        if name not in question.metrics:
            raise unknown("question.metrics", name, question.metrics)


def write_analysis(
    reader: TableReader, analysis: Analysis, metrics: Mapping[str, Metric], imputer: Imputer | None
) -> Evaluation:
    """Write results.json, results.csv and pairs.csv."""
    run = reader.run
    run.write_text(PAIRS, analysis.pairs)  # before the results that hold its digest
    run.write_json("results.json", to_json(analysis.results))
    analysis.results.write_csv(run.path / "results.csv")
    return Evaluation(run, analysis.results, reader, dict(metrics), imputer)


def unfinished_evaluation(
    run: Run[Manifest], metrics: Mapping[str, Metric], imputer: Imputer, reason: str
) -> Evaluation:
    """Return the evaluation of a run that lacks units of other parts: without results, and nothing is written."""
    manifest = run.manifest
    results = Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        question=manifest.question,
        accuracy=math.nan,
        soundness_up_to={},
        methods={},
        incomplete={name: tuple(metrics) for name in manifest.methods},
        warnings=(reason,),
    )
    return Evaluation(run, results, TableReader(run), dict(metrics), imputer)


def add_timings(run: Run[Manifest], seconds: Mapping[str, float], part: Part | None = None) -> None:
    """Add the seconds of this session to those of the sessions before; each part has a file of its own."""
    path = run.path / ("timings.json" if part is None else f"timings-{part.number}-of-{part.of}.json")
    before = _read_timings(path)
    names = [*before, *(name for name in seconds if name not in before)]
    run.write_json(path.name, {name: before.get(name, 0.0) + seconds.get(name, 0.0) for name in names})


def _read_timings(path: Path) -> dict[str, float]:
    """Read timings.json; nothing else depends on it, so a damaged one is no error, and is replaced."""
    if not path.exists():
        return {}
    try:
        return dict(convert(read_json(path), Mapping[str, float], path.name))
    except (ValueError, TypeError):
        warnings.warn(f"{str(path)!r} is damaged: times are counted anew.", stacklevel=2)
        return {}
