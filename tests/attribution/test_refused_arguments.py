"""Arguments of attribution methods that cannot be used are refused by name."""

import sys

import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model

INPUTS, LABELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
MAPS = INPUTS[:, 0].abs()


def ending(*_, **__):
    sys.exit(7)


@pytest.mark.parametrize("method", ["saliency", "rise", "random", "gradcam"])
def test_arguments_of_attribution(method):
    model = tiny_model()
    for changed, name in (
        ({"seed": float("inf")}, "seed"),
        ({"inputs": INPUTS.to_sparse()}, "inputs"),
        ({"inputs": INPUTS.to("meta")}, "inputs"),
        ({"targets": LABELS.to_sparse()}, "targets"),
    ):
        given = {"inputs": INPUTS, "targets": LABELS, "seed": 0} | changed
        with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
            tl.attribute(model, given["inputs"], given["targets"], method, seed=given["seed"])
    with pytest.raises(ValueError, match=r"`method` called sys\.exit"):
        tl.attribute(model, INPUTS, LABELS, ending)


class Infinite(torch.nn.Module):
    def forward(self, images):
        return torch.stack([images.sum(dim=(1, 2, 3)) / 0, *2 * [images.sum(dim=(1, 2, 3))]], dim=1)


@pytest.mark.parametrize("method", ["rise", "occlusion", "saliency", "integrated_gradients"])
def test_maps_of_a_model_that_returns_infinity_are_refused(method):
    options = {"rise": {"masks": 20}}.get(method, {})
    with pytest.raises(ValueError, match="`model` leads to NaN or infinity in the map of sample 'a'"):
        tl.attribute(Infinite(), INPUTS, 4 * [0], method, ids="abcd", **options)
