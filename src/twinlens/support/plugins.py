"""Plug-ins: metrics and methods of other packages that are installed beside twinlens.

A package names what it has in its pyproject.toml, by entry points of these groups. Names come from the metadata of
installed packages; a plug-in is imported when it is used by its name, or explained.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from twinlens.errors import first_line

METRIC_PLUGINS, METHOD_PLUGINS = "twinlens.metrics", "twinlens.methods"


def with_plugins(own: Iterable[str], group: str) -> list[str]:
    """List names of ours, then those of a group of plug-ins, which cannot replace ours; nothing is imported.

    Example:
        >>> with_plugins(["soundness", "completeness"], "twinlens.nothing")
        ['soundness', 'completeness']
    """
    own = list(own)
    return [*own, *sorted(entry_points(group=group).names - set(own))]


def load_plugin(group: str, name: str) -> Any:
    """Import a plug-in, refusing one that fails, and a name that two packages claim."""
    found = list(entry_points(group=group, name=name))
    if len(found) > 1:
        raise ImportError(
            f"The plug-in {name!r} is in several packages, {' and '.join(map(_origin, found))}. Keep one."
        )
    try:
        return found[0].load()
    except Exception as error:
        raise ImportError(
            f"The plug-in {name!r} of {_origin(found[0])} cannot be imported: {type(error).__name__}: "
            f"{first_line(error)} Mend or uninstall that package."
        ) from error


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name if entry.dist else 'a package'} ({entry.value})"
