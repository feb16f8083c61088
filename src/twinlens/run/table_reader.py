"""Reading probe tables of a run, and curves from them.

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
from twinlens.probing.exchange import draw_controlled, exchange_groups
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.directory import Run
from twinlens.run.manifest import SweepRecord
from twinlens.statistics.map_properties import MAP_PROPERTIES
from twinlens.support.arrays import Floats, Integers
from twinlens.support.estimate import Estimate

_KEPT_ROWS = 3_000_000  # rows of probe tables that stay in memory: 150 MB


class TableReader:
    """Reads the probe tables of a run; a run that is small enough stays in memory."""

    def __init__(self, run: Run) -> None:
        self.run, self.manifest = run, run.manifest
        self.features = run.manifest.data.features
        self._tables: dict[tuple[str, str], ProbeTable] = {}
        self._controlled: dict[float, Integers] = {}
        self._seen: set[Path] = set()
        """Folders whose shards are all there."""
        self.properties: dict[str, Mapping[str, Estimate]] = {}
        """Properties of the methods' maps, once computed; no settings change them."""
        levels = sum(len(sweep.schedule.levels) for sweep in self.manifest.sweeps)
        self._keeps = self.manifest.data.samples * levels * len(self.manifest.methods) <= _KEPT_ROWS

    def forget(self) -> None:
        """Drop the tables of a run that is too large to stay in memory."""
        if not self._keeps:
            self._tables.clear()

    @cached_property
    def original(self) -> ProbeTable:
        """The model's answers about the original inputs."""
        return self.run.load_original(self.manifest.shards)

    def controlled_ids(self, share: float) -> list[str]:
        """Return the ids of the samples probed with exchanged maps."""
        return [self.original.ids[position] for position in self.controlled(share).tolist()]

    def controlled(self, share: float) -> Integers:
        """Return the positions of the samples probed with exchanged maps."""
        if share not in self._controlled:  # the draw sorts all samples
            ids, labels = self.original.ids, self.original.labels
            self._controlled[share] = draw_controlled(ids, labels, share, seed=self.manifest.seed)
        return self._controlled[share]

    @cached_property
    def exchange_groups(self) -> dict[str, str]:
        """For each id, the group of samples that exchange their maps."""
        return exchange_groups(self.original.ids, self.original.labels, seed=self.manifest.seed)

    def describe_maps(self, method: str) -> Mapping[str, Estimate]:
        """Compute the properties of a method's maps, one shard at a time."""
        if method not in self.properties:
            parts = [_measure_maps(*self.run.load_signed_maps(method, shard)) for shard in range(self.manifest.shards)]
            each = np.concatenate([part[: min(map(len, parts))] for part in parts], axis=1)
            self.properties[method] = {
                name: Estimate.of_mean(values, self.original.ids)
                for name, values in zip((*MAP_PROPERTIES, "negative"), each, strict=False)
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
        """Read a metric's curve of a method from its probes on own maps, or from `sweeps`; of all samples, or `ids`."""
        probes = metric.sweeps(self.features) if sweeps is None else sweeps
        tables = [self._table(method, sweep) for sweep in probes]
        if ids is not None:
            chosen = set(ids)
            tables = [
                table.take([k for k, name in enumerate(table.ids) if name in chosen])
                if len(table) > len(chosen)
                else table
                for table in tables
            ]
        return metric.read(tables)

    def tables(self, method: str) -> dict[str, ProbeTable]:
        """Return the probe tables of all complete sweeps of a method by the sweep's name, on own and exchanged maps."""
        return {sweep.name: self._load(method, sweep) for sweep in self._sweeps_of(method)}

    def readable(self, method: str, sweeps: Iterable[Sweep]) -> bool:
        """Return whether the probes of these sweeps are complete for a method."""
        records = self._sweeps_of(method)
        return all(
            set(sweep.schedule.levels)
            <= {level for record in _of_kind(records, sweep) for level in record.schedule.levels}
            for sweep in sweeps
        )

    def complete(self, method: str) -> bool:
        """Return whether a method has maps of all samples."""
        return self._whole(range(self.manifest.shards), lambda shard: self.run.maps_shard(method, shard))

    def incomplete(self, metrics: Mapping[str, Metric]) -> dict[str, tuple[str, ...]]:
        """Return the methods without all maps or without probes of a metric, each with the metrics that it lacks."""
        methods: dict[str, tuple[str, ...]] = {}
        for method in self.manifest.methods:
            whole = self.complete(method)
            lacks = tuple(
                name
                for name, metric in metrics.items()
                if not whole or not self.readable(method, metric.sweeps(self.features))
            )
            if lacks or not whole:
                methods[method] = lacks
        return methods

    def _sweeps_of(self, method: str) -> list[SweepRecord]:
        return [
            sweep
            for sweep in self.manifest.sweeps
            if (method, sweep.name) in self._tables
            or self._whole(self._shards(sweep), partial(self.run.probes_shard, method, sweep.name))
        ]

    def _whole(self, shards: Sequence[int], file: Callable[[int], Path]) -> bool:
        """Return whether the files of these shards exist, by one listing of their folder; files never disappear."""
        folder = file(0).parent
        if folder not in self._seen:
            with suppress(FileNotFoundError, NotADirectoryError):
                names = {path.name for path in folder.iterdir()}
                if names.issuperset(file(shard).name for shard in shards):
                    self._seen.add(folder)
        return folder in self._seen

    def _shards(self, sweep: SweepRecord) -> list[int]:
        """List the shards of a sweep: on exchanged maps, those with samples of the control."""
        if not sweep.exchanged:
            return list(range(self.manifest.shards))
        return sorted({self.manifest.shard_row(position)[0] for position in self.controlled(sweep.exchanged).tolist()})

    def _table(self, method: str, sweep: Sweep) -> ProbeTable:
        tables = [self._load(method, record) for record in _of_kind(self._sweeps_of(method), sweep)]
        if not tables:
            raise RunError(f"{self.run} lacks probes of {method!r}. Evaluate it again there to make them.")
        return tables[0].join_levels(*tables[1:], levels=sweep.schedule.levels)

    def _load(self, method: str, sweep: SweepRecord) -> ProbeTable:
        if (method, sweep.name) not in self._tables:
            self._tables[method, sweep.name] = self.run.load_probes(method, sweep.name, self._shards(sweep))
        return self._tables[method, sweep.name]


def _measure_maps(maps: Tensor, negative: Tensor | None) -> Floats:
    """Measure the properties of maps, one row each (P, N), the share that was negative last, if it is known."""
    rows = [measure(maps.clamp(min=0)) for measure in MAP_PROPERTIES.values()]
    return np.stack(rows if negative is None else [*rows, negative.double().numpy()])


def _of_kind(records: Iterable[SweepRecord], sweep: Sweep) -> list[SweepRecord]:
    return [record for record in records if record.is_kind_of(sweep)]
