"""Results: from the probe tables of a run to curves, numbers and files.

`results.json` holds no times, so that equal runs give equal bytes; those are in `timings.json`.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from twinlens.comparison import compare
from twinlens.curves import Curve, SoundnessCurve
from twinlens.diagnostics import diagnose
from twinlens.files import written_whole
from twinlens.performance import Protocol
from twinlens.planning import METRICS, Sweep, can_read, read_metric
from twinlens.runs import FORMAT, Run, RunError, read_run
from twinlens.statistics import bootstrap
from twinlens.table import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a run; curves and maps are read from its directory when they are asked for."""

    run: Run = field(repr=False)
    """The run directory."""

    results: Mapping[str, Any] = field(repr=False)
    """What results.json holds."""

    def __repr__(self) -> str:
        return (
            f"Evaluation({len(self.methods)} methods, {self.results['data']['samples']} samples, in {str(self.path)!r})"
        )

    def _repr_html_(self) -> str:
        from twinlens.report import html_of  # noqa: PLC0415 (only notebooks look this far up the house)

        return html_of(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the soundness–completeness plane."""
        from twinlens.report import plot_of  # noqa: PLC0415

        return plot_of(self, ax)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def methods(self) -> list[str]:
        """Names of the methods that are complete."""
        return list(self.results["methods"])

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(self.run.manifest["metrics"])

    @cached_property
    def _reader(self) -> _Reader:
        return _Reader(self.run)

    def curve(self, method: str, metric: str) -> Curve:
        """Gives a method's curve, with the probe table that it came from."""
        if method not in self.methods:
            raise ValueError(f"`method` must be among {', '.join(self.methods)}; got {method!r}.")
        known = self.results["methods"][method]["metrics"]
        if metric not in known:
            raise ValueError(f"`metric` must be among {', '.join(known)}, which {method} has; got {metric!r}.")
        return self._reader.curves(method, [metric])[metric]

    def ids(self) -> tuple[str, ...]:
        """Gives the names of all samples, in the order of maps and tables."""
        return self.run.load_untouched(self._reader.shards).ids

    def maps(self, method: str) -> torch.Tensor:
        """Gives the maps of all samples (N, *S)."""
        return torch.cat([self.run.load_maps(method, shard) for shard in range(self._reader.shards)])

    def overview(self) -> dict[str, Any]:
        """Gives the most important numbers: the accuracy, and the area of each curve."""
        areas = {
            method: {name: curve["area"] for name, curve in content["metrics"].items()}
            for method, content in self.results["methods"].items()
        }
        return {
            "run": str(self.path),
            "model": self.results["model"]["name"],
            "data": self.results["data"]["name"],
            "samples": self.results["data"]["samples"],
            "skipped": self.results["data"]["skipped"],
            "accuracy": self.results["accuracy"],
            "areas": areas,
        }

    def summary(self) -> pd.DataFrame:
        """Gives the area of each curve, one row per method and one column per metric."""
        return pd.DataFrame.from_dict(self.overview()["areas"], orient="index", columns=self.metrics).astype(float)

    def seconds(self) -> dict[str, float]:
        """Gives the seconds that each method took, its maps and its probes together."""
        path, total = self.path / "timings.json", dict[str, float]()
        for name, seconds in json.loads(path.read_text(encoding="utf-8")).items() if path.exists() else ():
            method = name.partition("/")[0]
            total[method] = total.get(method, 0.0) + seconds
        return total


class _Reader:
    """Reads curves of a run."""

    def __init__(self, run: Run) -> None:
        asked = run.manifest
        self.run = run
        self.shards = -(-asked["data"]["samples"] // asked["execution"]["shard_size"])
        self.sweeps = [Sweep.from_json(sweep) for sweep in asked["sweeps"]]
        rules = dict(asked["options"]["protocol"])
        self.protocol = Protocol(**{**rules, "levels": tuple(rules["levels"])})
        self.options = {name: asked["options"][name] for name in ("performance", "epsilon")}

    def sweeps_of(self, method: str) -> list[Sweep]:
        """Gives the sweeps that are complete for a method."""
        shards = range(self.shards)
        return [s for s in self.sweeps if all(self.run.probes_part(method, s.name, k).exists() for k in shards)]

    def metrics_of(self, method: str) -> list[str]:
        """Gives the metrics that can be read for a method."""
        sweeps = self.sweeps_of(method)
        return [name for name in self.run.manifest["metrics"] if can_read(name, sweeps, self.protocol)]

    def curves(self, method: str, metrics: Sequence[str] | None = None) -> dict[str, Curve]:
        """Gives curves of a method, all that there are where none are named; only tables that they need are read."""
        wanted = self.metrics_of(method) if metrics is None else metrics
        tables = {
            sweep: self.run.load_probes(method, sweep.name, self.shards)
            for sweep in self.sweeps_of(method)
            if any(sweep.serves(METRICS[name], self.protocol) for name in wanted)
        }
        return {name: read_metric(name, tables, self.protocol, self.options) for name in wanted}

    def complete(self, method: str) -> bool:
        """Tells whether a method has maps of all samples."""
        return all(self.run.maps_part(method, shard).exists() for shard in range(self.shards))


def open_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Opens the results of a run that has ended."""
    run = read_run(path)
    try:
        results = json.loads((run.path / "results.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{run} has no results yet. Start it again with the same command, and it goes on.") from None
    return Evaluation(run, results)


def write_results(run: Run, *, seconds: Mapping[str, float], resamples: int = 1000) -> Evaluation:
    """Computes the results of all methods that have maps, and writes results.json, results.csv and timings.json.

    Args:
        run: the run directory.
        seconds: the time that each kind of work took in this session.
        resamples: number of resamples for intervals and comparisons.
    """
    reader, asked = _Reader(run), run.manifest
    curves = {name: reader.curves(name) for name in asked["methods"] if reader.complete(name)}
    # Areas of soundness compare only up to a performance that all methods reach.
    reached = [own["soundness"].performance.max() for own in curves.values() if "soundness" in own]
    high = float(min(reached)) if reached else None
    methods = {name: _method_results(run, name, own, high, resamples) for name, own in curves.items()}
    results = {
        "format": FORMAT,
        "model": asked["model"],
        "data": asked["data"],
        "options": asked["options"],
        "accuracy": float(run.load_untouched(reader.shards).correct.mean()),
        "soundness_up_to": high,
        "confidence": CONFIDENCE,
        "resamples": resamples,
        "methods": methods,
        **_compare(curves, methods, resamples),
    }
    run.write_json("results.json", results)
    _write_csv(run.path / "results.csv", methods)
    _write_timings(run, seconds)
    return Evaluation(run, results)


def _method_results(
    run: Run, method: str, curves: Mapping[str, Curve], high: float | None, resamples: int
) -> dict[str, Any]:
    return {
        "metrics": {name: _curve_results(curve, high, resamples) for name, curve in curves.items()},
        "diagnostics": _diagnostics(curves, run.load_maps(method, 0)),
    }


def _curve_results(curve: Curve, high: float | None, resamples: int) -> dict[str, Any]:
    drawn = bootstrap(curve, resamples=resamples)
    low, upper = drawn.interval(CONFIDENCE)
    if isinstance(curve, SoundnessCurve):
        area, interval = curve.area(high=high), None  # compared up to what all methods reach; see `_compare`
    else:
        between = drawn.area_interval(CONFIDENCE)
        area, interval = curve.area(), [_number(between.low), _number(between.high)]
    return {
        "area": _number(area),
        "area_interval": interval,
        "levels": _plain(curve.levels),
        "performance": _plain(curve.performance),
        "values": _plain(curve.values),
        "low": _plain(low),
        "high": _plain(upper),
    }


def _diagnostics(curves: Mapping[str, Curve], maps: torch.Tensor) -> list[dict[str, Any]]:
    """Gives what speaks against taking a method's results at face value, by soundness where it was measured.

    Ties are counted in the maps of the first shard, so that the maps of all samples are never in memory at once.
    """
    if not curves:
        return []
    main = curves.get("soundness") or next(iter(curves.values()))
    ties = diagnose(main.table.take(range(len(maps))), maps=maps)
    found = [*diagnose(main), *(finding for finding in ties if finding.kind in ("tied values", "resolved levels"))]
    return [{"kind": f.kind, "value": _number(f.value), "message": f.message} for f in found]


def _compare(curves: Mapping[str, Mapping[str, Curve]], methods: dict[str, Any], resamples: int) -> dict[str, Any]:
    """Compares the methods by the metrics that all of them have, and adds the interval of each area of soundness."""
    warnings = [
        f"{name}: {finding['message']}"
        for name, content in methods.items()
        for finding in content["diagnostics"]
        if finding["message"]
    ]
    common = [metric for metric in METRICS if all(metric in own for own in curves.values())]
    if len(curves) < 2 or not common:
        return {"warnings": warnings, "ranking": [], "pairs": [], "front": {}, "verdicts": []}
    chosen = {name: {metric: own[metric] for metric in common} for name, own in curves.items()}
    compared = compare(chosen, confidence=CONFIDENCE, resamples=resamples)
    for standing in compared.standings:
        if standing.metric == "soundness":
            interval = [_number(standing.low), _number(standing.high)]
            methods[standing.method]["metrics"]["soundness"]["area_interval"] = interval
    return {
        "warnings": warnings,
        "ranking": [_plain_record(standing) for standing in compared.standings],
        "pairs": [_plain_record(pair) for pair in compared.pairs],
        "front": dict(compared.pareto),
        "verdicts": list(compared.verdicts),
    }


def _plain_record(record: Any) -> dict[str, Any]:
    return {k: _number(v) if isinstance(v, float) else v for k, v in dataclasses.asdict(record).items()}


def _plain(array: Floats) -> list[float | None]:
    return [_number(value) for value in array.tolist()]


def _number(value: float | None) -> float | None:
    """Gives None for what is undefined, since JSON has no NaN."""
    return None if value is None or math.isnan(value) else float(value)


def _write_csv(path: Path, methods: Mapping[str, Any]) -> None:
    """Writes one row per method, metric and level."""
    columns = ("levels", "performance", "values")
    with written_whole(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["method", "metric", "level", "performance", "value"])
        for method, content in methods.items():
            for metric, curve in content["metrics"].items():
                table.writerows([method, metric, *row] for row in zip(*(curve[c] for c in columns), strict=True))


def _write_timings(run: Run, seconds: Mapping[str, float]) -> None:
    """Adds the seconds of this session to those of the sessions before."""
    path = run.path / "timings.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    names = [*before, *(name for name in seconds if name not in before)]
    run.write_json("timings.json", {name: before.get(name, 0.0) + seconds.get(name, 0.0) for name in names})
