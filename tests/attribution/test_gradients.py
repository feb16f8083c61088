"""SmoothGrad, GradientSHAP and contrastive excitation backpropagation: against Captum, and by hand."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import twinlens as tl
from tests.attribution.planted import density, planted_images, planted_model, trace
from twinlens.attribution.gradients import _gradient
from twinlens.attribution.harness import make_request, undisturbed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from captum import attr as captum


def smooth_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(4, 3, 8, 8, generator=generator), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize("ensemble", ["sg", "sq", "var"])
def test_smoothgrad_is_the_hand_computation(batch, ensemble):
    model, (inputs, targets) = smooth_network(), batch
    request = make_request(model, inputs, targets, ids=None, seed=5)
    noise = [request.normal((3, 8, 8), "noise", k) for k in range(3)]
    with undisturbed(model):
        draws = torch.stack([_gradient(model, inputs + 0.5 * each, targets) for each in noise])
    combined = {"sg": draws.mean(0), "sq": (draws**2).mean(0), "var": draws.var(0, unbiased=False)}[ensemble]
    options = {"ensemble": ensemble, "samples": 3, "variance": 0.25, "seed": 5}
    maps = tl.attribute(model, inputs, targets, "smoothgrad", **options)
    torch.testing.assert_close(maps, combined.abs().amax(dim=1))


@pytest.mark.parametrize(("ensemble", "kind"), [("sg", "smoothgrad"), ("sq", "smoothgrad_sq"), ("var", "vargrad")])
def test_smoothgrad_agrees_with_captum_in_expectation(batch, ensemble, kind):
    model, (inputs, targets) = smooth_network(), batch
    tunnel = captum.NoiseTunnel(captum.Saliency(model))
    torch.manual_seed(1)
    many = 500
    theirs = tunnel.attribute(inputs, nt_type=kind, nt_samples=many, stdevs=0.5, target=targets, abs=False)
    maps = tl.attribute(model, inputs, targets, "smoothgrad", ensemble=ensemble, samples=many, variance=0.25)
    expected = theirs.detach().abs().amax(dim=1)
    assert (maps - expected).abs().sum() < 0.1 * expected.sum()


def test_smoothgrad_without_noise_is_saliency(batch):
    model, (inputs, targets) = smooth_network(), batch
    maps = tl.attribute(model, inputs, targets, "smoothgrad", samples=2, variance=0.0)
    torch.testing.assert_close(maps, tl.attribute(model, inputs, targets, "saliency"))


def test_gradient_shap_agrees_with_captum_in_expectation(batch):
    model, (inputs, targets) = smooth_network(), batch
    baselines = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(1)
    theirs = captum.GradientShap(model).attribute(inputs, baselines, n_samples=1000, stdevs=0.1, target=targets)
    expected = theirs.sum(dim=1).clamp(min=0).float()
    options = {"reference": baselines, "samples": 1000, "noise": 0.1}
    maps = tl.attribute(model, inputs, targets, "gradient_shap", **options)
    assert (maps - expected).abs().amax() < 0.1 * expected.amax()


def test_gradient_shap_is_exact_for_linear_models_and_integrated_gradients_in_the_mean(batch):
    inputs, targets = batch
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    start = torch.full((1, 3, 8, 8), 0.5)
    exact = (linear[1].weight[targets].reshape(-1, 3, 8, 8) * (inputs - start)).sum(dim=1).clamp(min=0).detach()
    torch.testing.assert_close(
        tl.attribute(linear, inputs, targets, "gradient_shap", reference=start, samples=1), exact
    )
    model = smooth_network()
    maps = tl.attribute(model, inputs, targets, "gradient_shap", samples=800)
    expected = tl.attribute(model, inputs, targets, "integrated_gradients")
    assert (maps - expected).abs().amax() < 0.05 * expected.amax()


def test_expected_gradients_are_complete(batch):
    """They sum to the logit's mean difference from the baselines', which maps without channels or signs would hide."""
    _, targets = batch
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 3))
    for weight in model.parameters():
        weight.data.abs_()  # every contribution of larger inputs than the baseline's is positive
    rows, baselines = 1 + torch.rand(4, 4), torch.rand(6, 4)
    maps = tl.attribute(model, rows, targets, "gradient_shap", reference=baselines, samples=1500)
    with torch.no_grad():
        gained = model(rows)[range(4), targets] - model(baselines)[:, targets].mean(dim=0)
    torch.testing.assert_close(maps.sum(dim=1), gained, rtol=0.02, atol=0)


def test_gradient_shap_refuses_baselines_that_do_not_fit(batch):
    model, (inputs, targets) = smooth_network(), batch
    with pytest.raises(ValueError, match=r"`reference` must hold inputs of shape \(3, 8, 8\)"):
        tl.attribute(model, inputs, targets, "gradient_shap", reference=inputs[:, :2])
    with pytest.raises(ValueError, match="`reference` must be finite"):
        tl.attribute(model, inputs, targets, "gradient_shap", reference=inputs * torch.nan)


def test_contrastive_excitation_is_the_difference_of_a_class_and_its_opposite(batch):
    inputs, targets = batch
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
    )
    with torch.no_grad():
        hidden, weights = model[:2](inputs), model[4].weight[targets][:, :, None, None]
        ways = [(hidden * (sign * weights).clamp(min=0)).sum(dim=1) for sign in (1, -1)]
        won, lost = (way / way.sum(dim=(1, 2), keepdim=True) for way in ways)
    maps = tl.attribute(model, inputs, targets, "excitation_backprop", layer="1", contrastive=True)
    torch.testing.assert_close(maps, (won - lost).clamp(min=0), rtol=1e-4, atol=1e-7)
    plain = tl.attribute(model, inputs, targets, "excitation_backprop", layer="1")
    torch.testing.assert_close(plain, won, rtol=1e-4, atol=1e-7)


def test_contrast_tells_classes_apart():
    """Excitation alone marks what is there for any class; the contrast marks what speaks for one and not the other."""
    model = nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 64, 2, bias=False))
    model[0].weight.data = torch.eye(2)[:, :, None, None]
    weight = torch.full((2, 2, 64), 0.5)
    weight[0, 1] = weight[1, 0] = -1
    model[3].weight.data = weight.flatten(1)
    images = torch.zeros(1, 2, 8, 8)
    images[:, 0, :4], images[:, 1, 4:] = 1, 1  # the first class above, the second below
    above = tl.attribute(model, images, [0], "excitation_backprop", layer="1", contrastive=True)[0]
    below = tl.attribute(model, images, [1], "excitation_backprop", layer="1", contrastive=True)[0]
    assert above[4:].sum() == 0 < above[:4].sum()
    assert below[:4].sum() == 0 < below[4:].sum()


QUICK = {
    "smoothgrad": {"samples": 6, "variance": 0.05},
    "gradient_shap": {"samples": 20},
    "excitation_backprop": {"contrastive": True, "layer": "3"},
}


@pytest.mark.parametrize(("name", "least"), [("smoothgrad", 4), ("gradient_shap", 4), ("excitation_backprop", 4)])
def test_maps_lie_on_the_planted_patch(name, least):
    images, classes, inside = planted_images(8, 3)
    model = planted_model()
    before = trace(model)
    maps = tl.attribute(model, images, classes, name, **QUICK[name])
    assert density(maps, inside).mean() > least  # of 16 at most
    again = tl.attribute(model, images, classes, name, batch_size=3, **QUICK[name])
    torch.testing.assert_close(again, maps, rtol=1e-4, atol=1e-6)
    assert trace(model) == before


def test_gates_of_a_functional_kind_are_no_obstacle(batch):
    """SiLU written as x · sigmoid(x) follows LRP's rule of SiLU."""
    inputs, targets = batch

    class Written(nn.Module):
        def __init__(self, own):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head, self.own = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 3), own

        def forward(self, x):
            x = self.conv(x)
            return self.head((x * torch.sigmoid(x) if self.own else F.silu(x)).flatten(1))

    maps = [tl.attribute(Written(own), inputs, targets, "lrp", rule="epsilon") for own in (True, False)]
    torch.testing.assert_close(*maps, rtol=1e-3, atol=1e-6)
