"""Errors of runs, models and data, and helpers for error messages.

Wrong arguments raise `ValueError` and `TypeError`. The classes here are for files, models and run directories; all are
`ValueError`s, which the command line prints in one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches

_NEAR = 0.7  # similarity of a suggested name; "gradcam" and "random" have 0.62


def printable_line(text: str) -> str:
    r"""Return text with control characters escaped: line breaks, colours, titles, text direction.

    Names of files and methods may contain any of them.

    Example:
        >>> print(printable_line("a" + chr(27) + "[2Jb" + chr(0x202E)))
        a\x1b[2Jb\u202e
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class DataError(ValueError):
    """An input file that cannot be used; the message is one printable line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable_line(str(message)))


class ModelError(ValueError):
    """A model, or its weights, that cannot be loaded as requested."""


class RunError(ValueError):
    """A run directory that cannot be used as requested."""


class DamagedError(RunError):
    """A file of a run directory whose content is not what was written.

    Example:
        >>> print(DamagedError("run/maps/rise/0.safetensors"))
        'run/maps/rise/0.safetensors' is damaged: its content does not match its checksum. Remove it and run the same
        command again to recreate it.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str = "its content does not match its checksum") -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason.rstrip(".")

    def __str__(self) -> str:
        return f"{str(self.path)!r} is damaged: {self.reason}. Remove it and run the same command again to recreate it."


def unknown(argument: str, value: object, names: Iterable[str], *, or_else: str = "") -> ValueError:
    """Return the error for a value that is not among the names, with a suggestion if one is close.

    Example:
        >>> unknown("methods", "gradcm", ["gradcam", "random"])
        ValueError("`methods` must be one of gradcam, random; got 'gradcm'. Did you mean 'gradcam'?")
    """
    names = list(names)
    near = get_close_matches(str(value), names, n=1, cutoff=_NEAR)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"`{argument}` must be one of {', '.join(names)}{or_else}; got {short_repr(value)}.{hint}")


def short_repr(value: object) -> str:
    """Return the repr of a value in one line of bounded length.

    Example:
        >>> short_repr("gradcam"), len(short_repr(list(range(1000))))
        ("'gradcam'", 198)
    """
    text = " ".join(repr(value).split())  # a tensor prints as many lines
    return text if len(text) <= 200 else f"{text[:197]}…"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class name where the message is empty.

    Example:
        >>> first_line(ValueError("one" + chr(10) + "two")), first_line(KeyboardInterrupt())
        ('one', 'KeyboardInterrupt')
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0]


def install_hint(extra: str) -> str:
    """Return the command that installs an optional part; the package is not on an index yet.

    Example:
        >>> install_hint("ray")
        'pip install ".[ray]" in a clone of twinlens'
    """
    return f'pip install ".[{extra}]" in a clone of twinlens'
