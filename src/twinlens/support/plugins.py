"""Plug-ins: objects that installed packages offer by entry points.

Names come from the metadata of installed packages; a plug-in is imported when it is used by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from twinlens.errors import first_line


def with_plugins(own: Iterable[str], group: str) -> list[str]:
    """List our own names, then those of a group of plug-ins, which cannot replace ours; nothing is imported.

    Example:
        >>> with_plugins(["a", "b"], "no.such.group")
        ['a', 'b']
    """
    own = list(own)
    return [*own, *sorted(entry_points(group=group).names - set(own))]


def load_plugin(group: str, name: str) -> Any:
    """Import a plug-in; refuse one that fails, and a name that two packages claim."""
    entries = list(entry_points(group=group, name=name))
    if len(entries) > 1:
        raise ImportError(
            f"The plug-in {name!r} is in several packages, {' and '.join(map(_origin, entries))}. Keep one."
        )
    try:
        return entries[0].load()
    except Exception as error:
        raise ImportError(
            f"The plug-in {name!r} of {_origin(entries[0])} cannot be imported: {type(error).__name__}: "
            f"{first_line(error)} Fix or uninstall that package."
        ) from error


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist else 'a package'} ({entry.value})"
