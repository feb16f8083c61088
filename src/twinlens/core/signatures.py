"""Signatures and docstrings that list options which are declared elsewhere, once.

A function that takes `**how: Unpack[Options]` shows a reader of the source where the options are; `help`, an editor and
the API reference have to list them one by one.
"""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from twinlens.core.fields import REQUIRED, Field, fields_of

F = TypeVar("F", bound=Callable[..., Any])


def lists_options(*declared: type) -> Callable[[F], F]:
    """Show the options of a function's `**name: Unpack[TypedDict]` in its signature and docstring.

    Args:
        *declared: classes whose fields explain further arguments of the function, those without an entry of their own.
    """

    def decorate(function: F) -> F:
        [last] = [p for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
        kind = typing.get_args(typing.get_type_hints(function)[last.name])[0]
        own = {field.name: field for each in declared for field in fields_of(each)}
        entries = [own[name] for name in inspect.signature(function).parameters if name in own]
        function.__doc__ = with_arguments(inspect.getdoc(function) or "", entries)
        show_options(function, fields_of(kind), instead_of=last.name)
        return function

    return decorate


def show_options(function: Callable[..., Any], options: Iterable[Field], *, instead_of: str) -> None:
    """Put options in the place of one parameter of a function's signature, and their help into its docstring.

    Args:
        function: whose `__signature__` and `__doc__` are set.
        options: the options.
        instead_of: the parameter that stands for all of them.
    """
    options = list(options)
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != instead_of]
    parameters += [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if option.default is REQUIRED else option.default,
            annotation=option.type,
        )
        for option in options
    ]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__doc__ = with_arguments(inspect.getdoc(function) or "", options)


def with_arguments(docstring: str, options: Iterable[Field]) -> str:
    """Add options to the section "Args" of a docstring, behind what stands there.

    Example:
        >>> print(with_arguments("Do it." + chr(10) * 2 + "Args:" + chr(10) + "    model: what.", []))
        Do it.
        <BLANKLINE>
        Args:
            model: what.
    """
    lines = docstring.splitlines()
    start = next((k for k, line in enumerate(lines) if line.strip() == "Args:"), None)
    if start is None:
        lines += ["", "Args:"]
        start = len(lines) - 1
    end = next(
        (k for k in range(start + 1, len(lines)) if lines[k].strip() and not lines[k].startswith(" ")), len(lines)
    )
    while not lines[end - 1].strip():
        end -= 1
    entries = [line for option in options for line in _entry(option)]
    return "\n".join([*lines[:end], *entries, *lines[end:]])


def _entry(option: Field) -> list[str]:
    # "Seed of …" goes on in lower case after a colon, "CPUs of …" does not.
    lowered = option.help if option.help[1:2].isupper() else option.help[:1].lower() + option.help[1:]
    text = f"{option.name}: {lowered}"
    return textwrap.wrap(text, 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
