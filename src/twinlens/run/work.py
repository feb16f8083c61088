"""The work of an evaluation: the maps of a method for one shard, and all probes of them.

Shapes: B samples of one shard, C channels, S = spatial shape.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from twinlens.attribution import METHODS
from twinlens.attribution.method import explain_copies
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples, subset
from twinlens.data.segments import Segments
from twinlens.data.stored_maps import StoredMaps
from twinlens.errors import RunError
from twinlens.imputation.imputers import Imputer
from twinlens.integrations.explanations import Explanation
from twinlens.models.loading import LoadedModel
from twinlens.probing.answers import CLASSIFICATION, SINGLE, Target, answering_logits
from twinlens.probing.exchange import draw_controlled, draw_partners
from twinlens.probing.execution import Prepared
from twinlens.probing.maps import Reading, check_maps, negative_share, spread_over_channels, to_float32
from twinlens.probing.model_call import blaming, find_device, handing_copies
from twinlens.probing.probe import Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.directory import Run
from twinlens.run.manifest import SweepRecord
from twinlens.run.method_sources import Method
from twinlens.run.stored_answers import original_answers
from twinlens.run.units import ORIGINAL, Unit
from twinlens.support.files import as_path
from twinlens.support.progress import Progress

T = TypeVar("T")
_NAMED = 16  # ids listed in a message
EXCHANGED = 1  # stage of the units that probe samples with the maps of others
_REFERENCE_SAMPLES = 256  # from which methods such as IBA estimate the distribution of inputs


def load_reference(samples: Samples, model: LoadedModel, seed: int, workers: int) -> Tensor:
    """Read the inputs from which methods estimate the distribution of inputs, drawn by the seed."""
    return load_inputs(subset(samples, _REFERENCE_SAMPLES, seed), model, workers)


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationWork:
    """What the units of a run have in common."""

    run: Run
    model: LoadedModel
    samples: Samples
    """The samples of the current round."""
    pool: Samples
    """The samples of all rounds, from which methods draw their reference: no map depends on the round."""
    methods: Mapping[str, Method]
    sweeps: Sequence[tuple[SweepRecord, Imputer]]
    workers: int
    segments: Segments | None = None
    """How positions are grouped into features."""
    target: Target | None = None
    """Function from the model's output to scores."""
    reload: Callable[[], LoadedModel] | None = None
    """Loads the model in other processes; without it they receive the module."""

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs."""
        state = dict(self.__dict__)
        if self.reload is not None:
            state["model"] = None
        elif find_device(self.model.module, None)[0].type != "cpu":
            # A GPU of this machine may have another number there, or not exist.
            state["model"] = dataclasses.replace(self.model, module=copy.deepcopy(self.model.module).cpu())
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore what another process sent."""
        self.__dict__.update(state)
        if self.reload is not None:
            self.__dict__["model"] = self.reload()
            example = load_inputs(self.pool.take([0]), self.model, workers=1)
            if self.model.digest(example) != self.run.manifest.model.digest:
                raise RunError(
                    f"The model {self.model.name!r} that is loaded here differs from the one of {self.run}. Make the "
                    "same files and packages available on all nodes, or pass the module itself."
                )
        self.model.module.to(self.run.manifest.execution.device)

    def units(self) -> list[Unit]:
        """List all units shard by shard: original inputs, every method, and the control as soon as its maps exist.

        A unit of the control reads maps of other shards. It comes after the last of them, while that is still loaded.
        """
        units, shards = list[Unit](), range(self.run.manifest.shards)
        ready: dict[int, list[int]] = {}
        for shard in shards if self.exchanges else ():
            ready.setdefault(max([shard, *self._shards_read(shard)]), []).append(shard)
        for shard in shards:
            units += [Unit(shard), *(Unit(shard, name) for name in self.methods)]
            for other in reversed(ready.get(shard, [])):
                units += [Unit(other, name, EXCHANGED) for name in self.methods]
        return units

    def files(self, unit: Unit) -> list[Path]:
        """Return the files that a unit makes."""
        if unit.method is None:
            return [self.run.original_shard(unit.shard)]
        probes = [self.run.probes_shard(unit.method, sweep.name, unit.shard) for sweep, _ in self.sweeps_of(unit)]
        return probes if unit.stage == EXCHANGED else [self.run.maps_shard(unit.method, unit.shard), *probes]

    def maker(self, path: str | os.PathLike[str]) -> Unit | None:
        """Return the unit that makes a file; None for files of others."""
        return next((unit for unit in self.units() if as_path(path) in self.files(unit)), None)

    def sweeps_of(self, unit: Unit) -> list[tuple[SweepRecord, Imputer]]:
        """Return the sweeps of a unit with a method; the control need not have samples in every shard."""
        exchanged = unit.stage == EXCHANGED
        own = [(sweep, imputer) for sweep, imputer in self.sweeps if bool(sweep.exchanged) == exchanged]
        return [(sweep, imputer) for sweep, imputer in own if self.count(sweep, unit.shard)]

    def maps_read(self, unit: Unit) -> set[Path]:
        """Return the maps that a unit of the control reads."""
        return {self.run.maps_shard(str(unit.method), shard) for shard in self._shards_read(unit.shard)}

    def _shards_read(self, shard: int) -> set[int]:
        """Return the shards whose maps the control of a shard reads."""
        probed = {k for sweep, _ in self.sweeps if sweep.exchanged for k in self.controlled(sweep, shard)}
        return {self.run.manifest.shard_row(self.partners[position])[0] for position in probed}

    def rows(self, units: Iterable[Unit]) -> dict[str, int]:
        """Count the rows of each task in these units."""
        rows = {ORIGINAL: 0} | dict.fromkeys(self.methods, 0)
        for unit in units:
            if unit.method is None:
                rows[ORIGINAL] += len(self.positions(unit.shard))
            else:
                for sweep, _ in self.sweeps_of(unit):
                    rows[unit.method] += len(sweep.schedule.levels) * self.count(sweep, unit.shard)
        return rows

    def reused_methods(self) -> list[str]:
        """Return the methods whose maps were computed before."""
        computed = [name for name, method in self.methods.items() if not isinstance(method.source, StoredMaps)]
        shards = range(self.run.manifest.shards)
        return [name for name in computed if all(self.run.has(self.run.maps_shard(name, shard)) for shard in shards)]

    def shard_samples(self, shard: int) -> Samples:
        """Return the samples of one shard."""
        return self.samples.take(self.positions(shard))

    def positions(self, shard: int) -> range:
        """Return the positions of the samples of one shard."""
        return self.run.manifest.positions(shard)

    def controlled(self, sweep: SweepRecord, shard: int) -> list[int]:
        """Return the positions of a shard's samples that a sweep probes with exchanged maps."""
        drawn, positions = self._drawn[sweep.exchanged], self.positions(shard)
        return drawn[bisect_left(drawn, positions.start) : bisect_left(drawn, positions.stop)]

    def count(self, sweep: SweepRecord, shard: int) -> int:
        """Count the samples of a shard that a sweep probes."""
        return len(self.controlled(sweep, shard) if sweep.exchanged else self.positions(shard))

    @property
    def exchanges(self) -> bool:
        """Whether any sweep uses exchanged maps."""
        return any(sweep.exchanged for sweep, _ in self.sweeps)

    @cached_property
    def partners(self) -> list[int]:
        """For each sample, the position of the sample whose map it gets in the control."""
        drawn = draw_partners(self.samples.ids, self.samples.labels, seed=self.run.manifest.seed)
        return [int(position) for position in drawn]

    @cached_property
    def _drawn(self) -> dict[float, list[int]]:
        shares = {sweep.exchanged for sweep, _ in self.sweeps if sweep.exchanged}
        ids, labels, seed = self.samples.ids, self.samples.labels, self.run.manifest.seed
        return {share: draw_controlled(ids, labels, share, seed=seed).tolist() for share in shares}

    def describe(self, unit: Unit) -> str:
        """Name a unit in a message, with the ids of its samples."""
        ids = self.shard_samples(unit.shard).ids
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        return f"shard {unit.shard} (samples {', '.join(map(repr, ids[:_NAMED]))}{more})"

    def worker(self, progress: Progress) -> EvaluationWorker:
        """Create a worker."""
        return EvaluationWorker(self, progress)


class _Shard(NamedTuple):
    """The samples of one shard, preprocessed and checked."""

    number: int
    samples: Samples
    inputs: Tensor
    segments: Tensor | None
    prober: Prober


class EvaluationWorker:
    """Does units; holds the model, and the inputs of one shard at a time."""

    def __init__(self, work: EvaluationWork, progress: Progress) -> None:
        self.work, self.progress = work, progress
        self.model = Prepared(work.model.module, work.run.manifest.execution.execution)
        self.seconds: dict[str, float] = {}
        self._loaded: _Shard | None = None

    def do(self, unit: Unit) -> None:
        """Make the files of a unit that do not exist yet."""
        run, work = self.work.run, self.work
        if unit.method is None:
            self._make_original(unit.shard)
            self.progress.advance(ORIGINAL, len(work.positions(unit.shard)), "done")
            return
        method, missing = work.methods[unit.method], []
        for sweep, imputer in work.sweeps_of(unit):
            if run.has(run.probes_shard(method.name, sweep.name, unit.shard)):
                rows = work.count(sweep, unit.shard) * len(sweep.schedule.levels)
                self.progress.advance(method.name, rows, sweep.name)
            else:
                missing.append((sweep, imputer))
        if missing:
            self._make_original(unit.shard)  # another job may not have written it yet
        if unit.stage == EXCHANGED:
            if missing:
                with self._timed(f"{method.name}/control"):
                    self._probe_exchanged(method, missing, unit.shard)
        elif missing or not run.has(run.maps_shard(method.name, unit.shard)):
            with self._timed(f"{method.name}/maps"):
                maps = self._maps(method, unit.shard)
            self.progress.advance(method.name, 0, "probes")
            with self._timed(f"{method.name}/probes"):
                self._probe(method, missing, unit.shard, maps)

    @contextmanager
    def _timed(self, task: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._add_seconds(task, start)

    def _add_seconds(self, task: str, start: float) -> None:
        self.seconds[task] = self.seconds.get(task, 0.0) + time.perf_counter() - start

    def _shard(self, shard: int) -> _Shard:
        if self._loaded is None or self._loaded.number != shard:
            self._loaded = None  # at most one shard is in memory
            work, manifest = self.work, self.work.run.manifest
            samples = work.shard_samples(shard)
            inputs = load_inputs(samples, work.model, work.workers)
            segments = None if work.segments is None else work.segments.of(samples, inputs)
            prober = Prober(
                self.model,
                inputs,
                samples.labels,
                ids=samples.ids,
                seed=manifest.seed,
                batch_size=manifest.execution.batch_size,
                output=manifest.model.scale,
                target=work.target,
                features=manifest.data.feature_kind,
                segments=segments,
            )
            self._loaded = _Shard(shard, samples, inputs, segments, prober)
        return self._loaded

    @cached_property
    def _reference(self) -> Tensor:
        return load_reference(self.work.pool, self.work.model, self.work.run.manifest.seed, self.work.workers)

    def _make_original(self, shard: int) -> None:
        """Probe the original inputs of a shard, unless that is done."""
        path = self.work.run.original_shard(shard)
        if self.work.run.has(path):
            return
        with self._timed(ORIGINAL):
            self.work.run.save_probes(path, original_answers(self._shard(shard).prober))

    def _maps(self, method: Method, shard: int) -> Tensor:
        """Return the maps of one shard: read, or made and written."""
        run = self.work.run
        if run.has(run.maps_shard(method.name, shard)):
            return run.load_maps(method.name, shard, signed=True)
        self.progress.advance(method.name, 0, "maps")
        loaded = self._shard(shard)
        start, results = time.perf_counter(), {}
        single = run.manifest.data.feature_kind == "channels"
        for name, explained in self._explain(method, shard).items():
            ids, spatial = loaded.samples.ids, loaded.prober.spatial
            maps = spread_over_channels(explained, loaded.inputs.shape) if single else explained
            signed = check_maps(maps, spatial, ids=ids, reading=dataclasses.replace(method.reading, sign="signed"))
            checked = check_maps(maps, spatial, ids=ids, reading=method.reading)
            results[name] = to_float32(checked).cpu()  # as stored: a resumed run ranks the same numbers
            run.save_maps(name, shard, results[name], ids, negative_share(signed).float())
            if name != method.name:  # each counts the time that it would have taken alone
                self._add_seconds(f"{name}/maps", start)
        return results[method.name]

    def _explain(self, method: Method, shard: int) -> dict[str, Tensor]:
        """Return the maps of a method, and missing maps of ensembles of the same noisy copies."""
        _, samples, inputs, segments, _ = self._shard(shard)
        if isinstance(method.source, StoredMaps):
            read = [torch.from_numpy(method.source.read(samples, i)) for i in range(len(samples))]
            return {method.name: torch.stack(read)}
        options = dict(method.options)
        if method.needs_reference(inputs.shape[1:]):
            options["reference"] = self._reference
        if method.asks_for_output and self.work.run.manifest.model.scale == "probabilities":
            options["output"] = "probabilities"
        if segments is not None and method.takes_segments:
            options["segments"] = segments
        if isinstance(method.source, Explanation) and method.source.reads_answers:
            return {method.name: self._call(method.source, samples, inputs, **options)}
        about = self.work.run.manifest.model
        single = about.output.endswith(SINGLE) and about.task == CLASSIFICATION
        with answering_logits(self.work.model.module, single=single, target=self.work.target):
            if isinstance(method.source, Explanation):
                return {method.name: self._call(method.source, samples, inputs, **options)}
            options["features"] = self.work.run.manifest.data.feature_kind
            options["sign"] = "signed"  # negative values are measured before they are dropped
            if not (kinds := self._siblings(method, shard)):
                return {method.name: self._call(METHODS[method.source], samples, inputs, **options)}
            options.pop("ensemble", None)
            together = partial(explain_copies, METHODS[method.source])
            maps = self._call(together, samples, inputs, sorted({*kinds.values()}), **options)
        return {name: maps[kind] for name, kind in kinds.items()}

    def _call(
        self, explain: Callable[..., T], samples: Samples, inputs: Tensor, /, *more: object, **options: object
    ) -> T:
        own = isinstance(explain, Explanation)
        with blaming("method" if own else "model"), handing_copies(self.work.model.module) if own else nullcontext():
            manifest = self.work.run.manifest
            # The value of a regression is its only output.
            targets = samples.labels if manifest.model.task == CLASSIFICATION else np.zeros(len(samples), np.int64)
            return explain(
                self.work.model.module, inputs, targets, *more, ids=samples.ids, seed=manifest.seed, **options
            )

    def _siblings(self, method: Method, shard: int) -> dict[str, str]:
        """Return the kinds of all missing ensembles of the same noisy copies, if there are several."""
        kinds = {
            name: other.ensemble[1]
            for name, other in self.work.methods.items()
            if other.ensemble is not None and other.shares_copies(method)
            and (other is method or not self.work.run.has(self.work.run.maps_shard(name, shard)))
        }  # fmt: skip
        return kinds if len(kinds) > 1 else {}

    def _probe(
        self,
        method: Method,
        sweeps: Sequence[tuple[SweepRecord, Imputer]],
        shard: int,
        maps: Tensor,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Rank the maps of a shard, or of some of its rows, once, and probe them in every sweep."""
        if not sweeps:
            return
        run = self.work.run
        prober = copy.copy(self._shard(shard).prober)  # whose batch size shrinks if memory runs out
        if method.reading.sign == "signed":
            prober.reading = Reading(sign="signed")
        original = ProbeTable.load(run.original_shard(shard))
        if rows is not None:
            prober, original = prober.take(rows), original.take(rows)
        ranked = prober.rank_checked(maps)
        for sweep, imputer in sweeps:
            advance = partial(self._advance, method.name, sweep.name)
            table = prober.sweep(ranked, sweep.schedule, imputer, original=original, advance=advance)
            run.save_probes(run.probes_shard(method.name, sweep.name, shard), table)

    def _advance(self, method: str, sweep: str, rows: int) -> None:
        self.progress.advance(method, rows, sweep)

    def _probe_exchanged(self, method: Method, sweeps: Sequence[tuple[SweepRecord, Imputer]], shard: int) -> None:
        """Probe the samples of a shard with the maps of their partners."""
        work = self.work
        for share in {sweep.exchanged for sweep, _ in sweeps}:
            alike = [(sweep, imputer) for sweep, imputer in sweeps if sweep.exchanged == share]
            positions = work.controlled(alike[0][0], shard)
            rows = [position - work.positions(shard).start for position in positions]
            self._probe(method, alike, shard, self._maps_of(method, [work.partners[k] for k in positions]), rows)

    def _maps_of(self, method: Method, positions: Sequence[int]) -> Tensor:
        """Read the maps of samples of any shards, with one shard in memory at a time."""
        run = self.work.run
        where = [run.manifest.shard_row(position) for position in positions]
        maps = torch.empty(len(where), *run.manifest.data.spatial)
        for shard in {shard for shard, _ in where}:
            chosen = [k for k, (other, _) in enumerate(where) if other == shard]
            maps[chosen] = run.load_maps(method.name, shard, signed=True)[[where[k][1] for k in chosen]]
        return maps
