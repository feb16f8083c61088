"""The network that counts colours: its weights, its truth, and what methods and metrics make of it."""

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory import colours, true_soundness
from twinlens.laboratory.designed import COLOURS, ColourCounter


def test_detectors_know_their_colours_alone():
    counter = ColourCounter()
    pixels = torch.tensor([*COLOURS.values(), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.94, 0.06, 0.0)])[:, :, None, None]
    counts = counter(pixels.double())[:, 0, 0, 0].tolist()
    assert counts == pytest.approx([1, -1, 0, 0, 0, 0, 0.8])


def test_effects_are_what_a_pixel_adds_in_any_order():
    task = colours(6)
    rng, side = np.random.default_rng(0), task.inputs.shape[2]
    for sample in range(6):
        x, y = task.inputs[sample], int(task.labels[sample])
        for row, column in rng.integers(0, side, size=(10, 2)).tolist():
            keep = torch.from_numpy(rng.random((side, side)) < 0.5)
            both = torch.stack([keep, keep])
            both[:, row, column] = torch.tensor([False, True])
            logits = task.model(x * both[:, None]).detach()
            gain = (logits[:, y] - logits[:, 1 - y]).diff().item()
            whole = task.model(x[None]).detach()[0]
            total = float(whole[y] - whole[1 - y])
            assert gain / total == pytest.approx(
                task.effects[sample, row, column] / task.effects[sample].sum(), abs=1e-9
            )


def test_squares_that_are_not_read_have_no_effect():
    task = colours(20)
    colour = task.inputs.permute(0, 2, 3, 1).numpy()
    green = np.abs(colour - np.array(COLOURS["green"])).sum(axis=-1) < 0.3
    grey = np.abs(colour - np.array(COLOURS["grey"])).sum(axis=-1) < 0.3
    assert green.any()
    assert grey.any()
    assert not task.effects[green | grey].any()
    # Both signs occur in every image: truth has a sign.
    assert ((task.effects > 0).any(axis=(1, 2)) & (task.effects < 0).any(axis=(1, 2))).mean() > 0.8
    assert np.mean(task.model(task.inputs).argmax(1).numpy() == task.labels) == pytest.approx(0.9)


def test_methods_differ_and_soundness_knows():
    task = colours(30)
    found = {}
    for method in ("integrated_gradients", "saliency", "random"):
        maps = tl.attribute(task.model, task.inputs.float(), task.labels, method).double()
        curve = tl.soundness(task.model, task.inputs, task.labels, maps, estimator="rank", imputer=task.imputer)
        found[method] = true_soundness(maps.numpy(), task.predictive).mean(), curve.area()
    # Integrated gradients are exact; magnitudes of gradients mark evidence against the label as well.
    assert found["integrated_gradients"][0] == pytest.approx(1)
    assert 0.4 < found["saliency"][0] < 0.8
    assert found["random"][0] < 0.15
    assert found["integrated_gradients"][1] > found["saliency"][1] > found["random"][1]
    assert found["random"][1] == pytest.approx(0.5, abs=0.02)
