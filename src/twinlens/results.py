"""Results: from the probe tables of a run to curves, numbers and files.

`results.json` holds no times, so that equal runs give equal bytes; those are in `timings.json`.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from twinlens.curves import Curve, SoundnessCurve
from twinlens.files import written_whole
from twinlens.performance import Protocol
from twinlens.planning import Sweep, can_read, read_metric
from twinlens.runs import FORMAT, Run, RunError, read_run
from twinlens.table import Floats, ProbeTable


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
        return self._reader.curve(method, metric)

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

    def tables(self, method: str) -> dict[Sweep, ProbeTable]:
        return {sweep: self.run.load_probes(method, sweep.name, self.shards) for sweep in self.sweeps_of(method)}

    def curve(self, method: str, metric: str, tables: Mapping[Sweep, ProbeTable] | None = None) -> Curve:
        return read_metric(metric, tables or self.tables(method), self.protocol, self.options)

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


def write_results(run: Run, *, seconds: Mapping[str, float]) -> Evaluation:
    """Computes the results of all methods that are complete, and writes results.json, results.csv and timings.json.

    Tables are read one method at a time.
    """
    reader, asked = _Reader(run), run.manifest
    complete = [name for name in asked["methods"] if reader.complete(name)]
    # Areas of soundness compare only up to a performance that all methods reach.
    sound = [name for name in complete if "soundness" in reader.metrics_of(name)]
    reached = [reader.curve(name, "soundness").performance.max() for name in sound]
    high = float(min(reached)) if reached else None
    results = {
        "format": FORMAT,
        "model": asked["model"],
        "data": asked["data"],
        "options": asked["options"],
        "accuracy": float(run.load_untouched(reader.shards).correct.mean()),
        "soundness_up_to": high,
        "methods": {name: _method_results(reader, name, high) for name in complete},
    }
    run.write_json("results.json", results)
    _write_csv(run.path / "results.csv", results["methods"])
    _write_timings(run, seconds)
    return Evaluation(run, results)


def _method_results(reader: _Reader, method: str, high: float | None) -> dict[str, Any]:
    tables = reader.tables(method)
    curves = {name: reader.curve(method, name, tables) for name in reader.metrics_of(method)}
    kinds = next(iter(tables.values())).map_kinds if tables else ()
    return {
        "degenerate_maps": {kind: kinds.count(kind) for kind in ("constant", "zero")},
        "metrics": {name: _curve_results(curve, high) for name, curve in curves.items()},
    }


def _curve_results(curve: Curve, high: float | None) -> dict[str, Any]:
    area = curve.area(high=high) if isinstance(curve, SoundnessCurve) else curve.area()
    return {
        "area": _number(area),
        "levels": _plain(curve.levels),
        "performance": _plain(curve.performance),
        "values": _plain(curve.values),
    }


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
