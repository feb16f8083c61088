"""The command line: the list of commands, and how errors are printed.

A command's module is imported when the command runs. `twinlens --help` and shell completion load nothing heavy.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import platform
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple, NoReturn

from twinlens.errors import first_line, printable_line, unknown
from twinlens.support.memory import describe_shortage, keep_freed_memory

_USER_ERRORS = (ValueError, TypeError, OSError, ImportError)
_INTERRUPTED = "interrupted. Finished work is kept; run the same command again to resume."


class Command(NamedTuple):
    """One command."""

    summary: str
    usage: str
    """Arguments after the command's name."""
    examples: tuple[str, ...]
    module: str
    """Module of this package with `add_COMMAND(parser)` and `run_COMMAND(namespace)`."""


COMMANDS = {
    "demo": Command(
        "evaluate methods on a model and data that come with packages",
        "[mnist|imagenet] [options]",
        ("twinlens demo", "twinlens demo mnist --methods gradcam,occlusion,random"),
        "evaluate",
    ),
    "evaluate": Command(
        "evaluate attribution methods on your model and data",
        "[run.toml] [options]",
        (
            "twinlens evaluate --model timm:resnet50 --data photos/ --classes names.txt "
            "--methods gradcam,random --limit 500 --out runs/resnet50",
            "twinlens evaluate run.toml --device cuda",
        ),
        "evaluate",
    ),
    "attribute": Command(
        "compute attribution maps without evaluating them",
        "[run.toml] [options]",
        ("twinlens attribute --model mnist-cnn --data mnist --methods all --limit 4 --out maps --sheet maps.png",),
        "evaluate",
    ),
    "ask": Command(
        "query a run with other settings of the metrics, without calling the model",
        "RUN [options]",
        (
            "twinlens ask runs/resnet50 --option soundness.epsilon=0.05",
            "twinlens ask runs/resnet50 --metrics completeness --performance probability",
        ),
        "ask",
    ),
    "report": Command(
        "write an HTML report, figures or a table about one or more runs",
        "RUN [RUN …] [options]",
        ("twinlens report runs/resnet50", "twinlens report runs/resnet50 --table latex"),
        "report",
    ),
    "compare": Command(
        "compare runs side by side and test their differences",
        "RUN [RUN …] [options]",
        ("twinlens compare runs/one runs/two --verdicts",),
        "report",
    ),
    "selftest": Command(
        "test the metrics on the model and data of a run",
        "RUN [options]",
        ("twinlens selftest runs/resnet50 --methods gradcam",),
        "selftest",
    ),
    "check": Command(
        "check a run: its methods, by tests from other papers such as ROAR, or the measurement itself, such as its "
        "imputer",
        "NAME RUN [options]",
        ("twinlens check model-randomisation runs/resnet50 --limit 50",),
        "check",
    ),
    "verify": Command(
        "check every file of a run against its checksum", "RUN [options]", ("twinlens verify runs/resnet50",), "verify"
    ),
    "reproduce": Command(
        "repeat an experiment of the paper and check its claims",
        "NAME|all [options]",
        ("twinlens reproduce synthetic --out runs/synthetic",),
        "reproduce",
    ),
    "suite": Command(
        "run named tasks, export their numbers, and compare methods in one table",
        "list|show|run|export|verify|table [NAME …] [options]",
        (
            "twinlens suite run digits@1 --out runs/digits",
            "twinlens suite export runs/digits -o submission.json",
            "twinlens suite table runs/digits submission.json -o leaderboard/",
        ),
        "suite",
    ),
    "methods": Command(
        "list attribution methods, metrics and imputers, or describe one",
        "[NAME]",
        ("twinlens methods", "twinlens methods occlusion"),
        "methods",
    ),
    "metrics": Command("list metrics, or describe one", "[NAME]", ("twinlens metrics soundness",), "methods"),
}
"""Every command by its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 for success, 2 for a user error, 130 when interrupted, 141 where the reader of its output is gone.
    """
    if "_ARGCOMPLETE" in os.environ:
        complete = importlib.import_module("twinlens.cli.completion").complete
        complete({name: command.summary for name, command in COMMANDS.items()})
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0].startswith("-"):
        return _without_command(words)
    if words[0] not in COMMANDS:
        _print_line(f"error: {unknown('command', words[0], COMMANDS)}")
        return 2
    # Before torch is loaded: threads that spin while they wait take ten times the CPU on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if arguments is None:
        _end_at_second_interrupt()
    keep_freed_memory()
    with warnings.catch_warnings():
        # One line, without the source location.
        warnings.showwarning = lambda message, *_, **__: _print_line(f"warning: {message}")
        return _run(words[0], words[1:])


class _Parser(argparse.ArgumentParser):
    """Raises an error of one line instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message[:1000]}. See: {self.prog} --help")


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"twinlens {name}",
        usage=f"twinlens {name} {command.usage}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog="\n".join(["examples:", *(f"  {example}" for example in command.examples)]),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30),
    )
    getattr(importlib.import_module(f"twinlens.cli.{command.module}"), f"add_{name}")(parser)
    return parser


def _without_command(words: Sequence[str]) -> int:
    """Print the help or the versions."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    parser = _Parser(
        prog="twinlens",
        usage="twinlens COMMAND [options]",
        description="Measure how far feature-attribution maps can be trusted: soundness and completeness.\n\n"
        f"commands:\n{commands}",
        epilog="Start with `twinlens demo`. `twinlens COMMAND --help` lists the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    versions = f"twinlens {version('twinlens')} (Python {platform.python_version()}, {packages})"
    parser.add_argument("--version", action="version", version=versions, help="Show versions and exit.")
    try:
        parser.parse_args(words)
    except ValueError as error:
        _print_line(f"error: {error}")
    else:
        parser.print_help(sys.stderr)
    return 2


def _run(name: str, words: Sequence[str]) -> int:
    try:
        logging.getLogger("PIL").addHandler(logging.NullHandler())  # our error about a bad image repeats its message
        namespace = command_parser(name).parse_args(words)
        run = getattr(importlib.import_module(f"twinlens.cli.{COMMANDS[name].module}"), f"run_{name}")
        try:
            run(namespace)
            sys.stdout.flush()
        except SystemExit as error:
            raise ValueError(f"`model`, or other code that you passed, called sys.exit({error.code!r}).") from error
    except BrokenPipeError:  # the reader of the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        reason = _explain(error)
        if reason is None or os.environ.get("TWINLENS_DEBUG"):
            raise
        _print_line(f"error: {reason}")
        return 2
    except KeyboardInterrupt:
        _print_line(_INTERRUPTED)
        return 130
    return 0


def _explain(error: Exception) -> str | None:
    """Return what to print about an error that is not a bug of twinlens; None for others."""
    if (shortage := describe_shortage(error)) is not None:
        return shortage
    if isinstance(error, _USER_ERRORS):
        return str(error) if str(error).strip() else type(error).__name__
    if type(error).__module__.partition(".")[0] == "ray":
        return (
            f"the Ray cluster failed ({first_line(error)}) Finished work is kept; run the same command again to resume."
        )
    return None


def _end_at_second_interrupt() -> None:
    """Let the first Ctrl-C raise, and the second end the process without waiting for threads and clusters."""

    def first(*_: object) -> NoReturn:
        signal.signal(signal.SIGINT, second)
        raise KeyboardInterrupt

    def second(*_: object) -> NoReturn:
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, first)


def _print_line(text: str) -> None:
    print(f"twinlens: {printable_line(' '.join(text.split()))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
