from functools import partial

import numpy as np
import pytest

from tests.reproduction.watching import Watch, accuracy_of
from twinlens.models.training import Training
from twinlens.reproduction import ExperimentOptions, retraining
from twinlens.reproduction.retraining import EDGE_SHARE, SHARE, edge_regions, fill, removed_pixels


@pytest.mark.slow
def test_retraining_finds_the_class_at_the_edge(archive, tmp_path, monkeypatch):
    quick = Training(epochs=15, batch_size=16, rate=0.01, schedule="one_cycle")
    monkeypatch.setattr("twinlens.reproduction.networks.QUICK", quick)
    numbers = retraining.run_retraining(ExperimentOptions(out=tmp_path, data=archive), Watch()).numbers["accuracy"]
    assert numbers["clean"]["clean"] > 0.9
    gap = numbers["strategy 2"]["strategy 2"] - numbers["strategy 1"]["strategy 1"]
    assert gap > 0.15


@pytest.mark.parametrize("classes", [4, 10, 100])
def test_edge_regions_are_at_the_edge_and_differ(classes):
    region = edge_regions(classes, 32, 0.05)
    assert set(region.sum(axis=(1, 2)).tolist()) == {51}
    assert not region[:, 8:24, 8:24].any()
    border = np.ones((32, 32), dtype=bool)
    border[1:-1, 1:-1] = False
    assert (region & border).any(axis=(1, 2)).all()
    assert len({one.tobytes() for one in region}) == classes
    assert region[0, 0, 31]  # the upper right corner, as in the paper's figure
    if classes <= 10:
        assert (region.sum(axis=0) > 1).mean() < 0.03


def test_both_strategies_remove_as_much():
    first, second = removed_pixels(10, 32)
    count = round(SHARE * 32 * 32)
    assert first.sum() == count
    assert set(second.sum(axis=(1, 2)).tolist()) == {count}
    edges = edge_regions(10, 32, EDGE_SHARE)
    assert (second | ~edges).all()
    y, x = np.mgrid[:32, :32] - 15.5
    assert np.hypot(y, x)[first].max() <= np.hypot(y, x)[~first].min() + 1e-6
    assert (second[:, 4:28, 4:28] == first[4:28, 4:28])[:, 8:16, 8:16].all()
    assert not np.array_equal(second[0], second[1])


def test_removed_pixels_get_the_colour_and_others_stay():
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    removed = np.zeros((2, 4, 4), dtype=bool)
    removed[1, 2, 3] = True
    filled = fill(images, removed, np.array([9.6, 20.0, 30.0]))
    assert filled[1, 2, 3].tolist() == [10, 20, 30]
    assert np.array_equal(filled[~removed], images[~removed])
    assert filled.dtype == np.uint8


def test_claims_about_retraining_follow_the_numbers():
    def verdicts(original, one, two, samples=2000):
        share = partial(accuracy_of, samples=samples)
        clean = {"clean": share(0.9), "strategy 1": share(original), "strategy 2": share(original)}
        accuracy = {"clean": clean, "strategy 1": {"strategy 1": share(one)}, "strategy 2": {"strategy 2": share(two)}}
        return [claim.verdict for claim in retraining._claims(accuracy)]

    assert verdicts(0.2, 0.66, 0.88) == ["holds"] * 4
    assert verdicts(0.5, 0.8, 0.82) == ["does not hold"] * 4
    assert verdicts(0.4, 0.7, 0.87, samples=30) == ["open"] * 4


def test_claims_about_the_edge_follow_the_numbers():
    def verdicts(clean, marked):
        original = {"clean": accuracy_of(0.9), "marked": accuracy_of(0.9)}
        retrained = {"clean": accuracy_of(clean), "marked": accuracy_of(marked)}
        return [claim.verdict for claim in retraining._spurious_claims({"original": original, "retrained": retrained})]

    assert verdicts(0.5, 1.0) == ["holds", "holds"]
    assert verdicts(0.8, 0.9) == ["does not hold", "does not hold"]
    assert verdicts(0.5, 0.6) == ["holds", "does not hold"]
    assert verdicts(0.5, 0.8) == ["holds", "does not hold"]
    assert verdicts(0.75, 1.0) == ["open", "holds"]
