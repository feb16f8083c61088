"""Our metrics as metrics of torchmetrics: `update` probes a batch, `compute` reads the probes of all processes.

    from twinlens.integrations.torchmetrics import Soundness

    soundness = Soundness(sign="positive")
    for inputs, labels in loader:
        soundness.update(model, inputs, labels, explain(inputs, labels))
    soundness.compute()

The state is the probe table, whose rows depend on their sample alone. It is gathered by concatenation, and every
decision is taken in `compute`, so that several processes come to the same value as one.

Shapes: N samples, L levels of all sweeps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.integrations.scoring import check_by_sample, offers, options_of, scores_of, split_options
from twinlens.metrics.curves import Curve
from twinlens.metrics.measuring import probe_samples
from twinlens.probing.maps import read_as
from twinlens.probing.model_call import ANSWER, Labels, Model, check_inputs, check_labels
from twinlens.probing.probe_table import ProbeSettings, ProbeTable
from twinlens.support.arrays import ArrayLike, as_array, as_tensor
from twinlens.support.fields import convert

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as error:
    raise ImportError("twinlens.integrations.torchmetrics needs torchmetrics: pip install torchmetrics") from error

_COLUMNS = ("removed", "kept_mass", *ANSWER)
_WHOLE = ("removed", "target_rank")
_MAP_KINDS = ("regular", "constant", "zero")


class SampleMetric(Metric):
    """A metric whose state is a probe table."""

    is_differentiable = False
    full_state_update = False
    kind: ClassVar[str]

    # All of them flat float64, which holds their numbers exactly: torchmetrics can then gather them from processes
    # with any number of samples, also none.
    shapes: list[Tensor]
    """(1 + dimensions) of each batch: number of dimensions of a map, and its shape."""
    names: list[Tensor]
    """The ids, as bytes of UTF-8."""
    samples: list[Tensor]
    """(N, 4) label, 1 if it is one of regression, kind of map, and length of the id."""
    answers: list[Tensor]
    """(N, L, 6) the columns of the probe tables, one sweep after the other."""

    def __init__(self, *, reduction: Literal["area", "none"] = "area", **options: Any) -> None:
        own = {field.name for field in options_of(self.kind)}
        super().__init__(**{name: value for name, value in options.items() if name not in own})
        self.metric, self.how = split_options(self.kind, {k: v for k, v in options.items() if k in own})
        self.reduction = convert(reduction, Literal["area", "none"], "reduction")
        if self.reduction == "none":
            check_by_sample(self.metric)
        for state in ("shapes", "names", "samples", "answers"):
            self.add_state(state, default=[], dist_reduce_fx="cat")
        self.set_dtype(torch.float64)

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether a larger value speaks for the maps."""
        return self.metric.about.higher_is_better

    def update(
        self,
        model: Model,
        inputs: ArrayLike,
        labels: Labels,
        maps: ArrayLike,
        ids: Sequence[str | int] | None = None,
    ) -> None:
        """Probe a batch.

        Args:
            model: see `twinlens.probe`.
            inputs: (N, C, *S), or (N, D) for tabular rows.
            labels: (N,) target classes, or target values for a regression model.
            maps: attribution maps, (N, *S).
            ids: one name per sample, unique in all batches and processes, by which ties and noise are drawn. By default
                a hash of the input and its label, which is the same in whatever batch and process a sample comes. One
                that comes again with the same map, as where a sampler fills up the last batch, counts once.
        """
        values, numbers = check_inputs(inputs, ids)
        names = content_ids(values, check_labels(labels, numbers)) if ids is None else list(numbers)
        given = as_tensor(maps, "maps").detach()
        if ids is None and given.dim() > 0 and len(given) == len(names):
            keep = distinct(names, given.to("cpu", torch.float64).numpy())
            names = [names[position] for position in keep]
            inputs, labels, maps = (_rows(each, keep) for each in (inputs, labels, maps))
        tables = probe_samples(self.metric, model, inputs, labels, maps, {**self.how, "ids": names})
        for state, column in pack(tables).items():
            getattr(self, state).append(torch.from_numpy(column).to(self.device))

    def compute(self) -> Tensor:
        """Return the area of the curve of all samples; with reduction="none", one score per sample.

        Scores stand in the order of updates, one process after the other. NaN is what is not defined.
        """
        curve = self._read()
        if self.reduction == "area":
            area = curve.area()
            return torch.tensor(math.nan if area is None else area, dtype=torch.float64, device=self.device)
        scores = dict(zip(curve.table.ids, scores_of(curve), strict=True))
        ordered = np.array([scores[name] for name in dict.fromkeys(self._ids())])
        return torch.from_numpy(ordered).to(self.device)

    def curve(self) -> Curve:
        """Return the curve of all samples; where there are several processes, call it in each of them."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.sync_on_compute):
            return self._read()

    def _read(self) -> Curve:
        return self.metric.read(self._tables())

    def _column(self, state: str) -> NDArray[np.float64]:
        values = getattr(self, state)
        if isinstance(values, list) and not values:
            raise ValueError(f"{type(self).__name__} has seen no samples. Call update() before compute().")
        return np.asarray(dim_zero_cat(values).cpu().numpy())

    def _ids(self) -> list[str]:
        lengths = self._column("samples").reshape(-1, 4)[:, 3].astype(np.int64)
        text = self._column("names").astype(np.uint8).tobytes()
        ends = np.cumsum(lengths).tolist()
        return [text[end - length : end].decode() for end, length in zip(ends, lengths.tolist(), strict=True)]

    def _tables(self) -> list[ProbeTable]:
        """Put the tables together, one per sweep, in the order of ids: sums then end in the same bits."""
        ids, spatial = self._ids(), one_shape(self._column("shapes"))
        labels, regression, kinds, _ = self._column("samples").reshape(len(ids), 4).T
        whole = (*_WHOLE, "predicted") if not regression.any() else _WHOLE
        answers = self._column("answers").reshape(len(ids), -1, len(_COLUMNS))
        order = sorted(distinct(ids, answers[:, :, _COLUMNS.index("kept_mass")]), key=ids.__getitem__)
        found, start = [], 0
        for sweep in self.metric.sweeps(math.prod(spatial)):
            part = answers[:, start : start + len(sweep.schedule.levels)]
            start += part.shape[1]
            columns: dict[str, Any] = {
                name: part[..., k].astype(np.int64 if name in whole else np.float64) for k, name in enumerate(_COLUMNS)
            }
            settings = ProbeSettings(
                schedule=sweep.schedule,
                imputer=getattr(sweep.imputer, "__qualname__", repr(sweep.imputer)),
                seed=self.how.get("seed", 0),
                spatial=spatial,
                reading=read_as(**{n: self.how[n] for n in ("sign", "channels", "resize") if n in self.how}),
            )
            table = ProbeTable(
                settings=settings,
                ids=tuple(ids),
                labels=labels if regression.any() else labels.astype(np.int64),
                map_kinds=tuple(_MAP_KINDS[int(kind)] for kind in kinds),
                **columns,
            )
            found.append(table.take(order))
        return found


@offers("soundness")
class Soundness(SampleMetric):
    """Share of the attribution that rests on predictive features: the more, the better."""

    kind = "soundness"


@offers("completeness")
class Completeness(SampleMetric):
    """Probability lost with the features that the map marks: the more, the better."""

    kind = "completeness"


@offers("road")
class Road(SampleMetric):
    """Probability lost as features are removed by rank and imputed linearly (ROAD)."""

    kind = "road"


@offers("deletion")
class Deletion(SampleMetric):
    """Probability lost as the most relevant features are set to a constant first: the more, the better."""

    kind = "deletion"


@offers("insertion")
class Insertion(SampleMetric):
    """Probability still lost as the most relevant features are put into a blurred input: the less, the better."""

    kind = "insertion"


def pack(tables: Sequence[ProbeTable]) -> dict[str, NDArray[np.float64]]:
    """Write probe tables of one batch, one per sweep, as flat columns of numbers, by the name of their state."""
    first, names = tables[0], [name.encode() for name in tables[0].ids]
    samples = np.stack(
        [
            first.labels,
            np.full(len(first), first.task == "regression"),
            [_MAP_KINDS.index(kind) for kind in first.map_kinds],
            [len(name) for name in names],
        ],
        axis=1,
    )
    answers = [np.stack([getattr(table, name) for name in _COLUMNS], axis=2) for table in tables]
    spatial = first.settings.spatial
    columns = {
        "shapes": np.array([len(spatial), *spatial]),
        "names": np.frombuffer(b"".join(names), dtype=np.uint8),
        "samples": samples.ravel(),
        "answers": np.concatenate(answers, axis=1).ravel(),
    }
    return {state: column.astype(np.float64) for state, column in columns.items()}


def one_shape(shapes: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the shape of the maps of all batches, refusing more than one.

    Example:
        >>> one_shape(np.array([2.0, 8, 8, 2, 8, 8]))
        (8, 8)
    """
    numbers = shapes.astype(int).tolist()
    first = numbers[: 1 + numbers[0]]
    if numbers != first * (len(numbers) // len(first)):
        raise ValueError("`inputs` must have the same size in all batches; they differ in theirs.")
    return tuple(first[1:])


def content_ids(inputs: Tensor, labels: NDArray[Any]) -> list[str]:
    """Name each sample by a hash of its input and label.

    Example:
        >>> first, again, other = content_ids(torch.tensor([[1.0, 2.0]]).expand(3, 2), np.array([0, 0, 1]))
        >>> first == again, first == other
        (True, False)
    """
    named = zip(inputs.detach().cpu(), labels.tolist(), strict=True)
    return [
        hashlib.blake2b(
            bytes(each.flatten().view(torch.uint8).numpy()), key=repr(label).encode(), digest_size=16
        ).hexdigest()
        for each, label in named
    ]


def _rows(values: Any, positions: Sequence[int]) -> Any:
    return values[positions] if isinstance(values, Tensor) else as_array(values, "values")[positions]


def distinct(ids: Sequence[str], maps: NDArray[Any]) -> list[int]:
    """Return the positions of samples, each once, refusing one name of two maps.

    Example:
        >>> distinct(["a", "b", "a"], np.array([1, 2, 1]))
        [0, 1]
    """
    first: dict[str, int] = {}
    for position, name in enumerate(ids):
        if not np.array_equal(maps[first.setdefault(name, position)], maps[position]):
            raise ValueError(
                f"`ids` must name a sample each, in all batches and processes; {name!r} names two with different maps. "
                "Pass to update() names that differ, such as positions in the data set."
            )
    return list(first.values())
