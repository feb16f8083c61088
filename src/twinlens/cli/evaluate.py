"""The commands demo, evaluate and attribute: words to the arguments of `evaluate`, and its results as a table."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from typing import Any, cast

from PIL.Image import DecompressionBombWarning

from twinlens.cli.demonstrations import DEMOS
from twinlens.cli.flags import Arguments, add_options, read_arguments
from twinlens.cli.printing import print_evaluation, print_warnings
from twinlens.cli.report import writing_to
from twinlens.errors import printable_line, unknown
from twinlens.evaluation import evaluate, incomplete
from twinlens.options import Options
from twinlens.outcome import Evaluation
from twinlens.report.sheet import check_sheet_path, write_sheet
from twinlens.support.progress import Bars


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens demo`."""
    parser.add_argument("which", nargs="?", default="mnist", help="mnist (default) or imagenet")
    _add_evaluation(parser)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens evaluate`."""
    parser.add_argument("config", nargs="?", metavar="run.toml", help="a file with the same options; those here win")
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, efficientnet-lite0, mnist-cnn, FILE.py:FUNCTION, or FILE.pt2 (torch.export)",
    )
    parser.add_argument(
        "--data",
        metavar="SPEC",
        help="a folder with one folder per class, FILE.csv (path,label), FILE.npz, mnist, fashion-mnist, imagenet20, "
        "or cifar10:DIR",
    )
    _add_evaluation(parser)


def add_attribute(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens attribute`."""
    add_evaluate(parser)
    parser.add_argument(
        "--sheet",
        metavar="FILE.png",
        help="draw the maps of all methods on up to eight samples as one picture (.png, .pdf or .svg); a method that "
        "fails has its reason there",
    )


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", metavar="A,B,…", help="attribution methods, or all; see: twinlens methods")
    parser.add_argument(
        "--option",
        action="append",
        metavar="NAME.KEY=VALUE",
        help="an option of a method, of a metric or of the imputer, such as soundness.epsilon=0.02; may be repeated",
    )
    add_options(parser, Options)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def run_demo(given: argparse.Namespace) -> None:
    """Evaluate the methods of a demonstration."""
    if given.which not in DEMOS:
        raise unknown("demo", given.which, DEMOS)
    _run({"out": f"twinlens-demo-{given.which}"} | read_arguments(given, DEMOS[given.which]), given)


def run_evaluate(given: argparse.Namespace) -> None:
    """Evaluate methods on a model and data."""
    arguments = read_arguments(given)
    for name in ("model", "data", "out"):
        if not arguments.get(name):
            raise ValueError(f"`{name}` is missing: pass --{name}, or name it in run.toml.")
    _run(arguments, given)


def run_attribute(given: argparse.Namespace) -> None:
    """Make attribution maps alone, and a picture of them where one is wanted."""
    given.metrics = []
    if given.sheet:
        with writing_to(given.sheet, "sheet"):
            check_sheet_path(given.sheet)
    run_evaluate(given)


def _run(arguments: Arguments, given: argparse.Namespace) -> None:
    # Standard output is for results; Ray would say there that a worker died.
    with Bars(shown=not (given.quiet or given.json)) as progress, contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("error", DecompressionBombWarning)  # such an image is refused, and the error says why
        # What text and TOML gave is checked by `Options`, option by option.
        evaluation: Evaluation = cast("Any", evaluate)(**arguments, progress=progress)
    show(evaluation, given)
    if sheet := getattr(given, "sheet", None):
        with writing_to(sheet, "sheet"):
            write_sheet(evaluation, sheet)
        if not (given.quiet or given.json):
            print(printable_line(sheet))
    elif evaluation.failures:  # which a sheet shows
        raise incomplete(evaluation.run, evaluation.failures)


def show(evaluation: Evaluation, given: argparse.Namespace) -> None:
    """Print the table of an evaluation, or its summary as JSON."""
    whole = bool(evaluation.methods)  # and otherwise parts are missing
    if given.json:
        print(json.dumps(evaluation.overview(), indent=1, ensure_ascii=False))
    elif not given.quiet and not whole:
        print_warnings(evaluation)
    elif not given.quiet:
        print_evaluation(evaluation)
