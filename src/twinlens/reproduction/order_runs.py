"""Runs of original and modified maps, for order-vs-value: our variant, which keeps the order, and the literal one.

In our variant, several modified maps share their order with another map. Probes by area are then equal, and only
completeness, which removes by value, is measured for each; soundness and calibration are computed from the other map's
probes.

Shapes: N samples, S = spatial shape of a map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from torch import Tensor

from twinlens.data.samples import Samples
from twinlens.laboratory.modifications import MODIFICATIONS, SCHEMES
from twinlens.metrics.curves import Curve
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import soundness_from_probes
from twinlens.metrics.step_curve import StepCurve, calibration, completeness_share, soundness_rank
from twinlens.models.loading import LoadedModel
from twinlens.outcome import Evaluation
from twinlens.probing.maps import normalise
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import count_removed, kept_mass, rank_features
from twinlens.reproduction.experiment import ExperimentOptions
from twinlens.reproduction.map_readings import StoredMaps
from twinlens.reproduction.method_comparison import FEW_LEVELS, compare_methods
from twinlens.support.arrays import Floats
from twinlens.support.correlation import pearson
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

METRICS = ("completeness", "soundness", "road_morf", "deletion")
VALUE_BASED, ORDER_BASED = METRICS[:2], METRICS[2:]
STEPS = {"soundness_rank": soundness_rank, "completeness_share": completeness_share, "calibration": calibration}
COLUMNS = (*METRICS, *STEPS, "road_lerf")
"""The metrics of the paper's table, and ours beside them."""

OURS, LITERAL = VARIANTS = ("ours", "literal")
ORIGINAL = "original"
MAPS = (ORIGINAL, *MODIFICATIONS)
SHOWN = ("gradcam", "constant")
"""Method and scheme of the figure."""

_FIRST = SCHEMES[0], ORIGINAL  # the original is the same for every scheme
_CASES = tuple(product(SCHEMES, MODIFICATIONS))
_REORDERED = (("random", "introduce"), ("partial", "remove"), ("partial", "introduce"))
_SAME_ORDER: dict[tuple[str, str], tuple[str, ...]] = {
    ("constant", "remove"): (),
    ("constant", "introduce"): (),
    ("random", "remove"): ("random", "introduce"),
}
"""Maps of our variant that have the order of others: of the original, or of another modification."""

_ABSOLUTE = Completeness(relative=False)  # thresholds relative to a modified maximum would undo part of the change


Versions = Mapping[str, Mapping[str, Curve]]
"""Curves of the original and the modified maps of one method by one scheme, by version and metric."""


class Runs:
    """Runs of the original and the modified maps, and their curves by method and scheme."""

    def __init__(
        self,
        model: LoadedModel,
        samples: Samples,
        methods: Mapping[str, Any],
        options: ExperimentOptions,
        progress: Progress,
    ) -> None:
        self.methods, self.seed, self.ids = methods, options.seed, samples.ids
        self._compare = partial(
            compare_methods,
            model,
            samples,
            options=options,
            progress=progress,
            levels=FEW_LEVELS if options.embedded else None,
            batch_size=12 if options.embedded else 32,
            resamples=100,
        )
        self.modified = Modified(self._compare(methods, COLUMNS, folder="orders"))

    def _versions(self, cases: Sequence[tuple[str, str]], variant: str) -> dict[str, Any]:
        # A version identifies them. Their content changes when the run of the originals grows, which would prevent
        # resuming.
        return {
            _name(method, scheme, change): {
                "method": self.modified, "of": method, "change": change, "scheme": scheme, "variant": variant,
                "version": 1,
            }
            for method in self.methods
            for scheme, change in cases
        }  # fmt: skip

    def ours(self) -> dict[tuple[str, str], Versions]:
        """Measure our variant: one map of each order by area, and every map by value."""
        orders = self._compare({**self.methods, **self._versions(_REORDERED, OURS)}, COLUMNS, folder="orders")
        values = self._compare(self._versions(_CASES, OURS), {"completeness": _ABSOLUTE}, folder="values")
        curves = {(method, *_FIRST): {m: orders.curve(method, m) for m in COLUMNS} for method in self.methods}
        for method, case in product(self.methods, _CASES):
            complete = values.curve(_name(method, *case), "completeness")
            curves[method, *case] = {"completeness": complete, **self._by_area(orders, method, *case)}
        return self._grouped(curves)

    def _by_area(self, orders: Evaluation, method: str, scheme: str, change: str) -> dict[str, Curve]:
        """Return the curves of modified maps by area, from the probes of maps with the same order if there are any."""
        name = _name(method, *_SAME_ORDER.get((scheme, change), (scheme, change)))
        curves = {metric: orders.curve(name, metric) for metric in COLUMNS if metric != "completeness"}
        if (scheme, change) in _SAME_ORDER:
            sound, steps = curves["soundness"].table, curves["calibration"]
            assert isinstance(steps, StepCurve)
            table, joining = self._with_mass((sound, steps.table), method, scheme, change)
            curves["soundness"] = soundness_from_probes(table)
            curves |= {metric: read(joining, steps.opposite) for metric, read in STEPS.items()}
        return curves

    def _with_mass(self, tables: Sequence[ProbeTable], method: str, scheme: str, change: str) -> list[ProbeTable]:
        """Return probes of maps with the same order, with the attribution of modified maps."""
        masses: list[list[Floats]] = [[] for _ in tables]
        for start in range(0, len(tables[0]), self.modified.shard_size):
            ids = tables[0].ids[start : start + self.modified.shard_size]
            maps = modify(self.modified.originals(method, ids), change, scheme, OURS, ids=ids, seed=self.seed)
            ranking = rank_features(maps, ids=ids, seed=self.seed)
            for table, mass in zip(tables, masses, strict=True):
                schedule = table.settings.schedule
                mass.append(kept_mass(ranking, count_removed(ranking, schedule), schedule.order).numpy())
        return [dataclasses.replace(t, kept_mass=np.concatenate(mass)) for t, mass in zip(tables, masses, strict=True)]

    def literal(self) -> dict[tuple[str, str], Versions]:
        """Measure the paper's variant, in which every version has its own order."""
        metrics = {metric: metric for metric in COLUMNS} | {"completeness": _ABSOLUTE}
        cases = (_FIRST, *_CASES)
        evaluation = self._compare(self._versions(cases, LITERAL), metrics, folder="literal")
        return self._grouped(
            {
                (method, *case): {metric: evaluation.curve(_name(method, *case), metric) for metric in COLUMNS}
                for method, case in product(self.methods, cases)
            }
        )

    def _grouped(self, curves: Mapping[tuple[str, str, str], Mapping[str, Curve]]) -> dict[tuple[str, str], Versions]:
        return {
            (method, scheme): {
                ORIGINAL: curves[method, *_FIRST],
                **{change: curves[method, scheme, change] for change in MODIFICATIONS},
            }
            for method, scheme in product(self.methods, SCHEMES)
        }

    def order_kept(self, scheme: str, variant: str) -> Estimate:
        """Estimate the mean rank correlation of modified maps with the original ones, over at most 200 samples."""
        ids, correlations = self.ids[:200], []
        for method in self.methods:
            maps = self.modified.originals(method, ids)
            versions = [modify(maps, change, scheme, variant, ids=ids, seed=self.seed) for change in MAPS]
            original, *others = (
                rank_features(each, ids=ids, seed=self.seed).rank.double().numpy() for each in versions
            )
            correlations += [pearson(original, other) for other in others]
        return Estimate.of_mean(np.mean(correlations, axis=0), ids)

    def example(self, method: str) -> dict[str, Floats]:
        """Return the original and the modified maps of the first sample by a method."""
        ids = self.ids[:1]
        original = self.modified.originals(method, ids)
        titles = {ORIGINAL: _FIRST} | {f"{change}\n{scheme}": (scheme, change) for scheme, change in _CASES}
        return {
            title: modify(original, change, scheme, OURS, ids=ids, seed=self.seed)[0].numpy()
            for title, (scheme, change) in titles.items()
        }


def _name(method: str, scheme: str = "", change: str = "") -> str:
    return f"{method}-{scheme}-{change}" if scheme else method


class Modified(StoredMaps):
    """Modifies the maps of a run; a method that `evaluate` can call."""

    def __call__(
        self, *_: object, ids: Sequence[str], seed: int, of: str, change: str, scheme: str, variant: str
    ) -> Tensor:
        """Return the modified maps (N, *S) of the method `of`; model, inputs and targets are not used."""
        return modify(self.originals(of, ids), change, scheme, variant, ids=ids, seed=seed)


def modify(maps: Tensor, change: str, scheme: str, variant: str, *, ids: Sequence[str], seed: int) -> Tensor:
    """Modify maps (N, *S), or scale them to 1.

    In the literal variant, remove and introduce draw different random numbers, values are clipped to 0 and 1, and maps
    have 8 bits before and after, like the authors' files.
    """
    scaled = normalise(maps.double())
    if variant == OURS:
        return scaled if change == ORIGINAL else MODIFICATIONS[change](maps, scheme, ids=ids, seed=seed)
    stored = _in_8_bits(scaled)
    if change == ORIGINAL:
        return stored
    lost = {"trace": 0.0} if change == "remove" else {}
    return _in_8_bits(MODIFICATIONS[change](stored, scheme, ids=ids, seed=stream(seed, change), **lost))


def _in_8_bits(maps: Tensor) -> Tensor:
    return (maps.clamp(0, 1) * 255).round() / 255
