"""Where the work of a run happens: in this process, as one of several jobs, or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from twinlens.errors import RunError
from twinlens.metrics.catalogue import headline
from twinlens.metrics.metric import Metric
from twinlens.options import Job, Options
from twinlens.probing.execution import using_threads
from twinlens.run.analysis import Analysis, MethodAnalysis, analyse, analyse_method
from twinlens.run.directory import Run
from twinlens.run.expectation import announce
from twinlens.run.job_array import Failures, describe_missing, in_turn, missing_units, run_in_order, share_of
from twinlens.run.listener import Listener
from twinlens.run.ray_engine import connected, map_ray, run_ray
from twinlens.run.ray_workers import import_ray
from twinlens.run.table_reader import TableReader
from twinlens.run.units import ORIGINAL, Cluster, Unit
from twinlens.run.work import EvaluationWork
from twinlens.support.files import is_local
from twinlens.support.progress import Progress

_LOG = logging.getLogger("twinlens")


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The engine of a run, with its devices and resources."""

    job: Job | None = None
    """The job of this process; None for the whole run."""
    cluster: Cluster | None = None
    """The cluster of the workers; None for this process."""
    device: str | None
    """Device of this process; None for that of the model."""
    worker_device: str | None = None

    @staticmethod
    def of(options: Options) -> Distribution:
        """Choose by the options."""
        if options.engine != "ray":
            return Distribution(job=options.job, device=options.device)
        import_ray()  # before anything expensive
        cpus, gpus = options.cpus_per_unit, options.gpus_per_unit or 0.0
        cluster = Cluster(address=options.address, cpus_per_unit=1.0 if cpus is None else cpus, gpus_per_unit=gpus)
        elsewhere = "cuda" if gpus else "cpu"
        if options.device is not None and options.device.partition(":")[0] != elsewhere:
            raise ValueError(
                f"`device` must be {elsewhere!r} with {gpus:g} GPUs per unit; got {options.device!r}. On a cluster it "
                "follows from `gpus_per_unit`; leave it out."
            )
        own = elsewhere if torch.cuda.is_available() else "cpu"
        return Distribution(cluster=cluster, device=own, worker_device=elsewhere)

    def connected(self) -> AbstractContextManager[object]:
        """Stay connected to the cluster during a block."""
        return nullcontext() if self.cluster is None else connected(self.cluster)

    def do(self, work: EvaluationWork, repairs: Iterable[Unit], progress: Progress) -> Failures:
        """Do what is missing of a run, or the share of this job and its repairs, and return the errors by method."""
        manifest = work.run.manifest
        execution, units = manifest.execution.execution, work.units()
        if self.job is not None:
            share = {*share_of(units, self.job), *repairs}
            units = [unit for unit in units if unit in share]
        reused = f" Reused maps of {', '.join(names)}." if (names := work.reused_methods()) else ""
        rounds = f" {manifest.data.samples:,} of {manifest.rounds.sizes[-1]:,} samples." if manifest.rounds else ""
        note = f"{execution.describe()}{reused}{rounds} Run directory: {work.run.path}"
        if self.cluster is None and (expected := announce(work, units)) is not None:
            progress.warn(expected)
        progress.begin(work.rows(units), note)
        _LOG.info("%s", note)
        with using_threads(execution.threads):
            if self.cluster is not None:
                resources = dataclasses.replace(self.cluster, threads=execution.threads)
                failures, seconds = run_ray(work, units, progress, resources)
            else:
                failures = Failures()
                order = units if self.job is None else in_turn(work, units, self.job, failures, progress)
                seconds = run_in_order(work, order, progress, failures)
        work.run.add_seconds(seconds, self.job)
        if ORIGINAL in failures:  # without which there are no results
            raise RunError(f"{work.run} is incomplete. {failures[ORIGINAL]} What is done is kept.")
        return failures

    def missing(self, work: EvaluationWork) -> str | None:
        """Describe what other jobs have not done yet; None if the run is complete or not shared."""
        if self.job is None:
            return None
        units = work.units()
        missing = missing_units(work, units)
        return describe_missing(self.job, units, missing) if missing else None

    def analyse(
        self, run: Run, metrics: Mapping[str, Metric], listener: Listener, *, final: bool = True
    ) -> tuple[TableReader, Analysis]:
        """Analyse a run, on the cluster if there is one; this process analyses the methods that fail there."""
        reader, settings = TableReader(run), run.manifest.settings
        done = dict[str, MethodAnalysis]()
        if self.cluster is not None:
            remote = Run(run.path.resolve() if is_local(run.path) else run.path, run.manifest)

            def analyse_there(method: str) -> MethodAnalysis:
                return analyse_method(TableReader(remote), method, metrics, settings)

            done = map_ray(analyse_there, [m for m in run.manifest.methods if reader.complete(m)], self.cluster)
        return reader, analyse(reader, metrics, settings, done, listener.of(run, final=final))

    def enough(self, run: Run, metrics: Mapping[str, Metric], listener: Listener) -> bool:
        """Return whether the samples of this round are enough; the last round always is."""
        rounds = run.manifest.rounds
        if rounds is None or run.manifest.data.samples == rounds.sizes[-1]:
            return True
        _, analysis = self.analyse(run, {name: metrics[name] for name in headline(metrics)}, listener, final=False)
        look = analysis.results.stopping
        assert look is not None
        widest = "nothing to judge by" if look.widest is None else f"{look.widest:.3f} open"
        _LOG.info("Look %d of %d, %d of %d samples: %s", look.look, look.looks, look.samples, look.of, widest)
        return look.met
