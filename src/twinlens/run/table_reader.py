"""Reads probe tables of a run, and curves from them.

Shapes: N samples, P properties of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from torch import Tensor

from twinlens.errors import RunError
from twinlens.metrics.curves import Curve
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.exchange import draw_controlled
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.directory import Run
from twinlens.run.manifest import Manifest, SweepRecord
from twinlens.statistics.map_properties import MAP_PROPERTIES
from twinlens.support.arrays import Floats, Integers
from twinlens.support.estimate import Estimate

_KEPT_ROWS = 3_000_000  # rows of probe tables that are kept for the next reader: 150 MB


class TableReader:
    """Reads the probe tables of a run; a run that is small enough stays in memory."""

    def __init__(self, run: Run[Manifest]) -> None:
        self.run, self.manifest = run, run.manifest
        self.features = run.manifest.data.features
        self._tables: dict[tuple[str, str], ProbeTable] = {}
        self._controlled: dict[float, Integers] = {}
        self._seen: set[Path] = set()
        """Folders whose parts are all there."""
        self.properties: dict[str, Mapping[str, Estimate]] = {}
        """What the maps of methods are like, as far as it is known: no question to the probes changes it."""
        levels = sum(len(sweep.schedule.levels) for sweep in self.manifest.sweeps)
        self._keeps = self.manifest.data.samples * levels * len(self.manifest.methods) <= _KEPT_ROWS

    def forget(self) -> None:
        """Let go of tables that need not stay in memory."""
        if not self._keeps:
            self._tables.clear()

    @cached_property
    def untouched(self) -> ProbeTable:
        """What the model answered about the untouched inputs."""
        return self.run.load_untouched(self.manifest.shards)

    def controlled_ids(self, share: float) -> list[str]:
        """Return the names of the samples that were probed by exchanged maps."""
        return [self.untouched.ids[position] for position in self.controlled(share).tolist()]

    def controlled(self, share: float) -> Integers:
        """Return the positions of the samples that were probed by exchanged maps."""
        if share not in self._controlled:  # every table asks, and the draw sorts all samples
            seed, within = self.manifest.seed, self.manifest.exchange_within
            self._controlled[share] = draw_controlled(self.untouched.ids, share, seed=seed, within=within)
        return self._controlled[share]

    def describe_maps(self, method: str) -> Mapping[str, Estimate]:
        """Compute what a method's maps are like by themselves, one shard at a time; each is read once."""
        if method not in self.properties:
            parts = [_measure_maps(self.run.load_maps(method, shard)) for shard in range(self.manifest.shards)]
            each = np.concatenate(parts, axis=1)
            self.properties[method] = {
                name: Estimate.of_mean(values, self.untouched.ids)
                for name, values in zip(MAP_PROPERTIES, each, strict=True)
            }
        return self.properties[method]

    def curve(
        self,
        method: str,
        metric: Metric,
        sweeps: Sequence[Sweep] | None = None,
        *,
        ids: Collection[str] | None = None,
    ) -> Curve:
        """Read a metric's curve of a method; `readable` tells whether its probes are there.

        Args:
            method: name of the method.
            metric: the metric.
            sweeps: the probes to read it from, such as those on exchanged maps; those on own maps by default.
            ids: over these samples alone; over all that were probed by default.
        """
        wanted = metric.sweeps(self.features) if sweeps is None else sweeps
        tables = [self._table(method, sweep) for sweep in wanted]
        if ids is not None:
            chosen = set(ids)
            tables = [
                table.take([k for k, name in enumerate(table.ids) if name in chosen])
                if len(table) > len(chosen)
                else table
                for table in tables
            ]
        return metric.read(tables)

    def readable(self, method: str, sweeps: Iterable[Sweep]) -> bool:
        """Tell whether all probes of these sweeps are complete for a method."""
        there = self._sweeps_of(method)
        return all(
            set(sweep.schedule.levels)
            <= {level for record in _of_kind(there, sweep) for level in record.schedule.levels}
            for sweep in sweeps
        )

    def complete(self, method: str) -> bool:
        """Tell whether a method has maps of all samples."""
        return self._whole(range(self.manifest.shards), lambda shard: self.run.maps_part(method, shard))

    def incomplete(self, metrics: Mapping[str, Metric]) -> dict[str, tuple[str, ...]]:
        """Return the methods without all maps, or without the probes of a metric, each with the metrics it lacks."""
        found: dict[str, tuple[str, ...]] = {}
        for method in self.manifest.methods:
            whole = self.complete(method)
            lacks = tuple(
                name
                for name, metric in metrics.items()
                if not whole or not self.readable(method, metric.sweeps(self.features))
            )
            if lacks or not whole:
                found[method] = lacks
        return found

    def _sweeps_of(self, method: str) -> list[SweepRecord]:
        return [
            sweep
            for sweep in self.manifest.sweeps
            if (method, sweep.name) in self._tables
            or self._whole(self._shards(sweep), partial(self.run.probes_part, method, sweep.name))
        ]

    def _whole(self, shards: Sequence[int], part: Callable[[int], Path]) -> bool:
        """Tell whether a folder holds the parts of these shards: by one listing, and not by a request for each part.

        What was whole once stays so: parts are never taken back.
        """
        folder = part(0).parent
        if folder not in self._seen:
            with suppress(FileNotFoundError, NotADirectoryError):
                names = {file.name for file in folder.iterdir()}
                if names.issuperset(part(shard).name for shard in shards):
                    self._seen.add(folder)
        return folder in self._seen

    def _shards(self, sweep: SweepRecord) -> list[int]:
        """List the shards of which a sweep has parts: on exchanged maps those with samples of the control."""
        if not sweep.exchanged:
            return list(range(self.manifest.shards))
        return sorted({self.manifest.place(position)[0] for position in self.controlled(sweep.exchanged).tolist()})

    def _table(self, method: str, sweep: Sweep) -> ProbeTable:
        tables = [self._load(method, record) for record in _of_kind(self._sweeps_of(method), sweep)]
        if not tables:
            raise RunError(f"{self.run} lacks probes of {method!r}. Evaluate it again there, and they are made anew.")
        return tables[0].join_levels(*tables[1:], levels=sweep.schedule.levels)

    def _load(self, method: str, sweep: SweepRecord) -> ProbeTable:
        if (method, sweep.name) not in self._tables:
            self._tables[method, sweep.name] = self.run.load_probes(method, sweep.name, self._shards(sweep))
        return self._tables[method, sweep.name]


def _measure_maps(maps: Tensor) -> Floats:
    """Measure the properties of maps, one row each (P, N)."""
    return np.stack([measure(maps) for measure in MAP_PROPERTIES.values()])


def _of_kind(records: Iterable[SweepRecord], sweep: Sweep) -> list[SweepRecord]:
    return [record for record in records if record.is_kind_of(sweep)]
