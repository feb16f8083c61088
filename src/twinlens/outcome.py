"""The outcome of an evaluation: a run with its results, to show and to query."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from twinlens.errors import RunError
from twinlens.imputation.imputers import describe_imputer, restore_imputer
from twinlens.metrics.catalogue import MetricRequests, describe_metric, find_metrics
from twinlens.report.figures import plot_plane, plot_tradeoff
from twinlens.report.results_table import side_columns
from twinlens.report.table_formats import notebook_html
from twinlens.run.analysis import analyse
from twinlens.run.directory import Run, check_name, read_manifest
from twinlens.run.queries import query_name
from twinlens.run.results import CurveResults
from twinlens.run.stored_run import StoredRun, store_query
from twinlens.run.table_reader import TableReader
from twinlens.run.wording import find_headlines
from twinlens.support.arguments import checked
from twinlens.support.fields import JSON, to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(StoredRun):
    """The results of a run; curves and maps are read from its directory on demand."""

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        samples = self.results.data.samples
        query = "" if self.query is None else f", query {self.query!r}"
        return f"Evaluation({len(self.methods)} methods{failed}, {samples} samples, in {str(self.path)!r}{query})"

    def _repr_html_(self) -> str:
        return notebook_html(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the soundness–completeness plane.

        Each method is an arrow from the values of its exchanged maps to its own. A marker is empty towards a side on
        which a method is no better than exchanged maps. Dotted lines cross at chance.
        """
        return plot_plane(self, ax)

    def plot_tradeoff(self, ax: Axes | None = None) -> Axes:
        """Draw soundness against completeness as features enter in the map's order, as precision and recall.

        Marks are about 10%, 25% and 50% of the features and the whole map. The dotted line is the soundness of whole
        random maps; bands are intervals of soundness.
        """
        return plot_tradeoff(self, ax)

    def overview(self) -> dict[str, JSON]:
        """Return the most important numbers as plain values: the accuracy, areas and skill, and what they say."""
        results = self.results
        return {
            "run": str(self.path),
            "query": self.query,
            "file": None if self.file is None else str(self.file),
            "model": results.model.name,
            "data": results.data.name,
            "samples": results.data.samples,
            "skipped": to_json(results.data.skipped),
            "stopping": to_json(results.stopping),
            "accuracy": to_json(results.accuracy),
            "incomplete": to_json(self.incomplete),
            "areas": {
                method: {metric: curve.area.value for metric, curve in row.metrics.items()}
                for method, row in results.methods.items()
            },
            "skill": {
                method: {metric: curve.skill.value for metric, curve in row.metrics.items() if curve.skill}
                for method, row in results.methods.items()
            },
            "properties": {
                method: {name: estimate.value for name, estimate in own.properties.items()}
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
            for method, row in self.results.methods.items()
            for metric, curve in row.metrics.items()
        ]
        rows += [
            {"method": method, "metric": metric} for method, lacking in self.incomplete.items() for metric in lacking
        ]
        frame = pd.DataFrame(rows, columns=["method", "metric", *_NUMBERS]).astype(dict.fromkeys(_NUMBERS, float))
        frame.attrs["warnings"] = [*self.notes, *self.results.warnings]
        return frame

    def properties(self) -> pd.DataFrame:
        """Return the properties of each method's maps, one row per method and property.

        Every run has "sparseness" (the Gini index), "entropy" and "negative", a share of the attribution; checks such
        as "max_sensitivity", "class_similarity" and "ceiling" add theirs. Columns: `value`, a mean over samples, with
        its interval `low` to `high`, and `samples`, the number of samples with a value.
        """
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

    def ask(self, metrics: MetricRequests, *, name: str | None = None, resamples: int | None = None) -> Evaluation:
        """Compute other metrics from the same probes: a query, which does not call the model.

        The run's own results do not change. Without a name nothing is written.

        Args:
            metrics: names, metrics as values, or a mapping from your own names to either. Metrics without an imputer
                use that of the run.
            name: stores the results in RUN/results/NAME.json, for `open_evaluation(RUN, results=NAME)`,
                `twinlens report` and the page. A name that other settings have taken is refused.
            resamples: number of bootstrap resamples; as before by default.

        Returns:
            The results of the query. Its `query` is the name, or one derived from the settings; None if the settings
            are the run's own.

        Raises:
            RunError: if the run lacks probes for a metric, or a name is taken; to store it, also if the run is in use
                by another process.
        """
        if name is not None:
            check_name(name, "name")
        main, data = self.imputer or restore_imputer(self.results.settings.imputer), self.manifest.data
        requests = find_metrics(metrics)
        values = {each: metric.bound(main, neighbours=data.has_neighbours) for each, metric in requests.items()}
        self.run.check_there()
        run, reader, stored = self.run, self.reader, read_manifest(self.path)
        if (stored.methods, stored.sweeps) != (reader.manifest.methods, reader.manifest.sweeps):
            # Another process has added methods or probes since this run was opened: they belong to it now.
            run = Run(self.path, dataclasses.replace(stored, data=data))
            reader = TableReader(run)
        complete = [method for method in run.manifest.methods if reader.complete(method)]
        for each, metric in values.items():
            if not any(reader.readable(method, metric.sweeps(reader.features)) for method in complete):
                raise RunError(
                    f"{run} has no probes for {each}: it needs levels or an imputer that were not measured. Run "
                    "evaluate with this metric on the same directory; only what is missing is computed."
                )
        settings = dataclasses.replace(
            self.results.settings,
            metrics={each: describe_metric(metric) for each, metric in values.items()},
            imputer=describe_imputer(main),
            resamples=resamples or self.results.settings.resamples,
        )
        reader.properties |= {m: own.properties for m, own in self.results.methods.items() if own.properties}
        analysis = analyse(reader, values, settings)
        query = name or query_name(settings, stored.settings)
        answer = Evaluation(run, analysis.results, reader, values, main, analysis.comparison, query=query)
        return answer if name is None else store_query(answer, name)


_NUMBERS = ("value", "low", "high", "control", "skill", "skill_low", "skill_high", "p")


def _numbers(curve: CurveResults) -> dict[str, float | None]:
    area, skill = curve.area, curve.skill
    control = None if curve.control is None else curve.control.value
    numbers = (skill.value, skill.low, skill.high, skill.p) if skill else (None,) * 4
    return dict(zip(_NUMBERS, (area.value, area.low, area.high, control, *numbers), strict=True))


@checked
def open_evaluation(path: str | os.PathLike[str], *, results: str | os.PathLike[str] | None = None) -> Evaluation:
    """Open the results of a run.

    Args:
        path: the run directory.
        results: the name of a stored query (see `Evaluation.ask`), or its file; the run's own results by default.
    """
    return Evaluation.open(path, results)
