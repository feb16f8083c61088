from dataclasses import replace

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.reproduction.watching import Watch, accuracy_of
from twinlens.models.training import Training, recognised, train
from twinlens.reproduction import ExperimentOptions, semi_natural, semi_natural_road
from twinlens.reproduction.image_sets import ImageExperiment, ImageSet, LazyInputs, as_inputs, enlarge
from twinlens.reproduction.networks import SmallCNN
from twinlens.reproduction.scenes import drawn_images
from twinlens.reproduction.semi_natural import MarkedResults
from twinlens.reproduction.semi_natural_road import MARKED, REAL, SYNTHETIC, make_sets
from twinlens.support.estimate import Estimate


@pytest.mark.parametrize(("paper", "size", "side"), [(False, 32, 9), (True, 224, 60)])
def test_the_three_sets_have_the_same_watermarks(tmp_path, paper, size, side):
    images = drawn_images(30, 32)
    train, test = (ImageSet(images=part, labels=np.arange(len(part)) % 10) for part in (images[:20], images[20:]))
    options = ExperimentOptions(out=tmp_path, seed=3, paper=paper)
    sets = make_sets(ImageExperiment(name="x", train=train, test=test, classes=10, options=options))
    (real, _), (learned, marked), (_, alone) = (sets[name] for name in (REAL, MARKED, SYNTHETIC))
    assert np.array_equal(real.take(range(20)).images, enlarge(images[:20], size))
    assert not np.array_equal(learned.labels, real.labels)
    both, canvas = marked.take(range(10)), alone.take(range(10))
    assert np.array_equal(both.labels, canvas.labels)
    assert np.array_equal(both.labels, marked.labels)
    changed = (both.images != enlarge(images[20:], size)).any(axis=3)
    drawn = (canvas.images != 128).any(axis=3)
    assert set(drawn.sum(axis=(1, 2)).tolist()) == {side**2}
    assert not (changed & ~drawn).any()
    assert np.array_equal(both.images[drawn], canvas.images[drawn])
    # One by one, in another order, they are the same.
    assert np.array_equal(marked.take([7, 2]).images, both.images[[7, 2]])


def test_images_are_enlarged_on_demand():
    marked = ImageSet(images=drawn_images(9, 32), labels=np.arange(9), size=64)
    mean, inputs = marked.mean(), marked.inputs(marked.mean())
    assert isinstance(inputs, LazyInputs)
    assert (len(inputs), inputs.shape) == (9, (9, 3, 64, 64))
    whole = as_inputs(marked.take(range(9)).images, mean)
    assert torch.equal(inputs[torch.tensor([4, 1])], whole[[4, 1]])
    assert whole.mean(dim=(0, 2, 3)).abs().max() < 1e-4
    network = SmallCNN(3, 9, size=64).eval()
    assert np.array_equal(recognised(network, inputs, marked.labels), recognised(network, whole, marked.labels))
    training = Training(epochs=1, batch_size=4)
    trained = [
        train(lambda: SmallCNN(3, 9, size=64), each, marked.labels, training=training, device="cpu")
        for each in (inputs, whole)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*(n.state_dict().values() for n in trained), strict=True))


def test_claims_about_watermarks_are_paired():
    ids = [str(k) for k in range(50)]

    def verdicts(rect, pooling, other):
        spread = np.random.default_rng(0).normal(0, 0.3, 50)  # which the same images have under every method
        shares = {"Rect": rect, "Pooling": pooling, "IG": other, "GradCAM": other, "DeepSHAP": other}
        own = np.random.default_rng(1).normal(0, 0.005, (len(shares), 50))
        attr = {
            name: Estimate.of_mean(mean + spread + each, ids)
            for (name, mean), each in zip(shares.items(), own, strict=True)
        }
        row = MarkedResults(accuracy=accuracy_of(1.0), explained=50, shares=attr, images=None, maps={})
        return [claim.verdict for claim in semi_natural._claims({"number": row, "stripe": row})]

    no = "does not hold"
    assert verdicts(0.54, 0.5, 0.52) == ["holds", "holds", no, no, "holds"]
    assert verdicts(0.5, 0.54, 0.52) == [no, no, "holds", "holds", "holds"]
    assert verdicts(0.505, 0.5, 0.5)[2] == "open"  # false by less than what matters


def removal(answers, order="morf"):
    """A curve of ROAD for samples (N, L) that are recognised or not; at level 0 all are."""
    correct = np.column_stack([np.ones(len(answers)), answers]).astype(bool)
    levels = (0.0, *semi_natural_road.LEVELS)
    ids, maps = [str(k) for k in range(len(answers))], torch.arange(20.0).expand(len(answers), -1)
    table = tl.probe(
        lambda x: x[:, :2],
        torch.zeros(len(answers), 20),
        [0] * len(answers),
        maps,
        schedule=tl.probing.Schedule(by="area", order=order, levels=levels),
        imputer=tl.ConstantImputer(0.0),
        ids=ids,
    )
    return tl.removal_from_probes(replace(table, target_rank=np.where(correct, 0, 1)))


@pytest.mark.parametrize(("order", "sign"), [("morf", 1), ("lerf", -1)])
def test_rankings_are_certain_refuted_or_open(order, sign):
    rng = np.random.default_rng(0)
    kept = {"GradCAM": 0.2, "IG": 0.5, "DeepSHAP": 0.49, "Rect": 0.9}
    curves = {
        method: {order: removal(rng.random((200, len(semi_natural_road.LEVELS))) < share, order)}
        for method, share in kept.items()
    }
    losses = semi_natural_road.Losses({REAL: curves})

    def verdict(better, worse):
        first, second = (better, worse) if sign == 1 else (worse, better)
        return semi_natural_road._rank(losses, order, REAL, first, second, text="t", source="s").verdict

    assert verdict(["GradCAM"], ["IG", "Rect"]) == "holds"
    assert verdict(["IG"], ["GradCAM", "Rect"]) == "does not hold"
    assert verdict(["IG"], ["DeepSHAP"]) == "open"


def test_a_trained_network_needs_data(tmp_path):
    options = ExperimentOptions(out=tmp_path, model="mnist-cnn")
    with pytest.raises(ValueError, match="`model` needs your own data"):
        semi_natural_road.run(options, Watch())
    with pytest.raises(ValueError, match="`weights` needs your own model"):
        semi_natural_road.run(ExperimentOptions(out=tmp_path, weights="w.pt"), Watch())
