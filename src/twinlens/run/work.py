"""The job of an evaluation: maps of one method for one shard, and every probe about them.

Shapes: B samples of one shard, C channels, S = spatial shape.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
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
from twinlens.errors import DamagedError, RunError
from twinlens.imputation.imputers import ConstantImputer, Imputer, TokenImputer
from twinlens.integrations.explanations import Explanation
from twinlens.models.loading import LoadedModel
from twinlens.probing.answers import CLASSIFICATION, SINGLE, Target, answering_logits
from twinlens.probing.exchange import draw_controlled, draw_partners
from twinlens.probing.execution import Prepared
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import blaming, find_device
from twinlens.probing.probe import Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.probing.tokens import are_tokens
from twinlens.run.directory import Run, discard
from twinlens.run.manifest import Manifest, SweepRecord
from twinlens.run.method_sources import Method
from twinlens.run.units import UNTOUCHED, Unit
from twinlens.support.progress import Progress

T = TypeVar("T")
_NAMED = 16  # ids of samples that a message lists
EXCHANGED = 1  # stage of the units that probe samples by the maps of others
_REFERENCE_SAMPLES = 256  # from which methods that compare with other inputs, such as IBA, estimate what is usual


def load_reference(samples: Samples, model: LoadedModel, seed: int, workers: int) -> Tensor:
    """Read the inputs from which methods that compare with others estimate what is usual, drawn by the seed."""
    return load_inputs(subset(samples, _REFERENCE_SAMPLES, seed), model, workers)


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationJob:
    """Everything that units of a run have in common."""

    run: Run[Manifest]
    model: LoadedModel
    samples: Samples
    """Those of the round that is measured."""
    pool: Samples
    """Those of all rounds, from which methods draw the inputs that they compare with: no map depends on the round."""
    methods: Mapping[str, Method]
    sweeps: Sequence[tuple[SweepRecord, Imputer]]
    workers: int
    segments: Segments | None = None
    """What joins places of a map to features."""
    target: Target | None = None
    """Makes scores of what the model returns."""
    reload: Callable[[], LoadedModel] | None = None
    """How other processes load the model; without it they are sent the module."""

    def __getstate__(self) -> dict[str, object]:
        """Return what another process needs of the job."""
        state = dict(self.__dict__)
        if self.reload is not None:
            state["model"] = None
        elif find_device(self.model.module, None)[0].type != "cpu":
            # A GPU of this machine may have another number there, or none.
            state["model"] = dataclasses.replace(self.model, module=copy.deepcopy(self.model.module).cpu())
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore the job that another process sent."""
        self.__dict__.update(state)
        if self.reload is not None:
            self.__dict__["model"] = self.reload()
            if self.model.digest() != self.run.manifest.model.digest:
                raise RunError(
                    f"The model {self.model.name!r} that is loaded here differs from the one of {self.run}. Make the "
                    "same files and packages available on all nodes, or pass the module itself."
                )
        self.model.module.to(self.run.manifest.execution.device)

    def units(self) -> list[Unit]:
        """List all units: first the untouched inputs, then shard by shard, so that a method that fails fails early.

        Exchanged maps come in a second stage: they are those of other shards.
        """
        shards = range(self.run.manifest.shards)
        methods = [Unit(shard, name) for shard in shards for name in self.methods]
        exchanged = [dataclasses.replace(unit, stage=EXCHANGED) for unit in methods]
        return [*(Unit(shard) for shard in shards), *methods, *(exchanged if self.exchanges else ())]

    def files(self, unit: Unit) -> list[Path]:
        """Return the files that a unit makes."""
        if unit.method is None:
            return [self.run.untouched_part(unit.shard)]
        probes = [self.run.probes_part(unit.method, sweep.name, unit.shard) for sweep, _ in self.sweeps_of(unit)]
        return probes if unit.stage == EXCHANGED else [self.run.maps_part(unit.method, unit.shard), *probes]

    def sweeps_of(self, unit: Unit) -> list[tuple[SweepRecord, Imputer]]:
        """Return the sweeps that a unit with a method makes; the control need not have samples in every shard."""
        exchanged = unit.stage == EXCHANGED
        own = [(sweep, imputer) for sweep, imputer in self.sweeps if bool(sweep.exchanged) == exchanged]
        return [(sweep, imputer) for sweep, imputer in own if self.count(sweep, unit.shard)]

    def relies_on(self, unit: Unit) -> list[Unit]:
        """Return the units whose maps a unit of the control reads."""
        probed = {position for sweep, _ in self.sweeps_of(unit) for position in self.controlled(sweep, unit.shard)}
        shards = {self.run.manifest.place(self.partners[position])[0] for position in probed}
        return [Unit(shard, unit.method) for shard in sorted(shards)]

    def rows(self, units: Iterable[Unit]) -> dict[str, int]:
        """Count the rows of each task in these units."""
        rows = {UNTOUCHED: 0} | dict.fromkeys(self.methods, 0)
        for unit in units:
            if unit.method is None:
                rows[UNTOUCHED] += len(self.positions(unit.shard))
            else:
                sweeps = self.sweeps_of(unit)
                rows[unit.method] += sum(
                    len(sweep.schedule.levels) * self.count(sweep, unit.shard) for sweep, _ in sweeps
                )
        return rows

    def part(self, shard: int) -> Samples:
        """Return the samples of one shard."""
        return self.samples.take(self.positions(shard))

    def positions(self, shard: int) -> range:
        """Return the positions of the samples of one shard."""
        return self.run.manifest.positions(shard)

    def controlled(self, sweep: SweepRecord, shard: int) -> list[int]:
        """Return the positions of a shard's samples that a sweep on exchanged maps is made for."""
        drawn, positions = self._drawn[sweep.exchanged], self.positions(shard)
        return drawn[bisect_left(drawn, positions.start) : bisect_left(drawn, positions.stop)]

    def count(self, sweep: SweepRecord, shard: int) -> int:
        """Count the samples of a shard that a sweep is made for."""
        return len(self.controlled(sweep, shard) if sweep.exchanged else self.positions(shard))

    @property
    def exchanges(self) -> bool:
        """Whether any sweep is made on exchanged maps."""
        return any(sweep.exchanged for sweep, _ in self.sweeps)

    @cached_property
    def partners(self) -> list[int]:
        """For each sample, the position of the one whose map it is probed by in the control."""
        about, samples = self.run.manifest, self.samples
        drawn = draw_partners(samples.ids, samples.labels, seed=about.seed, within=about.exchange_within)
        partners: list[int] = drawn.tolist()
        return partners

    @cached_property
    def _drawn(self) -> dict[float, list[int]]:
        about, ids = self.run.manifest, self.samples.ids
        return {
            share: draw_controlled(ids, share, seed=about.seed, within=about.exchange_within).tolist()
            for share in {sweep.exchanged for sweep, _ in self.sweeps if sweep.exchanged}
        }

    def describe(self, unit: Unit) -> str:
        """Name a unit for the person who has to look after it, with the ids of its samples."""
        ids = self.part(unit.shard).ids
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        return f"shard {unit.shard} (samples {', '.join(map(repr, ids[:_NAMED]))}{more})"

    def worker(self, progress: Progress) -> EvaluationWorker:
        """Create a worker for this job."""
        return EvaluationWorker(self, progress)


class _Shard(NamedTuple):
    """The samples of one shard, as the model sees them."""

    number: int
    samples: Samples
    inputs: Tensor
    segments: Tensor | None


class EvaluationWorker:
    """Does units of one job; holds the model, and the inputs of one shard at a time."""

    def __init__(self, job: EvaluationJob, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.model = Prepared(job.model.module, job.run.manifest.execution.execution)
        self.seconds: dict[str, float] = {}
        self._loaded: _Shard | None = None

    def do(self, unit: Unit) -> None:
        """Make the parts of a unit that are not there yet, or are damaged."""
        try:
            self._do(unit)
        except DamagedError as error:
            discard(error, self.progress)
            self._do(Unit(unit.shard))  # in case that it was what the model answers about the untouched inputs
            if unit.stage == EXCHANGED:  # or maps of another shard
                for other in self.job.relies_on(unit):
                    self._do(other)
            self._do(unit)

    def _do(self, unit: Unit) -> None:
        run, job = self.job.run, self.job
        if unit.method is None:
            self._make_untouched(unit.shard)
            self.progress.advance(UNTOUCHED, len(job.positions(unit.shard)), "asked")
            return
        method, missing = job.methods[unit.method], []
        for sweep, imputer in job.sweeps_of(unit):
            if run.probes_part(method.name, sweep.name, unit.shard).exists():
                rows = job.count(sweep, unit.shard) * len(sweep.schedule.levels)
                self.progress.advance(method.name, rows, sweep.name)
            else:
                missing.append((sweep, imputer))
        if missing:
            self._make_untouched(unit.shard)  # which may be up to another part of the run that is not as far yet
        if unit.stage == EXCHANGED:
            if missing:
                self._timed(f"{method.name}/control", lambda: self._probe_exchanged(method, missing, unit.shard))
        elif missing or not run.maps_part(method.name, unit.shard).exists():
            maps = self._timed(f"{method.name}/maps", lambda: self._maps(method, unit.shard))
            if missing:
                self._timed(f"{method.name}/probes", lambda: self._probe(method, missing, unit.shard, maps))

    def _timed(self, what: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self._count(what, start)
        return result

    def _count(self, what: str, start: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    def _shard(self, shard: int) -> _Shard:
        if self._loaded is None or self._loaded.number != shard:
            self._loaded = None  # so that two shards are never in memory at once
            part = self.job.part(shard)
            inputs = load_inputs(part, self.job.model, self.job.workers)
            segments = None if self.job.segments is None else self.job.segments.of(part, inputs)
            self._loaded = _Shard(shard, part, inputs, segments)
        return self._loaded

    @cached_property
    def _reference(self) -> Tensor:
        return load_reference(self.job.pool, self.job.model, self.job.run.manifest.seed, self.job.workers)

    def _prober(self, shard: int, rows: Sequence[int] | None = None) -> Prober:
        """Return a prober of one shard, or of these rows of it."""
        _, samples, inputs, segments = self._shard(shard)
        if rows is not None:
            samples, inputs = samples.take(rows), inputs[list(rows)]
            segments = None if segments is None else segments[list(rows)]
        manifest = self.job.run.manifest
        return Prober(
            self.model,
            inputs,
            samples.labels,
            ids=samples.ids,
            seed=manifest.seed,
            batch_size=manifest.execution.batch_size,
            output=manifest.model.scale,
            target=self.job.target,
            segments=segments,
        )

    def _make_untouched(self, shard: int) -> None:
        if not self.job.run.untouched_part(shard).exists():
            self._timed(UNTOUCHED, lambda: self._ask_untouched(shard))

    def _ask_untouched(self, shard: int) -> None:
        prober = self._prober(shard)
        nothing = prober.rank(torch.zeros(len(prober.ids), *prober.spatial), warn=False)
        imputer = TokenImputer(0) if are_tokens(prober.inputs) else ConstantImputer()  # which has nothing to do
        table = prober.sweep(nothing, Schedule(by="area", order="morf", levels=(0.0,)), imputer)
        self.job.run.save_probes(self.job.run.untouched_part(shard), table)

    def _maps(self, method: Method, shard: int) -> Tensor:
        """Return the maps of one shard: read from its part, or made and written there."""
        run = self.job.run
        if run.maps_part(method.name, shard).exists():
            return run.load_maps(method.name, shard)
        self.progress.advance(method.name, 0, "maps")
        _, samples, inputs, _ = self._shard(shard)
        start, made = time.perf_counter(), {}
        for name, maps in self._explain(method, shard).items():
            checked = check_maps(maps, spatial_shape(inputs.shape), ids=samples.ids, reading=method.reading)
            # As they are stored, so that a run that goes on ranks the same numbers.
            made[name] = checked.float().cpu()
            run.save_maps(name, shard, made[name], samples.ids)
            if name != method.name:  # of which each counts what it would have taken alone
                self._count(f"{name}/maps", start)
        return made[method.name]

    def _explain(self, method: Method, shard: int) -> dict[str, Tensor]:
        """Return the maps of a method, and of those from the same noisy copies that are not there yet."""
        _, samples, inputs, segments = self._shard(shard)
        if isinstance(method.source, StoredMaps):
            read = [torch.from_numpy(method.source.read(samples, i)) for i in range(len(samples))]
            return {method.name: torch.stack(read)}
        options = dict(method.options)
        if method.needs_reference:  # what is usual must not depend on which samples share a shard
            options["reference"] = self._reference
        if segments is not None and method.takes_segments:
            options["segments"] = segments
        if isinstance(method.source, Explanation) and method.source.reads_answers:
            return {method.name: self._call(method.source, samples, inputs, **options)}
        with self._answering():
            if isinstance(method.source, Explanation):
                return {method.name: self._call(method.source, samples, inputs, **options)}
            if not (kinds := self._siblings(method, shard)):
                return {method.name: self._call(METHODS[method.source], samples, inputs, **options)}
            options.pop("ensemble", None)
            together = partial(explain_copies, METHODS[method.source])
            made = self._call(together, samples, inputs, sorted({*kinds.values()}), **options)
        return {name: made[kind] for name, kind in kinds.items()}

    def _answering(self) -> AbstractContextManager[None]:
        """Let the model return logits (B, K): two for one of two classes; the value itself where that is explained."""
        about = self.job.run.manifest.model
        single = about.output.endswith(SINGLE) and about.task == CLASSIFICATION
        return answering_logits(self.job.model.module, single=single, target=self.job.target)

    def _call(
        self, explain: Callable[..., T], samples: Samples, inputs: Tensor, /, *more: object, **options: object
    ) -> T:
        with blaming("method" if isinstance(explain, Explanation) else "model"):
            manifest = self.job.run.manifest
            # A value is the only one of its sample.
            targets = samples.labels if manifest.model.task == CLASSIFICATION else np.zeros(len(samples), np.int64)
            return explain(
                self.job.model.module, inputs, targets, *more, ids=samples.ids, seed=manifest.seed, **options
            )

    def _siblings(self, method: Method, shard: int) -> dict[str, str]:
        """Return which ensembles of the same noisy copies are missing, with the method's own; none if that is all."""
        kinds = {
            name: other.ensemble[1]
            for name, other in self.job.methods.items()
            if other.ensemble is not None and other.shares_copies(method)
            and (other is method or not self.job.run.maps_part(name, shard).exists())
        }  # fmt: skip
        return kinds if len(kinds) > 1 else {}

    def _probe(
        self,
        method: Method,
        missing: Sequence[tuple[SweepRecord, Imputer]],
        shard: int,
        maps: Tensor,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Rank the maps of a shard, or of these rows of it, once, and make every sweep that is missing."""
        run, prober = self.job.run, self._prober(shard, rows)
        ranked = prober.rank(maps, warn=False)  # results tell of degenerate maps
        untouched = ProbeTable.load(run.untouched_part(shard))
        if rows is not None:
            untouched = untouched.take(rows)
        for sweep, imputer in missing:

            def advance(rows: int, stage: str = sweep.name) -> None:
                self.progress.advance(method.name, rows, stage)

            table = prober.sweep(ranked, sweep.schedule, imputer, original=untouched, advance=advance)
            run.save_probes(run.probes_part(method.name, sweep.name, shard), table)

    def _probe_exchanged(self, method: Method, missing: Sequence[tuple[SweepRecord, Imputer]], shard: int) -> None:
        """Make sweeps of one shard in which every sample is probed by the map of its partner."""
        job = self.job
        for share in {sweep.exchanged for sweep, _ in missing}:
            sweeps = [(sweep, imputer) for sweep, imputer in missing if sweep.exchanged == share]
            positions = job.controlled(sweeps[0][0], shard)
            rows = [position - job.positions(shard).start for position in positions]
            self._probe(method, sweeps, shard, self._maps_of(method, [job.partners[k] for k in positions]), rows)

    def _maps_of(self, method: Method, positions: Sequence[int]) -> Tensor:
        """Read the maps of samples of any shard; one part at a time, so that only one is in memory."""
        run = self.job.run
        places = [run.manifest.place(position) for position in positions]
        maps = torch.empty(len(places), *run.manifest.data.spatial)
        for shard in {shard for shard, _ in places}:
            wanted = [k for k, (other, _) in enumerate(places) if other == shard]
            maps[wanted] = run.load_maps(method.name, shard)[[places[k][1] for k in wanted]]
        return maps
