"""Typed fields: an option is declared once; its argument, flag, TOML key, JSON and help all derive from that.

A declaration is a field of a frozen dataclass, or a key of a `TypedDict` with its default in `Annotated`. The string
below it is its help.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import operator
import os
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from twinlens.errors import short_repr, unknown

T = TypeVar("T")
JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
REQUIRED = dataclasses.MISSING
_MOST_ITEMS = 10**6  # of an option; listing a huge range would fill memory


@dataclass(frozen=True)
class Default:
    """The default of a key of a TypedDict: `seed: Annotated[int, Default(0)]`."""

    value: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """One declared option."""

    name: str
    type: Any
    """The declared type, resolved."""
    default: Any
    """The default, or `REQUIRED`."""
    help: str
    """The text below the declaration."""
    group: type
    """The class that declares it."""


def fields_of(kind: type) -> tuple[Field, ...]:
    """List the options that a dataclass or a TypedDict declares, those of its bases first."""
    return _fields_of(kind)


@cache
def _fields_of(kind: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    classes = [base for base in reversed(kind.__mro__) if "__annotations__" in vars(base)]
    classes += [base for base in getattr(kind, "__orig_bases__", ()) if typing.is_typeddict(base)]
    names = [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else hints
    options: dict[str, Field] = {}
    for group in [*classes, kind]:
        helps = _helps(group)
        for name in vars(group).get("__annotations__", {}):
            if name not in names:
                continue
            owner = options[name].group if name in options else group
            text = helps.get(name) or (options[name].help if name in options else "")
            declared, default = _type_and_default(kind, name, hints[name])
            options[name] = Field(name=name, type=declared, default=default, help=text, group=owner)
    return tuple(options.values())


def _type_and_default(kind: type, name: str, hint: Any) -> tuple[Any, Any]:
    if dataclasses.is_dataclass(kind):
        field = kind.__dataclass_fields__[name]
        return hint, field.default if field.default_factory is REQUIRED else field.default_factory()
    if get_origin(hint) is typing.Annotated:
        declared, *notes = get_args(hint)
        return declared, next((note.value for note in notes if isinstance(note, Default)), REQUIRED)
    return hint, REQUIRED


@cache
def _helps(kind: type) -> dict[str, str]:
    """Read the text below each declaration of a class from its source; empty where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, or created at run time
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    helps = {}
    for statement, below in pairwise(body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                helps[name] = " ".join(text.split())
    return helps


def replaced(value: T, changes: Mapping[str, Any], name: str) -> T:
    """Return a frozen dataclass with some fields replaced; errors call them `name`."""
    names = [field.name for field in fields_of(type(value))]
    for key in changes:
        if key not in names:
            raise unknown(name, key, names)
    return typing.cast("T", dataclasses.replace(typing.cast("Any", value), **changes))


def describe_type(declared: Any) -> str:  # noqa: PLR0911 (one return per kind of type)
    """Describe in words what a type accepts."""
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a table"}
    if declared in plain:
        return plain[declared]
    if _is_union(declared):
        kinds = dict.fromkeys(describe_type(kind) for kind in get_args(declared) if kind is not type(None))
        return " or ".join(kinds)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (tuple, list, Sequence, Collection):
        item = plain.get(arguments[0], "values").removeprefix("a ").replace("text", "name")
        if item == "values" and isinstance(arguments[0], type):
            return f"a list of {arguments[0].__name__}"
        return f"a list of {item.removeprefix('whole ')}s" if item != "values" else "a list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a table"
    if origin is Callable or declared is Callable:
        return "a function"
    name = getattr(declared, "__name__", str(declared))
    return f"an nn.{name}" if getattr(declared, "__module__", "").startswith("torch.nn.") else name


def convert(value: Any, declared: Any, name: str) -> Any:
    """Return a value, checked against a declared type; lists become tuples, and one name a list of names."""
    try:
        return _converted(value, declared, name)
    except _MismatchError:
        raise TypeError(f"`{name}` must be {describe_type(declared)}; got {_short(value)}.") from None


def check_types(value: object, *, but: Sequence[str] = ()) -> None:
    """Check and convert the fields of a frozen dataclass, in its `__post_init__`; `but` are checked elsewhere."""
    for field in fields_of(type(value)):
        if field.name not in but:
            object.__setattr__(value, field.name, convert(getattr(value, field.name), field.type, field.name))


def check_count(name: str, value: int, most: int) -> None:
    """Refuse a count below 1 or above a limit."""
    if not 1 <= value <= most:
        raise ValueError(f"`{name}` must be at {'least 1' if value < 1 else f'most {most}'}; got {value}.")


class _MismatchError(Exception):
    """The value is not of the type."""


def _converted(value: Any, declared: Any, name: str) -> Any:  # noqa: PLR0911 (one return per kind of type)
    if declared is Any or declared is object or declared == JSON:
        return value
    if _is_union(declared):
        return _one_of(value, get_args(declared), name)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        if type(value) not in map(type, arguments) or value not in arguments:
            raise unknown(name, value, [str(each) for each in arguments])
        return value
    if origin in (tuple, Sequence, Collection):
        return _tuple(value, arguments if origin is tuple else (arguments[0], Ellipsis), name)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _MismatchError
        return {str(key): convert(item, arguments[1], f"{name}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(declared) and isinstance(value, Mapping):
        return from_json(typing.cast("type[Any]", declared), value, name)
    return _simple(value, declared, origin)


def _simple(value: Any, declared: Any, origin: Any) -> Any:
    if declared is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > sys.float_info.max:
            raise _MismatchError
        return float(value)
    try:
        if declared is int and hasattr(value, "__index__") and not isinstance(value, bool):
            return operator.index(value)
        if declared is float and hasattr(value, "__float__") and hasattr(value, "dtype"):  # a NumPy number
            value = float(value)
    except (TypeError, ValueError, RuntimeError):  # an array of several numbers
        raise _MismatchError from None
    kind = origin or declared
    if kind is Callable:
        matches = callable(value)
    elif getattr(kind, "_is_protocol", False):
        members = [name for name in vars(kind) if name == "__call__" or not name.startswith("_")]
        matches = all(hasattr(value, name) for name in members)
    elif kind is os.PathLike:
        matches = isinstance(value, os.PathLike) or hasattr(value, "joinpath")  # on another file system
    else:
        matches = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not matches or (isinstance(value, float) and not math.isfinite(value)):
        raise _MismatchError
    return value


def _one_of(value: Any, kinds: Sequence[Any], name: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    rejected: Exception = _MismatchError()
    for kind in kinds:
        if kind is not type(None):
            try:
                return _converted(value, kind, name)
            except _MismatchError:
                continue
            except ValueError as error:  # the right type, but not an allowed value
                rejected = error
    raise rejected


def _tuple(value: Any, arguments: Sequence[Any], name: str) -> Any:
    if isinstance(value, str) and arguments[-1] is Ellipsis and arguments[0] not in (int, float):
        value = [value]
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise _MismatchError
    try:
        if hasattr(value, "__len__") and len(value) > _MOST_ITEMS:
            raise _MismatchError
        items = list(value)
    except TypeError:  # an array without an axis, or a class
        raise _MismatchError from None
    kinds = [arguments[0]] * len(items) if arguments[-1] is Ellipsis else list(arguments)
    if len(kinds) != len(items):
        raise _MismatchError
    return tuple(_converted(item, kind, name) for item, kind in zip(items, kinds, strict=True))


def _is_union(declared: Any) -> bool:
    return get_origin(declared) in (Union, types.UnionType)


def _short(value: Any) -> str:
    text = short_repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}…"


def to_json(value: Any) -> Any:
    """Turn a frozen dataclass and its values into JSON. NaN becomes null.

    A field with the metadata `{"stored": False}` is left out.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        stored = [field.name for field in dataclasses.fields(value) if field.metadata.get("stored", True)]
        return {name: to_json(getattr(value, name)) for name in stored}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON.")


def from_json(kind: type[T], stored: Any, name: str) -> T:
    """Read a frozen dataclass from the output of `to_json`; errors name unknown, missing and wrong fields."""
    if not isinstance(stored, Mapping):
        raise TypeError(f"`{name}` must be a table of {kind.__name__}; got {_short(stored)}.")
    fields = {field.name: field for field in fields_of(kind)}
    for key in stored:
        if key not in fields:
            raise unknown(name, key, fields)
    for field in fields.values():
        if field.name not in stored and field.default is REQUIRED:
            raise ValueError(f"`{name}` must have {field.name!r}; it is missing.")
    return kind(
        **{
            key: math.nan
            if item is None and fields[key].type is float
            else convert(item, fields[key].type, f"{name}.{key}")
            for key, item in stored.items()
        }
    )
