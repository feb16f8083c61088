"""The probe table: every answer of the model, one row per sample and level.

Shapes: N samples, L levels. Arrays named per row are (N, L); per sample (N,); per level (L,).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from twinlens.errors import DamagedError, first_line
from twinlens.probing.answers import task_of
from twinlens.probing.maps import AS_IT_IS, Reading
from twinlens.probing.ranking import Schedule
from twinlens.support.arrays import Floats, Integers
from twinlens.support.fields import from_json
from twinlens.support.files import check_expansion, read_whole, written_whole
from twinlens.support.memory import is_out_of_memory

FORMAT = 4
_ROWS = ("removed", "kept_mass", "predicted", "probability", "logit", "target_rank")


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Settings of the probing; only tables with equal settings can be joined."""

    schedule: Schedule
    imputer: str
    """The repr of the imputer."""

    seed: int
    """Seed of ties and noise, which derive from it, the sample's id and the level."""

    spatial: tuple[int, ...]
    """Shape of one map."""

    reading: Reading = AS_IT_IS
    segmented: bool = False
    """Whether segments joined positions of the maps into features."""

    def described(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        about = dataclasses.asdict(self)
        if about["schedule"]["part"] == "positive":  # as in tables from before maps had parts
            del about["schedule"]["part"]
        return about


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProbeTable:
    """The model's answers for every sample at every level, and how much attribution was kept there."""

    settings: ProbeSettings
    """Settings of the probing."""

    ids: tuple[str, ...]
    """One name per sample."""

    labels: NDArray[Any]
    """(N,) target class as int64, or target value as float64 for a regression model."""

    map_kinds: tuple[str, ...]
    """(N,) "regular", or a degenerate map: "constant" or "zero"."""

    removed: Integers
    """(N, L) number of features removed."""

    kept_mass: Floats
    """(N, L) attribution of the features that were kept, for maps scaled to a maximum of 1."""

    predicted: NDArray[Any]
    """(N, L) predicted class as int64, or predicted value as float64."""

    probability: Floats
    """(N, L) probability of the target class; NaN for a regression model."""

    logit: Floats
    """(N, L) logit of the target class; NaN for a regression model."""

    target_rank: Integers
    """(N, L) number of classes that the model puts before the target class; -1 for a regression model."""

    features: Integers | None = None
    """(N,) number of segments of each sample; None where each position of a map is a feature."""

    segments: Tensor | None = None
    """(N, *S) the segments that were probed, as long as the table is in memory; files do not hold them."""

    @property
    def counts(self) -> Integers:
        """(N,) number of features of each sample."""
        return np.full(len(self), math.prod(self.settings.spatial)) if self.features is None else self.features

    @property
    def levels(self) -> Floats:
        """(L,) the levels of the schedule."""
        return np.array(self.settings.schedule.levels)

    @property
    def task(self) -> str:
        """The kind of model by the type of its labels: "classification" or "regression"."""
        return task_of(self.labels)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(N, L) whether the target class was predicted."""
        return np.equal(self.target_rank, 0)

    @property
    def added_mass(self) -> Floats:
        """(N, L) attribution newly kept since the previous level; at the first level, all that is kept."""
        return np.diff(self.kept_mass, axis=1, prepend=0.0)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        schedule = self.settings.schedule
        return (
            f"ProbeTable({len(self)} samples × {len(schedule.levels)} levels, "
            f"by {schedule.by}, {schedule.order}, {self.task})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProbeTable):
            return NotImplemented
        return self.digest() == other.digest()

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def _rows(column: Callable[[str], Any]) -> dict[str, Any]:
        return {name: column(name) for name in _ROWS}

    def take(self, positions: Sequence[int] | NDArray[np.integer]) -> ProbeTable:
        """Return the table of the samples at these positions, in this order."""
        index = np.asarray(positions, dtype=np.int64)
        return dataclasses.replace(
            self,
            ids=tuple(self.ids[i] for i in index),
            map_kinds=tuple(self.map_kinds[i] for i in index),
            labels=self.labels[index],
            features=None if self.features is None else self.features[index],
            segments=None if self.segments is None else self.segments[index],
            **self._rows(lambda name: getattr(self, name)[index]),
        )

    @staticmethod
    def concatenate(tables: Sequence[ProbeTable], *, repeated: bool = False) -> ProbeTable:
        """Join tables with the same settings; samples may occur twice only with `repeated`."""
        if not tables:
            raise ValueError("`tables` must hold at least one probe table; got none.")
        first = tables[0]
        for position, table in enumerate(tables):
            if table.settings != first.settings:
                raise ValueError(
                    f"`tables` must have the same settings; table {position} differs from the first: "
                    f"{_difference(first.settings, table.settings)}."
                )
        ids = [name for table in tables for name in table.ids]
        if not repeated and len(set(ids)) != len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise ValueError(f"`tables` must hold different samples; {twice!r} occurs more than once.")
        return dataclasses.replace(
            first,
            segments=None,
            ids=tuple(ids),
            map_kinds=tuple(kind for table in tables for kind in table.map_kinds),
            labels=np.concatenate([table.labels for table in tables]),
            features=None if first.features is None else np.concatenate([table.counts for table in tables]),
            **ProbeTable._rows(lambda name: np.concatenate([getattr(table, name) for table in tables])),
        )

    def join_levels(self, *others: ProbeTable, levels: Sequence[float] | None = None) -> ProbeTable:
        """Join tables of the same samples and settings at different levels, all of them or those in `levels`."""
        schedule, tables = self.settings.schedule, (self, *others)
        for table in others:
            same_levels = dataclasses.replace(table.settings.schedule, levels=schedule.levels)
            if dataclasses.replace(table.settings, schedule=same_levels) != self.settings or table.ids != self.ids:
                raise ValueError("`others` must hold the same samples with the same settings, except for the levels.")
        probed = [(table, k, level) for table in tables for k, level in enumerate(table.settings.schedule.levels)]
        joined = tuple(level for *_, level in probed) if levels is None else tuple(levels)
        first = {level: (table, k) for table, k, level in reversed(probed)}
        if missing := [level for level in joined if level not in first]:
            raise ValueError(f"`levels` must have been probed; level {missing[0]:g} is in none of the tables.")
        columns = [first[level] for level in joined]
        rows = self._rows(lambda name: np.stack([getattr(table, name)[:, k] for table, k in columns], axis=1))
        settings = dataclasses.replace(self.settings, schedule=dataclasses.replace(schedule, levels=joined))
        return dataclasses.replace(self, settings=settings, **rows)

    def with_original(self, original: ProbeTable, *, level: float) -> ProbeTable:
        """Add a first level at which nothing is removed, from a table of the same samples that has one."""
        whole = original.level_without_removal(self.ids)
        schedule = dataclasses.replace(self.settings.schedule, levels=(level, *self.settings.schedule.levels))
        rows = self._rows(
            lambda name: np.concatenate([getattr(original, name)[:, [whole]], getattr(self, name)], axis=1)
        )
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, schedule=schedule), **rows)

    def level_without_removal(self, ids: tuple[str, ...]) -> int:
        """Return the position of a level that removes nothing, refusing a table of other samples than `ids`."""
        whole = np.flatnonzero((self.removed == 0).all(axis=0))
        if self.ids != ids or not whole.size:
            raise ValueError("`original` must hold the same samples in the same order at a level that removes nothing.")
        return int(whole[0])

    def to_frame(self) -> pd.DataFrame:
        """Return the table in long form, one row per sample and level."""
        n, levels = len(self), self.levels
        per_sample = {"sample": self.ids, "label": self.labels, "map_kind": self.map_kinds, **self._segmented}
        columns: dict[str, Any] = {name: np.repeat(np.asarray(v), len(levels)) for name, v in per_sample.items()}
        columns["level"] = np.tile(levels, n)
        columns |= {name: getattr(self, name).ravel() for name in _ROWS}
        columns |= {"added_mass": self.added_mass.ravel(), "correct": self.correct.ravel()}
        return pd.DataFrame(columns)

    @property
    def _segmented(self) -> dict[str, Integers]:
        return {} if self.features is None else {"features": self.features}

    def digest(self) -> str:
        """Hash the content: settings, samples and all answers."""
        about = [self.settings.described(), self.ids, self.map_kinds]
        digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
        for name in ("labels", *self._segmented, *_ROWS):
            values = getattr(self, name)
            if values.dtype.kind == "f":  # NaN has many forms in memory and one in Parquet
                values = np.where(np.isnan(values), np.nan, values)
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode() + np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Return the table as a Parquet file, with a digest of its content."""
        about = {"format": FORMAT, "digest": self.digest(), **self.settings.described()}
        arrow = pa.Table.from_pandas(self.to_frame(), preserve_index=False)
        arrow = arrow.replace_schema_metadata({"twinlens": json.dumps(about, sort_keys=True)})
        file = io.BytesIO()
        pq.write_table(arrow, file)
        return file.getvalue()

    @staticmethod
    def from_bytes(content: bytes, path: str | os.PathLike[str] = "a probe table") -> ProbeTable:
        """Read a table that `to_bytes` wrote.

        Raises:
            DamagedError: if the content is not what was written; `path` is named in the error.
        """
        try:
            file = pq.ParquetFile(io.BytesIO(content))
            parts = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
            check_expansion(len(content), 8 * sum(part.num_rows * part.num_columns for part in parts))
            return ProbeTable._read(file.read(), path)
        except DamagedError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError, pa.ArrowException) as error:
            if is_out_of_memory(error):
                raise
            raise DamagedError(path, first_line(error)) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as Parquet, with a digest of its content; the file appears when it is complete."""
        with written_whole(path) as unfinished:
            unfinished.write_bytes(self.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> ProbeTable:
        """Read a table that `save` wrote.

        Raises:
            DamagedError: if the content is not what was written.
        """
        try:
            content = read_whole(path)
        except ValueError as error:
            raise DamagedError(path, first_line(error)) from None
        return ProbeTable.from_bytes(content, path)

    @staticmethod
    def _read(arrow: Any, path: str | os.PathLike[str]) -> ProbeTable:
        metadata = (arrow.schema.metadata or {}).get(b"twinlens")
        if metadata is None:
            raise DamagedError(path, "it is not a probe table of twinlens")
        stored = json.loads(metadata)
        if (version := stored.pop("format")) != FORMAT:
            raise DamagedError(path, f"it has format {version}, and this twinlens reads {FORMAT}")
        digest = stored.pop("digest")
        settings = from_json(ProbeSettings, stored, "settings")
        levels = len(settings.schedule.levels)
        column = {name: arrow.column(name).to_numpy() for name in ("label", *_ROWS)}
        names, kinds = (arrow.column(name).to_pylist()[::levels] for name in ("sample", "map_kind"))
        table = ProbeTable(
            settings=settings,
            ids=tuple(names),
            map_kinds=tuple(kinds),
            labels=column["label"][::levels].copy(),
            features=arrow.column("features").to_numpy()[::levels].copy() if settings.segmented else None,
            **ProbeTable._rows(lambda name: column[name].reshape(-1, levels)),
        )
        if table.digest() != digest:
            raise DamagedError(path)
        return table


def _difference(one: ProbeSettings, other: ProbeSettings) -> str:
    a, b = dataclasses.asdict(one), dataclasses.asdict(other)
    return "; ".join(f"{name} is {b[name]!r} instead of {a[name]!r}" for name in a if a[name] != b[name])
