"""Evaluation: from a model, data and methods to results, in one call."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Mapping

from twinlens.errors import DamagedError, RunError
from twinlens.metrics.metric import Metric
from twinlens.options import DEFAULT_METHODS, DataSource, Methods, ModelSource, Options, takes_options
from twinlens.outcome import Evaluation
from twinlens.report import write_report
from twinlens.run.directory import Run, RunDirectory
from twinlens.run.distribution import Distribution
from twinlens.run.fingerprints import write_fingerprints
from twinlens.run.listener import Listener
from twinlens.run.method_sources import at_rest, default_methods, find_maps, find_methods, join_methods
from twinlens.run.plan import Planner, check_rounds, draw_rounds, needed_sweeps
from twinlens.run.sample_selection import write_selection
from twinlens.run.setup import Setup, open_setup
from twinlens.run.stored_answers import check_answers
from twinlens.run.stored_run import unfinished_results, write_results
from twinlens.run.table_reader import TableReader
from twinlens.run.units import Unit
from twinlens.run.work import EvaluationWork
from twinlens.support.files import as_path
from twinlens.support.progress import shown_progress

_LOG = logging.getLogger("twinlens")


@takes_options(Options)
def evaluate(  # noqa: D417 (the options are listed where they are declared)
    model: ModelSource, data: DataSource, methods: Methods, options: Options
) -> Evaluation:
    """Evaluate attribution methods on a model and data.

    Every step writes files in a run directory. An interrupted run resumes with the same call. Another method, metric or
    imputer computes only what is missing; for other settings, such as another epsilon, the model is called on a few
    inputs, to see that it is the same.

    Args:
        model: a spec such as "timm:resnet50" (see `twinlens.load_model`); a module or function that returns logits; a
            fitted scikit-learn estimator or pipeline.
        data: a spec such as a folder of images (see `twinlens.open_data`), inputs with labels, texts with labels and a
            `tokenizer`, or a torch data set or loader. Floating-point labels mean regression.
        methods: names in `METHODS`; or a mapping from your own names to a name, a function `(model, inputs, targets)`,
            a Captum attribution, a pytorch-grad-cam object, `quantus.explain`, an explainer of shap, or a mapping with
            a "method" and its options. The default is that of images, signals and volumes: text and tables have
            `occlusion` instead of `gradcam`, and models without gradients `kernel_shap`, `occlusion` and `random`.

    Returns:
        The results, which are also in the run directory; with `out` there is a page, report.html, too. If some of
        several methods failed, `failures` holds the errors. For one job of an unfinished run (`part`), the results hold
        no method, and `incomplete` names all of them.

    Raises:
        RunError: if every method failed, or any with `strict`. What is done is kept.
    """
    named = find_methods(methods, options, model)
    where = Distribution.of(options)
    out = options.out or tempfile.mkdtemp(prefix="twinlens-")
    run_directory = RunDirectory(out, shared=options.job is not None)
    with shown_progress(options.progress) as progress, at_rest(named), run_directory as directory:
        # The model, ready to be called, and samples that were all read once.
        check_rounds(options.until, directory.manifest, str(directory.path))
        device = where.device if where.cluster is None or isinstance(model, str) else None
        setup = open_setup(model, data, options, device=device)
        if methods is DEFAULT_METHODS:
            named = find_methods(default_methods(setup), options, model)
        sources = join_methods(named, find_maps(options, setup))

        # The metrics with their imputers, and the sweeps that they need, each once.
        planner = Planner(setup=setup, methods=sources, imputer=setup.imputer(options.imputer), distribution=where)
        run = directory.start(planner.manifest, lambda run: check_answers(run, setup))
        metrics = planner.metrics(run.manifest)
        probes = run.manifest.settings.sweeps(metrics, run.manifest.data.features)

        # Samples come in growing rounds until they are enough; in a single one without `until`.
        evaluation, failures = None, dict[str, Exception]()
        listener = Listener(options.on_result, progress)
        with where.connected():
            for drawn in draw_rounds(run, setup):
                work = EvaluationWork(
                    run=run,
                    model=setup.model,
                    samples=drawn.samples,
                    pool=setup.samples,
                    methods={name: method for name, method in sources.items() if name not in failures},
                    sweeps=needed_sweeps(probes, run.manifest.sweeps),
                    workers=options.workers,
                    segments=setup.segments,
                    target=options.target,
                    reload=setup.reload,
                )
                evaluation, failed = _measure(work, drawn, metrics, planner, where, listener)
                failures |= failed
                if evaluation is not None:
                    break
    assert evaluation is not None  # at the latest after the last round
    evaluation = dataclasses.replace(evaluation, failures=failures)
    if failures and (options.strict or failures.keys() >= sources.keys()):
        raise incomplete(evaluation.run, failures)
    if options.out is not None and evaluation.metrics and evaluation.methods:
        write_report([evaluation], evaluation.path / "report.html")
    _LOG.info("Results of %s in %s", ", ".join(evaluation.methods) or "no method yet", evaluation.path)
    return evaluation


def _measure(
    work: EvaluationWork,
    drawn: Setup,
    metrics: Mapping[str, Metric],
    planner: Planner,
    where: Distribution,
    listener: Listener,
) -> tuple[Evaluation | None, dict[str, Exception]]:
    """Measure the samples of a round, repairing damaged files; None if more are needed, and the errors by method."""
    progress, repairs = listener.progress, list[Unit]()
    while True:
        try:
            # Shard by shard, for every method: make the maps, rank them once, impute every level of every sweep, and
            # call the model; then the same with maps exchanged between samples, as a control.
            failures = where.do(work, repairs, progress)
            work.run.damaged.clear()  # workers elsewhere have replaced them
            return _results(work, drawn, metrics, planner, where, failures, listener), failures
        except DamagedError as error:
            unit = work.maker(error.path)
            if unit is None or unit in repairs:
                raise
            progress.warn(f"{str(error.path)!r} is damaged ({error.reason}) and is made anew.")
            work.run.damaged.add(as_path(error.path))
            repairs.append(unit)


def _results(
    work: EvaluationWork,
    drawn: Setup,
    metrics: Mapping[str, Metric],
    planner: Planner,
    where: Distribution,
    failures: Mapping[str, Exception],
    listener: Listener,
) -> Evaluation | None:
    """Compute and write the results of a round; None if more samples are needed."""
    run, own = work.run, dict(metrics)
    if reason := where.missing(work):
        results = unfinished_results(run.manifest, reason)
        return Evaluation(run, results, TableReader(run), own, planner.imputer)
    if len(failures) < len(work.methods) and not where.enough(run, metrics, listener):
        return None
    # From probe tables to curves, intervals and the comparison of methods, over the whole data set.
    reader, analysis = where.analyse(run, metrics, listener)
    write_results(run, analysis)
    write_selection(work, analysis.false_share, drawn.options.show)
    write_fingerprints(run, drawn.fingerprints)
    return Evaluation(run, analysis.results, reader, own, planner.imputer, analysis.comparison)


def incomplete(run: Run, failures: Mapping[str, Exception]) -> RunError:
    """Return the error that names the methods that failed, and why."""
    reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
    error = RunError(f"{run} is incomplete. {reasons} What is done is kept.")
    error.__cause__ = next(iter(failures.values()))
    return error
