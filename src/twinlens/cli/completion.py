"""Shell completion by argcomplete: commands, flags, names and paths.

The parsers of the commands take seconds to import torch. `completion.json`, written by `make docs`, lists instead what
they accept: for each command its arguments, `nargs`, and the words to offer, where @KIND stands for the names of a kind
or for paths, and a comma for a comma-separated list.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter

from twinlens.support.plugins import with_plugins


def complete(summaries: Mapping[str, str]) -> None:
    """Answer the completion request in the environment, as argcomplete defines it, and exit."""
    argcomplete.autocomplete(completion_parser(summaries), always_complete_options=False)


def completion_parser(summaries: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return a parser of all commands that only completes; `summaries` describe the commands."""
    listing = json.loads(Path(__file__).with_name("completion.json").read_text(encoding="utf-8"))
    names = listing["names"]
    for kind in ("methods", "metrics"):
        names[kind] = with_plugins(names[kind], f"twinlens.{kind}")
    parser = argparse.ArgumentParser(prog="twinlens")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    for command, arguments in listing["commands"].items():
        own = commands.add_parser(command, help=summaries[command])
        for flags, nargs, words in arguments:
            if nargs == 0:
                own.add_argument(*flags, action="store_true")
            else:
                own.add_argument(*flags, nargs=nargs).completer = _completer(words, names)  # type: ignore[attr-defined]
    return parser


def _completer(words: Sequence[str], names: Mapping[str, Sequence[str]]) -> Callable[..., list[str]]:
    paths = {"@files": FilesCompleter(), "@directories": DirectoriesCompleter()}

    def offer(prefix: str, **options: Any) -> list[str]:
        before = prefix[: prefix.rfind(",") + 1] if "," in words else ""
        offers: list[str] = []
        for word in words:
            if word in paths:
                offers += paths[word](prefix=prefix, **options)
            elif word != ",":
                offers += [f"{before}{name}" for name in (names[word[1:]] if word[0] == "@" else [word])]
        return offers

    return offer
