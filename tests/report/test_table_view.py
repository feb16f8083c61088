"""Tabular rows on the page: names, values, attribution, and what replaces them."""

import numpy as np
import pytest

import twinlens as tl
from tests.report.kinds import COLUMNS, table_run, unpacked
from twinlens.outcome import open_evaluation
from twinlens.report.explorer import describe_samples
from twinlens.report.scene import set_scene


def own_imputer(inputs, keep, streams):
    return inputs.where(keep, inputs + keep.sum(dim=1, keepdim=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return table_run(tmp_path_factory.mktemp("table") / "run")


def test_columns_have_their_names_values_and_replacements(run):
    shown, scene = describe_samples(run, budget=10**6), set_scene(run)
    assert (shown["kind"], shown["note"]) == ("table", "")
    [*means] = run.metric_values["soundness_rank"].imputer.mean
    for place, sample in enumerate(shown["samples"]):
        view, inputs = sample["input"], scene.selected.inputs[place]
        assert view["names"] == list(COLUMNS)
        assert view["values"] == pytest.approx(inputs.tolist(), rel=1e-5)
        assert view["of"] == 26
        marks = sample["methods"]["saliency"]["view"]
        strength, stays = unpacked(marks["strength"]), unpacked(marks["stays"])
        own = scene.maps["saliency"][place]
        assert strength.tolist() == pytest.approx((250 * own / own.max()).tolist(), abs=0.51)
        assert marks["order"] == np.argsort(-own.numpy(), kind="stable").tolist()
        removed = sample["methods"]["saliency"]["removed"]
        assert [int((stays <= k).sum()) for k in range(len(removed))] == removed
        for k, filled in enumerate(marks["filled"]):
            assert filled == (None if stays[k] == len(removed) else pytest.approx(means[k], rel=1e-5))
        top = max(
            range(26),
            key=lambda k: max(m["view"] and unpacked(m["view"]["strength"])[k] for m in sample["methods"].values()),
        )
        assert view["top"][0] == top or strength[view["top"][0]] == 250


def test_columns_without_names_are_numbered(tmp_path):
    view = describe_samples(table_run(tmp_path / "run", columns=3), budget=10**6)["samples"][0]["input"]
    assert view["names"] == ["column 0", "column 1", "column 2"]


def test_of_many_columns_those_with_attribution_are_shown(tmp_path):
    evaluation = table_run(tmp_path / "run", columns=3000)
    shown, scene = describe_samples(evaluation, budget=10**6), set_scene(evaluation)
    view = shown["samples"][0]["input"]
    assert (len(view["names"]), view["of"]) == (200, 3000)
    for method, maps in scene.maps.items():
        best = f"column {int(maps[0].argmax())}"
        assert best in view["names"]
        order = shown["samples"][0]["methods"][method]["view"]["order"]
        assert view["names"][order[0]] == best


def test_replacements_that_differ_between_levels(tmp_path):
    evaluation = table_run(tmp_path / "run", imputer=own_imputer)
    shown, scene = describe_samples(evaluation, budget=10**6), set_scene(evaluation)
    marks = shown["samples"][0]["methods"]["random"]["view"]
    keep = scene.keep_at_levels(0, "random")
    value = float(scene.selected.inputs[0, 0])
    filled = marks["filled"][marks["order"][-1]]
    assert isinstance(filled, list)
    first = marks["filled"][0]
    if isinstance(first, list):
        gone = [k for k in range(len(keep)) if not keep[k, 0]]
        assert [first[k] for k in gone] == pytest.approx([value + int(keep[k].sum()) for k in gone], rel=1e-4)
    stored = describe_samples(open_evaluation(evaluation.path), budget=10**6)
    assert "removed features are shown in grey" in stored["note"]
    assert stored["samples"][0]["methods"]["random"]["view"]["filled"] is None


def test_absolute_thresholds_remove_the_strongest_first(tmp_path):
    metrics = [tl.Completeness(thresholds=tuple(k / 100 for k in range(99, 0, -1)))]
    shown = describe_samples(table_run(tmp_path / "run", metrics=metrics), budget=10**6)
    assert len(shown["levels"]) <= 12
    assert shown["levels"] == sorted(shown["levels"], reverse=True)
    marks = shown["samples"][0]["methods"]["saliency"]["view"]
    stays = unpacked(marks["stays"])
    assert [int((stays <= k).sum()) for k in range(len(shown["levels"]))] == shown["samples"][0]["methods"]["saliency"][
        "removed"
    ]
    assert (np.diff(stays[marks["order"]].astype(int)) >= 0).all()
