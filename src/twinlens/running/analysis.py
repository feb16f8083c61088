"""Analysis: from the probe tables of a run to curves, intervals, comparison and warnings. No model is called.

Every table is read once and every curve resampled once, however many numbers come from it.

Shapes: N samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from twinlens.attribution import CONTROLS
from twinlens.core.arrays import Floats
from twinlens.core.probe_table import ProbeTable
from twinlens.errors import RunError
from twinlens.metrics.catalogue import Metric
from twinlens.metrics.curves import Curve, SoundnessCurve
from twinlens.metrics.sweeps import Sweep
from twinlens.running.directory import Run
from twinlens.running.manifest import Manifest, Question, SweepRecord
from twinlens.running.results import CONFIDENCE, CurveResults, Diagnostic, MethodResults, Results
from twinlens.statistics.bootstrap import Bootstrap, bootstrap
from twinlens.statistics.comparison import Comparison, compare_bootstraps
from twinlens.statistics.diagnostics import diagnose

_KEPT_ROWS = 3_000_000  # rows of probe tables that are kept for the next reader: 150 MB


class TableReader:
    """Reads the probe tables of a run; a run that is small enough stays in memory."""

    def __init__(self, run: Run[Manifest]) -> None:
        self.run, self.manifest = run, run.manifest
        self.features = run.manifest.data.features
        self._tables: dict[tuple[str, str], ProbeTable] = {}
        levels = sum(len(sweep.schedule.levels) for sweep in self.manifest.sweeps)
        self._keeps = self.manifest.data.samples * levels * len(self.manifest.methods) <= _KEPT_ROWS

    def forget(self) -> None:
        """Let go of tables that need not stay in memory."""
        if not self._keeps:
            self._tables.clear()

    def curve(self, method: str, metric: Metric) -> Curve:
        """Read a metric's curve of a method; `readable` tells whether its probes are there."""
        return metric.read([self._table(method, sweep) for sweep in metric.sweeps(self.features)])

    def readable(self, method: str, metric: Metric) -> bool:
        """Tell whether all probes that a metric needs are complete for a method."""
        there = self._sweeps_of(method)
        return all(
            set(sweep.schedule.levels)
            <= {level for record in _of_kind(there, sweep) for level in record.schedule.levels}
            for sweep in metric.sweeps(self.features)
        )

    def complete(self, method: str) -> bool:
        """Tell whether a method has maps of all samples."""
        return all(self.run.maps_part(method, shard).exists() for shard in range(self.manifest.shards))

    def incomplete(self, metrics: Mapping[str, Metric]) -> dict[str, tuple[str, ...]]:
        """Return the methods without all maps, or without the probes of a metric, each with the metrics it lacks."""
        lacks = {
            method: tuple(name for name, metric in metrics.items() if not whole or not self.readable(method, metric))
            for method, whole in ((method, self.complete(method)) for method in self.manifest.methods)
        }
        return {method: names for method, names in lacks.items() if names or not self.complete(method)}

    def _sweeps_of(self, method: str) -> list[SweepRecord]:
        shards = range(self.manifest.shards)
        return [
            sweep
            for sweep in self.manifest.sweeps
            if (method, sweep.name) in self._tables
            or all(self.run.probes_part(method, sweep.name, shard).exists() for shard in shards)
        ]

    def _table(self, method: str, sweep: Sweep) -> ProbeTable:
        tables = [self._load(method, record.name) for record in _of_kind(self._sweeps_of(method), sweep)]
        if not tables:
            raise RunError(f"{self.run} lacks probes of {method!r}. Evaluate it again there, and they are made anew.")
        return tables[0].join_levels(*tables[1:], levels=sweep.schedule.levels)

    def _load(self, method: str, sweep: str) -> ProbeTable:
        if (method, sweep) not in self._tables:
            self._tables[method, sweep] = self.run.load_probes(method, sweep, self.manifest.shards)
        return self._tables[method, sweep]


def _of_kind(records: Iterable[SweepRecord], sweep: Sweep) -> list[SweepRecord]:
    return [record for record in records if record.is_kind_of(sweep)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What was found, and what was seen on the way."""

    results: Results
    """What results.json holds."""

    false_share: Mapping[str, Floats]
    """(N,) of each method with soundness, the share of each sample's attribution that was judged false in the end."""


def analyse(reader: TableReader, metrics: Mapping[str, Metric], question: Question) -> Analysis:
    """Compute the results of all methods that have maps.

    Args:
        reader: of the run.
        metrics: by name, each with its imputer.
        question: the same metrics as they are stored, and the number of resamples.
    """
    manifest, run = reader.manifest, reader.run
    drawn: dict[str, dict[str, Bootstrap]] = {}
    for method in (name for name in manifest.methods if reader.complete(name)):
        readable = {name: metric for name, metric in metrics.items() if reader.readable(method, metric)}
        curves = {name: reader.curve(method, metric) for name, metric in readable.items()}
        drawn[method] = {name: bootstrap(curve, resamples=question.resamples) for name, curve in curves.items()}
        reader.forget()
    reached = _reached_by_all(drawn)
    compared = _compare(drawn, list(metrics))
    methods = {
        name: MethodResults(
            control=manifest.methods[name].method in CONTROLS,
            metrics={
                metric: _curve_results(each, _area_interval(compared, name, metric, each), reached.get(metric))
                for metric, each in own.items()
            },
            diagnostics=_diagnostics(own, run.load_maps(name, 0)) if own else (),
        )
        for name, own in drawn.items()
    }
    warnings = [f"{name}: {d.message}" for name, found in methods.items() for d in found.diagnostics if d.message]
    results = Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        question=question,
        accuracy=float(run.load_untouched(manifest.shards).correct.mean()),
        soundness_up_to=reached,
        methods=methods,
        incomplete=reader.incomplete(metrics),
        warnings=tuple(warnings),
        ranking=compared.standings if compared else (),
        pairs=compared.pairs if compared else (),
        front=compared.pareto if compared else {},
        verdicts=compared.verdicts if compared else (),
    )
    return Analysis(results=results, false_share={name: _false_share(own) for name, own in drawn.items() if own})


def _reached_by_all(drawn: Mapping[str, Mapping[str, Bootstrap]]) -> dict[str, float]:
    """Return, by metric, the predictive level up to which areas of soundness compare."""
    tops: dict[str, list[float]] = {}
    for own in drawn.values():
        for metric, each in own.items():
            if isinstance(each.curve, SoundnessCurve):
                tops.setdefault(metric, []).append(float(each.curve.performance.max()))
    return {metric: min(each) for metric, each in tops.items()}


def _compare(drawn: Mapping[str, Mapping[str, Bootstrap]], metrics: Iterable[str]) -> Comparison | None:
    """Compare the methods by the metrics that all of them have."""
    common = [metric for metric in metrics if drawn and all(metric in own for own in drawn.values())]
    if len(drawn) < 2 or not common:
        return None
    chosen = {metric: {name: own[metric] for name, own in drawn.items()} for metric in common}
    return compare_bootstraps(chosen, confidence=CONFIDENCE)


def _area_interval(
    compared: Comparison | None, method: str, metric: str, drawn: Bootstrap
) -> tuple[float, float] | None:
    """Return the interval of an area: for soundness that of the comparison, which goes up to what all methods reach."""
    if isinstance(drawn.curve, SoundnessCurve):
        standings = compared.standings if compared else ()
        ends = [(each.low, each.high) for each in standings if (each.method, each.metric) == (method, metric)]
        low, high = ends[0] if ends else (math.nan, math.nan)
    else:
        low, high = drawn.area_interval(CONFIDENCE)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _curve_results(drawn: Bootstrap, interval: tuple[float, float] | None, high: float | None) -> CurveResults:
    curve = drawn.curve
    low, upper = drawn.interval(CONFIDENCE)
    area = curve.area(high=high) if isinstance(curve, SoundnessCurve) else curve.area()
    return CurveResults(
        area=_number(area),
        area_interval=interval,
        levels=_numbers(curve.levels),
        performance=_numbers(curve.performance),
        values=_numbers(curve.values),
        low=_numbers(low),
        high=_numbers(upper),
    )


def _diagnostics(drawn: Mapping[str, Bootstrap], maps: torch.Tensor) -> tuple[Diagnostic, ...]:
    """Look for what speaks against a method's results, by soundness where it was measured.

    Ties are counted in the maps of the first shard, so that the maps of all samples are never in memory at once.
    """
    curves = [each.curve for each in drawn.values()]
    main = next((curve for curve in curves if isinstance(curve, SoundnessCurve)), curves[0])
    ties = diagnose(main.table.take(range(len(maps))), maps=maps)
    found = [*diagnose(main), *(finding for finding in ties if finding.kind in ("tied values", "resolved levels"))]
    return tuple(Diagnostic(kind=f.kind, value=_number(f.value), message=f.message) for f in found)


def _false_share(drawn: Mapping[str, Bootstrap]) -> Floats:
    curve = next((each.curve for each in drawn.values() if isinstance(each.curve, SoundnessCurve)), None)
    if curve is None:
        return np.full(len(next(iter(drawn.values())).curve.table), np.nan)
    return np.asarray(1 - curve.per_sample[:, -1])


def _numbers(array: Floats) -> tuple[float | None, ...]:
    return tuple(_number(value) for value in array.tolist())


def _number(value: float | None) -> float | None:
    """Return None for what is undefined, since JSON has no NaN."""
    return None if value is None or math.isnan(value) else float(value)
