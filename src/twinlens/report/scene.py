"""A scene: the selected samples of a run with their maps, and what was removed from them at each level.

Inputs are imputed again with the ties and the noise of the probes: readers see what the model saw, except for the noise
on another kind of device.

Shapes: E selected samples, K levels that are shown, C channels, S = spatial shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from twinlens.imputation.imputers import Imputer, UnavailableImputer
from twinlens.metrics.curves import Curve
from twinlens.probing.answers import REGRESSION
from twinlens.probing.maps import PARTS
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, count_removed, keep_features, rank_features
from twinlens.report.pictures import Shades
from twinlens.run.manifest import DataRecord, ModelRecord
from twinlens.run.sample_selection import SelectedSample, SelectedSamples, read_selection
from twinlens.run.stored_run import StoredRun
from twinlens.support.fields import JSON
from twinlens.support.randomness import stream

View = tuple[JSON, dict[str, dict[str, JSON]]]
"""What a page needs to draw one sample: its input, and for each method with maps its map and what it removes."""

_SHOWN = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
_MOST_LEVELS = 12


def kind_of(data: DataRecord) -> str:
    """Return how samples are drawn: as text, a table, a signal, an image or a volume."""
    return "text" if data.tokens else {1: "table", 2: "signal", 3: "image"}.get(len(data.shape), "volume")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """The data that all selected samples of a run share."""

    evaluation: StoredRun
    selected: SelectedSamples
    metric: str
    imputer: Imputer | None
    curves: Mapping[str, Curve]
    """Curve of each method, with the rows of the selected samples."""
    maps: Mapping[str, Tensor]
    """Stored maps (E, *S) by method."""
    false: Mapping[str, Tensor]
    """Features judged false (E, *S), for methods with maps and soundness."""

    @property
    def kind(self) -> str:
        """How samples are drawn."""
        return kind_of(self.evaluation.results.data)

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """All measured levels."""
        curve = next(iter(self.curves.values()))
        schedule = curve.table.settings.schedule
        # With absolute thresholds, the level of the original inputs is not a threshold.
        return schedule.levels if schedule.relative else tuple(curve.levels.tolist())

    @cached_property
    def schedule(self) -> Schedule:
        """The levels that the slider shows, least removed first."""
        schedule = next(iter(self.curves.values())).table.settings.schedule
        if schedule.by == "value":
            shown = sorted(self.levels, reverse=schedule.order == "morf")
            shown = shown[:: -(-len(shown) // _MOST_LEVELS)]
        else:
            nearest = (min(sorted(self.levels), key=lambda level: abs(level - share)) for share in _SHOWN)
            shown = list(dict.fromkeys(nearest))
        return dataclasses.replace(schedule, levels=tuple(shown))

    def shades(self, place: int) -> Shades:
        """Return how the input of a sample is shown."""
        return shades_of(self.evaluation, self.selected, place)

    @property
    def judged(self) -> bool:
        """Whether soundness judged features false."""
        return any(curve.false_share is not None for curve in self.curves.values())

    @property
    def answer(self) -> str:
        """The column of the probe table that is shown."""
        return "predicted" if self.evaluation.results.model.task == REGRESSION else "probability"

    def keep_at_levels(self, place: int, method: str) -> Tensor:
        """Return the features of one sample that are kept at each shown level (K, *S), by the ranking of the probes."""
        values, settings = self.maps[method][place], self.curves[method].table.settings
        segments = self.selected.segments
        own = None if segments is None else segments[place : place + 1]
        ranking = rank_features(values[None], ids=[self.selected.samples[place].id], seed=settings.seed, segments=own)
        removed = count_removed(ranking, self.schedule)[0]
        many = None if own is None else ranking.features[0].expand(len(removed))
        keep = keep_features(ranking.rank.expand(len(removed), -1), removed, self.schedule.order, many)
        return keep.reshape(-1, *values.shape)

    def impute_at_levels(self, place: int, keep: Tensor) -> Tensor | None:
        """Impute one sample at each level (K, C, *S), with the noise that the model saw; None without the imputer."""
        if self.imputer is None:
            return None
        inputs, seed = self.selected.inputs[place : place + 1], self.evaluation.run.manifest.seed
        streams = [stream(seed, self.selected.samples[place].id, level) for level in self.schedule.levels]
        return self.imputer(inputs.expand(len(keep), *inputs.shape[1:]).contiguous(), keep, streams)

    def strength(self, place: int, method: str) -> Tensor:
        """Return a map as shares of its maximum (*S)."""
        return relative(self.maps[method][place], self.selected.segments, place)

    def highest(self, place: int) -> Tensor:
        """Return for each position the highest strength by any method (*S); zero without maps."""
        strengths = [self.strength(place, method) for method in self.maps]
        return torch.stack([torch.zeros(self.evaluation.results.data.spatial), *strengths]).amax(dim=0)

    def density(self, place: int) -> Tensor:
        """Return the share of the attribution at each position (*S), summed over methods; zero without maps."""
        strengths = [self.strength(place, method) for method in self.maps]
        return summed_shares(strengths, self.evaluation.results.data.spatial)


def summed_shares(maps: Iterable[Tensor], spatial: tuple[int, ...]) -> Tensor:
    """Return the share of each map's attribution at each position (*S), summed over maps: even ones move no peak."""
    total = torch.zeros(spatial)
    for values in maps:
        total += values / values.sum().clamp(min=1e-12)
    return total


def relative(values: Tensor, segments: Tensor | None, place: int) -> Tensor:
    """Return the map (*S) of a sample as shares of its maximum, without positions that are no features."""
    own = values if segments is None else values.where(segments[place] >= 0, 0.0)
    return own / own.max().clamp(min=1e-12)


def set_scene(evaluation: StoredRun) -> Scene | str:
    """Read the selected samples, or return why there are none to show."""
    selected = read_selection(evaluation.run)
    if selected is None:
        return (
            "No samples are stored with this run. Start it again with the same command to store the most informative "
            "ones; nothing is computed again."
        )
    results = evaluation.results
    measured = [name for name in evaluation.metrics if any(name in m.metrics for m in results.methods.values())]
    measured.sort(key=lambda metric: results.about(metric).side != "soundness")
    if not measured:
        return "No metric was measured: there is nothing to show about samples."
    metric = next((metric for metric in measured if metric in evaluation.metric_values), None)
    if metric is None:
        return (
            "All metrics use custom functions, which are not stored. Write the report in Python, with the evaluation "
            "that `evaluate` returned."
        )
    positions = [sample.position for sample in selected.samples]
    methods = [name for name, method in results.methods.items() if metric in method.metrics]
    curves = {method: evaluation.curve(method, metric).take(positions) for method in methods}
    part = next(iter(curves.values())).table.settings.schedule.part
    stored = {method: load_selected_maps(evaluation, method, positions, part) for method in methods}
    maps = {method: values for method, values in stored.items() if values is not None}
    false = {
        method: features
        for method, curve in curves.items()
        if method in maps and (features := curve.false_features(maps[method], segments=selected.segments)) is not None
    }
    imputer = evaluation.metric_values[metric].imputer
    return Scene(
        evaluation=evaluation,
        selected=selected,
        metric=metric,
        imputer=None if isinstance(imputer, UnavailableImputer) else imputer,
        curves=curves,
        maps=maps,
        false=false,
    )


def shades_of(evaluation: StoredRun, selected: SelectedSamples, place: int) -> Shades:
    """Return how the input of a selected sample is shown."""
    if not selected.images:
        return Shades.between_extremes(selected.inputs[place])
    preprocessing = evaluation.results.model.preprocessing
    return Shades.before_preprocessing(preprocessing.mean, preprocessing.std)


def class_name(model: ModelRecord, index: float) -> str:
    """Return the name of a class or its number; for a regression model, the value."""
    if model.task == REGRESSION:
        return f"{index:.4g}"
    if index < 0:
        return "another class"
    return model.classes[int(index)] if model.classes and int(index) < len(model.classes) else f"class {index:g}"


def load_selected_maps(
    evaluation: StoredRun, method: str, positions: list[int], part: str = "positive"
) -> Tensor | None:
    """Read a part of the maps (E, *S) of some samples, or return None where they are not stored."""
    run, places = evaluation.run, [evaluation.run.manifest.shard_row(position) for position in positions]
    shards = dict.fromkeys(shard for shard, _ in places)
    if not all(run.maps_shard(method, shard).exists() for shard in shards):
        return None
    maps = {shard: PARTS[part](run.load_maps(method, shard, signed=True)) for shard in shards}
    return torch.stack([maps[shard][row] for shard, row in places])


def original_answers(evaluation: StoredRun, sample: SelectedSample) -> tuple[ProbeTable, int]:
    """Return a table with the model's answers to original inputs, and the row of a sample in it."""
    shard, row = evaluation.run.manifest.shard_row(sample.position)
    return ProbeTable.load(evaluation.run.original_shard(shard)), row
