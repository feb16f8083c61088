"""The command line: which commands there are, and how errors are printed.

A command's module is imported when it is called, so that `twinlens --help` loads nothing heavy.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NoReturn

from twinlens.errors import printable_line, unknown
from twinlens.support.memory import keep_freed_memory

_USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command."""

    summary: str
    """What it does, in a line."""

    module: str
    """The module of this package that has `add_COMMAND(parser)` and `run_COMMAND(given)`."""

    usage: str
    """What is written behind its name."""

    example: str
    """A whole command to start from."""


COMMANDS = {
    "demo": Command(
        summary="evaluate methods on data and a model that come with packages",
        module="evaluate",
        usage="[mnist|imagenet] [options]",
        example="twinlens demo mnist --methods gradcam,occlusion,random",
    ),
    "evaluate": Command(
        summary="evaluate methods on a model and data of yours",
        module="evaluate",
        usage="[run.toml] [options]",
        example="twinlens evaluate --model timm:resnet50 --data photos/ --classes names.txt --methods gradcam,random "
        "--limit 500 --out runs/resnet50",
    ),
    "attribute": Command(
        summary="make attribution maps and evaluate nothing",
        module="evaluate",
        usage="[run.toml] [options]",
        example="twinlens attribute --model mnist-cnn --data mnist --methods all --limit 4 --out maps --sheet maps.png",
    ),
    "ask": Command(
        summary="ask another question of a run; no model is called",
        module="ask",
        usage="RUN [options]",
        example="twinlens ask runs/resnet50 --option soundness.epsilon=0.05",
    ),
    "report": Command(
        summary="write one self-contained page about a run, or about several",
        module="report",
        usage="RUN [RUN …] [options]",
        example="twinlens report runs/resnet50 --table latex",
    ),
    "compare": Command(
        summary="show several runs side by side and test how they differ, as a table and as a page",
        module="report",
        usage="RUN [RUN …] [options]",
        example="twinlens compare runs/one runs/two --verdicts",
    ),
    "selftest": Command(
        summary="test the metrics themselves on the model and data of a run",
        module="selftest",
        usage="RUN [options]",
        example="twinlens selftest runs/resnet50 --method gradcam",
    ),
    "check": Command(
        summary="make a test of another paper on the methods of a run, such as ROAR or the pointing game",
        module="check",
        usage="NAME RUN [options]",
        example="twinlens check model-randomisation runs/resnet50 --limit 50",
    ),
    "verify": Command(
        summary="check every file of a run against its digest",
        module="verify",
        usage="RUN [options]",
        example="twinlens verify runs/resnet50",
    ),
    "reproduce": Command(
        summary="do an experiment of the paper again, and check its claims",
        module="reproduce",
        usage="NAME|all [options]",
        example="twinlens reproduce synthetic --out runs/synthetic",
    ),
    "methods": Command(
        summary="list the attribution methods, metrics and imputers, or explain one",
        module="methods",
        usage="[NAME]",
        example="twinlens methods occlusion",
    ),
    "metrics": Command(
        summary="list the metrics and what they mean, or explain one",
        module="methods",
        usage="[NAME]",
        example="twinlens metrics soundness",
    ),
    "completion": Command(
        summary="print a script by which your shell completes commands, flags and their values",
        module="completion",
        usage="bash|zsh|fish",
        example="twinlens completion bash > ~/.local/share/bash-completion/completions/twinlens",
    ),
}
"""Every command by its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for success, 2 for what the user can mend, 130 when interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0].startswith("-"):
        return _without_command(given)
    if given[0] not in COMMANDS:
        _say(f"error: {unknown('command', given[0], COMMANDS)}")
        return 2
    # Before torch is loaded: threads that spin while they wait take ten times the CPU on a machine that others use.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    # Whoever waits for a table wants one line, and not the place in the source that a warning came from.
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
        return _guarded(given[0], given[1:])


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as everything else does, and not below a usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message[:1000]}. What there is: {self.prog} --help")


def _without_command(given: Sequence[str]) -> int:
    parser = _top_parser()
    try:
        parser.parse_args(given)
    except ValueError as error:
        _say(f"error: {error}")
    else:
        parser.print_help(sys.stderr)
    return 2


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    parser = _Parser(
        prog="twinlens",
        usage="twinlens COMMAND [options]",
        description="How far can a feature-attribution map be trusted? Soundness and completeness, measured.\n\n"
        f"commands:\n{commands}",
        epilog="Start with: twinlens demo\nOptions of a command: twinlens COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_versions())
    return parser


def _versions() -> str:
    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "numpy"))
    return f"twinlens {version('twinlens')} (Python {platform.python_version()}, {packages})"


def _parser(name: str, command: Command) -> argparse.ArgumentParser:
    return _Parser(
        prog=f"twinlens {name}",
        usage=f"twinlens {name} {command.usage}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"Example: {command.example}",
    )


def _guarded(name: str, arguments: Sequence[str]) -> int:
    try:
        logging.getLogger("PIL").addHandler(logging.NullHandler())  # the error about a bad image says what it would say
        command = importlib.import_module(f"twinlens.cli.{COMMANDS[name].module}")
        parser = _parser(name, COMMANDS[name])
        getattr(command, f"add_{name}")(parser)
        given = parser.parse_args(arguments)
        try:
            getattr(command, f"run_{name}")(given)
        except SystemExit as error:
            raise ValueError(f"`model`, or other code of yours, called sys.exit({error.code!r}).") from error
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
    print(f"twinlens: {printable_line(' '.join(text.split()))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
