"""Evaluations: a run with its results, to be read, shown and asked again."""

from __future__ import annotations

import dataclasses
import html
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch

from twinlens.core.fields import JSON, convert, from_json, to_json
from twinlens.core.plotting import COLOURS, html_table, new_axes
from twinlens.errors import RunError, unknown
from twinlens.imputation.imputers import Imputer, restore_imputer
from twinlens.metrics.catalogue import Metric, MetricRequests, find_metrics
from twinlens.metrics.curves import Curve
from twinlens.running.analysis import Analysis, TableReader, analyse
from twinlens.running.directory import Run, read_json, read_run
from twinlens.running.manifest import Manifest, Question
from twinlens.running.results import Results

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

    def __repr__(self) -> str:
        return f"Evaluation({len(self.methods)} methods, {self.results.data.samples} samples, in {str(self.path)!r})"

    def _repr_html_(self) -> str:
        results = self.results
        body = [
            [html.escape(method), *(_cell(results, method, metric) for metric in self.metrics)]
            for method in results.best_first()
        ]
        heads = ["method", *(results.about(metric).short for metric in self.metrics)]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p><b>{html.escape(self.title)}</b></p>{html_table(heads, body)}{notes}"

    @property
    def title(self) -> str:
        """What was evaluated, in a line."""
        data = self.results.data
        accuracy = f"accuracy {self.results.accuracy:.1%}"
        return f"{self.results.model.name} on {data.samples} samples of {data.name}: {accuracy}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the soundness–completeness plane, one point per method."""
        axes, plane = new_axes(ax), self.results.plane
        if not plane:
            raise ValueError("`metrics` must hold soundness and completeness for the plane; ask for both.")
        for k, method in enumerate(self.methods):
            x, y = (self.results.area(method, metric) for metric in plane)
            if x is not None and y is not None:
                axes.plot(x, y, "o", color=COLOURS[k % len(COLOURS)], label=method)
        axes.set_xlabel(f"{plane[0]} (area)")
        axes.set_ylabel(f"{plane[1]} (area)")
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
        """The metrics themselves, but for those with a function of the user's that is not at hand."""
        return {**self.results.question.values(), **self.own}

    def curve(self, method: str, metric: str) -> Curve:
        """Read a method's curve, with the probe table that it came from."""
        if method not in self.methods:
            raise unknown("method", method, self.methods)
        known = self.results.methods[method].metrics
        if metric not in known:
            raise unknown("metric", metric, known)
        if metric not in self.metric_values:
            raise RunError(f"{metric} was measured by a function of yours. Ask again with it: evaluation.ask(…).")
        return self.reader.curve(method, self.metric_values[metric])

    def ids(self) -> tuple[str, ...]:
        """Return the names of all samples, in the order of maps and tables."""
        return self.run.load_untouched(self.run.manifest.shards).ids

    def maps(self, method: str) -> torch.Tensor:
        """Read the maps of all samples (N, *S)."""
        return torch.cat([self.run.load_maps(method, shard) for shard in range(self.run.manifest.shards)])

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
            "Evaluate it again in the same directory, and what is missing is computed."
            for method, lacking in self.incomplete.items()
        )

    def overview(self) -> dict[str, JSON]:
        """Return the most important numbers as plain values: the accuracy, and the area of each curve."""
        results = self.results
        return {
            "run": str(self.path),
            "model": results.model.name,
            "data": results.data.name,
            "samples": results.data.samples,
            "skipped": to_json(results.data.skipped),
            "accuracy": results.accuracy,
            "incomplete": to_json(self.incomplete),
            "areas": {
                method: {metric: curve.area for metric, curve in found.metrics.items()}
                for method, found in results.methods.items()
            },
        }

    def summary(self) -> pd.DataFrame:
        """Return one row per method and metric: the area of the curve as `value`, with its interval.

        What an incomplete method lacks has a row without numbers.
        """
        rows = [
            {
                "method": method,
                "metric": metric,
                "value": curve.area,
                "low": curve.area_interval[0] if curve.area_interval else None,
                "high": curve.area_interval[1] if curve.area_interval else None,
            }
            for method, found in self.results.methods.items()
            for metric, curve in found.metrics.items()
        ]
        rows += [
            {"method": method, "metric": metric} for method, lacking in self.incomplete.items() for metric in lacking
        ]
        frame = pd.DataFrame(rows, columns=["method", "metric", "value", "low", "high"])
        return frame.astype({"value": float, "low": float, "high": float})

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each method took, its maps and its probes together."""
        total: dict[str, float] = {}
        for name, seconds in _read_timings(self.path / "timings.json").items():
            method = name.partition("/")[0]
            total[method] = total.get(method, 0.0) + seconds
        return total

    def ask(self, metrics: MetricRequests, *, resamples: int | None = None) -> Evaluation:
        """Ask another question of the same probes; no model is called, and results.json is written anew.

        Args:
            metrics: names in `METRICS`, metrics as values, or a table from names of your own to either. Their imputer
                is the run's where they have none of their own.
            resamples: behind intervals and comparisons; as before by default.

        Returns:
            The new results.

        Raises:
            RunError: if probes are missing that no stored sweep holds.
        """
        main = self.imputer or restore_imputer(self.results.question.imputer)
        neighbours = self.run.manifest.data.has_neighbours
        values = {name: metric.bound(main, neighbours=neighbours) for name, metric in find_metrics(metrics).items()}
        for name, metric in values.items():
            if not any(self.reader.readable(method, metric) for method in self.methods):
                raise RunError(
                    f"{self.run} has no probes for {name}: it needs levels or an imputer that were not measured. Run "
                    "evaluate with this metric on the same directory; only what is missing is computed."
                )
        before = self.results.question
        question = Question.of(values, main, resamples=resamples or before.resamples, show=before.show)
        run, manifest = self.run, dataclasses.replace(self.run.manifest, question=question)
        run.write_manifest(manifest)
        return write_analysis(self.reader, values, question, main)[0]


def _cell(results: Results, method: str, metric: str) -> str:
    curve = results.methods[method].metrics.get(metric)
    if curve is None or curve.area is None:
        return "–"
    number = f"<b>{curve.area:z.3f}</b>" if method in results.best(metric) else f"{curve.area:z.3f}"
    ends = curve.area_interval
    return number + (f"<br><small>{ends[0]:z.3f} to {ends[1]:z.3f}</small>" if ends else "")


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
    return Evaluation(run, results, TableReader(run))


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
    reader: TableReader, metrics: Mapping[str, Metric], question: Question, imputer: Imputer | None
) -> tuple[Evaluation, Analysis]:
    """Analyse a run, and write results.json and results.csv."""
    run = reader.run
    analysis = analyse(reader, metrics, question)
    run.write_json("results.json", to_json(analysis.results))
    analysis.results.write_csv(run.path / "results.csv")
    return Evaluation(run, analysis.results, reader, dict(metrics), imputer), analysis


def add_timings(run: Run[Manifest], seconds: Mapping[str, float]) -> None:
    """Add the seconds of this session to those of the sessions before."""
    path = run.path / "timings.json"
    before = _read_timings(path)
    names = [*before, *(name for name in seconds if name not in before)]
    run.write_json("timings.json", {name: before.get(name, 0.0) + seconds.get(name, 0.0) for name in names})


def _read_timings(path: Path) -> dict[str, float]:
    """Read timings.json; nothing else depends on it, so a damaged one is no error, and is replaced."""
    if not path.exists():
        return {}
    try:
        return dict(convert(read_json(path), Mapping[str, float], path.name))
    except (ValueError, TypeError):
        warnings.warn(f"{str(path)!r} is damaged: times are counted anew.", stacklevel=2)
        return {}
