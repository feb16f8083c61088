"""Evaluation: from a model, data and methods to results, in one call."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from twinlens.data.stored_maps import StoredMaps
from twinlens.errors import DamagedError, RunError
from twinlens.imputation.imputers import Imputer
from twinlens.integrations.explanations import Explanation
from twinlens.metrics.catalogue import headline
from twinlens.metrics.metric import Metric
from twinlens.models.loading import LoadedModel, load_model
from twinlens.options import DataSource, Methods, ModelSource, Options, takes_options
from twinlens.probing.execution import using_threads
from twinlens.probing.tokens import TokenModel
from twinlens.report import write_report
from twinlens.run.analysis import Analysis, MethodAnalysis, analyse, analyse_method
from twinlens.run.directory import ChangedError, Run, RunDirectory, SharedDirectory, discard
from twinlens.run.engines import ENGINES, Failures
from twinlens.run.execution_choice import call_how
from twinlens.run.fingerprints import write_fingerprints
from twinlens.run.job_array import describe_missing, missing_units, run_part, share_of
from twinlens.run.manifest import Manifest, SourceRecord
from twinlens.run.method_sources import Method, find_maps, find_methods, join_methods
from twinlens.run.plan import Plan, check_rounds, draw_rounds, needed_sweeps, plan_run
from twinlens.run.ray_engine import choose_cluster, choose_devices, connected, map_ray
from twinlens.run.run_reader import Evaluation, add_timings, unfinished_evaluation, write_analysis
from twinlens.run.sample_selection import check_shown, write_selection
from twinlens.run.setup import choose_imputer, open_subject
from twinlens.run.table_reader import TableReader
from twinlens.run.units import UNTOUCHED, Cluster, Unit
from twinlens.run.work import EvaluationJob
from twinlens.support.files import as_path, is_local
from twinlens.support.progress import Bars, Progress, Quiet

T = TypeVar("T")
_LOG = logging.getLogger("twinlens")


@takes_options(Options)
def evaluate(  # noqa: D417 (the options are listed where they are declared)
    model: ModelSource, data: DataSource, methods: Methods, options: Options
) -> Evaluation:
    """Evaluate attribution methods on a model and data.

    Every step leaves parts in a run directory. A run that was stopped goes on with the same call; another method,
    metric or imputer computes only what is missing; another question, such as another epsilon, calls no model at all.

    Args:
        model: a spec such as "timm:resnet50" (see `twinlens.load_model`); a module, or any function from a batch, that
            returns logits; a fitted estimator or pipeline of scikit-learn.
        data: a spec such as a folder of images (see `twinlens.open_data`), inputs with labels, or a data set or loader
            of torch. Floating-point labels mean regression.
        methods: names in `METHODS`; or a table from names of your own to a name, a function `(model, inputs, targets)`,
            an attribution of Captum, an object of pytorch-grad-cam, `quantus.explain`, or a table with a "method" and
            its options.

    Returns:
        The results, which are also in the run directory; a directory that was named gets a page, report.html, too. Of
        several methods some may have failed: `failures` says why. For a `part` of a run that is not whole yet the
        results hold no method, and `incomplete` names all of them.

    Raises:
        RunError: if every method failed, or any of them and `strict` is asked for. What was done is kept.
    """
    named = find_methods(methods, options)
    cluster, part = choose_cluster(options), options.own_part
    here, elsewhere = choose_devices(options.device, cluster)
    out = options.out or tempfile.mkdtemp(prefix="twinlens-")
    kind = RunDirectory[Manifest] if part is None else SharedDirectory[Manifest]
    with _showing(options.progress) as progress, _at_rest(named), kind(out, Manifest) as directory:
        # A model that can be called, and samples that were read once.
        place = here if cluster is None or isinstance(model, str) else None
        check_rounds(options.until, directory.manifest, str(directory.path))
        subject = open_subject(model, data, options, device=place, there=directory.manifest)
        check_shown(options.show, subject.samples.ids)
        sources = join_methods(named, find_maps(options, subject))

        # The question: metrics with their imputers, and the sweeps that they need, each once.
        imputer = choose_imputer(subject, options)

        def plan_with(there: Manifest | None) -> Plan:
            return plan_run(
                subject,
                sources,
                options,
                there,
                imputer=imputer,
                execution=partial(call_how, subject, options, there, imputer, cluster, elsewhere),
                source=there.source if there and part else _source(model, data, options),
            )

        run, plan = _start(directory, plan_with)

        # Samples come in growing rounds until they are enough; in one, unless `until` is asked for.
        evaluation, failures = None, Failures()
        with nullcontext() if cluster is None else connected(cluster):
            for drawn in draw_rounds(run, subject):
                job = EvaluationJob(
                    run=run,
                    model=subject.model,
                    samples=drawn.samples,
                    pool=subject.samples,
                    methods={name: method for name, method in sources.items() if name not in failures},
                    sweeps=needed_sweeps(plan.wanted, run.manifest.sweeps),
                    workers=options.workers,
                    segments=subject.segments,
                    target=options.target,
                    reload=None if isinstance(subject.model.module, TokenModel) else _reload(model, options),
                )
                work = partial(_measure, job, plan, imputer, drawn.fingerprints, options, cluster, progress)
                evaluation, failed = _repairing(job, progress, work)
                failures |= failed
                if evaluation is not None:
                    break
    assert evaluation is not None  # of the last round, if not before
    if failures and (options.strict or failures.keys() >= sources.keys()):
        raise incomplete(evaluation.run, failures)
    return _finished(dataclasses.replace(evaluation, failures=failures), named=options.out is not None)


def _measure(
    job: EvaluationJob,
    plan: Plan,
    imputer: Imputer,
    fingerprints: Sequence[bytes],
    options: Options,
    cluster: Cluster | None,
    progress: Progress,
) -> tuple[Evaluation | None, Failures]:
    """Measure the samples of a round; without an evaluation where they are not enough, and with why methods failed."""
    # Per shard and method: make the maps, rank them once, impute every level of every sweep, ask the model. Then the
    # same with maps exchanged between the samples, as the control.
    failures, run, part = _do_units(job, options, cluster, progress), job.run, options.own_part
    units = job.units()
    if part and (missing := missing_units(job, units)):
        reason = describe_missing(part, units, missing)
        return unfinished_evaluation(run, plan.metrics, imputer, reason), failures
    if len(failures) < len(job.methods) and not _enough(run, plan.metrics, cluster):
        return None, failures
    # From tables to curves, intervals and comparison; steps are judged here, over the whole data set.
    reader, analysis = _analyse(run, plan.metrics, cluster)
    evaluation = write_analysis(reader, analysis, plan.metrics, imputer)
    write_selection(job, analysis.false_share, options.show)
    write_fingerprints(run, fingerprints)
    return evaluation, failures


def _finished(evaluation: Evaluation, *, named: bool) -> Evaluation:
    """Write the page into a directory that was named, and say where the results are."""
    if named and evaluation.metrics and evaluation.methods:
        write_report([evaluation], evaluation.path / "report.html")
    _LOG.info("Results of %s in %s", ", ".join(evaluation.methods) or "no method yet", evaluation.path)
    return evaluation


def incomplete(run: Run[Manifest], failures: Mapping[str, Exception]) -> RunError:
    """Return the error that says which methods failed, and why."""
    reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
    made = RunError(f"{run} is incomplete. {reasons} What is done is kept.")
    made.__cause__ = next(iter(failures.values()))
    return made


def _start(
    directory: RunDirectory[Manifest], plan_with: Callable[[Manifest | None], Plan]
) -> tuple[Run[Manifest], Plan]:
    """Start a run, or go on with the one that is there; of parts that start at once, the first decides for all."""
    while True:
        plan = plan_with(directory.manifest)
        with suppress(ChangedError):
            return directory.start(plan.manifest), plan


def _enough(run: Run[Manifest], metrics: Mapping[str, Metric], cluster: Cluster | None) -> bool:
    """Look whether the samples of this round are enough; all that there are always are."""
    rounds = run.manifest.rounds
    if rounds is None or run.manifest.data.samples == rounds.sizes[-1]:
        return True
    _, analysis = _analyse(run, {name: metrics[name] for name in headline(metrics)}, cluster)
    found = analysis.results.stopping
    assert found is not None
    widest = "nothing to judge by" if found.widest is None else f"{found.widest:.3f} open"
    _LOG.info("Look %d of %d, %d of %d samples: %s", found.look, found.looks, found.samples, found.of, widest)
    return found.met


def _analyse(
    run: Run[Manifest], metrics: Mapping[str, Metric], cluster: Cluster | None
) -> tuple[TableReader, Analysis]:
    """Analyse a run, on the cluster if there is one; what fails there is left to this process, which says why."""
    reader, there = TableReader(run), Run(run.path.resolve() if is_local(run.path) else run.path, run.manifest)

    def analyse_there(method: str) -> MethodAnalysis:
        return analyse_method(TableReader(there), method, metrics, there.manifest.question)

    known = dict[str, MethodAnalysis]()
    if cluster is not None:
        known = map_ray(analyse_there, [name for name in run.manifest.methods if reader.complete(name)], cluster)
    return reader, analyse(reader, metrics, run.manifest.question, known)


def _do_units(job: EvaluationJob, options: Options, cluster: Cluster | None, progress: Progress) -> Failures:
    """Make what is missing of a run, or of a part of it, and return why methods failed."""
    execution, part = job.run.manifest.execution.execution, options.own_part
    units = job.units() if part is None else share_of(job.units(), part)
    reused = _reused(job, units)
    again = f" Reused maps of {', '.join(reused)}." if reused else ""
    rounds, samples = job.run.manifest.rounds, job.run.manifest.data.samples
    drawn = f" {samples:,} of {rounds.sizes[-1]:,} samples." if rounds else ""
    note = f"{execution.describe()}{again}{drawn} Run directory: {job.run.path}"
    progress.begin(job.rows(units), note)
    _LOG.info("%s", note)
    with using_threads(execution.threads):
        if part is not None:
            failures, seconds = run_part(job, part, progress)
        else:
            resources = cluster and dataclasses.replace(cluster, threads=execution.threads)
            failures, seconds = ENGINES[options.engine](job, units, progress, resources)
    add_timings(job.run, seconds, part)
    if UNTOUCHED in failures:  # without which there are no results
        raise RunError(f"{job.run} is incomplete. {failures[UNTOUCHED]} What is done is kept.")
    return failures


def _reused(job: EvaluationJob, units: Sequence[Unit]) -> list[str]:
    """Name the methods whose maps are all there already."""
    needed: dict[str, list[int]] = {}
    for unit in units:
        if unit.method is not None and unit.stage == 0:
            needed.setdefault(unit.method, []).append(unit.shard)
    return [
        name
        for name, shards in needed.items()
        if all(job.run.maps_part(name, shard).exists() for shard in shards)
        and not isinstance(job.methods[name].source, StoredMaps)
    ]


def _repairing(job: EvaluationJob, progress: Progress, work: Callable[[], T]) -> T:
    """Do work on a run; where it meets a damaged part that the job can make, remove the part and do it again."""
    seen: set[Path] = set()
    while True:
        try:
            return work()
        except DamagedError as error:
            path = as_path(error.path)
            if path in seen or not any(path in job.files(unit) for unit in job.units()):
                raise
            seen.add(path)
            discard(error, progress)


def _reload(model: ModelSource, options: Options) -> Callable[[], LoadedModel] | None:
    if not isinstance(model, str):
        return None
    return partial(
        load_model,
        model,
        weights=options.weights,
        preprocessing=options.preprocessing,
        device="cpu",  # first: whether a worker may use a GPU is known to the job
        allow_code=options.allow_code,
    )


def _source(model: ModelSource, data: DataSource, options: Options) -> SourceRecord:
    return SourceRecord(
        model=model if isinstance(model, str) else None,
        weights=options.weights,
        data=data if isinstance(data, str) else None,
        classes=options.classes,
    )


@contextmanager
def _at_rest(methods: Mapping[str, Method]) -> Iterator[None]:
    """Keep what explanations of other libraries left on the model out of our calls of it."""
    with ExitStack() as stack:
        for method in methods.values():
            if isinstance(method.source, Explanation):
                stack.enter_context(method.source.at_rest())
        yield


@contextmanager
def _showing(progress: bool | Progress) -> Iterator[Progress]:
    if progress is True:
        with Bars() as bars:
            yield bars if bars.shown else Quiet()
    else:
        yield progress or Quiet()
