"""The commands methods and metrics: list the entries of the catalogues, or describe one."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable

from rich.markup import escape
from rich.table import Table

from twinlens.attribution import BASELINES, METHODS, method_names, plugin_method
from twinlens.attribution.method import describe_needs, options_of
from twinlens.cli.printing import open_console, print_plain
from twinlens.errors import first_line, unknown
from twinlens.imputation.imputers import IMPUTERS, TokenImputer, find_imputer
from twinlens.metrics.catalogue import metric_named, metric_names
from twinlens.support.fields import fields_of


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens methods`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="Method, metric or imputer to describe.")


def run_methods(namespace: argparse.Namespace) -> None:
    """List all methods, metrics and imputers, or describe one."""
    if namespace.name is None:
        methods = method_names()
        _print_table("Methods", [each for each in methods if each not in BASELINES], _method_summary)
        _print_table("Baseline methods", [each for each in methods if each in BASELINES], _method_summary)
        _print_table("Metrics", metric_names(), _metric_summary)
        _print_table("Imputers", list(IMPUTERS), lambda each: _summary(IMPUTERS[each]))
        print("`twinlens methods NAME` describes one of them, with its options.")
    else:
        _describe(namespace.name, [*method_names(), *metric_names(), *IMPUTERS])


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens metrics`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="Metric to describe.")


def run_metrics(namespace: argparse.Namespace) -> None:
    """List all metrics, or describe one."""
    if namespace.name is None:
        _print_table("Metrics", metric_names(), _metric_summary)
        print("`twinlens metrics NAME` describes one of them, with its options.")
    else:
        _describe(namespace.name, metric_names())


def _print_table(title: str, names: list[str], summary: Callable[[str], str]) -> None:
    table = Table(title=title, box=None, title_justify="left", title_style="bold", show_header=False)
    for name in names:
        try:
            text = summary(name)
        except (ImportError, TypeError) as error:  # a broken plug-in does not hide the others
            text = first_line(error)
        table.add_row(name, escape(text))
    open_console().print(table)


def _method_summary(name: str) -> str:
    return _summary(METHODS[name] if name in METHODS else plugin_method("name", name))


def _metric_summary(name: str) -> str:
    about = metric_named(name).about
    return f"{about.arrow} {about.summary}"


def _summary(entry: object) -> str:
    return (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")


def _describe(name: str, names: list[str]) -> None:
    """Print what a method, metric or imputer is, and its options with their defaults."""
    if name not in names:
        raise unknown("name", name, names)
    if name in metric_names():
        metric = metric_named(name)
        reading, scale = metric.about.reading(str(metric.performance))
        text = _with_options(f"{_summary(type(metric))}\n{scale}\n{reading}", metric, f"--option {name}.KEY=VALUE")
    elif name in IMPUTERS:
        imputer = TokenImputer(0) if name == "token" else find_imputer(name)
        text = _with_options(_summary(type(imputer)), imputer, f"--imputer {name} --option imputer.KEY=VALUE")
    else:
        function = METHODS.get(name) or plugin_method("name", name)
        text = inspect.getdoc(function) or ""
        if name in METHODS:  # a plug-in declares nothing
            defaults = ", ".join(f"{option}={p.default!r}" for option, p in options_of(function).items())
            text += f"\n\n{describe_needs(function)}\nDefaults: {defaults}"
    console = open_console()
    console.print(f"{name}\n", style="bold")
    for line in text.split("\n"):
        print_plain(console, line)


def _with_options(text: str, value: object, form: str) -> str:
    lines = [text, "", f"Options, as in {form}:"]
    for field in fields_of(type(value)):
        own = getattr(value, field.name)
        default = "" if own is None else f" ({', '.join(map(str, own)) if isinstance(own, tuple) else own})"
        lines.append(f"  {field.name}: {field.help}{default}")
    return "\n".join(lines)
