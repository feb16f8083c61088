"""The command selftest: do the metrics rank ever worse maps as they should, on the model of a run?"""

from __future__ import annotations

import argparse

from twinlens.cli.flags import add_options
from twinlens.cli.printing import print_selftest
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import subset
from twinlens.errors import unknown
from twinlens.imputation.imputers import restore_imputer
from twinlens.laboratory.selftest import selftest
from twinlens.metrics.performance import Performance
from twinlens.options import SubjectOptions
from twinlens.run.run_reader import Evaluation, open_evaluation
from twinlens.run.setup import reopen


def add_selftest(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens selftest`."""
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument(
        "--method", metavar="NAME", help="whose maps are made worse step by step; the most complete by default"
    )
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="the run's model, if it is code (FILE.py:FUNCTION or FILE.pt2): code that a run names is not loaded",
    )
    add_options(parser, SubjectOptions, ["allow_code"])
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="number of samples (100)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_selftest(given: argparse.Namespace) -> None:
    """Test the metrics on the model and data of a run."""
    evaluation = open_evaluation(given.run)
    method = given.method or _most_complete(evaluation)
    if method not in evaluation.methods:
        raise unknown("method", method, evaluation.methods)
    model, samples = reopen(evaluation, model=given.model, allow_code=bool(given.allow_code))
    manifest = evaluation.run.manifest
    chosen = [samples.ids.index(name) for name in subset(samples, given.limit, manifest.seed).ids]
    part = samples.take(chosen)
    table = selftest(
        model.module,
        load_inputs(part, model, workers=2),
        part.labels,
        evaluation.maps(method)[chosen],
        performance=_performance(evaluation),
        imputer=restore_imputer(evaluation.results.question.imputer),
        ids=part.ids,
        seed=manifest.seed,
        batch_size=manifest.execution.batch_size,
    )
    if given.json:
        print(table.to_json(orient="records", indent=1))
    else:
        print_selftest(table, method, len(part))


def _most_complete(evaluation: Evaluation) -> str:
    metric = evaluation.results.first_of("completeness")
    areas = {} if metric is None else evaluation.results.areas(metric)
    if not areas:
        raise ValueError(f"`method` is missing: pass --method, one of {', '.join(evaluation.methods)}.")
    return max(areas, key=areas.__getitem__)


def _performance(evaluation: Evaluation) -> Performance:
    """Return the measure of the run's first metric."""
    return next((metric.performance for metric in evaluation.metric_values.values()), "accuracy")
