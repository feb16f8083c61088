"""Shell completion by argcomplete: commands, flags, names and paths.

The parsers of the commands take seconds to import torch. `completion.json` lists what they accept instead; `make docs`
writes it from them, and a test keeps it up to date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Required, TypedDict

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter


class Argument(TypedDict, total=False):
    """One argument of a command in completion.json."""

    flags: Required[list[str]]
    name: str
    nargs: str | None
    switch: bool
    names: list[str]
    words: list[str]
    list: bool
    paths: str


_PLUGINS = {"methods": "twinlens.methods", "metrics": "twinlens.metrics"}


def complete(summaries: Mapping[str, str]) -> None:
    """Answer the completion request in the environment, as argcomplete defines it, and exit."""
    argcomplete.autocomplete(completion_parser(summaries), always_complete_options=False)


def completion_parser(summaries: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return a parser of all commands that only completes; `summaries` describe the commands."""
    listing = json.loads(Path(__file__).with_name("completion.json").read_text(encoding="utf-8"))
    names = {kind: [*words, *_plugins(kind)] for kind, words in listing["names"].items()}
    parser = argparse.ArgumentParser(prog="twinlens")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    for command, arguments in listing["commands"].items():
        own = commands.add_parser(command, help=summaries[command])
        for argument in arguments:
            _add(own, argument, names)
    return parser


def _plugins(kind: str) -> list[str]:
    return sorted(entry_points(group=_PLUGINS[kind]).names) if kind in _PLUGINS else []


def _add(parser: argparse.ArgumentParser, argument: Argument, names: Mapping[str, list[str]]) -> None:
    if argument.get("switch"):
        parser.add_argument(*argument["flags"], action="store_true")
        return
    action = parser.add_argument(*(argument["flags"] or [argument["name"]]), nargs=argument.get("nargs"))
    words = [name for kind in argument.get("names", ()) for name in names[kind]] + argument.get("words", [])
    paths = {"directory": DirectoriesCompleter(), "file": FilesCompleter()}.get(argument.get("paths", ""))
    action.completer = _completer(words, paths, several=bool(argument.get("list")))  # type: ignore[attr-defined]


def _completer(
    words: Iterable[str], paths: Callable[..., Iterable[str]] | None, *, several: bool
) -> Callable[..., list[str]]:
    """Offer words, or the last one of a comma-separated list, and paths."""

    def offer(prefix: str, **options: Any) -> list[str]:
        before = prefix[: prefix.rfind(",") + 1] if several else ""
        return [f"{before}{word}" for word in words] + (list(paths(prefix=prefix, **options)) if paths else [])

    return offer
