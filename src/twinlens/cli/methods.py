"""The commands methods and metrics: what there is, and what one of them can be asked."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinlens.attribution import BASELINES, METHODS, method_names, plugin_method
from twinlens.attribution.method import declared, options_of
from twinlens.cli.printing import print_plain
from twinlens.errors import first_line, unknown
from twinlens.imputation.imputers import IMPUTERS, TokenImputer, find_imputer
from twinlens.metrics.catalogue import metric_named, metric_names
from twinlens.support.fields import fields_of


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens methods`."""
    parser.add_argument("name", nargs="?", help="explain this method, metric or imputer, with its options")


def run_methods(given: argparse.Namespace) -> None:
    """List all methods, metrics and imputers, or explain one."""
    if given.name is None:
        list_entries(_ENTRIES, "methods")
    elif given.name in method_names():
        explain_method(given.name)
    elif given.name in metric_names():
        explain_metric(given.name)
    elif given.name in IMPUTERS:
        example = TokenImputer(0) if given.name == "token" else find_imputer(given.name)
        explain_fields(given.name, example, f"--imputer {given.name} --option imputer.KEY=VALUE")
    else:
        raise unknown("name", given.name, [*method_names(), *metric_names(), *IMPUTERS])


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens metrics`."""
    parser.add_argument("name", nargs="?", help="explain this metric, with its options")


def run_metrics(given: argparse.Namespace) -> None:
    """List all metrics, or explain one."""
    if given.name is None:
        list_entries(("Metrics",), "metrics")
    elif given.name in metric_names():
        explain_metric(given.name)
    else:
        raise unknown("name", given.name, metric_names())


_ENTRIES = ("Methods", "Controls", "Metrics", "Imputers")


def list_entries(titles: Sequence[str], command: str) -> None:
    """Print the names of all entries of these kinds with what they are."""
    console, entries = Console(), _entries()
    for title in titles:
        table = Table(title=title, box=None, title_justify="left", title_style="bold", show_header=False)
        for name, summary in entries[title].items():
            table.add_row(name, escape(summary))
        console.print(table)
    console.print(f"Options of one of them: twinlens {command} NAME", style="dim")


def _entries() -> dict[str, dict[str, str]]:
    kinds = (
        {name: _entry(_method_summary, name) for name in method_names() if name not in BASELINES},
        {name: _summary(METHODS[name]) for name in METHODS if name in BASELINES},
        {name: _entry(_metric_summary, name) for name in metric_names()},
        {name: _summary(kind) for name, kind in IMPUTERS.items()},
    )
    return dict(zip(_ENTRIES, kinds, strict=True))


def _entry(summary: Callable[[str], str], name: str) -> str:
    """Summarise an entry; a plug-in that cannot be imported says so in its own line, and hides no other."""
    try:
        return summary(name)
    except (ImportError, TypeError) as error:
        return first_line(error)


def _method_summary(name: str) -> str:
    return _summary(METHODS[name] if name in METHODS else plugin_method("name", name))


def _metric_summary(name: str) -> str:
    about = metric_named(name).about
    return f"{about.arrow} {about.summary}"


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _print_lines(console: Console, text: str) -> None:
    for line in text.split("\n"):
        print_plain(console, line)


def explain_method(name: str) -> None:
    """Print the documentation and the options of a method."""
    console, function = Console(), METHODS.get(name) or plugin_method("name", name)
    console.print(f"{name}\n", style="bold")
    _print_lines(console, inspect.getdoc(function) or "")
    if name not in METHODS:  # which declares nothing that we know of
        return
    defaults = ", ".join(f"{option}={p.default!r}" for option, p in options_of(function).items())
    _print_lines(console, f"\n{declared(function).describe()}\nDefaults: {defaults}")


def explain_metric(name: str) -> None:
    """Print what a metric means, how it is read, and its options."""
    metric = metric_named(name)
    said, scale = metric.about.reading(str(metric.performance))
    explain_fields(name, metric, f"--option {name}.KEY=VALUE", f"{scale}\n{said}")


def explain_fields(name: str, value: object, form: str, said: str = "") -> None:
    """Print what a metric or an imputer is, and its options with their defaults; `form` shows how to set one."""
    console = Console()
    console.print(f"{name}\n", style="bold")
    _print_lines(console, f"{_summary(type(value))}\n{said}".rstrip())
    _print_lines(console, f"\nOptions, as in {form}:")
    for field in fields_of(type(value)):
        own = getattr(value, field.name)
        default = "" if own is None else f" ({', '.join(map(str, own)) if isinstance(own, tuple) else own})"
        print_plain(console, f"  {field.name}: {field.help}{default}")
