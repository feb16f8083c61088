"""Every method on networks for signals and volumes: it explains them, or refuses in one line."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from twinlens.attribution.feature_maps import find_layer
from twinlens.attribution.method import options_of

SIZES = {1: (24,), 2: (12, 14), 3: (8, 9, 10)}
FEW = {
    "rise": {"masks": 40},
    "extremal_perturbation": {"steps": 20},
    "iba": {"steps": 2},
    "input_iba": {"steps": 2, "rounds": 2},
    "kernel_shap": {"coalitions": 140, "cells": 2},
}
REFUSED = {
    1: {"attention_rollout", "gradient_attention", "pooling", "rect"},
    3: {"attention_rollout", "gradient_attention", "pooling", "rect", "extremal_perturbation"},
}


def network(axes, *, channels=2, pool="Avg"):
    torch.manual_seed(0)

    def layer(name):
        return getattr(nn, f"{name}{axes}d")

    return nn.Sequential(
        layer("Conv")(channels, 6, 3, padding=1), layer("BatchNorm")(6), nn.ReLU(), layer(f"{pool}Pool")(2),
        layer("Conv")(6, 8, 3, padding=1), nn.ReLU(), layer("AdaptiveAvgPool")(1), nn.Flatten(), nn.Linear(8, 3),
    ).eval()  # fmt: skip


def inputs_of(axes, count=3, channels=2):
    return torch.randn(count, channels, *SIZES[axes], generator=torch.Generator().manual_seed(axes))


def options_for(name, inputs):
    options = dict(FEW.get(name, {}))
    parameters = inspect.signature(tl.METHODS[name]).parameters
    if "copies" in parameters:
        options["copies"] = 2
    if "reference" in parameters:
        options["reference"] = inputs.flip(0)
    return options


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("name", tl.METHODS)
def test_every_method_explains_signals_and_volumes_or_refuses_in_one_line(name, axes):
    inputs = inputs_of(axes)
    if name in REFUSED[axes]:
        with pytest.raises(ValueError, match=rf"`inputs` must be images.* for {name}; got shape") as refusal:
            tl.attribute(network(axes), inputs, [0, 1, 2], name)
        assert "\n" not in str(refusal.value)
        return
    maps = tl.attribute(network(axes), inputs, [0, 1, 2], name, **options_for(name, inputs))
    assert maps.shape == (3, *SIZES[axes])
    assert maps.isfinite().all()
    assert (maps >= 0).all()
    assert maps.any()


def as_image_network(model):
    """The network for images of one row that computes what a network for signals does."""
    converted = []
    for layer in model:
        if isinstance(layer, nn.Conv1d):
            twin = nn.Conv2d(layer.in_channels, layer.out_channels, (1, 3), padding=(0, 1))
            twin.weight.data, twin.bias.data = layer.weight.data[:, :, None], layer.bias.data
        elif isinstance(layer, nn.BatchNorm1d):
            twin = nn.BatchNorm2d(layer.num_features)
            twin.load_state_dict(layer.state_dict())
        else:
            twin = {"AvgPool1d": nn.AvgPool2d((1, 2)), "MaxPool1d": nn.MaxPool2d((1, 2))}.get(type(layer).__name__)
            twin = nn.AdaptiveAvgPool2d(1) if isinstance(layer, nn.AdaptiveAvgPool1d) else twin or layer
        converted.append(twin)
    return nn.Sequential(*converted).eval()


@pytest.mark.parametrize("name", ["gradcam", "cam", "excitation_backprop", "deeplift", "lrp", "iba", "guided_backprop"])
def test_a_signal_is_explained_like_an_image_of_one_row(name):
    model, inputs = network(1, pool="Avg" if name == "excitation_backprop" else "Max"), inputs_of(1)
    options = FEW.get(name, {})
    signals = tl.attribute(model, inputs, [0, 1, 2], name, **options)
    images = tl.attribute(as_image_network(model), inputs[:, :, None], [0, 1, 2], name, **options)
    assert torch.allclose(signals, images[:, 0], atol=1e-6)


def test_gradcam_of_a_volume_is_the_weighted_sum_of_its_feature_maps():
    model, inputs = network(3), inputs_of(3)
    features = model[:5](inputs).detach().requires_grad_()
    logits = model[5:](features)
    (gradient,) = torch.autograd.grad(logits[range(3), range(3)].sum(), features)
    weighted = (gradient.mean(dim=(2, 3, 4), keepdim=True) * features).sum(dim=1, keepdim=True).clamp(min=0)
    expected = nn.functional.interpolate(weighted, size=SIZES[3], mode="trilinear")[:, 0]
    assert torch.allclose(tl.attribute(model, inputs, [0, 1, 2], "gradcam"), expected, atol=1e-6)


@pytest.mark.parametrize("axes", [1, 3])
def test_contributions_sum_to_the_change_of_the_logit_behind_max_pooling(axes):
    model, inputs = network(axes, pool="Max"), inputs_of(axes)
    maps = tl.attribute(model, inputs, [0, 1, 2], "deeplift", sign="signed")
    change = (model(inputs) - model(torch.zeros_like(inputs)))[range(3), range(3)]
    assert torch.allclose(maps.flatten(1).sum(dim=1), change, atol=1e-4)


class WithTokens(nn.Module):
    """A convolution over time, then layers that read (samples, moments, channels): as many axes, another order."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.relu = nn.Conv1d(2, 8, 3, padding=1), nn.ReLU()
        self.norm, self.mix, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        features = self.relu(self.convolution(x))
        return self.head(self.mix(self.norm(features.transpose(1, 2))).mean(dim=1))


def test_tokens_of_a_network_for_signals_are_not_taken_for_its_feature_map():
    model, inputs = WithTokens().eval(), inputs_of(1)
    assert find_layer(model, inputs) is model.convolution
    assert tl.attribute(model, inputs, [0, 1, 2], "gradcam").shape == (3, 24)


def test_networks_without_convolutions_are_refused_by_what_they_lack():
    model = nn.Sequential(nn.Linear(24, 8), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(ValueError, match=r"a layer whose output is \(samples, channels, length\), and this one has"):
        tl.attribute(model, inputs_of(1), [0, 1, 2], "gradcam")
    with pytest.raises(ValueError, match=r"`layer` must return a feature map \(samples, channels, length\); it"):
        tl.attribute(network(1), inputs_of(1), [0, 1, 2], "gradcam", layer="8")


def test_baselines_of_signals_and_volumes():
    ramp = torch.arange(24.0).expand(1, 1, 24).clone()
    assert torch.equal(tl.attribute(network(1, channels=1), ramp, [0], "sobel")[0, 1:-1], torch.full((22,), 2.0))
    for axes in (1, 3):
        bell = tl.attribute(network(axes), inputs_of(axes), [0, 1, 2], "centre")[0]
        peak = np.unravel_index(int(bell.argmax()), bell.shape)
        assert all(abs(where - (side - 1) / 2) <= 0.5 for where, side in zip(peak, bell.shape, strict=True))
        assert torch.allclose(bell, bell.flip(0))


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("name", tl.METHODS)
def test_every_method_has_maps_of_single_channels(name, axes):
    inputs, model = inputs_of(axes), network(axes)
    if name in REFUSED.get(axes, ()) or "attention" in name:
        pytest.skip("refused above")
    options = options_for(name, inputs)
    merged = tl.attribute(model, inputs, [0, 1, 2], name, **options)
    maps = tl.attribute(model, inputs, [0, 1, 2], name, **options, features="channels")
    assert maps.shape == inputs.shape
    assert (maps >= 0).all()
    if "layer" in options_of(tl.METHODS[name]):  # one value per position: shared equally
        assert torch.allclose(maps.sum(dim=1), merged, atol=1e-6)
        assert torch.equal(maps[:, 0], maps[:, 1])


def test_channels_of_a_linear_model_are_told_apart():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    model[1].weight.data = torch.zeros(2, 12)
    model[1].weight.data[0, 4:8] = torch.tensor([1.0, 2.0, 3.0, -1.0])  # channel 1 of three
    for name in ("integrated_gradients", "input_x_gradient", "occlusion", "deeplift", "kernel_shap"):
        options = {"cells": 4} if name == "kernel_shap" else {"window": 1} if name == "occlusion" else {}
        maps = tl.attribute(model, torch.ones(1, 3, 4), [0], name, features="channels", **options)
        expected = torch.zeros(1, 3, 4)
        expected[0, 1] = torch.tensor([1.0, 2.0, 3.0, 0.0])
        assert torch.allclose(maps, expected, atol=1e-4), name


def test_rows_have_no_channels():
    with pytest.raises(ValueError, match=r"`features` 'channels' needs inputs \(samples, channels, \*spatial\)"):
        tl.attribute(nn.Linear(3, 2), torch.ones(1, 3), [0], "saliency", features="channels")
