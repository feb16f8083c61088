"""The command methods: the attribution methods and metrics, and what one of them can be asked."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinlens.attribution import CONTROLS, METHODS, options_of
from twinlens.cli.printing import print_plain
from twinlens.core.fields import fields_of
from twinlens.errors import unknown
from twinlens.imputation.imputers import IMPUTERS, TokenImputer, find_imputer
from twinlens.metrics.catalogue import METRICS


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens methods`."""
    parser.add_argument("name", nargs="?", help="explain this method, metric or imputer, with its options")


def run_methods(given: argparse.Namespace) -> None:
    """List all methods and metrics, or explain one."""
    if given.name is None:
        list_everything()
    elif given.name in METHODS:
        explain_method(given.name)
    elif given.name in METRICS:
        explain_fields(given.name, METRICS[given.name], f"--option {given.name}.KEY=VALUE")
    elif given.name in IMPUTERS:
        example = TokenImputer(0) if given.name == "token" else find_imputer(given.name)
        explain_fields(given.name, example, f"--imputer {given.name} --option imputer.KEY=VALUE")
    else:
        raise unknown("name", given.name, [*METHODS, *METRICS, *IMPUTERS])


def list_everything() -> None:
    """Print the names of all methods, metrics and imputers with what they are."""
    console = Console()
    for title, entries in _entries():
        table = Table(title=title, box=None, title_justify="left", title_style="bold", show_header=False)
        for name, summary in entries.items():
            table.add_row(name, escape(summary))
        console.print(table)
    console.print("Options of one of them: twinlens methods NAME", style="dim")


def _entries() -> Iterator[tuple[str, dict[str, str]]]:
    yield "Methods", {name: _summary(function) for name, function in METHODS.items() if name not in CONTROLS}
    yield "Controls", {name: _summary(METHODS[name]) for name in METHODS if name in CONTROLS}
    yield "Metrics", {name: metric.about.summary for name, metric in METRICS.items()}
    yield "Imputers", {name: _summary(kind) for name, kind in IMPUTERS.items()}


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def explain_method(name: str) -> None:
    """Print the documentation and the options of a method."""
    console, function = Console(), METHODS[name]
    console.print(f"{name}\n", style="bold")
    print_plain(console, inspect.getdoc(function) or "")
    defaults = ", ".join(f"{option}={p.default!r}" for option, p in options_of(function).items())
    print_plain(console, f"\nDefaults: {defaults or 'it has no options'}")


def explain_fields(name: str, value: object, form: str) -> None:
    """Print what a metric or an imputer is, and its options with their defaults; `form` shows how to set one."""
    console = Console()
    console.print(f"{name}\n", style="bold")
    print_plain(console, _summary(type(value)))
    print_plain(console, f"\nOptions, as in {form}:")
    for field in fields_of(type(value)):
        own = getattr(value, field.name)
        default = "" if own is None else f" ({', '.join(map(str, own)) if isinstance(own, tuple) else own})"
        print_plain(console, f"  {field.name}: {field.help}{default}")
