import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.spatial.distance import directed_hausdorff

import twinlens as tl
from examples.resnet20 import ResNet20, normalise
from tests.golden_set import FILE
from tests.reproduction.watching import Watch, check_figures
from twinlens.laboratory.modifications import MODIFICATIONS
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.outcome import open_evaluation
from twinlens.reproduction import order_vs_value
from twinlens.reproduction.claims import group_statements
from twinlens.reproduction.method_comparison import open_photographs
from twinlens.reproduction.order_runs import VARIANTS, Modified, Runs, modify
from twinlens.support.randomness import stream


@pytest.mark.slow
def test_a_small_run(tiny, monkeypatch):
    monkeypatch.setattr(order_vs_value, "METHODS", {"gradcam": {}})
    monkeypatch.setattr(order_vs_value, "RESAMPLES", 50)
    outcome = order_vs_value.run(tiny, Watch())
    assert order_vs_value.run(tiny, Watch()).numbers == outcome.numbers  # as if interrupted late and resumed
    distances = outcome.numbers["distances"]
    for variant in ("ours", "literal"):
        table = distances[variant]
        assert set(table["least"]) == {"gradcam"}
        least = [of_scheme["soundness"] for of_method in table["least"].values() for of_scheme in of_method.values()]
        assert table["mean"]["soundness"] == pytest.approx(np.mean(least))
    for of_method in distances["ours"]["least"].values():
        for scheme in ("constant", "random"):
            blind = (*order_vs_value.ORDER_BASED, "road_lerf", "completeness_share")
            assert [of_method[scheme][metric] for metric in blind] == [0] * 4
            assert of_method[scheme]["calibration"] > 0.02
    correlation = outcome.numbers["rank_correlation"]
    assert correlation["ours"]["constant"] == pytest.approx(1)
    assert correlation["ours"]["random"] < 1
    assert correlation["literal"]["constant"] < 1  # what is cut off is tied
    assert len(outcome.claims) == 22
    fixed = [claim for claim in outcome.claims if claim.verdict == "by construction"]
    assert len(fixed) == 1
    assert fixed[0].measured.endswith("ROAD 0.000, deletion 0.000")
    assert sum(claim.ours for claim in outcome.claims) == 14
    assert all("letter" in claim.reading for claim in outcome.claims[11:])
    assert [len(group_statements(outcome.claims, ours=ours)) for ours in (False, True)] == [4, 7]
    sound = [claim for claim in outcome.claims if claim.text.startswith("Soundness tells")]
    assert {claim.reason for claim in sound} == {"one of 6 samples is worth 0.167, more than ε = 0.01"}
    areas = outcome.numbers["areas"]["ours"]["calibration"]["gradcam, constant"]
    assert list(areas) == ["original", "remove", "introduce"]
    assert set(outcome.figures) == {"order-vs-value", "distances", "modified-maps"}
    check_figures(outcome)


@pytest.mark.slow
def test_curves_of_maps_with_the_order_of_others_are_their_own(tiny):
    """Soundness that was read from another map's probes is what a sweep of its own would give."""
    model, samples = open_photographs(tiny)
    curves = Runs(model, samples, {"gradcam": {"method": "gradcam"}}, tiny, Watch()).ours()
    evaluation = open_evaluation(tiny.out / "orders")
    modified = Modified(evaluation)
    inputs = torch.stack([model.preprocessing(samples.read(i)) for i in range(6)])
    ids = list(samples.ids)
    for scheme, change in (("constant", "remove"), ("constant", "introduce"), ("random", "remove")):
        maps = MODIFICATIONS[change](modified.originals("gradcam", ids), scheme, ids=ids).float()
        arguments = (model.module, inputs, samples.labels, maps)
        expected = tl.soundness(*arguments, ids=ids, batch_size=32)
        own = curves["gradcam", scheme][change]
        assert np.array_equal(own["soundness"].performance, expected.performance)
        assert np.allclose(own["soundness"].values, expected.values, atol=1e-9, equal_nan=True)
        rank = tl.soundness(*arguments, estimator="rank", ids=ids, batch_size=32)
        assert np.allclose(own["soundness_rank"].values, rank.values, atol=1e-9)
        assert np.array_equal(own["deletion"].values, tl.deletion(*arguments, ids=ids, batch_size=32).values)
        # By hand: how many samples are recognised without what exceeds a threshold of the modified map.
        imputer, kept = tl.LinearImputer(), maps <= 0.3
        streams = [stream(0, name, 0.3) for name in ids]
        answers = model.module(imputer(inputs, kept, streams)).argmax(dim=1).numpy()
        expected = own["completeness"].baseline - (answers == samples.labels).mean()
        assert own["completeness"].at(0.3) == pytest.approx(expected)


def test_literal_maps_are_clipped_in_8_bits_and_changes_draw_different_numbers():
    maps, ids = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0)), ["a", "b", "c"]
    versions = {
        (variant, change): modify(maps, change, "random", variant, ids=ids, seed=4)
        for variant in VARIANTS
        for change in ("original", "remove", "introduce")
    }
    for (variant, change), values in versions.items():
        if variant == "literal":
            assert torch.equal((values * 255).round() / 255, values), change
            assert 0 <= values.min() <= values.max() <= 1
    # In ours both changes raise the same features and differ by a constant; in the literal variant they do not.
    for variant, alike in (("ours", True), ("literal", False)):
        low, high = versions[variant, "remove"], versions[variant, "introduce"]
        inside = (low > 0.01) & (high < 1)
        assert bool((high - low)[inside].std() < 0.01) is alike
    gap = versions["literal", "original"] - versions["literal", "remove"]
    assert ((gap >= -1 / 255) & (gap <= 0.6 + 1 / 255)).all()


def hausdorff(one, other):
    """The Hausdorff distance between two curves as they are drawn."""
    points = [np.stack(curve.points[:2], axis=1)[np.isfinite(curve.values)] for curve in (one, other)]
    return max(directed_hausdorff(*points)[0], directed_hausdorff(*points[::-1])[0])


def test_distances_are_those_of_hausdorff(monkeypatch):
    monkeypatch.setattr(order_vs_value, "COLUMNS", ("soundness", "road_morf"))
    monkeypatch.setattr(order_vs_value, "RESAMPLES", 50)
    task = sparse_linear(40)
    maps = map_grid(task)
    curves = {}
    for version, name in zip(order_vs_value.MAPS, ("truth", "introduced 1", "random"), strict=True):
        arguments = (task.model, task.inputs, task.labels, maps[name])
        curves[version] = {
            "soundness": tl.soundness(*arguments, imputer=task.imputer),
            "road_morf": tl.road(*arguments, imputer=task.imputer),
        }
    sound = curves["original"]["soundness"]
    nothing = replace(sound, values=np.full_like(sound.values, np.nan))
    empty = curves | {"remove": {**curves["remove"], "soundness": nothing}}
    same = dict.fromkeys(curves, curves["original"])
    distances = order_vs_value.distances_of({("x", "other"): curves, ("x", "same"): same, ("x", "empty"): empty})
    for metric in order_vs_value.COLUMNS:
        expected = min(hausdorff(curves[a][metric], curves[b][metric]) for a, b in combinations(curves, 2))
        assert distances["x", "other", metric].value == pytest.approx(expected)
        assert expected > 0
        assert distances["x", "other", metric].replicates.std() > 0
        assert not distances["x", "same", metric].replicates.any()
    assert distances["x", "empty", "soundness"].value is None


def test_maps_are_read_from_any_shard(tmp_path, tiny):
    model, samples = open_photographs(tiny)
    evaluation = tl.evaluate(model, samples, ["gradcam"], metrics=[], out=tmp_path / "shards", shard_size=4)
    ids = [samples.ids[k] for k in (5, 0, 3)]
    assert torch.equal(Modified(evaluation).originals("gradcam", ids), evaluation.maps("gradcam")[[5, 0, 3]])


def least_distance(case, maps, metric, **options):
    """How far apart the two nearest curves are, of the maps and of all their modifications by a constant."""
    versions = [maps, *(change(maps) for change in MODIFICATIONS.values())]
    curves = [metric(*case, each, performance="probability", **options) for each in versions]
    return min(hausdorff(one, other) for one, other in combinations(curves, 2))


def test_constants_change_values_and_no_order():
    """Completeness and soundness see them, ROAD and deletion do not."""
    stored = json.loads(FILE.read_text())
    weights, inputs = (torch.tensor(stored[name], dtype=torch.float64) for name in ("weights", "inputs"))
    case = (lambda x: x.flatten(1) @ weights, inputs, stored["labels"])
    maps = torch.tensor(stored["maps"], dtype=torch.float64).reshape(-1, 6, 6)
    maps = maps / maps.amax(dim=(1, 2), keepdim=True)
    for metric in (tl.road, tl.deletion):
        assert least_distance(case, maps, metric, levels=(0.2, 0.5, 0.8)) == 0
    assert least_distance(case, maps, tl.completeness, thresholds=(0.8, 0.5, 0.2)) > 0.1
    assert least_distance(case, maps, tl.soundness, levels=(0.95, 0.75, 0.55, 0.35, 0.15)) > 0.001


@pytest.mark.slow
def test_real_photographs(shared_data):
    """The same on CIFAR-10."""
    stored = np.load(shared_data / "cifar10" / "cifar10_dev.npz")
    network = ResNet20()
    network.load_state_dict(load_file(shared_data / "cifar10" / "resnet20.safetensors"), strict=False)
    network.eval()
    images, labels = normalise(stored["x_test"][:40]), stored["y_test"][:40].reshape(-1).astype(np.int64)
    maps = tl.attribute(network, images, labels, "gradcam")

    def least(metric, **own):
        return least_distance((network, images, labels), maps, metric, batch_size=40, **own)

    shares = {"levels": (0.2, 0.5, 0.8)}
    assert least(tl.road, **shares) == least(tl.deletion, **shares) == 0
    assert least(tl.completeness, thresholds=(0.8, 0.5, 0.2)) > 0.1
    assert least(tl.soundness, levels=tuple(percent / 100 for percent in range(95, 0, -10))) > 0.02
