"""Arguments of public functions, checked against their annotations."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
from torch import Tensor

from twinlens.errors import unknown
from twinlens.support.fields import convert, fields_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_CHECKED_LATER = ("ids", "imputer")  # with the samples, and by name


def checked(function: F) -> F:
    """Let a function refuse an argument that is not of its declared type, by the argument's name.

    Arrays are checked where they are read, because they have to fit each other; options of a TypedDict by
    `fill_options`.
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        args, named = check_arguments(function, args, named, typing.get_type_hints(function).keys())
        return function(*args, **named)

    return typing.cast("F", call)


@contextmanager
def inside(argument: str) -> Iterator[None]:
    """Let errors about parts of an argument name it, too.

    Example:
        >>> with inside("train_data"):
        ...     raise ValueError("`labels` must be integers.")
        Traceback (most recent call last):
            ...
        ValueError: `train_data`: `labels` must be integers.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"`{argument}`: {error}") from error


def check_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], names: Collection[str] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of one call, checked against the annotations of a function; `names` are all by default."""
    try:
        bound = inspect.signature(function).bind(*args, **named)
    except TypeError:  # too many, too few or unknown ones: the call itself raises the error
        return args, named
    kinds = kinds_of(function)
    for name, value in bound.arguments.items():
        if name in kinds and (names is None or name in names):
            bound.arguments[name] = convert(value, kinds[name], name)
    return bound.args, bound.kwargs


def fill_options(kind: type[T], options: Mapping[str, Any]) -> T:
    """Return the options of a TypedDict, checked against their types and completed by their defaults."""
    fields = {field.name: field for field in fields_of(kind)}
    complete = {name: field.default for name, field in fields.items()}
    for name, value in options.items():
        if name not in fields:
            raise TypeError(str(unknown("options", name, fields)))
        declared = fields[name].type
        complete[name] = convert(value, declared, name) if _is_checked(name, declared) else value
    return typing.cast("T", complete)


@functools.cache
def kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the arguments that are checked, those that a decorator lists included."""
    hints = typing.get_type_hints(function)
    kinds = {
        name: hints.get(name, parameter.annotation)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    return {name: kind for name, kind in kinds.items() if _is_checked(name, kind)}


def _is_checked(name: str, kind: Any) -> bool:
    return name not in _CHECKED_LATER and not _holds_arrays(kind)


def _holds_arrays(kind: Any) -> bool:
    if kind is Tensor or get_origin(kind) is np.ndarray:
        return True
    return get_origin(kind) is not Callable and any(map(_holds_arrays, get_args(kind)))
