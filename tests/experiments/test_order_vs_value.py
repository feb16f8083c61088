from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import twinlens as tl
from tests.experiments.watching import Watch
from tests.resnet20 import ResNet20, normalise
from twinlens.core.randomness import stream
from twinlens.experiments import order_vs_value
from twinlens.experiments.order_vs_value import Modified
from twinlens.experiments.subject import find_subject
from twinlens.laboratory.modifications import MODIFICATIONS
from twinlens.running.run_reader import open_evaluation
from twinlens.statistics.bootstrap import hausdorff


@pytest.mark.slow
def test_a_small_run(tiny, monkeypatch):
    own = replace(order_vs_value.OWN, methods={name: {"method": name} for name in ("gradcam", "saliency")})
    monkeypatch.setattr(order_vs_value, "OWN", own)
    outcome = order_vs_value.run(tiny, Watch())
    distances = outcome.numbers["distances"]
    assert set(distances) == {"gradcam", "saliency"}
    for of_method in distances.values():
        for scheme in ("constant", "random"):
            assert [of_method[scheme][m]["least"] for m in order_vs_value.ORDER_BASED] == [0, 0]
        assert of_method["constant"]["road_morf"] == dict.fromkeys(of_method["constant"]["road_morf"], 0)
    least = [of_scheme["soundness"]["least"] for of_method in distances.values() for of_scheme in of_method.values()]
    assert outcome.numbers["summary"]["soundness"]["mean"] == pytest.approx(np.mean(least))
    assert outcome.numbers["rank_correlation"]["constant"] == pytest.approx(1)
    assert outcome.numbers["rank_correlation"]["random"] < 1
    assert outcome.numbers["by_scheme"]["random"]["road_morf"] == 0
    assert len(outcome.claims) == 5
    assert outcome.claims[2].measured.endswith("ROAD 0.000, deletion 0.000")
    assert set(outcome.figures) == {"order-vs-value", "distances"}


@pytest.mark.slow
def test_curves_of_maps_with_the_order_of_others_are_their_own(tiny):
    """Soundness that was read from another map's probes is what a sweep of its own would give."""
    sizes = replace(order_vs_value.OWN, methods={"gradcam": {"method": "gradcam"}})
    subject = find_subject(tiny, order_vs_value.PHOTOGRAPHS)
    curves, _ = order_vs_value._measure(subject, sizes, tiny, Watch())
    evaluation = open_evaluation(tiny.out / "orders")
    modified = Modified(evaluation)
    inputs = torch.stack([subject.model.preprocessing(subject.samples.read(i)) for i in range(6)])
    ids = list(subject.samples.ids)
    for scheme, change in (("constant", "remove"), ("constant", "introduce"), ("random", "remove")):
        maps = MODIFICATIONS[change](modified.originals("gradcam", ids), scheme, ids=ids).float()
        arguments = (subject.model.module, inputs, subject.samples.labels, maps)
        expected = tl.soundness(*arguments, ids=ids, batch_size=32)
        found = curves["gradcam", scheme][change]
        assert np.array_equal(found["soundness"].performance, expected.performance)
        assert np.allclose(found["soundness"].values, expected.values, atol=1e-9, equal_nan=True)
        assert np.array_equal(found["deletion"].values, tl.deletion(*arguments, ids=ids, batch_size=32).values)
        # By hand: how many samples are recognised without what exceeds a threshold of the modified map.
        imputer, kept = tl.LinearImputer(), (maps <= 0.3) & (maps != maps.amax(dim=(1, 2), keepdim=True))
        streams = [stream(0, name, 0.3) for name in ids]
        answers = subject.model.module(imputer(inputs, kept, streams)).argmax(dim=1).numpy()
        expected = found["completeness"].baseline - (answers == subject.samples.labels).mean()
        assert found["completeness"].at(0.3) == pytest.approx(expected)


def test_maps_are_found_whatever_the_shards(tmp_path, tiny):
    subject = find_subject(tiny, order_vs_value.PHOTOGRAPHS)
    evaluation = tl.evaluate(
        subject.model, subject.samples, ["gradcam"], metrics=[], out=tmp_path / "shards", shard_size=4
    )
    ids = [subject.samples.ids[k] for k in (5, 0, 3)]
    assert torch.equal(Modified(evaluation).originals("gradcam", ids), evaluation.maps("gradcam")[[5, 0, 3]])


@pytest.mark.slow
def test_real_photographs(shared_data):
    """On CIFAR-10, constants change what completeness and soundness see, and nothing that ROAD and deletion see."""
    stored = np.load(shared_data / "cifar10" / "cifar10_dev.npz")
    network = ResNet20()
    network.load_state_dict(load_file(shared_data / "cifar10" / "resnet20.safetensors"), strict=False)
    network.eval()
    images, labels = normalise(stored["x_test"][:40]), stored["y_test"][:40].reshape(-1).astype(np.int64)
    maps = tl.attribute(network, images, labels, "gradcam")
    versions = [maps, *(change(maps) for change in MODIFICATIONS.values())]
    options = {"performance": "probability", "batch_size": 40}

    def least(metric, **own):
        curves = [metric(network, images, labels, each, **options, **own) for each in versions]
        return min(hausdorff(curves[a], curves[b]) for a, b in ((0, 1), (0, 2), (1, 2)))

    shares = {"levels": (0.2, 0.5, 0.8)}
    assert least(tl.road, **shares) == least(tl.deletion, **shares) == 0
    assert least(tl.completeness, thresholds=(0.8, 0.5, 0.2)) > 0.1
    assert least(tl.soundness, levels=tuple(percent / 100 for percent in range(95, 0, -10))) > 0.02
