"""Evaluations: a run with its results, to be read, shown and asked again."""

from __future__ import annotations

import dataclasses
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
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.pairs_table import pairs_digest, read_pairs
from twinlens.run.results import CurveResults, Results
from twinlens.run.table_reader import TableReader
from twinlens.run.wording import find_headlines
from twinlens.statistics.verdicts import Comparison
from twinlens.support.arguments import checked
from twinlens.support.fields import JSON, convert, from_json, to_json
from twinlens.support.files import read_whole

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

    compared: Comparison | None = field(default=None, repr=False)
    """The comparison of its methods, where it was computed in this process; see `comparison`."""

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        samples = self.results.data.samples
        return f"Evaluation({len(self.methods)} methods{failed}, {samples} samples, in {str(self.path)!r})"

    def _repr_html_(self) -> str:
        from twinlens.report.table_formats import notebook_html  # noqa: PLC0415

        return notebook_html(self)

    @property
    def title(self) -> str:
        """What was evaluated, in a line."""
        data, quality = self.results.data, self.results.describe_quality() or "no results yet"
        return f"{self.results.model.name} on {data.samples} samples of {data.name}: {quality}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the soundness–completeness plane.

        Each method is an arrow from the areas of its exchanged maps to its own. A marker is empty towards a side on
        which a method is no better than exchanged maps.
        """
        from twinlens.report.figures import plot_plane  # noqa: PLC0415

        return plot_plane(self, ax)

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
        """Return the comparison of each pair of methods; None where nothing was compared.

        For a run opened from disk, it is read from pairs.csv.
        """
        results = self.results
        if results.pairs_digest is None or self.compared is not None:
            return self.compared if results.pairs_digest else None
        path = self.path / PAIRS
        text = read_whole(path).decode(errors="replace") if path.exists() else ""
        pairs = read_pairs(text, self.metrics) if pairs_digest(text) == results.pairs_digest else ()
        ranked = {(row.metric, row.method) for row in results.ranking}
        if not pairs or not ranked >= {(pair.metric, name) for pair in pairs for name in (pair.first, pair.second)}:
            raise RunError(
                f"{str(path)!r} is missing or damaged, or belongs to other settings. Use what `ask` returned, or open "
                "the run again. Start the run again with the same command to write the file again."
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
                method: {metric: curve.area.value for metric, curve in found.metrics.items()}
                for method, found in results.methods.items()
            },
            "skill": {
                method: {metric: curve.skill.value for metric, curve in found.metrics.items() if curve.skill}
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
        from twinlens.report.results_table import side_columns  # noqa: PLC0415

        numbers = [
            (method, name, estimate)
            for method, own in self.results.methods.items()
            for name, estimate in own.properties.items()
        ]
        numbers += [
            (method, column.key, estimate)
            for column, estimates in side_columns(self).items()
            for method, estimate in estimates.items()
            if column.key != "sparseness"
        ]
        rows = [(method, name, e.value, e.low, e.high, e.samples) for method, name, e in numbers]
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
    area, skill = curve.area, curve.skill
    control = None if curve.control is None else curve.control.value
    numbers = (skill.value, skill.low, skill.high, skill.p) if skill else (None,) * 4
    return dict(zip(_NUMBERS, (area.value, area.low, area.high, control, *numbers), strict=True))


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
    return Evaluation(run, analysis.results, reader, dict(metrics), imputer, compared=analysis.comparison)


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
