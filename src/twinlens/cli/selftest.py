"""The command selftest: do the metrics rank degraded maps correctly on the model of a run?"""

from __future__ import annotations

import argparse

from twinlens.cli.flags import add_model
from twinlens.cli.printing import print_selftest
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import subset
from twinlens.errors import unknown
from twinlens.imputation.imputers import restore_imputer
from twinlens.laboratory.degradation import selftest
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.run.setup import reopen


def add_selftest(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens selftest`."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument(
        "--method", metavar="NAME", help="method whose maps are degraded (default: the one with the best completeness)"
    )
    add_model(parser)
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="number of samples (default: 100)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_selftest(arguments: argparse.Namespace) -> None:
    """Test the metrics on the model and data of a run."""
    evaluation = open_evaluation(arguments.run)
    method = arguments.method or _most_complete(evaluation)
    if method not in evaluation.methods:
        raise unknown("method", method, evaluation.methods)
    model, samples = reopen(evaluation, model=arguments.model, allow_code=bool(arguments.allow_code))
    manifest = evaluation.run.manifest
    positions = [samples.ids.index(name) for name in subset(samples, arguments.limit, manifest.seed).ids]
    part = samples.take(positions)
    table = selftest(
        model.module,
        load_inputs(part, model, workers=2),
        part.labels,
        evaluation.maps(method)[positions],
        performance=next((metric.performance for metric in evaluation.metric_values.values()), "accuracy"),
        imputer=restore_imputer(evaluation.results.settings.imputer),
        ids=part.ids,
        seed=manifest.seed,
        batch_size=manifest.execution.batch_size,
    )
    if arguments.json:
        print(table.to_json(orient="records", indent=1))
    else:
        print_selftest(table, method, len(part))


def _most_complete(evaluation: Evaluation) -> str:
    metric = evaluation.results.first_of("completeness")
    areas = {} if metric is None else evaluation.results.areas(metric)
    if not areas:
        raise ValueError(f"`method` is missing: pass --method, one of {', '.join(evaluation.methods)}.")
    return max(areas, key=areas.__getitem__)
