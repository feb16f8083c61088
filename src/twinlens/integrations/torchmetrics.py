"""Our metrics as metrics of torchmetrics: `update` probes a batch, `compute` reads the probes of all processes.

    from twinlens.integrations.torchmetrics import Soundness

    soundness = Soundness(sign="positive")
    for inputs, labels in loader:
        soundness.update(model, inputs, labels, explain(inputs, labels))
    soundness.compute()

Tables of several processes are concatenated, and `compute` takes every decision: several give the same value as one.

Shapes: N samples.
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

from twinlens.integrations.scoring import BY_SAMPLE, HOW, metric_classes, sample_metric, scores_of
from twinlens.metrics.curves import Curve
from twinlens.metrics.measuring import options_of, probe_samples, split_options
from twinlens.probing.model_call import Labels, Model, check_inputs, check_labels
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arrays import ArrayLike, as_array, as_tensor
from twinlens.support.fields import convert

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
except ModuleNotFoundError as error:
    raise ImportError("twinlens.integrations.torchmetrics needs torchmetrics: pip install torchmetrics") from error


class SampleMetric(Metric):
    """A metric whose state is a probe table."""

    is_differentiable = False
    full_state_update = False
    kind: ClassVar[str]

    probes: list[Tensor]
    """The probe tables of each batch as bytes, which can be gathered from processes with any number of samples."""

    def __init__(self, *, reduction: Literal["area", "none"] = "area", **options: Any) -> None:
        names = {field.name for field in options_of(BY_SAMPLE[self.kind], HOW)}
        own = {name: options.pop(name) for name in names & options.keys()}
        super().__init__(**options)
        self.reduction = convert(reduction, Literal["area", "none"], "reduction")
        if self.reduction == "none":
            self.metric, self.how = sample_metric(self.kind, own)
        else:
            self.metric, self.how = split_options(BY_SAMPLE[self.kind], own, HOW)
        self.add_state("probes", default=[], dist_reduce_fx="cat")
        self.set_dtype(torch.uint8)  # also that of a process without samples

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether a larger value is better for the maps."""
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
                a hash of the input and its label. A sample that comes again with the same map, as where a sampler fills
                up the last batch, counts once.
        """
        values, numbers = check_inputs(inputs, ids)
        names = content_ids(values, check_labels(labels, numbers)) if ids is None else list(numbers)
        values = as_tensor(maps, "maps").detach()
        if ids is None and values.dim() > 0 and len(values) == len(names):
            keep = distinct(names, list(values.to("cpu", torch.float64).numpy()))
            names = [names[position] for position in keep]
            inputs, labels, maps = (_rows(each, keep) for each in (inputs, labels, maps))
        tables = probe_samples(self.metric, model, inputs, labels, maps, {**self.how, "ids": names})
        for content in [table.to_bytes() for table in tables]:
            framed = bytearray(len(content).to_bytes(8, "little") + content)
            self.probes.append(torch.frombuffer(framed, dtype=torch.uint8).to(self.device))

    def compute(self) -> Tensor:
        """Return the area of the curve of all samples; with reduction="none", one score per sample.

        Scores are in the order of updates, one process after the other; NaN where they are not defined.
        """
        tables, names = self._tables()
        curve = self.metric.read(tables)
        if self.reduction == "area":
            area = curve.area()
            return torch.tensor(math.nan if area is None else area, dtype=torch.float64, device=self.device)
        scores = dict(zip(curve.table.ids, scores_of(curve), strict=True))
        return torch.tensor([scores[name] for name in names], dtype=torch.float64, device=self.device)

    def curve(self) -> Curve:
        """Return the curve of all samples; where there are several processes, call it in each of them."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.sync_on_compute):
            return self.metric.read(self._tables()[0])

    def _tables(self) -> tuple[list[ProbeTable], list[str]]:
        """Return one table per sweep, in the order of ids, and the ids in the order of updates.

        The order of ids makes sums reproducible to the last bit.
        """
        if isinstance(self.probes, list) and not self.probes:
            raise ValueError(f"{type(self).__name__} has seen no samples. Call update() before compute().")
        content, tables = dim_zero_cat(self.probes).cpu().numpy().tobytes(), []
        while content:
            end = 8 + int.from_bytes(content[:8], "little")
            tables.append(ProbeTable.from_bytes(content[8:end]))
            content = content[end:]
        sweeps = len(self.metric.sweeps(None))
        names = [name for table in tables[::sweeps] for name in table.ids]
        first = distinct(names, [row for table in tables[::sweeps] for row in table.kept_mass])
        ids = [names[position] for position in first]
        order = sorted(first, key=names.__getitem__)
        joined = [ProbeTable.concatenate(tables[k::sweeps], repeated=True).take(order) for k in range(sweeps)]
        return joined, ids


Soundness, Completeness, Road, Deletion, Insertion = metric_classes(SampleMetric)


def content_ids(inputs: Tensor, labels: NDArray[Any]) -> list[str]:
    """Name each sample by a hash of its input and label."""
    named = zip(inputs.detach().cpu(), labels.tolist(), strict=True)
    return [
        hashlib.blake2b(
            bytes(each.flatten().view(torch.uint8).numpy()), key=repr(label).encode(), digest_size=16
        ).hexdigest()
        for each, label in named
    ]


def _rows(values: Any, positions: Sequence[int]) -> Any:
    return values[positions] if isinstance(values, Tensor) else as_array(values, "values")[positions]


def distinct(ids: Sequence[str], maps: Sequence[NDArray[Any]]) -> list[int]:
    """Return the positions of distinct samples; refuse a name with two different maps."""
    first: dict[str, int] = {}
    for position, name in enumerate(ids):
        if not np.array_equal(maps[first.setdefault(name, position)], maps[position]):
            raise ValueError(
                f"`ids` must name a sample each, in all batches and processes; {name!r} names two with different maps. "
                "Pass to update() names that differ, such as positions in the data set."
            )
    return list(first.values())
