"""The command ask: query the probes of a run with other settings."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Mapping

from twinlens.cli.evaluate import show
from twinlens.cli.flags import add_options, add_output, given_flags, option_group, set_option, split_option
from twinlens.errors import unknown
from twinlens.imputation.imputers import Imputer, find_imputer
from twinlens.metrics.metric import Metric
from twinlens.options import Options
from twinlens.outcome import open_evaluation
from twinlens.report import write_report
from twinlens.support.fields import replaced

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
    add_output(parser, "the summary")


def run_ask(namespace: argparse.Namespace) -> None:
    """Compute the results with other settings, and write results and report again."""
    evaluation = open_evaluation(namespace.run)
    flags, texts = given_flags(namespace, Options), namespace.option or ()
    for text in texts:
        if split_option(text)[0] == "imputer":
            set_option(flags, text)
    options = Options(**flags)  # type: ignore[arg-type] # wrong types are refused here, by the option's name
    metrics = evaluation.metric_values
    if "metrics" in flags:
        metrics = {name: metrics.get(name, metric) for name, metric in options.metric_values.items()}
    shared = {name: getattr(options, name) for name in flags if name not in ("metrics", "resamples", "imputer")}
    metrics = change_metrics(metrics, shared, [text for text in texts if split_option(text)[0] != "imputer"])
    if options.imputer is not None:
        metrics = with_imputer(metrics, find_imputer(options.imputer))
    result = evaluation.ask(metrics, resamples=options.resamples if "resamples" in flags else None)
    if result.metrics and result.methods:
        write_report([result], result.path / "report.html")
    show(result, namespace)


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
