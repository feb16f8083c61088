"""The command ask: query the probes of a run with other settings, and store the answer beside its own results."""

from __future__ import annotations

import argparse
import dataclasses
import errno
from collections.abc import Iterable, Mapping
from pathlib import Path

from twinlens.cli.evaluate import show
from twinlens.cli.flags import add_options, add_output, given_flags, option_group, set_option, split_option
from twinlens.cli.report import writing_to
from twinlens.errors import RunError, unknown
from twinlens.imputation.imputers import Imputer, find_imputer
from twinlens.metrics.metric import Metric
from twinlens.options import Options
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.run.directory import check_name
from twinlens.run.queries import FOLDER
from twinlens.run.stored_run import store_query
from twinlens.support.fields import replaced
from twinlens.support.files import as_path

QUERY_OPTIONS = ("metrics", "protocol", "levels", "epsilon", "performance", "imputer", "resamples")
"""The options of `evaluate` that read stored probes."""


def add_ask(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens ask`."""
    parser.add_argument("run", metavar="RUN", help="Run directory.")
    option_group(parser, "Evaluation").add_argument(
        "--option",
        action="append",
        metavar="METRIC.KEY=VALUE",
        help="Option of a metric, such as soundness.epsilon=0.05; repeatable.",
    )
    add_options(parser, Options, QUERY_OPTIONS)
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="Name of the results, which are stored in RUN/results/NAME.json; derived from the settings by default. "
        "The name of a stored query, without other options, answers it again.",
    )
    parser.add_argument("--out", metavar="DIR", help="Directory in which to store NAME.json instead.")
    add_output(parser, "the summary")


def run_ask(namespace: argparse.Namespace) -> None:
    """Answer a query, and store its results beside those of the run."""
    evaluation, name = open_evaluation(namespace.run), namespace.name
    if name is not None:
        check_name(name, "name")
    folder = None if namespace.out is None else _folder(namespace.out)
    flags, texts = given_flags(namespace, Options), namespace.option or ()
    for text in texts:
        if split_option(text)[0] == "imputer":
            set_option(flags, text)
    options = Options(**flags)  # type: ignore[arg-type] # wrong types are refused here, by the option's name
    metrics, resamples = evaluation.metric_values, options.resamples if "resamples" in flags else None
    if not flags and not texts and name in evaluation.queries():
        again = evaluation.open_query(name)
        metrics, resamples = again.metric_values, again.results.settings.resamples
    if "metrics" in flags:
        metrics = {name: metrics.get(name, metric) for name, metric in options.metric_values.items()}
    shared = {name: getattr(options, name) for name in flags if name not in ("metrics", "resamples", "imputer")}
    metrics = change_metrics(metrics, shared, [text for text in texts if split_option(text)[0] != "imputer"])
    if options.imputer is not None:
        metrics = with_imputer(metrics, find_imputer(options.imputer))
    answer = evaluation.ask(metrics, resamples=resamples)
    note = "The settings are the run's own: nothing was stored."
    if name is not None or answer.query is not None:
        answer, note = _store(answer, name, folder, must=namespace.quiet)
    show(answer, namespace, note)


def _folder(out: str) -> Path:
    """Return the directory of `out`; one that holds a run is refused."""
    with writing_to(out, "out"):
        folder = as_path(out)
        if (folder / "run.json").exists():
            raise RunError(f"`out` {out!r} holds a run. Without `out`, its queries are stored in {FOLDER}/.")
    return folder


def _store(answer: Evaluation, name: str | None, folder: Path | None, *, must: bool) -> tuple[Evaluation, str]:
    """Store an answer, and return it with where it is; a read-only run is no error, unless nothing is printed."""
    try:
        with writing_to(None if folder is None else str(folder), "out"):
            answer = store_query(answer, name, folder)
    except (OSError, RunError) as error:
        reason = error if isinstance(error, OSError) else error.__cause__
        read_only = isinstance(reason, OSError) and reason.errno == errno.EROFS
        if must or folder is not None or not (read_only or isinstance(reason, PermissionError)):
            raise
        return answer, f"The answer was not stored: {answer.path} is read-only. Pass --out DIR to store it elsewhere."
    shown = answer.path if folder is None else f"{answer.path} --results {answer.file}"
    return answer, f"Stored in {answer.file}; `twinlens report {shown}` shows it. The run's own results are unchanged."


def with_imputer(metrics: Mapping[str, Metric], imputer: Imputer) -> dict[str, Metric]:
    """Set the imputer of the metrics that use the run's; deletion and insertion keep their own."""

    def change(metric: Metric) -> Metric:
        takes = dataclasses.replace(metric, imputer=None).bound(imputer, neighbours=True).imputer is imputer
        return dataclasses.replace(metric, imputer=imputer) if takes else metric

    return {name: change(metric) for name, metric in metrics.items()}


def change_metrics(
    metrics: Mapping[str, Metric], shared: Mapping[str, object], options: Iterable[str]
) -> dict[str, Metric]:
    """Change metrics by shared options and by METRIC.KEY=VALUE."""
    changed = {
        name: replaced(metric, {key: value for key, value in shared.items() if key in metric.shared}, name)
        for name, metric in metrics.items()
    }
    for text in options:
        name, key, value = split_option(text)
        if name not in changed:
            raise unknown("option", name, changed)
        changed[name] = replaced(changed[name], {key: value}, f"metrics.{name}")
    return changed
