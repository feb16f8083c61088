"""Orders of segments that a search has found, kept in a file so that it can go on after an interruption."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twinlens.errors import RunError
from twinlens.support.fields import JSON, check_types, from_json, to_json
from twinlens.support.files import as_path, read_whole, write_json

_FORMAT = 1
_SAME = 1e-3  # relative difference of answers that another machine or batch may make


@dataclass(frozen=True, kw_only=True)
class KeptOrder:
    """The order of one sample, and what it belongs to."""

    digest: str
    """Hash of the input, its segments and its label."""

    answer: float
    """What the model says of the input."""

    order: tuple[int, ...] = ()
    """All segments, the most relevant first."""

    def of_same(self, other: KeptOrder) -> bool:
        """Return whether two orders are of the same sample, by a model that answers the same."""
        near = abs(self.answer - other.answer) <= _SAME * (1 + abs(other.answer))
        return self.digest == other.digest and near and sorted(self.order) == list(range(len(self.order)))


@dataclass(frozen=True, kw_only=True)
class _File:
    """What the file holds."""

    format: int = _FORMAT
    metric: Mapping[str, JSON]
    width: int
    seed: int
    orders: Mapping[str, KeptOrder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self)


class OrderStore:
    """Orders by the id of their sample, in a file or nowhere."""

    def __init__(
        self, path: str | os.PathLike[str] | None, *, metric: Mapping[str, JSON], width: int, seed: int
    ) -> None:
        self.path: Path | None = None if path is None else as_path(path)
        self._file = _File(metric=json.loads(json.dumps(metric)), width=width, seed=seed)
        if self.path is not None and self.path.exists():
            self._file = self._read(self.path)

    def _read(self, path: Path) -> _File:
        try:
            stored = from_json(_File, json.loads(read_whole(path)), path.name)
        except (ValueError, TypeError) as error:
            raise RunError(f"`out` {str(path)!r} holds no orders of `ceiling`, or is damaged: {error}") from None
        if dataclasses.replace(stored, orders={}) != self._file:
            raise RunError(
                f"`out` {str(path)!r} holds orders of another search: its metric, width or seed differs. Choose "
                "another file."
            )
        return stored

    def find(self, name: str, wanted: KeptOrder) -> tuple[int, ...] | None:
        """Return the order of a sample where it is known."""
        stored = self._file.orders.get(name)
        return stored.order if stored is not None and stored.of_same(wanted) else None

    def keep(self, name: str, found: KeptOrder) -> None:
        """Add an order, and write the file anew."""
        self._file = dataclasses.replace(self._file, orders={**self._file.orders, name: found})
        if self.path is not None:
            write_json(self.path, to_json(self._file))
