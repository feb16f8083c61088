"""The command selftest: do the metrics of a run worsen steadily when maps are mixed with those of other inputs?"""

from __future__ import annotations

import argparse

import pandas as pd

from twinlens.cli.flags import add_model, names_of
from twinlens.cli.printing import print_selftest
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import subset
from twinlens.errors import RunError, unknown
from twinlens.imputation.imputers import restore_imputer
from twinlens.laboratory.mixing import selftest
from twinlens.outcome import open_evaluation
from twinlens.run.reopening import reopen


def add_selftest(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens selftest`."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--methods", metavar="A,B,…", help="methods whose maps are mixed (default: all of the run)")
    add_model(parser)
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="number of samples (default: 100)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_selftest(arguments: argparse.Namespace) -> None:
    """Test the metrics of a run on its model and data."""
    evaluation = open_evaluation(arguments.run)
    if not evaluation.metrics:
        raise RunError(f"{evaluation.run} holds maps only, and selftest tests metrics. Add some: --metrics headline")
    methods = names_of(arguments.methods) if arguments.methods else evaluation.methods
    for method in methods:
        if method not in evaluation.methods:
            raise unknown("methods", method, evaluation.methods)
    model, samples = reopen(evaluation, model=arguments.model, allow_code=bool(arguments.allow_code))
    manifest = evaluation.run.manifest
    positions = [samples.ids.index(name) for name in subset(samples, arguments.limit, manifest.seed).ids]
    part = samples.take(positions)
    inputs, tables = load_inputs(part, model, workers=2), []
    for method in methods:
        table = selftest(
            model.module,
            inputs,
            part.labels,
            evaluation.maps(method)[positions],
            metrics=evaluation.metric_values,
            imputer=restore_imputer(evaluation.results.settings.imputer),
            ids=part.ids,
            seed=manifest.seed,
            batch_size=manifest.execution.batch_size,
        )
        table.insert(0, "method", method)
        tables.append(table)
    result = pd.concat(tables, ignore_index=True)
    if arguments.json:
        print(result.to_json(orient="records", indent=1))
    else:
        print_selftest(result, len(part))
