"""Flags: every option of every command, as the parsers declare them, with a value that makes no sense, or little."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
from unittest import mock

from tests.fuzz.values import TEXTS
from twinlens.cli import reproduce
from twinlens.cli.main import COMMANDS
from twinlens.suites import running

WORDS = (
    *("nan", "inf", "-inf", "-1", "0", "1e400", "1" + 40 * "0", "9" * 5000, "0.5", "1", "x", "1,2,3", "true", "auto"),
    *(
        "linear",
        "random",
        "soundness.epsilon=nan",
        "random.x=1",
        "imputer.x=1",
        "a=b",
        "=",
        "C:\\x",
        "3/2",
        "s3://",
        "a://b",
    ),
    *(text for text in TEXTS if "\udcff" not in text),  # which no terminal hands over
)


def parser_of(command: str) -> argparse.ArgumentParser:
    """Make the parser of a command as the command line does."""
    parser = argparse.ArgumentParser(prog=command)
    getattr(importlib.import_module(f"twinlens.cli.{COMMANDS[command].module}"), f"add_{command}")(parser)
    return parser


def actions_of(command: str) -> list[argparse.Action]:
    """List what a command can be given, but for --help."""
    return [action for action in parser_of(command)._actions if "--help" not in action.option_strings]


def base_of(fuzzer, command: str) -> list[str]:
    """A valid command, which takes moments, and writes nowhere else than into `new`."""
    new = str(fuzzer.folder / "new")
    without_a_run = {
        "evaluate": [*fuzzer.base, "--out", new],
        "attribute": [*fuzzer.base, "--out", new],
        "demo": ["mnist", *fuzzer.base[4:], "--limit", "6", "--out", new],
        "reproduce": ["synthetic", "--out", new, "--quiet"],
        "suite": ["run", "digits@1", "--out", new],
        "methods": [],
        "metrics": [],
    }
    if command in without_a_run:
        return without_a_run[command]
    run = str(fuzzer.subject.fresh_run())
    if command == "check":
        return ["sensitivity-n", run, "--model", fuzzer.spec, "--methods", "random", "--limit", "4", "--quiet"]
    rest = {
        "selftest": ["--model", fuzzer.spec, "--limit", "4", "--methods", "random"],
        "compare": ["--out", f"{new}/page.html"],
        "ask": ["--quiet"],
    }
    return [run, *rest.get(command, [])]


def flag_case(fuzzer) -> str:
    """One flag, or one argument by its place, of one command."""
    command = fuzzer.pick(list(COMMANDS))
    action = fuzzer.pick(actions_of(command))
    text = fuzzer.pick([*WORDS, *map(str, action.choices or ())])
    base = base_of(fuzzer, command)
    if action.option_strings:
        flag = fuzzer.pick(action.option_strings)
        arguments = [*base, f"{flag}={text}" if fuzzer.rng.random() < 0.9 else flag]
    else:
        arguments = [text, *(base if command in ("evaluate", "attribute") else base[1:])]
    label = f"{command} {arguments[-1] if action.option_strings else text!r}"
    return fuzzer.outcome("flags", label[:80], lambda: attempt(fuzzer, command, arguments, action, text))


def attempt(fuzzer, command: str, arguments: list[str], action: argparse.Action | None, text: str) -> int:
    """Run a command whose experiments and suites, which take minutes, are left out."""
    with contextlib.ExitStack() as stack:
        for module, name in ((reproduce, "reproduce"), (reproduce, "reproduce_all"), (running, "run_suite")):
            stack.enter_context(mock.patch.object(module, name, _not_done))
        try:
            code, said = fuzzer.run_command([command, *arguments])
        except LeftOut:
            return 0
    if code == 2 and not (action and names_option(said, action, text)):
        raise AssertionError(f"the option is not named: {said[-300:]}")
    return code


def names_option(said: str, action: argparse.Action, text: str) -> bool:
    """Tell whether a line names an option; or, of arguments without a name and of NAME.KEY=VALUE, what was given."""
    quoted = re.findall("`([^`]+)`", said)
    if f"`{action.dest}`" in said or any(word == action.dest for each in quoted for word in re.split(r"[ .]", each)):
        return True
    if any(re.search(rf"{re.escape(flag)}\b", said) for flag in action.option_strings):
        return True
    if action.option_strings:
        return action.dest in ("option", "methods", "metrics") and bool(quoted)
    return bool(quoted) or str(action.metavar) in said or repr(text)[1:-1][:40] in said or bool(re.search("'.+'", said))


class LeftOut(BaseException):
    """An experiment or a suite that would be done by now."""


def _not_done(*_: object) -> object:
    raise LeftOut
