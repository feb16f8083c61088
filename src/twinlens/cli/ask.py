"""The command ask: another question to the probes of a run."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Mapping

from twinlens.cli.evaluate import show
from twinlens.cli.flags import add_options, given_flags, set_option, split_option
from twinlens.errors import unknown
from twinlens.imputation.imputers import Imputer, find_imputer
from twinlens.metrics.metric import Metric
from twinlens.options import Options
from twinlens.outcome import open_evaluation
from twinlens.report import write_report
from twinlens.support.fields import replaced

ASKED = ("metrics", "protocol", "levels", "epsilon", "performance", "imputer", "resamples")
"""The options of `evaluate` that are questions, and not measurements."""


def add_ask(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens ask`."""
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "--option", action="append", metavar="METRIC.KEY=VALUE", help="such as soundness.epsilon=0.05; may be repeated"
    )
    add_options(parser, Options, ASKED)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def run_ask(given: argparse.Namespace) -> None:
    """Ask another question, and write results and page anew."""
    evaluation = open_evaluation(given.run)
    flags, texts = given_flags(given, Options), given.option or ()
    for text in texts:
        if split_option(text)[0] == "imputer":
            set_option(flags, text)
    checked = Options(**flags)  # type: ignore[arg-type] # wrong types are refused here, by the option's name
    metrics = evaluation.metric_values
    if "metrics" in flags:
        metrics = {name: metrics.get(name, metric) for name, metric in checked.metric_values.items()}
    shared = {name: getattr(checked, name) for name in flags if name not in ("metrics", "resamples", "imputer")}
    asked = change_metrics(metrics, shared, [text for text in texts if split_option(text)[0] != "imputer"])
    if checked.imputer is not None:
        asked = with_imputer(asked, find_imputer(checked.imputer))
    answered = evaluation.ask(asked, resamples=checked.resamples if "resamples" in flags else None)
    if answered.metrics and answered.methods:
        write_report([answered], answered.path / "report.html")
    show(answered, given)


def with_imputer(metrics: Mapping[str, Metric], imputer: Imputer) -> dict[str, Metric]:
    """Give an imputer to the metrics that take that of the run; deletion and insertion keep their own.

    Example:
        >>> from twinlens.imputation.imputers import ConstantImputer
        >>> from twinlens.metrics.catalogue import METRICS
        >>> changed = with_imputer(METRICS, ConstantImputer(0.5))
        >>> changed["soundness"].imputer, changed["insertion"].imputer
        (ConstantImputer(value=0.5), None)
    """
    takes = {
        name: dataclasses.replace(metric, imputer=None).bound(imputer, neighbours=True).imputer is imputer
        for name, metric in metrics.items()
    }
    return {
        name: dataclasses.replace(metric, imputer=imputer) if takes[name] else metric
        for name, metric in metrics.items()
    }


def change_metrics(
    metrics: Mapping[str, Metric], shared: Mapping[str, object], options: Iterable[str]
) -> dict[str, Metric]:
    """Change metrics by options that they share, and by texts METRIC.KEY=VALUE.

    Example:
        >>> from twinlens.metrics.catalogue import METRICS
        >>> change_metrics({"soundness": METRICS["soundness"]}, {}, ["soundness.epsilon=0.05"])["soundness"].epsilon
        0.05
    """
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
