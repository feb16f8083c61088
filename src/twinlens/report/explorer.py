"""The sample explorer: selected samples with the maps of each method, and the model's answers as features go."""

from __future__ import annotations

import json

import numpy as np

from twinlens.data.word_pieces import join_pieces, style_of
from twinlens.report.picture_view import view_image, view_volume
from twinlens.report.scene import Scene, class_name, original_answers, set_scene
from twinlens.report.signal_view import view_signal
from twinlens.report.table_view import view_table
from twinlens.report.text_view import view_text
from twinlens.run.stored_run import StoredRun
from twinlens.run.wording import name_of
from twinlens.support.fields import JSON, to_json

_LEAST = 40_000  # bytes of a sample; pages with less room show fewer samples
_VIEWS = {
    "text": view_text,
    "table": view_table,
    "signal": view_signal,
    "image": view_image,
    "volume": view_volume,
}


def describe_samples(evaluation: StoredRun, *, budget: int) -> dict[str, JSON]:
    """Return samples in about `budget` bytes, or a note on why there are none."""
    scene = set_scene(evaluation)
    if isinstance(scene, str):
        return {"note": scene, "samples": []}
    schedule, samples = scene.schedule, _samples(scene, budget)
    return {
        "answer": scene.answer,
        "kind": scene.kind,
        "note": _note(scene, len(samples)),
        "metric": scene.metric,
        "title": name_of(evaluation.results, scene.metric),
        "chance": evaluation.results.about(scene.metric).chance,
        "judged": scene.judged,
        "by": schedule.by,
        "order": schedule.order,
        "relative": schedule.relative,
        "levels": to_json(schedule.levels),
        "samples": [*samples],
    }


def _samples(scene: Scene, budget: int) -> list[dict[str, JSON]]:
    """Describe samples until the budget is used up, at least one."""
    samples: list[dict[str, JSON]] = []
    for place in range(count := len(scene.selected.samples)):
        sample = _sample(scene, place, max(budget // (count - place), _LEAST))
        budget -= len(json.dumps(sample))
        if budget < 0 and samples:
            break
        samples.append(sample)
    return samples


def _note(scene: Scene, shown: int) -> str:
    notes = []
    if scene.kind == "text" and scene.selected.words is None:
        notes.append("Tokens are shown by their ids: pass `tokenizer` to see words.")
    missing = [method for method in scene.curves if method not in scene.maps]
    if missing:
        notes.append(f"No maps are stored for {', '.join(missing)}: only the model's answers are shown.")
    if scene.imputer is None and scene.kind != "text":
        notes.append("The imputer is a custom one and not available here: removed features are shown in grey.")
    if scene.evaluation.results.first_of("soundness") is None:
        notes.append("Soundness was not measured: no features were judged false.")
    if shown < (count := len(scene.selected.samples)):
        notes.append(f"The page has room for {shown} of the {count} selected samples.")
    return " ".join(notes)


def _sample(scene: Scene, place: int, share: int) -> dict[str, JSON]:
    """Return the content about one sample, drawn within its share of the page."""
    sample = scene.selected.samples[place]
    original, row = original_answers(scene.evaluation, sample)
    answers = {method: _answers(scene, place, method) for method in scene.curves}
    shown, views = _VIEWS[scene.kind](scene, place, share - len(json.dumps(answers)))
    return {
        "id": sample.id,
        "reason": sample.reason,
        "label": _class_name(scene, sample.label),
        "predicted": _class_name(scene, original.predicted[row, 0]),
        "correct": bool(original.correct[row, 0]),
        "probability": _number(original.probability[row, 0]),
        "input": shown,
        "methods": {method: {**answers[method], "view": views.get(method)} for method in scene.curves},
    }


def _answers(scene: Scene, place: int, method: str) -> dict[str, JSON]:
    """Return the model's answers about one sample as a method's features are removed."""
    curve, table = scene.curves[method], scene.curves[method].table
    place_of = table.settings.schedule.levels.index
    columns = [place_of(level) for level in scene.schedule.levels]
    false = np.nan if curve.false_share is None else curve.false_share[place]
    areas = curve.area_per_sample()
    return {
        "falseShare": _number(false),
        "area": None if areas is None else _number(areas[place]),
        "kind": table.map_kinds[place],
        "predicted": [_class_name(scene, table.predicted[place, column]) for column in columns],
        "correct": [bool(table.correct[place, column]) for column in columns],
        "probability": [_number(table.probability[place, column]) for column in columns],
        "removed": [int(table.removed[place, column]) for column in columns],
        "course": [[level, _number(getattr(table, scene.answer)[place, place_of(level)])] for level in scene.levels],
    }


def _class_name(scene: Scene, index: float) -> str:
    """Return the name of a class; of a language model, the token as text."""
    words = scene.selected.next_words
    if words is None or not 0 <= index < len(words):
        return class_name(scene.evaluation.results.model, index)
    return join_pieces([words[int(index)]], style_of(words))[0][0]


def _number(value: float) -> float | None:
    return round(float(value), 5) if np.isfinite(value) else None
