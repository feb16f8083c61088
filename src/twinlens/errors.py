"""Errors of runs, models and data, and sentences that help a person to mend one.

Callers get `ValueError` and `TypeError`. The three classes here are for what lies outside a call: files, models and run
directories. All of them are `ValueError`s, which the command line prints as one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches

_NEAR = 0.7  # how much alike a name is that was perhaps meant; "gradcam" and "random" are alike by 0.62


def printable_line(text: str) -> str:
    r"""Return text with escapes for whatever a terminal would obey: line breaks, colours, titles, other directions.

    Names of files, and of methods in a run from elsewhere, may hold any of them.

    Example:
        >>> print(printable_line("a" + chr(27) + "[2Jb" + chr(0x202E)))
        a\x1b[2Jb\u202e
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class DataError(ValueError):
    """A file of the user's that cannot be used; the message is one line that any terminal can print."""

    def __init__(self, message: str) -> None:
        super().__init__(printable_line(str(message)))


class ModelError(ValueError):
    """A model, or its weights, that cannot be loaded as requested."""


class RunError(ValueError):
    """A run directory that cannot be used as requested."""


class DamagedError(RunError):
    """A part of a run directory whose content is not what was written.

    Example:
        >>> print(DamagedError("run/maps/rise/0.safetensors"))
        'run/maps/rise/0.safetensors' is damaged: its content does not fit its checksum. Remove it and start the run
        again with the same command: what is missing is made anew.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str = "its content does not fit its checksum") -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason.rstrip(".")

    def __str__(self) -> str:
        return (
            f"{str(self.path)!r} is damaged: {self.reason}. Remove it and start the run again with the same command: "
            "what is missing is made anew."
        )


def unknown(argument: str, given: object, known: Iterable[str], *, or_else: str = "") -> ValueError:
    """Build the error for a name that is not among the known ones, with the near miss if there is one.

    Example:
        >>> unknown("methods", "gradcm", ["gradcam", "random"])
        ValueError("`methods` must be one of gradcam, random; got 'gradcm'. Did you mean 'gradcam'?")
    """
    names = list(known)
    near = get_close_matches(str(given), names, n=1, cutoff=_NEAR)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"`{argument}` must be one of {', '.join(names)}{or_else}; got {short_repr(given)}.{hint}")


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
