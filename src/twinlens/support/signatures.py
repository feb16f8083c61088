"""Signatures and docstrings that list options declared elsewhere.

A function that takes `**how: Unpack[Options]` refers readers of the source to the options; `help`, editors and the API
reference list them one by one.
"""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from twinlens.support.fields import REQUIRED, Field, fields_of

F = TypeVar("F", bound=Callable[..., Any])


def lists_options(function: F) -> F:
    """Show the options of a function's `**name: Unpack[TypedDict]` in its signature and docstring."""
    [last] = [p for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
    kind = typing.get_args(typing.get_type_hints(function)[last.name])[0]
    show_options(function, fields_of(kind), instead_of=last.name)
    return function


def show_options(function: Callable[..., Any], options: Iterable[Field], *, instead_of: str) -> None:
    """Replace one parameter in a function's `__signature__` by options, and add their help to its `__doc__`."""
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
    lines, _, end = _arguments(inspect.getdoc(function) or "")
    entries = [line for option in options for line in _entry(option.name, option.help)]
    function.__doc__ = "\n".join([*lines[:end], *entries, *lines[end:]])


def with_all_arguments(docstring: str, texts: Mapping[str, str]) -> str:
    """Replace the section "Args" of a docstring by these arguments, in this order.

    Example:
        >>> print(with_all_arguments("Do it.", {"model": "Any model.", "seed": "Seed."}))
        Do it.
        <BLANKLINE>
        Args:
            model: any model.
            seed: seed.
    """
    lines, start, end = _arguments(docstring)
    entries = [line for name, text in texts.items() for line in _entry(name, text)]
    return "\n".join([*lines[: start + 1], *entries, *lines[end:]])


def arguments_of(docstring: str) -> dict[str, str]:
    """Return the text of each argument in the section "Args" of a docstring, on one line.

    Example:
        >>> arguments_of("Do it." + chr(10) * 2 + "Args:" + chr(10) + "    model: any," + chr(10) + "        or none.")
        {'model': 'any, or none.'}
    """
    lines, start, end = _arguments(docstring)
    texts: dict[str, str] = {}
    name = ""
    for line in lines[start + 1 : end]:
        if line.startswith(" " * 5) and name:
            texts[name] += f" {line.strip()}"
        elif line.strip():
            name, _, texts[name] = line.strip().partition(": ")
    return texts


def _arguments(docstring: str) -> tuple[list[str], int, int]:
    """Return the lines of a docstring, with the section "Args" added if necessary, its first line, and its end."""
    lines = docstring.splitlines()
    start = next((k for k, line in enumerate(lines) if line.strip() == "Args:"), None)
    if start is None:
        # Before other sections, such as "Returns:".
        titles = [k for k, line in enumerate(lines) if line in ("Returns:", "Raises:", "Example:")]
        start = titles[0] if titles else len(lines) + 1
        lines = [*lines[:start], "Args:", "", *lines[start:]] if titles else [*lines, "", "Args:"]
    end = next(
        (k for k in range(start + 1, len(lines)) if lines[k].strip() and not lines[k].startswith(" ")), len(lines)
    )
    while not lines[end - 1].strip():
        end -= 1
    return lines, start, end


def _entry(name: str, text: str) -> list[str]:
    # "Seed of …" continues in lower case after a colon, "CPUs of …" does not.
    lowered = text if text[1:2].isupper() else text[:1].lower() + text[1:]
    return textwrap.wrap(
        f"{name}: {lowered}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )
