"""The commands demo, evaluate and attribute."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Mapping
from typing import Any, cast

from PIL.Image import DecompressionBombWarning

from twinlens.cli.flags import Arguments, add_options, add_output, option_group, read_arguments
from twinlens.cli.printing import open_console, print_evaluation, print_plain
from twinlens.cli.report import writing_to
from twinlens.errors import printable_line, unknown
from twinlens.evaluation import evaluate, incomplete
from twinlens.options import Options
from twinlens.outcome import Evaluation
from twinlens.report.sheet import check_sheet_path, write_sheet
from twinlens.support.progress import Bars

DEMOS: dict[str, Mapping[str, object]] = {
    "mnist": {
        "model": "mnist-cnn",
        "data": "mnist",
        "limit": 300,
        "methods": {
            "integrated_gradients": "integrated_gradients",
            "ig_sg": {"method": "ig_sg", "steps": 8},  # 32 would take longer than all other methods
            "guided_backprop": "guided_backprop",
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "occlusion": "occlusion",
            "random": "random",
            "sobel": "sobel",
        },
    },
    "imagenet": {
        "model": "efficientnet-lite0",
        "data": "imagenet20",
        "methods": {
            "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "random": "random",
            "sobel": "sobel",
        },
    },
}
"""Arguments of `evaluate` for each demonstration."""


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens demo`."""
    parser.add_argument(
        "which", nargs="?", default="mnist", metavar="NAME", help="Demonstration: mnist (default) or imagenet."
    )
    _add_evaluation(parser)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens evaluate`."""
    parser.add_argument("config", nargs="?", metavar="run.toml", help="File with options; flags take precedence.")
    group = option_group(parser, "Model and data")
    group.add_argument(
        "--model",
        metavar="SPEC",
        help="Model: timm:NAME, torchvision:NAME, hf:DIR_OR_NAME (transformers), efficientnet-lite0 (or 1, 2), "
        "mnist-cnn, FILE.py:FUNCTION, or FILE.pt2 (torch.export).",
    )
    group.add_argument(
        "--data",
        metavar="SPEC",
        help="Data: a folder with one subfolder per class, FILE.csv (path,label; text,label; or numbers and label), "
        "FILE.npz, mnist, imagenet20, or cifar10:DIR.",
    )
    _add_evaluation(parser)


def add_attribute(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens attribute`."""
    add_evaluate(parser)
    parser.add_argument(
        "--sheet",
        metavar="FILE.png",
        help="Also draw the maps of all methods on up to eight samples as one image (.png, .pdf or .svg).",
    )


def _add_evaluation(parser: argparse.ArgumentParser) -> None:
    option_group(parser, "Model and data")
    option_group(parser, "Maps").add_argument(
        "--methods",
        metavar="A,B,…",
        help="Attribution methods, or all; `twinlens methods` lists them. By default a few that explain the data.",
    )
    option_group(parser, "Evaluation").add_argument(
        "--option",
        action="append",
        metavar="NAME.KEY=VALUE",
        help="Option of a method, metric or imputer, such as soundness.epsilon=0.02; repeatable.",
    )
    add_options(parser, Options)
    add_output(parser, "the summary")


def run_demo(namespace: argparse.Namespace) -> None:
    """Evaluate the methods of a demonstration."""
    if namespace.which not in DEMOS:
        raise unknown("demo", namespace.which, DEMOS)
    defaults = {"out": f"twinlens-demo-{namespace.which}", **DEMOS[namespace.which]}
    _run(read_arguments(namespace, defaults), namespace)


def run_evaluate(namespace: argparse.Namespace) -> None:
    """Evaluate methods on a model and data."""
    arguments = read_arguments(namespace)
    for name in ("model", "data", "out"):
        if not arguments.get(name):
            raise ValueError(f"`{name}` is missing: pass --{name}, or set it in run.toml.")
    _run(arguments, namespace)


def run_attribute(namespace: argparse.Namespace) -> None:
    """Compute attribution maps, and draw them if --sheet is passed."""
    namespace.metrics = []
    if namespace.sheet:
        with writing_to(namespace.sheet, "sheet"):
            check_sheet_path(namespace.sheet)
    run_evaluate(namespace)


def _run(arguments: Arguments, namespace: argparse.Namespace) -> None:
    quiet = namespace.quiet or namespace.json
    # Standard output is for results; Ray prints messages about its workers there.
    with Bars(shown=not quiet) as progress, contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("error", DecompressionBombWarning)  # such an image is refused with the reason
        evaluation: Evaluation = cast("Any", evaluate)(**arguments, progress=progress)
    show(evaluation, namespace)
    if sheet := getattr(namespace, "sheet", None):
        with writing_to(sheet, "sheet"):
            write_sheet(evaluation, sheet)
        if not quiet:
            print(printable_line(sheet))
    elif evaluation.failures:  # a sheet shows them instead
        raise incomplete(evaluation.run, evaluation.failures)


def show(evaluation: Evaluation, namespace: argparse.Namespace, where: str | None = None) -> None:
    """Print the table of an evaluation and where its files are, or its summary as JSON."""
    if namespace.json:
        print(json.dumps(evaluation.overview(), indent=1, ensure_ascii=False))
    elif not namespace.quiet and not evaluation.methods:  # other jobs of the run are not finished
        for warning in evaluation.results.warnings:
            print_plain(open_console(), warning)
    elif not namespace.quiet:
        print_evaluation(evaluation, where)
