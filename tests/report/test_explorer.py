import shutil

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.report.runs import METHODS, decoded, image_samples, make_run
from tests.tiny import tiny_model
from twinlens.outcome import open_evaluation
from twinlens.report.explorer import describe_samples
from twinlens.report.scene import set_scene


def own_imputer(inputs, keep, streams):
    return inputs * keep.unsqueeze(1)


def test_what_is_shown_is_what_the_model_saw(run):
    """The imputed inputs, given to the model, give the answers of the probe table."""
    scene = set_scene(run)
    assert not isinstance(scene, str)
    model, shown = tiny_model().eval(), describe_samples(run, budget=10**6)["samples"]
    for place in (0, 3):
        for method in METHODS:
            keep = scene.keep_at_levels(place, method)
            inputs = scene.impute_at_levels(place, keep)
            with torch.inference_mode():
                probability = model(inputs).softmax(dim=1)[:, scene.selected.samples[place].label]
            said = shown[place]["methods"][method]
            np.testing.assert_allclose(said["probability"], probability.numpy(), atol=2e-5)
            assert said["removed"] == (~keep).flatten(1).sum(dim=1).tolist()


def test_the_explorer_tells_what_the_probes_say(run):
    shown = describe_samples(run, budget=10**6)
    assert shown["levels"] == sorted(shown["levels"])
    assert (shown["levels"][0], shown["levels"][-1]) == (0.1, 0.95)
    assert shown["metric"] == "soundness_rank"
    curve = run.curve("sobel", "soundness_rank")
    for sample in shown["samples"]:
        row = curve.table.ids.index(sample["id"])
        answers = sample["methods"]["sobel"]
        assert [level for level, _ in answers["course"]] == list(curve.table.levels)
        column = list(curve.table.levels).index(0.5)
        assert answers["predicted"][2] == f"class {curve.table.predicted[row, column]}"
        assert answers["correct"][2] == curve.table.correct[row, column]
        assert answers["probability"][2] == pytest.approx(curve.table.probability[row, column], abs=1e-5)
        assert answers["falseShare"] == pytest.approx(curve.false_share[row], abs=1e-5)
        assert sample["label"] == f"class {curve.table.labels[row]}"
    assert decoded(shown["samples"][0]["input"]).shape == (10, 10, 3)


def test_inputs_are_shown_as_they_were_before_normalisation(run):
    samples, shown = image_samples(), describe_samples(run, budget=10**6)["samples"]
    for sample in shown:
        original = np.asarray(samples.read(samples.ids.index(sample["id"])))
        np.testing.assert_array_equal(decoded(sample["input"]), original)


def test_pictures_keep_to_their_budget(tmp_path):
    samples = image_samples(3, size=90)
    constant = tl.ConstantImputer(0.0)
    evaluation = make_run(
        tmp_path / "run", samples=samples, methods=["random"], metrics=["road_lerf"], imputer=constant
    )

    def total(budget):
        [*shown] = describe_samples(evaluation, budget=budget)["samples"]
        pictures = [u for s in shown for m in s["methods"].values() for u in (m["view"]["map"], *m["view"]["frames"])]
        return sum(map(len, [*pictures, *(s["input"] for s in shown)]))

    plenty = total(10**9)
    assert total(plenty * 3 // 4) <= plenty * 3 // 4


def test_runs_without_selected_samples_or_maps_say_so(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "maps" / "sobel")
    shown = describe_samples(open_evaluation(tmp_path / "run"), budget=10**6)
    assert "No maps are stored for sobel" in shown["note"]
    answers = shown["samples"][0]["methods"]
    assert answers["sobel"]["view"] is None
    assert answers["sobel"]["predicted"]
    assert answers["random"]["view"]["map"].startswith("data:image/png")
    (tmp_path / "run" / "selected.safetensors").unlink()
    without = describe_samples(open_evaluation(tmp_path / "run"), budget=10**6)
    assert without["samples"] == []
    assert without["note"].startswith("No samples are stored with this run. Start it again")


def test_an_imputer_of_ones_own_is_replaced_by_grey_and_said(tmp_path):
    evaluation = make_run(tmp_path / "run", methods=["random"], metrics=["road_morf"], imputer=own_imputer)
    shown = describe_samples(open_evaluation(evaluation.path), budget=10**6)
    assert "removed features are shown in grey" in shown["note"]
    assert "no features were judged false" in shown["note"]
    frame = decoded(shown["samples"][0]["methods"]["random"]["view"]["frames"][-1])
    grey = (abs(frame.astype(int) - 128) <= 1).all(axis=2).sum()
    assert grey == shown["samples"][0]["methods"]["random"]["removed"][-1] == 90


def test_an_imputer_of_ones_own_is_used_where_it_is_at_hand(tmp_path):
    evaluation = make_run(tmp_path / "run", methods=["random"], metrics=["road_morf"], imputer=own_imputer)
    shown = describe_samples(evaluation, budget=10**6)
    assert "grey" not in shown["note"]
    answers = shown["samples"][0]["methods"]["random"]
    filled = np.rint(np.array([0.4, 0.5, 0.6]) * 255)  # zero, before the model's normalisation
    assert (abs(decoded(answers["view"]["frames"][-1]) - filled) <= 1).all(axis=2).sum() == answers["removed"][-1] == 90
    stored = describe_samples(open_evaluation(evaluation.path), budget=10**6)["samples"][0]["methods"]["random"]
    assert {**stored, "view": None} == {**answers, "view": None}
    assert stored["view"]["map"] == answers["view"]["map"]


def test_what_functions_of_ones_own_measured_is_told_where_they_are_not_at_hand(tmp_path):
    def own(table):
        return table.probability

    metrics = {"mine": tl.Soundness(performance=own, levels=(0.9, 0.5, 0.1))}
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    assert describe_samples(evaluation, budget=10**6)["metric"] == "mine"
    stored = describe_samples(open_evaluation(evaluation.path), budget=10**6)
    assert stored["samples"] == []
    assert stored["note"].startswith("All metrics use custom functions")


def test_soundness_is_shown_before_other_metrics(tmp_path):
    metrics = {"a": tl.Insertion(), "b": tl.Completeness(), "c": tl.Road(order="morf")}
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    assert describe_samples(evaluation, budget=10**6)["metric"] == "a"
    metrics |= {"d": tl.Soundness(levels=(0.9, 0.5, 0.1))}
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    shown = describe_samples(evaluation, budget=10**6)
    assert (shown["metric"], shown["judged"]) == ("d", True)
    assert shown["samples"][0]["methods"]["random"]["view"]["false"].startswith("data:image/png")


def test_absolute_thresholds_are_shown_as_they_were_asked(tmp_path):
    metrics = [tl.Completeness(relative=False, thresholds=(0.8, 0.2))]
    evaluation = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    shown = describe_samples(evaluation, budget=10**6)
    assert (shown["by"], shown["relative"], shown["levels"]) == ("value", False, [0.8, 0.2])
    scene, curve = set_scene(evaluation), evaluation.curve("random", "completeness")
    for place, sample in enumerate(shown["samples"]):
        answers, row = sample["methods"]["random"], curve.table.ids.index(sample["id"])
        assert answers["removed"] == curve.table.removed[row, 1:].tolist()
        assert answers["removed"] == (~scene.keep_at_levels(place, "random")).flatten(1).sum(dim=1).tolist()


def test_each_map_has_its_number_by_the_metric(paired):
    shown = describe_samples(paired, budget=10**6)
    assert (shown["metric"], shown["chance"], shown["note"]) == ("soundness_rank", 0.5, "")
    for sample in shown["samples"]:
        for method, answers in sample["methods"].items():
            areas = dict(zip(paired.ids(), paired.curve(method, "soundness_rank").area_per_sample(), strict=True))
            assert answers["area"] == pytest.approx(areas[sample["id"]], abs=1e-5)
