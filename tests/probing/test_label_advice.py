"""Labels and maps of the wrong shape, as people pass them: each error says what to do, and that works."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.probing.label_advice import label_advice

CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])
IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
MAPS = IMAGES.abs().sum(dim=1)
ONE_HOT = torch.eye(3)[CLASSES]
MULTI_HOT = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
SOFT = 0.9 * ONE_HOT + 0.1 / 3
MASKS = CLASSES[:, None, None].expand(6, 8, 8)
HOW = {"imputer": tl.ConstantImputer(), "levels": (0.9, 0.5, 0.1)}


def soundness(labels, inputs=IMAGES, maps=MAPS, **how):
    return tl.soundness(tiny_model(), inputs, labels, maps, **HOW, **how)


def evaluated(labels, inputs=IMAGES, model=None, **how):
    return tl.evaluate(model or tiny_model(), (inputs, labels), ["random"], metrics="deletion", batch_size=6, **how)


def data_set(labels):
    return tl.evaluate(tiny_model(), TensorDataset(IMAGES, labels), ["random"], metrics="deletion")


def attributed(labels, inputs=IMAGES):
    return tl.attribute(tiny_model(), inputs, labels, "saliency")


@pytest.mark.parametrize("of", [torch.Tensor.long, torch.Tensor.float, torch.Tensor.bool])
@pytest.mark.parametrize("call", [soundness, evaluated])
def test_one_hot_labels(call, of):
    with pytest.raises(ValueError, match=r"shape \(6, 3\)\. They are one-hot: pass labels\.argmax\(1\)\.$"):
        call(of(ONE_HOT))
    call(of(ONE_HOT).long().argmax(1))


@pytest.mark.parametrize("call", [soundness, evaluated])
def test_soft_labels(call):
    with pytest.raises(
        ValueError, match=r"They are soft labels, whose rows sum to 1: pass labels\.argmax\(1\), the mo"
    ):
        call(SOFT)
    call(SOFT.argmax(1))


@pytest.mark.parametrize("of", [torch.Tensor.long, torch.Tensor.float, torch.Tensor.bool, torch.Tensor.numpy])
@pytest.mark.parametrize("call", [soundness, evaluated])
def test_multi_hot_labels(call, of):
    """One row for each class that is present, by the lines of the message; the largest entry would be any of them."""
    labels = of(MULTI_HOT)
    with pytest.raises(ValueError, match=r"multi-hot.* with a map for each row and output='multi_label'\.$") as error:
        call(labels)
    assert "argmax" not in str(error.value)
    inputs = IMAGES if isinstance(labels, torch.Tensor) else IMAGES.numpy()
    rows = torch.tensor([0, 1, 1, 2, 4, 4, 4, 5])
    space = {"inputs": inputs, "labels": labels, "np": np}
    exec("\n".join(re.findall("`([^`]+ = [^`]+)`", str(error.value))), space)
    assert torch.equal(torch.as_tensor(space["inputs"]), IMAGES[rows])
    assert space["labels"].tolist() == [0, 0, 1, 2, 0, 1, 2, 1]
    if call is soundness:
        call(space["labels"], space["inputs"], MAPS[rows], output="multi_label")
        return
    with pytest.warns(UserWarning, match="3 of the 8 samples of arrays repeat the input of another with another label"):
        run = call(space["labels"], space["inputs"], output="multi_label")
    assert run.results.data.samples == 8


@pytest.mark.parametrize("labels", [MASKS, MASKS[:, None], MASKS > 0, MASKS.numpy()])
@pytest.mark.parametrize("call", [soundness, evaluated])
def test_masks(call, labels):
    with pytest.raises(ValueError, match=r"They are masks, with a class for each position.* \[0\] \* len\(inputs\) as"):
        call(labels)


def test_segmentation_as_advised():
    net = nn.Conv2d(3, 5, 3, padding=1)

    def score(answer):
        return answer[:, 3].mean((1, 2))

    labels = [0] * len(IMAGES)
    curve = tl.soundness(net, IMAGES, labels, MAPS, target=score, performance="score", **HOW)
    assert np.isfinite(curve.performance).all()
    run = evaluated(labels, model=net, target=score, performance="score")
    assert run.results.quality["mean score"] == pytest.approx(float(score(net(IMAGES)).mean().detach()))
    with pytest.raises(ValueError, match=r"`targets`.*nn\.Sequential\(model, nn\.AdaptiveAvgPool2d\(1\), nn\.Flatten"):
        tl.attribute(net, IMAGES, MASKS, "saliency")
    pooled = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert tl.attribute(pooled, IMAGES, [3] * 6, "saliency").shape == (6, 8, 8)


def test_targets_of_methods():
    for labels, advice in (
        (ONE_HOT, "They are one-hot: pass targets.argmax(1)."),
        (
            SOFT,
            "They are soft labels, whose rows sum to 1: pass targets.argmax(1), the most likely class of each sample.",
        ),
        (MULTI_HOT, "`rows, targets = targets.nonzero(as_tuple=True)` and `inputs = inputs[rows]`."),
        (3, "If `inputs` is a single sample, add the batch dimension: pass inputs[None], [target]."),
    ):
        with pytest.raises(ValueError, match=f"`targets` must hold one number.* {re.escape(advice)}$"):
            attributed(labels)
    assert attributed(CLASSES[:, None]).shape == (6, 8, 8)


def test_labels_of_a_data_set():
    for labels, advice in (
        (ONE_HOT, "They are one-hot: let the data set return label.argmax()."),
        (
            SOFT,
            "soft labels, whose rows sum to 1: let the data set return label.argmax(), the most likely class of each",
        ),
        (
            MULTI_HOT,
            "multi-hot, with several classes per sample: stack inputs and labels, and pass one row for each cla",
        ),
        (MASKS, "They are masks"),
    ):
        with pytest.raises(ValueError, match=f"Labels of `data` must be one number each.*{re.escape(advice)}"):
            data_set(labels)


@pytest.mark.parametrize("label", [1, [1], torch.tensor(1), np.int64(1)])
def test_one_image_without_a_batch_dimension(label):
    advice = r"3 samples; got .*If `inputs` is a single sample, add the batch dimension: pass inputs\[None\], \[label\]"
    for call in (soundness, evaluated):
        with pytest.raises(ValueError, match=advice):
            call(label, IMAGES[0])
    with pytest.raises(ValueError, match=advice):
        soundness(label, IMAGES[0], MAPS[0])
    soundness([1], IMAGES[0][None], MAPS[0][None])
    evaluated([1], IMAGES[0][None])


def test_one_image_of_bytes():
    picture = (IMAGES[0].permute(1, 2, 0) * 50).byte()
    with pytest.raises(ValueError, match=r"add the batch dimension: pass inputs\[None\]"):
        evaluated(1, picture)
    with pytest.raises(ValueError, match=r"got uint8 of shape \(8, 8\)\. Of a single sample, add the batch dimension"):
        evaluated(1, picture[..., 0])


def test_one_row_without_a_batch_dimension():
    model, row = nn.Linear(5, 3), torch.randn(5)
    message = r"got .*shape \(5,\)\. Of a single sample, add the batch dimension: inputs\[None\]\."
    for call in (
        lambda: tl.soundness(model, row, 1, row.abs(), **HOW),
        lambda: evaluated(1, row, model),
        lambda: tl.attribute(model, row, 1, "saliency"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_one_map_without_a_batch_dimension():
    image = IMAGES[:1]
    for maps, advice in (
        (MAPS[0], r"got shape \(8, 8\)\. This is a single map: add the batch dimension, maps\[None\]\."),
        (image[0].abs(), r"This is a single map with channels: add the batch dimension, maps\[None\]\."),
    ):
        with pytest.raises(ValueError, match=advice):
            soundness([0], image, maps)
        with pytest.raises(ValueError, match=r"Of a single map, add the batch dimension: maps\[None\]\."):
            evaluated([0], image, maps={"mine": maps})
    soundness([0], image, MAPS[0][None])
    soundness([0], image, image[0].abs()[None], channels="sum")
    with pytest.raises(ValueError, match=r"got shape \(8, 8\)\. This is a single map\.$"):
        soundness(CLASSES, IMAGES, MAPS[0])
    # A grey image that is taken for a signal of eight channels.
    with pytest.raises(
        ValueError, match=r"one image and its map, add the batch dimension to both: inputs\[None\], maps"
    ):
        soundness([0], IMAGES[0, :1], MAPS[0])
    with pytest.raises(
        ValueError, match=r"channels that it expects\. Images are \(samples, channels, height, width\)\.$"
    ):
        evaluated([0], IMAGES[0, :1])


def test_labels_of_no_known_kind():
    assert label_advice(np.arange(7), 6) == ""
    assert label_advice(np.zeros((5, 3)), 6) == ""
    for labels in (np.full((6, 3), 2), np.full((6, 3), 0.9), np.full((6, 3), -0.5)):
        assert label_advice(labels, 6) == " Pass the class of each sample as one integer."
    with pytest.raises(ValueError, match=r"got bool of shape \(6,\)\. Convert class numbers to int64\.$"):
        evaluated(CLASSES > 0)
