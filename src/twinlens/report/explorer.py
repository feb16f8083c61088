"""The sample explorer: the maps of each method for selected samples, and the model's answers as features are removed.

Inputs are imputed again with the ties and the noise of the probes: pictures show what the model saw, except for the
noise on another kind of device.

Shapes: E selected samples, L levels of a sweep, K levels that are shown, C channels, S = spatial shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from twinlens.imputation.imputers import Imputer, UnavailableImputer
from twinlens.metrics.curves import Curve
from twinlens.probing.answers import REGRESSION
from twinlens.probing.maps import PARTS
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, count_removed, keep_features, rank_features
from twinlens.report.pictures import Picture, Shades, data_uri, false_picture, input_pictures, map_picture
from twinlens.run.manifest import ModelRecord
from twinlens.run.sample_selection import SelectedSample, SelectedSamples, read_selection
from twinlens.run.stored_run import StoredRun
from twinlens.run.wording import name_of
from twinlens.support.fields import JSON, to_json
from twinlens.support.randomness import stream

_SHOWN = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
# Sizes and qualities of pictures; the first that fits a sample's share of the page is used.
_SIZES = ((224, 70), (192, 60), (160, 50), (128, 40), (96, 30))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scene:
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
            shown = sorted(self.levels, reverse=True)
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
    def tokens(self) -> bool:
        """Whether inputs are token ids, which are shown as text."""
        return self.evaluation.results.data.tokens

    @property
    def answer(self) -> str:
        """The column of the probe table that is shown."""
        return "predicted" if self.evaluation.results.model.task == REGRESSION else "probability"


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


def describe_samples(evaluation: StoredRun, *, budget: int) -> dict[str, JSON]:
    """Return samples with pictures of at most `budget` bytes and answers, or a note on why there are none."""
    scene = _set_scene(evaluation)
    if isinstance(scene, str):
        return {"note": scene, "samples": []}
    schedule, count = scene.schedule, len(scene.selected.samples)
    return {
        "answer": scene.answer,
        "note": _note(scene),
        "metric": scene.metric,
        "title": name_of(evaluation.results, scene.metric),
        "chance": evaluation.results.about(scene.metric).chance,
        "judged": scene.judged,
        "by": schedule.by,
        "order": schedule.order,
        "relative": schedule.relative,
        "strip": scene.selected.inputs.dim() < 4,
        "levels": to_json(schedule.levels),
        "samples": [_sample(scene, place, budget // count) for place in range(count)],
    }


def _set_scene(evaluation: StoredRun) -> _Scene | str:
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
    return _Scene(
        evaluation=evaluation,
        selected=selected,
        metric=metric,
        imputer=None if isinstance(imputer, UnavailableImputer) else imputer,
        curves=curves,
        maps=maps,
        false=false,
    )


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


def _note(scene: _Scene) -> str:
    notes = ["Tokens are shown by position and id, because a run stores no words."] if scene.tokens else []
    missing = [method for method in scene.curves if method not in scene.maps]
    if missing:
        notes.append(f"No maps are stored for {', '.join(missing)}: only the model's answers are shown.")
    if scene.imputer is None and not scene.tokens:
        notes.append("The imputer is a custom one and not available here: removed features are shown in grey.")
    if scene.evaluation.results.first_of("soundness") is None:
        notes.append("Soundness was not measured: no features were judged false.")
    return " ".join(notes)


def original_answers(evaluation: StoredRun, sample: SelectedSample) -> tuple[ProbeTable, int]:
    """Return a table with the model's answers to original inputs, and the row of a sample in it."""
    shard, row = evaluation.run.manifest.shard_row(sample.position)
    return ProbeTable.load(evaluation.run.original_shard(shard)), row


def _sample(scene: _Scene, place: int, share: int) -> dict[str, JSON]:
    """Return the content about one sample, with pictures as large as its share of the page allows."""
    sample, model = scene.selected.samples[place], scene.evaluation.results.model
    original, row = original_answers(scene.evaluation, sample)
    uris = {} if scene.tokens else _encode_pictures(scene, place, share)
    return {
        "id": sample.id,
        "reason": sample.reason,
        "label": class_name(model, sample.label),
        "predicted": class_name(model, original.predicted[row, 0]),
        "correct": bool(original.correct[row, 0]),
        "probability": _number(original.probability[row, 0]),
        "input": uris.get(("input",)),
        "tokens": _tokens(scene, place) if scene.tokens else None,
        "methods": {method: _answers(scene, place, method, uris) for method in scene.curves},
    }


def _encode_pictures(scene: _Scene, place: int, share: int) -> dict[tuple[str, ...], str]:
    """Draw one sample, each method's map, and the imputed inputs, within a number of bytes."""
    [whole] = input_pictures(scene.selected.inputs[place : place + 1], scene.shades(place))
    pictures: dict[tuple[str, ...], Picture] = {("input",): whole}
    for method, maps in scene.maps.items():
        pictures[method, "map"] = map_picture(maps[place])
        if method in scene.false:
            pictures[method, "false"] = false_picture(maps[place], scene.false[method][place], whole)
        frames = input_pictures(_frames(scene, place, method), scene.shades(place))
        pictures |= {(method, "frame", str(k)): frame for k, frame in enumerate(frames)}
    for side, quality in _SIZES:
        uris = {key: data_uri(picture, side=side, quality=quality) for key, picture in pictures.items()}
        if sum(map(len, uris.values())) <= share:
            break
    return uris


def _token_places(scene: _Scene, place: int) -> Tensor:
    """Return the positions of one sample's tokens, without padding."""
    tokens = scene.selected.inputs[place]
    return torch.arange(tokens.shape[-1]) if tokens.dim() == 1 else tokens[1].nonzero().flatten()


def _tokens(scene: _Scene, place: int) -> dict[str, JSON]:
    """Return the tokens of one sample: positions, ids, and which of them are features."""
    tokens, shown, segments = scene.selected.inputs[place], _token_places(scene, place), scene.selected.segments
    features = torch.ones_like(shown, dtype=torch.bool) if segments is None else segments[place, shown] >= 0
    ids = tokens if tokens.dim() == 1 else tokens[0]
    return {"places": shown.tolist(), "ids": ids[shown].tolist(), "features": features.tolist()}


def _token_marks(scene: _Scene, place: int, method: str) -> dict[str, JSON]:
    """Return a method's attribution of one sample's tokens, and which tokens are kept at each level."""
    shown, values = _token_places(scene, place), scene.maps[method][place]
    strength = (values / values.max().clamp(min=1e-12))[shown]
    false = scene.false[method][place, shown].tolist() if method in scene.false else None
    kept = keep_at_levels(scene, place, method)[:, shown]
    return {"strength": [round(value, 3) for value in strength.tolist()], "false": false, "kept": kept.tolist()}


def _answers(scene: _Scene, place: int, method: str, uris: Mapping[tuple[str, ...], str]) -> dict[str, JSON]:
    """Return the model's answers about one sample as a method's features are removed, with the method's pictures."""
    curve, table, model = scene.curves[method], scene.curves[method].table, scene.evaluation.results.model
    place_of = table.settings.schedule.levels.index
    columns = [place_of(level) for level in scene.schedule.levels]
    frames = [uris.get((method, "frame", str(k))) for k in range(len(columns))]
    false = np.nan if curve.false_share is None else curve.false_share[place]
    areas = curve.area_per_sample()
    return {
        "marks": _token_marks(scene, place, method) if scene.tokens and method in scene.maps else None,
        "map": uris.get((method, "map")),
        "false": uris.get((method, "false")),
        "falseShare": _number(false),
        "area": None if areas is None else _number(areas[place]),
        "frames": to_json(frames) if None not in frames else None,
        "kind": table.map_kinds[place],
        "predicted": [class_name(model, table.predicted[place, column]) for column in columns],
        "correct": [bool(table.correct[place, column]) for column in columns],
        "probability": [_number(table.probability[place, column]) for column in columns],
        "removed": [int(table.removed[place, column]) for column in columns],
        "course": [[level, _number(getattr(table, scene.answer)[place, place_of(level)])] for level in scene.levels],
    }


def _number(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None


def _frames(scene: _Scene, place: int, method: str) -> Tensor:
    """Impute one sample at each level (K, C, *S); removed features are grey if the imputer is not available."""
    inputs, keep = scene.selected.inputs[place : place + 1], keep_at_levels(scene, place, method)
    if scene.imputer is not None:
        return impute_at_levels(scene, place, inputs, keep)
    return torch.where(keep if keep.dim() == inputs.dim() else keep.unsqueeze(1), inputs, scene.shades(place).grey)


def keep_at_levels(scene: _Scene, place: int, method: str) -> Tensor:
    """Return the features of one sample that are kept at each shown level (K, *S), by the ranking of the probes."""
    values, settings = scene.maps[method][place], scene.curves[method].table.settings
    sample, schedule = scene.selected.samples[place], scene.schedule
    segments = scene.selected.segments
    own = None if segments is None else segments[place : place + 1]
    ranking = rank_features(values[None], ids=[sample.id], seed=settings.seed, segments=own)
    removed = count_removed(ranking, schedule)[0]
    many = None if own is None else ranking.features[0].expand(len(removed))
    keep = keep_features(ranking.rank.expand(len(removed), -1), removed, schedule.order, many)
    return keep.reshape(-1, *values.shape)


def impute_at_levels(scene: _Scene, place: int, inputs: Tensor, keep: Tensor) -> Tensor:
    """Impute one sample (1, C, *S) at each level (K, C, *S), with the noise that the model saw."""
    assert scene.imputer is not None
    seed, name = scene.evaluation.run.manifest.seed, scene.selected.samples[place].id
    streams = [stream(seed, name, level) for level in scene.schedule.levels]
    return scene.imputer(inputs.expand(len(keep), *inputs.shape[1:]).contiguous(), keep, streams)
