"""The command line: words to options to the functions of the library."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from PIL.Image import DecompressionBombWarning

from twinlens.demo import DEMOS
from twinlens.engines import load_inputs
from twinlens.evaluation import evaluate, reopen
from twinlens.experiments import EXPERIMENTS, Options, reproduce, reproduce_all
from twinlens.imputation import LinearImputer
from twinlens.planning import rebuild_imputer
from twinlens.report import format_table, write_figures, write_report
from twinlens.results import open_evaluation
from twinlens.runs import RunError
from twinlens.samples import subset
from twinlens.selftest import selftest
from twinlens.terminal import (
    LiveProgress,
    LiveSteps,
    explain_method,
    list_methods,
    print_evaluation,
    print_experiments,
    print_runs,
    print_selftest,
)

_PREPROCESSING = ("resize", "crop", "interpolation", "mean", "std")
_SUBJECT = ("model", "data", "weights", "classes", "skip_bad")
_QUESTION = (
    "methods",
    "maps",
    "metrics",
    "limit",
    "protocol",
    "levels",
    "epsilon",
    "performance",
    "seed",
    "resamples",
    "show",
)
_EXECUTION = ("out", "batch_size", "memory_format", "compile", "threads", "device", "workers")
_ENGINE = ("engine", "address", "cpus_per_unit", "gpus_per_unit")
_USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and gives its exit code: 0 for success, 2 for what the user can mend, 130 when interrupted."""
    parser = _parser()
    given = parser.parse_args(arguments)
    # Whoever waits for a table wants one line, and not the place in the source that a warning came from.
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
        warnings.simplefilter("error", DecompressionBombWarning)  # such an image is refused, and the error says why
        return _guarded(given)


def _guarded(given: argparse.Namespace) -> int:
    try:
        command: Callable[[argparse.Namespace], None] = given.command
        command(given)
    except _USER_ERRORS as error:
        if os.environ.get("TWINLENS_DEBUG"):
            raise
        _say(f"error: {error or type(error).__name__}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted. What is done is kept; the same command goes on.")
        return 130
    return 0


def _say(text: str) -> None:
    print(f"twinlens: {' '.join(text.split())}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="twinlens",
        description="How far can a feature-attribution map be trusted? Soundness and completeness, measured.",
        epilog="Start with: twinlens demo",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = _command(commands, "demo", _demo, "evaluates methods on data and a model that come with packages")
    demo.add_argument("which", nargs="?", default="mnist", help="mnist (default) or imagenet")
    _add_evaluation_options(demo)

    for name, function, summary in (
        ("evaluate", _evaluate, "evaluates methods on a model and data of yours"),
        ("attribute", _attribute, "makes attribution maps and evaluates nothing"),
    ):
        job = _command(commands, name, function, summary)
        job.add_argument("config", nargs="?", metavar="run.toml", help="a file with the same options; those here win")
        _add_subject_options(job)
        _add_evaluation_options(job)

    report = _command(commands, "report", _report, "writes one self-contained page about a run, or about several")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    report.add_argument("--out", metavar="FILE", help="the page; report.html in the first run by default")
    report.add_argument("--figures", metavar="DIR", help="write every chart as PDF, SVG and PNG instead")
    report.add_argument("--table", choices=("latex", "markdown", "csv"), help="print the table for a paper instead")

    compare = _command(
        commands, "compare", _compare, "shows the results of several runs side by side, as a table and as a page"
    )
    compare.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    compare.add_argument("--out", metavar="FILE", default="comparison.html", help="the page (comparison.html)")
    compare.add_argument("--verdicts", action="store_true", help="print what each pair of methods differs in, too")
    compare.add_argument("--json", action="store_true", help="print JSON")

    selftest_ = _command(commands, "selftest", _selftest, "tests the metrics themselves on the model and data of a run")
    selftest_.add_argument("run", metavar="RUN", help="a run directory")
    selftest_.add_argument("--method", help="whose maps are made worse step by step; the most complete by default")
    selftest_.add_argument("--limit", type=int, default=100, metavar="N", help="number of samples (100)")
    selftest_.add_argument("--json", action="store_true", help="print JSON")

    again = _command(commands, "reproduce", _reproduce, "does an experiment of the paper again, and checks its claims")
    again.add_argument("name", metavar="NAME", help=f"{', '.join(EXPERIMENTS)}, or all")
    again.add_argument("--paper", action="store_true", help="the paper's own sizes and settings; needs --data")
    again.add_argument("--data", metavar="SPEC", help="data as for evaluate, instead of what comes inside packages")
    again.add_argument("--classes", metavar="FILE", help="class names with their indices: .json, .txt or .csv")
    again.add_argument("--model", metavar="SPEC", help="a model as for evaluate")
    again.add_argument("--weights", metavar="FILE", help="weights of that model")
    again.add_argument("--limit", type=int, metavar="N", help="number of samples, or of trials for synthetic data")
    again.add_argument("--seed", type=int, default=0, help="seed of all that is random (0)")
    again.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, …")
    again.add_argument("--out", metavar="DIR", help="where everything goes; what is there already is not done again")
    again.add_argument("--quiet", action="store_true", help="print nothing but errors")
    again.add_argument("--json", action="store_true", help="print the claims as JSON and nothing else")

    methods = _command(commands, "methods", _methods, "lists the attribution methods and the metrics")
    methods.add_argument("name", nargs="?", help="explain this one, with its options")
    _command(commands, "version", _version, "prints the versions of twinlens and what it stands on")
    return parser


def _command(
    commands: Any, name: str, function: Callable[[argparse.Namespace], None], summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=f"twinlens {name} {summary}.")
    parser.set_defaults(command=function)
    return parser


def _add_subject_options(parser: argparse.ArgumentParser) -> None:
    subject = parser.add_argument_group("model and data")
    subject.add_argument(
        "--model",
        metavar="SPEC",
        help="timm:NAME, torchvision:NAME, efficientnet-lite0, mnist-cnn, FILE.py:FUNCTION, or FILE.pt2 (torch.export)",
    )
    subject.add_argument(
        "--weights", metavar="FILE", help="safetensors or a state dict; 'none' leaves the model untrained"
    )
    subject.add_argument(
        "--data",
        metavar="SPEC",
        help="a folder with one folder per class, FILE.csv (path,label), FILE.npz, mnist, fashion-mnist, imagenet20, "
        "or cifar10:DIR",
    )
    subject.add_argument("--classes", metavar="FILE", help="class names with their indices: .json, .txt or .csv")
    subject.add_argument("--skip-bad", action="store_true", default=None, help="leave out images that cannot be read")
    subject.add_argument("--resize", type=int, metavar="PIXELS", help="shorter side; the model's own by default")
    subject.add_argument("--crop", type=int, metavar="PIXELS", help="side of the centre that is cut out")
    subject.add_argument("--interpolation", help="nearest, bilinear, bicubic or lanczos")
    subject.add_argument("--mean", type=_numbers, metavar="R,G,B", help="subtracted, on a scale of 0 to 1")
    subject.add_argument("--std", type=_numbers, metavar="R,G,B", help="divided by")


def _add_evaluation_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to evaluate")
    what.add_argument("--methods", type=_names, metavar="A,B,…", help="see: twinlens methods")
    what.add_argument(
        "--option", action="append", metavar="METHOD.KEY=VALUE", help="an option of a method; may be repeated"
    )
    what.add_argument(
        "--maps", action="append", metavar="NAME=PATH", help="maps made elsewhere: a folder, .npy, .npz, .safetensors"
    )
    what.add_argument("--metrics", type=_names, metavar="A,B,…", help="all by default; see: twinlens methods")
    what.add_argument("--limit", type=int, metavar="N", help="evaluate N samples, drawn by the seed")
    what.add_argument("--protocol", choices=("paper", "soco"), help="the paper's text (default) or its authors' code")
    what.add_argument("--levels", type=_numbers, metavar="A,B,…", help="shares removed for soundness: 0.98,0.97,… 0.01")
    what.add_argument("--epsilon", type=float, help="gain below which a step is false attribution (0.01)")
    what.add_argument("--performance", metavar="MEASURE", help="accuracy (default), probability, logit, score, top5, …")
    what.add_argument("--seed", type=int, help="seed of all that is random (0)")
    what.add_argument("--resamples", type=int, metavar="N", help="resamples behind intervals (1000)")
    what.add_argument("--show", action="append", metavar="ID", help="a sample that the report shows in any case")
    how = parser.add_argument_group("how")
    how.add_argument("--out", metavar="DIR", help="the run directory, or s3://bucket/run; a run that is there goes on")
    how.add_argument("--batch-size", type=_batch_size, metavar="N", help="'auto' (default) tries a few")
    how.add_argument("--memory-format", choices=("contiguous", "channels_last"), help="by trial by default")
    how.add_argument("--compile", action="store_true", default=None, help="call the model through torch.compile")
    how.add_argument("--device", help="cpu, cuda, cuda:1, …; a GPU where there is one")
    how.add_argument("--threads", type=int, metavar="N", help="threads of torch on the CPU; by trial by default")
    how.add_argument("--engine", help="local (default), or ray: on all machines of a Ray cluster")
    how.add_argument(
        "--address", metavar="ADDR", help="of the Ray cluster: auto, or HOST:PORT; this machine by default"
    )
    how.add_argument("--cpus-per-unit", type=float, metavar="N", help="CPUs of each worker of the cluster (1)")
    how.add_argument("--gpus-per-unit", type=float, metavar="N", help="GPUs of each worker, such as 0.25 (0)")
    how.add_argument("--workers", type=int, metavar="N", help="threads that read images (2)")
    how.add_argument("--quiet", action="store_true", help="print nothing but errors")
    how.add_argument("--json", action="store_true", help="print the summary as JSON and nothing else")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _batch_size(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _evaluate(given: argparse.Namespace) -> None:
    options = _options(given)
    missing = [name for name in ("model", "data") if not options.get(name)]
    if missing:
        raise ValueError(f"`{missing[0]}` is missing: pass --{missing[0]}, or name it in run.toml.")
    if not options.get("out"):
        raise ValueError("`out` is missing: pass --out DIR, the directory for the results.")
    _run(options, given)


def _attribute(given: argparse.Namespace) -> None:
    given.metrics = []
    _evaluate(given)


def _demo(given: argparse.Namespace) -> None:
    if given.which not in DEMOS:
        raise ValueError(f"`demo` must be {' or '.join(DEMOS)}; got {given.which!r}.")
    given.config = None
    own = {name: value for name, value in _options(given).items() if value is not None}
    defaults = {"out": f"twinlens-demo-{given.which}", **DEMOS[given.which]}
    if isinstance(own.get("methods"), list):
        settings = defaults["methods"]
        own["methods"] = {name: settings.get(name, name) for name in own["methods"]}
    _run({**defaults, **own}, given)


def _run(options: dict[str, Any], given: argparse.Namespace) -> None:
    # Standard output is for results; Ray would say there that a worker died.
    with LiveProgress(shown=not (given.quiet or given.json)) as progress, contextlib.redirect_stdout(sys.stderr):
        evaluation = evaluate(**options, progress=progress)
    if evaluation.metrics:
        write_report([evaluation], evaluation.path / "report.html")
    if given.json:
        print(json.dumps(evaluation.overview(), indent=1, ensure_ascii=False))
    elif not given.quiet:
        print_evaluation(evaluation)


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """Gives the arguments of `evaluate`: those of the file, replaced by those of the command line."""
    stated = {name: value for name, value in vars(given).items() if value is not None}
    options = _read_config(stated["config"]) if stated.get("config") else {}
    maps = dict(_pair(text, "maps", "NAME=PATH") for text in stated.pop("maps", ()))
    options |= {name: stated[name] for name in (*_SUBJECT, *_QUESTION, *_EXECUTION, *_ENGINE) if name in stated}
    if "compile" in options:
        options["compiled"] = options.pop("compile")
    preprocessing = {name: stated[name] for name in _PREPROCESSING if name in stated}
    if preprocessing:
        options["preprocessing"] = {**options.get("preprocessing", {}), **preprocessing}
    if maps:
        options["maps"] = maps
        options.setdefault("methods", [])
    for text in stated.get("option", ()):
        _set_option(options, text)
    return options


def _pair(text: str, argument: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"`{argument}` must be {form}; got {text!r}.")
    return name, value


def _set_option(options: dict[str, Any], text: str) -> None:
    """Adds METHOD.KEY=VALUE to the methods; VALUE is read as TOML where it is, and as text otherwise."""
    target, value = _pair(text, "option", "METHOD.KEY=VALUE")
    method, dot, key = target.rpartition(".")
    if not dot or not method or not key:
        raise ValueError(f"`option` must be METHOD.KEY=VALUE; got {text!r}.")
    try:
        read = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        read = value
    methods = options.get("methods")
    if isinstance(methods, list):
        methods = {name: name for name in methods}
    if not methods or method not in methods:
        raise ValueError(f"`option` {text!r}: {method!r} is not among the methods; name it with --methods.")
    before = methods[method]
    settings = dict(before) if isinstance(before, dict) else {"method": before}
    options["methods"] = {**methods, method: {**settings, key: read}}


def _read_config(path: str) -> dict[str, Any]:
    try:
        config = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"`{path}` is no TOML file: {error}") from None
    known = (*_SUBJECT, "preprocessing", *_QUESTION, *_EXECUTION, *_ENGINE)
    for name in config:
        if name not in known:
            raise ValueError(f"`{path}` has {name!r}, which is no option; options are {', '.join(known)}.")
    if config.get("batch_size") == "auto":
        del config["batch_size"]
    if isinstance(config.get("methods"), dict):
        config["methods"] = {name: {"method": name, **value} for name, value in config["methods"].items()}
    return config


def _report(given: argparse.Namespace) -> None:
    evaluations = [open_evaluation(path) for path in given.runs]
    if given.table:
        print(format_table(evaluations, given.table), end="")
    elif given.figures:
        for path in write_figures(evaluations, given.figures):
            print(path)
    else:
        print(write_report(evaluations, given.out or evaluations[0].path / "report.html"))


def _compare(given: argparse.Namespace) -> None:
    evaluations = [open_evaluation(path) for path in given.runs]
    if given.json:
        print(json.dumps({str(e.path): e.overview() for e in evaluations}, indent=1, ensure_ascii=False))
        return
    print_runs(evaluations, verdicts=given.verdicts)
    print(write_report(evaluations, given.out))


def _selftest(given: argparse.Namespace) -> None:
    evaluation = open_evaluation(given.run)
    areas = evaluation.summary()
    if given.method is None and "completeness" not in areas:
        raise ValueError(f"`method` is missing: pass --method, one of {', '.join(evaluation.methods)}.")
    method = given.method or str(areas["completeness"].idxmax())
    if method not in evaluation.methods:
        raise ValueError(f"`method` must be among {', '.join(evaluation.methods)}; got {method!r}.")
    asked = evaluation.run.manifest
    model, samples = reopen(evaluation)
    chosen = [samples.ids.index(name) for name in subset(samples, given.limit, asked["options"]["seed"]).ids]
    part = samples.take(chosen)
    table = selftest(
        model.module,
        load_inputs(part, model, workers=2),
        part.labels,
        evaluation.maps(method)[chosen],
        performance=asked["options"]["performance"],
        imputer=rebuild_imputer(asked["options"]["imputer"]) or LinearImputer(),
        ids=part.ids,
        seed=asked["options"]["seed"],
        batch_size=asked["execution"]["batch_size"],
    )
    if given.json:
        print(table.to_json(orient="records", indent=1))
    else:
        print_selftest(table, method, len(part))


def _reproduce(given: argparse.Namespace) -> None:
    everything = given.name == "all"
    if not everything and given.name not in EXPERIMENTS:
        raise ValueError(f"`name` must be one of {', '.join(EXPERIMENTS)}, or all; got {given.name!r}.")
    options = Options(
        out=Path(given.out or f"twinlens-reproduce-{given.name}"),
        paper=given.paper,
        data=given.data,
        classes=given.classes,
        model=given.model,
        weights=given.weights,
        limit=given.limit,
        seed=given.seed,
        device=given.device,
    )
    failures: Mapping[str, Exception] = {}
    with LiveSteps(shown=not (given.quiet or given.json)) as live:
        if everything:
            found, failures = reproduce_all(options, live.tell)
        else:
            found = [reproduce(given.name, options, live.tell)]
    if given.json:
        print(json.dumps([experiment.overview() for experiment in found], indent=1, ensure_ascii=False))
    elif not given.quiet:
        print_experiments(found, options.out / "report.html")
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        raise RunError(f"{len(failures)} of {len(EXPERIMENTS)} experiments failed. {reasons} The others are kept.")


def _methods(given: argparse.Namespace) -> None:
    if given.name:
        explain_method(given.name)
    else:
        list_methods()


def _version(given: argparse.Namespace) -> None:
    del given
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "numba"))
    print(f"twinlens {version('twinlens')} (Python {platform.python_version()}, {packages})")


if __name__ == "__main__":
    sys.exit(main())
