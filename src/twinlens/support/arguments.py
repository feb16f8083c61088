"""Arguments of public functions, checked against their annotations before anything is done with them."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
from torch import Tensor

from twinlens.support.fields import convert

F = TypeVar("F", bound=Callable[..., Any])
_FITTED = ("ids", "imputer")  # which are checked with the samples, and looked up by name


def checked(function: F) -> F:
    """Let a function refuse an argument that is not of its declared type, by the argument's name.

    Arrays are left to whoever reads them, because they have to fit each other.

    Example:
        >>> @checked
        ... def count(values: Tensor, *, steps: int = 3) -> int:
        ...     return steps
        >>> count([1], steps=1.5)
        Traceback (most recent call last):
            ...
        TypeError: `steps` must be a whole number; got 1.5.
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        args, named = check_arguments(function, args, named)
        return function(*args, **named)

    return typing.cast("F", call)


def check_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Check the arguments of one call against the annotations of a function, and bring them to their form."""
    try:
        given = inspect.signature(function).bind(*args, **named)
    except TypeError:  # too many, too few or unknown ones: Python, or the function, knows what to say
        return args, named
    kinds = kinds_of(function)
    for name, value in given.arguments.items():
        if name in kinds:
            given.arguments[name] = convert(value, kinds[name], name)
    return given.args, given.kwargs


@functools.cache
def kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the arguments that are checked; those of options that are declared elsewhere are at hand."""
    hints = typing.get_type_hints(function)
    kinds = {
        name: hints.get(name, parameter.annotation)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _FITTED
    }
    return {name: kind for name, kind in kinds.items() if not _holds_arrays(kind)}


def _holds_arrays(kind: Any) -> bool:
    if kind is Tensor or get_origin(kind) is np.ndarray:
        return True
    return get_origin(kind) is not Callable and any(map(_holds_arrays, get_args(kind)))
