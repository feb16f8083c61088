"""Flags and run.toml, both from the declarations in `options.py`, to the arguments of `evaluate`."""

from __future__ import annotations

import argparse
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from twinlens.attribution import METHODS, method_names
from twinlens.errors import unknown
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import metric_names
from twinlens.models.preprocessing import Preprocessing
from twinlens.options import Options
from twinlens.support.fields import Field, convert, fields_of

Arguments = dict[str, object]
"""Arguments of `evaluate` by name, as text and TOML gave them; `Options` checks them."""

SUBJECT = ("model", "data", "methods")
_UNFLAGGED = ("progress", "target")
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
    """Add a flag for each option that a dataclass declares, in groups named after the classes that declare them.

    Args:
        parser: gets the flags; what is not given stays None.
        kind: the dataclass.
        names: only these options; all by default.
    """
    groups: dict[str, argparse._ActionsContainer] = {_title(kind): parser}
    for field in fields_of(kind):
        if field.name in _UNFLAGGED or (names is not None and field.name not in names):
            continue
        group = _title(field.group)
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        if field.name == "preprocessing":
            for own in fields_of(Preprocessing):
                _add_flag(groups[group], own, "the model's own")
        elif isinstance(field.default, (int, float, str)) and field.default is not False:
            _add_flag(groups[group], field, str(field.default))
        else:
            _add_flag(groups[group], field)


def _title(group: type) -> str:
    """Return the heading of a group of options: the first line of its class."""
    return (group.__doc__ or "Options").strip().splitlines()[0].rstrip(".")


def _add_flag(group: argparse._ActionsContainer, field: Field, default: str = "") -> None:
    flag = f"--{field.name.replace('_', '-')}"
    shown = field.help.replace("%", "%%") + (f" ({default})" if default else "")
    if bool in _kinds(field.type):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=shown, dest=field.name)
    elif field.name in ("maps", "show"):
        group.add_argument(flag, action="append", metavar=_metavar(field), help=shown, dest=field.name)
    else:
        group.add_argument(flag, metavar=_metavar(field), help=shown, dest=field.name)


def describe_flag(field: Field) -> str:
    """Return the flag of an option as the documentation shows it.

    Example:
        >>> describe_flag(next(field for field in fields_of(Options) if field.name == "limit"))
        '--limit N'
    """
    if field.name == "preprocessing":
        return " ".join(f"--{own.name}" for own in fields_of(Preprocessing))
    if field.name in _UNFLAGGED:
        return "–"
    flag = f"--{field.name.replace('_', '-')}"
    return flag if bool in _kinds(field.type) else f"{flag} {_metavar(field)}"


def _metavar(field: Field) -> str:
    if field.name in _SPECIAL:
        return _SPECIAL[field.name]
    kinds = _kinds(field.type)
    for kind in kinds:
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
        if get_origin(kind) in (tuple, Sequence):
            return "A,B,…"
    return _METAVARS.get(kinds[0], "VALUE")


def _kinds(wanted: Any) -> list[Any]:
    union = get_origin(wanted) in (typing.Union, types.UnionType)
    return [kind for kind in (get_args(wanted) if union else (wanted,)) if kind is not type(None)]


def read_flag(text: str, field: Field) -> object:
    """Read a flag's text as the type of its option; what cannot be read stays text, for the option to refuse.

    Example:
        >>> limit = next(field for field in fields_of(Options) if field.name == "limit")
        >>> read_flag("5", limit), read_flag("five", limit), read_flag("auto", limit)
        (5, 'five', None)
    """
    kinds = _kinds(field.type)
    if text == "auto" and field.default is None:
        return None
    for kind in kinds:
        origin, arguments = get_origin(kind), get_args(kind)
        try:
            if kind in (int, float):
                return kind(text)
            if kind == tuple[str, ...]:
                return names_of(text)
            if origin in (tuple, Sequence) and float in arguments:
                return [float(number) for number in text.split(",")]
        except ValueError:
            return text
    return text


def given_flags(given: argparse.Namespace, kind: type) -> Arguments:
    """Collect the options that were given as flags."""
    found: Arguments = {}
    for field in fields_of(kind):
        value = getattr(given, field.name, None)
        if value is not None:
            found[field.name] = read_flag(value, field) if isinstance(value, str) else value
    if isinstance(metrics := found.get("metrics"), str):
        found["metrics"] = names_of(metrics)
    if "maps" in found:
        texts: Iterable[str] = given.maps
        found["maps"] = dict(_pair(text, "maps", "NAME=PATH") for text in texts)
    return found


def names_of(text: str) -> list[str]:
    """Split a list of names.

    Example:
        >>> names_of("gradcam, random")
        ['gradcam', 'random']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def read_arguments(given: argparse.Namespace, before: Mapping[str, object] | None = None) -> Arguments:
    """Put together the arguments of `evaluate`: those of a file or a demonstration, replaced by flags.

    Args:
        given: the flags.
        before: arguments that flags replace; those of the file that `given.config` names by default.
    """
    arguments = dict(before or {})
    if config := getattr(given, "config", None):
        arguments |= read_config(config)
    flags = given_flags(given, Options)
    flags |= {name: getattr(given, name) for name in ("model", "data") if getattr(given, name, None) is not None}
    if getattr(given, "methods", None) is not None:
        flags["methods"] = [*METHODS] if given.methods.strip() == "all" else names_of(given.methods)
    preprocessing = given_flags(given, Preprocessing)
    if preprocessing:
        earlier = arguments.get("preprocessing")
        arguments["preprocessing"] = {**(earlier if isinstance(earlier, Mapping) else {}), **preprocessing}
    for name in ("methods", "metrics"):  # names on the command line keep the settings that the file has for them
        if name in flags and isinstance(settings := arguments.get(name), Mapping):
            chosen = flags[name]
            assert isinstance(chosen, list)
            flags[name] = {each: settings.get(each, each) for each in chosen}
    if "maps" in flags and "methods" not in flags and "methods" not in arguments:
        arguments["methods"] = []
    arguments |= flags
    for text in getattr(given, "option", None) or ():
        set_option(arguments, text)
    return arguments


def _pair(text: str, argument: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"`{argument}` must be {form}; got {text!r}.")
    return name, value


def split_option(text: str) -> tuple[str, str, object]:
    """Split NAME.KEY=VALUE; VALUE is read as TOML where it is, and as text otherwise.

    Example:
        >>> split_option("occlusion.window=7"), split_option("soundness.performance=probability")
        (('occlusion', 'window', 7), ('soundness', 'performance', 'probability'))
    """
    target, value = _pair(text, "option", "NAME.KEY=VALUE")
    name, dot, key = target.rpartition(".")
    if not dot or not name or not key:
        raise ValueError(f"`option` must be NAME.KEY=VALUE; got {text!r}.")
    try:
        return name, key, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return name, key, value


def set_option(arguments: Arguments, text: str) -> None:
    """Add NAME.KEY=VALUE to the arguments, where NAME is one of the methods, maps or metrics, or imputer."""
    name, key, value = split_option(text)
    if name == "imputer":
        imputer = arguments.get("imputer")
        settings = (
            {"name": imputer} if isinstance(imputer, str) else dict(imputer) if isinstance(imputer, Mapping) else {}
        )
        if not settings:
            raise ValueError(f"`option` {text!r} needs an imputer: pass --imputer.")
        arguments["imputer"] = {**settings, key: value}
        return
    methods = _as_table(arguments.get("methods", ()))
    metrics = _as_table(arguments.get("metrics", Options().metrics))
    maps = _as_table(arguments.get("maps", {}))
    if name in methods:
        arguments["methods"] = {**methods, name: _with(methods[name], "method", key, value)}
    elif name in maps:
        arguments["maps"] = {**maps, name: _with(maps[name], "maps", key, value)}
    elif name in metrics:
        arguments["metrics"] = {**metrics, name: _with(metrics[name], "metric", key, value)}
    else:
        kind = "metrics" if name in metric_names() else "methods"
        known, exists = [*methods, *maps, *metrics, "imputer"], name in (*method_names(), *metric_names())
        near = "" if exists else f" {str(unknown('option', name, known)).rpartition('. ')[2]}"
        raise ValueError(f"`option` {text!r}: {name!r} is not among the {kind}; name it with --{kind}.{near}")


def _as_table(named: object) -> dict[str, object]:
    if isinstance(named, Mapping):
        return dict(named)
    listed = [named] if isinstance(named, str) else list(typing.cast("Iterable[str]", named))
    return {name: name for name in listed}


def _with(before: object, kind: str, key: str, value: object) -> dict[str, object]:
    settings = dict(before) if isinstance(before, Mapping) else {kind: before}
    return {**settings, key: value}


def read_config(path: str) -> Arguments:
    """Read run.toml, refusing keys that are no option; the values are checked by `Options`."""
    try:
        config = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # of TOML, of UTF-8, or of a path that cannot be
        raise ValueError(f"`{path}` is no TOML file: {error}") from None
    except RecursionError:
        raise ValueError(f"`{path}` is no TOML file that can be read: it is nested too deeply.") from None
    fields = {field.name: field for field in fields_of(Options) if field.name not in _UNFLAGGED}
    known = (*SUBJECT, *fields)
    for name, value in config.items():
        if name not in known:
            raise ValueError(f"`{path}`: {unknown('option', name, known)}")
        if value == "auto" and name in fields and fields[name].default is None:
            config[name] = None
        if name in ("model", "data") and not isinstance(value, str):
            raise TypeError(f"`{name}` must be text; got {value!r}.")
        if name == "methods" and not isinstance(value, (str, dict)):
            convert(value, tuple[str, ...], name)
    return config
