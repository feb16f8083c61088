"""Flags and run.toml, both made from the declarations in `options.py`, and read as arguments of `evaluate`."""

from __future__ import annotations

import argparse
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from twinlens.attribution import METHODS, method_names
from twinlens.errors import unknown
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import metric_names, metric_table
from twinlens.models.preprocessing import Preprocessing
from twinlens.options import ModelDataOptions, Options
from twinlens.support.fields import Field, convert, fields_of

Arguments = dict[str, object]
"""Arguments of `evaluate` by name, as read from text and TOML; `Options` checks them."""

PYTHON_ONLY = ("on_result", "progress", "target", "tokenizer")
"""Options without a flag."""

_LARGEST_CONFIG = 2**24  # bytes
_METAVARS = {int: "N", float: "X", str: "TEXT"}
_SPECIAL = {
    "metrics": "A,B,…",
    "maps": "NAME=PATH",
    "imputer": "|".join(IMPUTERS),
    "protocol": "paper|soco",
    "performance": "MEASURE",
    "show": "ID",
    "out": "DIR",
    "weights": "FILE",
    "classes": "FILE",
    "device": "DEVICE",
    "address": "ADDRESS",
    "part": "K/N",
    "until": "X|decided",
}


def add_options(parser: argparse.ArgumentParser, kind: type, names: Iterable[str] | None = None) -> None:
    """Add a flag for each option of a dataclass, or for `names`, in groups titled by the classes that declare them."""
    for field in fields_of(kind):
        if field.name in PYTHON_ONLY or (names is not None and field.name not in names):
            continue
        title = (field.group.__doc__ or "options").strip().splitlines()[0].rstrip(".")
        group = parser if field.group is kind else option_group(parser, title)
        if field.name == "preprocessing":
            for own in fields_of(Preprocessing):
                _add_flag(group, own, "the model's")
        elif isinstance(field.default, (int, float, str)) and field.default is not False and field.default != "default":
            _add_flag(group, field, str(field.default))
        else:
            _add_flag(group, field)


def option_group(parser: argparse.ArgumentParser, title: str) -> argparse._ActionsContainer:
    """Return the group of flags with a title, adding it if needed."""
    groups = {group.title: group for group in parser._action_groups}
    return groups.get(title) or parser.add_argument_group(title)


def add_output(parser: argparse.ArgumentParser, content: str) -> None:
    """Add --quiet and --json; `content` is what the latter prints."""
    parser.add_argument("--quiet", action="store_true", help="Print errors only.")
    parser.add_argument("--json", action="store_true", help=f"Print {content} as JSON and nothing else.")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the flags of commands that load the model of a run again."""
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="the run's model; required if it is code (FILE.py:FUNCTION or FILE.pt2), which is never loaded from "
        "run.json",
    )
    add_options(parser, ModelDataOptions, ["allow_code"])


def _add_flag(group: argparse._ActionsContainer, field: Field, default: str = "") -> None:
    flag = f"--{field.name.replace('_', '-')}"
    text = field.help.replace("%", "%%") + (f" (default: {default})" if default else "")
    if bool in _kinds(field.type):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text, dest=field.name)
    else:
        action = "append" if field.name in ("maps", "show") else "store"
        group.add_argument(flag, action=action, metavar=_metavar(field), help=text, dest=field.name)


def _metavar(field: Field) -> str:
    kinds = _kinds(field.type)
    for kind in kinds:
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
    if field.name in _SPECIAL:
        return _SPECIAL[field.name]
    for kind in kinds:
        if get_origin(kind) in (tuple, Sequence):
            return "A,B,…"
    return _METAVARS.get(kinds[0], "VALUE")


def _kinds(hint: Any) -> list[Any]:
    union = get_origin(hint) in (typing.Union, types.UnionType)
    return [kind for kind in (get_args(hint) if union else (hint,)) if kind is not type(None)]


def read_flag(text: str, field: Field) -> object:
    """Convert a flag's text to the type of its option; text that does not fit is returned for the option to refuse."""
    if text == "auto" and field.default is None:
        return None
    for kind in _kinds(field.type):
        try:
            if kind in (int, float):
                return kind(text)
            if kind == tuple[str, ...]:
                return names_of(text)
            if get_origin(kind) in (tuple, Sequence) and float in get_args(kind):
                return [float(number) for number in text.split(",")]
        except ValueError:
            return text
    return text


def given_flags(namespace: argparse.Namespace, kind: type) -> Arguments:
    """Return the options of a dataclass that were passed as flags."""
    flags: Arguments = {}
    for field in fields_of(kind):
        value = getattr(namespace, field.name, None)
        if value is not None:
            flags[field.name] = read_flag(value, field) if isinstance(value, str) else value
    if isinstance(metrics := flags.get("metrics"), str):
        flags["metrics"] = names_of(metrics)
    if "maps" in flags:
        flags["maps"] = dict(_pair(text, "maps", "NAME=PATH") for text in namespace.maps)
    return flags


def names_of(text: str) -> list[str]:
    """Split a comma-separated list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_arguments(namespace: argparse.Namespace, defaults: Mapping[str, object] | None = None) -> Arguments:
    """Return the arguments of `evaluate`: those of run.toml or `defaults`, replaced by flags."""
    arguments = dict(defaults or {})
    if config := getattr(namespace, "config", None):
        arguments |= read_config(config)
    flags = given_flags(namespace, Options)
    for name in ("model", "data", "methods"):
        if (value := getattr(namespace, name, None)) is not None:
            flags[name] = value
    if isinstance(methods := flags.get("methods"), str):
        flags["methods"] = [*METHODS] if methods.strip() == "all" else names_of(methods)
    if preprocessing := given_flags(namespace, Preprocessing):
        earlier = arguments.get("preprocessing")
        arguments["preprocessing"] = {**(earlier if isinstance(earlier, Mapping) else {}), **preprocessing}
    for name in ("methods", "metrics"):  # names on the command line keep their settings in the file
        if name in flags and isinstance(settings := arguments.get(name), Mapping):
            flags[name] = {each: settings.get(each, entry) for each, entry in _as_table(flags[name], name).items()}
    if "maps" in flags and "methods" not in flags and "methods" not in arguments:
        arguments["methods"] = []
    arguments |= flags
    for text in getattr(namespace, "option", None) or ():
        set_option(arguments, text)
    return arguments


def _pair(text: str, argument: str, form: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ValueError(f"`{argument}` must be {form}; got {text!r}.")
    return name, value


def split_option(text: str) -> tuple[str, str, object]:
    """Split NAME.KEY=VALUE; VALUE is read as TOML if it is valid TOML, and as text otherwise."""
    target, value = _pair(text, "option", "NAME.KEY=VALUE")
    name, _, key = target.rpartition(".")
    if not name or not key:
        raise ValueError(f"`option` must be NAME.KEY=VALUE; got {text!r}.")
    try:
        return name, key, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return name, key, value


def set_option(arguments: Arguments, text: str) -> None:
    """Add NAME.KEY=VALUE to the arguments; NAME is a method, maps, a metric or imputer."""
    name, key, value = split_option(text)
    if name == "imputer":
        if not (imputer := arguments.get("imputer")):
            raise ValueError(f"`option` {text!r} needs an imputer: pass --imputer.")
        arguments["imputer"] = _with(imputer, "name", key, value)
        return
    usual = {"methods": (), "maps": {}, "metrics": Options().metrics}
    tables = {each: _as_table(arguments.get(each, default), each) for each, default in usual.items()}
    for argument, kind in (("methods", "method"), ("maps", "maps"), ("metrics", "metric")):
        if name in (table := tables[argument]):
            arguments[argument] = {**table, name: _with(table[name], kind, key, value)}
            return
    argument = "metrics" if name in metric_names() else "methods"
    near = ""
    if name not in (*method_names(), *metric_names()):
        names = [*(each for table in tables.values() for each in table), "imputer"]
        near = f" {str(unknown('option', name, names)).rpartition('. ')[2]}"
    raise ValueError(f"`option` {text!r}: {name!r} is not among the {argument}; add it to --{argument}.{near}")


def _as_table(entries: object, argument: str) -> dict[str, object]:
    """Return entries by name, with the metrics of a group instead of its name."""
    if isinstance(entries, Mapping):
        return dict(entries)
    names = [entries] if isinstance(entries, str) else typing.cast("list[str]", entries)
    return dict(metric_table(names)) if argument == "metrics" else {name: name for name in names}


def _with(entry: object, kind: str, key: str, value: object) -> dict[str, object]:
    return {**(entry if isinstance(entry, Mapping) else {kind: entry}), key: value}


def read_toml(path: str) -> Arguments:
    """Read a TOML file, or refuse it."""
    try:
        with open(path, "rb") as file:  # which may be a pipe, or a device without end
            return tomllib.loads(file.read(_LARGEST_CONFIG).decode())
    except (ValueError, RecursionError) as error:  # not TOML, nested too deeply, not UTF-8, or not a valid path
        raise ValueError(f"`{path}` is not a valid TOML file: {error}") from None


def read_config(path: str) -> Arguments:
    """Read run.toml, refusing keys that are not options; `Options` checks the values."""
    config = read_toml(path)
    fields = {field.name: field for field in fields_of(Options) if field.name not in PYTHON_ONLY}
    names = ("model", "data", "methods", *fields)
    for name, value in config.items():
        if name not in names:
            raise ValueError(f"`{path}`: {unknown('option', name, names)}")
        if value == "auto" and name in fields and fields[name].default is None:
            config[name] = None
        if name in ("model", "data") and not isinstance(value, str):
            raise TypeError(f"`{name}` must be text; got {value!r}.")
        if name == "methods" and not isinstance(value, (str, dict)):
            convert(value, tuple[str, ...], name)
    return config
