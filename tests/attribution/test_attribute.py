import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import twinlens as tl
from tests.tiny import TinyTransformer, ViewedCNN, tiny_model
from twinlens.attribution.deeplift import contributing
from twinlens.attribution.feature_maps import find_layer
from twinlens.attribution.gradients import integrating
from twinlens.attribution.harness import make_request, undisturbed
from twinlens.attribution.rules import excitation_rules

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from captum import attr as captum


def small_cnn(seed=0, inplace=False):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=inplace), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, padding=1), nn.ReLU(inplace=inplace),
        nn.Flatten(), nn.Linear(6 * 64, 5),
    )  # fmt: skip


class Reused(nn.Module):
    """The same network with one in-place ReLU module used twice, as torchvision's ResNets do, and a functional one."""

    def __init__(self, source, functional=False):
        super().__init__()
        self.first, self.second, self.head = source[0], source[3], source[6]
        self.relu = nn.ReLU(inplace=True)
        self.functional = functional

    def forward(self, x):
        act = F.relu if self.functional else self.relu
        x = act(self.first(x))
        x = F.max_pool2d(x, 2)
        x = act(self.second(x))
        return self.head(x.flatten(1))


class Pooled(nn.Module):
    """Convolution, ReLU, global average pooling, linear: the architecture of CAM."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 7, 3, padding=1)
        self.linear = nn.Linear(7, 5)

    def forward(self, x):
        return self.linear(F.relu(self.conv(x)).mean(dim=(2, 3)))


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(6, 3, 16, 16, generator=generator), torch.tensor([0, 1, 2, 3, 4, 0])


def positive(attributions):
    return attributions.sum(dim=1).clamp(min=0).detach().float()


def quietly(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


CAPTUM = {
    "input_x_gradient": lambda m, x, t: captum.InputXGradient(m).attribute(x, target=t),
    "guided_backprop": lambda m, x, t: captum.GuidedBackprop(m).attribute(x, target=t),
    "integrated_gradients": lambda m, x, t: captum.IntegratedGradients(m).attribute(x, target=t, n_steps=32),
    "deeplift": lambda m, x, t: captum.DeepLift(m).attribute(x, target=t),
}


@pytest.mark.parametrize("name", CAPTUM)
def test_methods_agree_with_captum(batch, name):
    model, (inputs, targets) = small_cnn(), batch
    if name == "deeplift":  # for max pooling there are several rules that sum to the change of the logit
        model[2] = nn.AvgPool2d(2)
    expected = positive(quietly(CAPTUM[name], model, inputs.clone().requires_grad_(), targets))
    assert torch.allclose(tl.attribute(model, inputs, targets, name), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["deeplift", "deepshap"])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1)], ids=["apart", "overlapping"])
def test_max_pooling_by_its_gradient_agrees_with_captum(batch, name, pool):
    """Captum has a rule for max pooling, too, but behind a ReLU, as nearly everywhere, it passes the plain gradient."""
    model, (inputs, targets) = small_cnn(), batch
    model[2] = pool
    background = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    ours = {"baseline": background[0]} if name == "deeplift" else {"background": background}
    theirs = {"deeplift": captum.DeepLift, "deepshap": captum.DeepLiftShap}[name](model)
    given = background[:1].expand_as(inputs).clone() if name == "deeplift" else background
    expected = positive(quietly(theirs.attribute, inputs, given, target=targets))
    gradient = tl.attribute(model, inputs, targets, name, max_pooling="gradient", **ours)
    assert (gradient - expected).abs().max() < 1e-5 * expected.max()
    difference = tl.attribute(model, inputs, targets, name, **ours)
    assert (difference - expected).abs().max() > 0.05 * expected.max()
    assert torch.allclose(
        tl.attribute(model, inputs, targets, name, max_pooling="gradient", batch_size=4, **ours), gradient, atol=1e-6
    )


def test_saliency_is_the_largest_magnitude_of_the_gradient(batch):
    model, (inputs, targets) = small_cnn(), batch
    leaf = inputs.clone().requires_grad_()
    model(leaf)[torch.arange(6), targets].sum().backward()
    assert torch.allclose(tl.attribute(model, inputs, targets, "saliency"), leaf.grad.abs().amax(dim=1))


def test_deepshap_agrees_with_captum_and_averages_over_the_background(batch):
    model, (inputs, targets) = small_cnn(), batch
    model[2] = nn.AvgPool2d(2)
    background = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    explained = tl.attribute(model, inputs, targets, "deepshap", background=background)
    expected = positive(quietly(captum.DeepLiftShap(model).attribute, inputs, background, target=targets))
    assert torch.allclose(explained, expected, atol=1e-4)
    with pytest.raises(ValueError, match=r"`background` must hold inputs of shape \(3, 16, 16\)"):
        tl.attribute(model, inputs, targets, "deepshap", background=background[:, :2])


@pytest.mark.parametrize("name", ["guided_backprop", "deeplift", "deepshap"])
@pytest.mark.parametrize("functional", [False, True])
def test_rules_reach_in_place_reused_and_functional_relus(batch, name, functional):
    inputs, targets = batch
    plain = small_cnn()
    expected = tl.attribute(plain, inputs, targets, name)
    assert torch.allclose(tl.attribute(Reused(plain, functional), inputs, targets, name), expected, atol=1e-6)
    assert torch.allclose(tl.attribute(small_cnn(inplace=True), inputs, targets, name), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["guided_backprop", "deeplift", "integrated_gradients", "occlusion"])
def test_rules_reach_programs_of_torch_export(batch, name):
    inputs, targets = batch
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"), nn.BatchNorm2d(8), nn.ReLU6(inplace=True), nn.MaxPool2d(2),
        nn.Hardswish(), nn.AdaptiveAvgPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5),
    ).eval()  # fmt: skip
    sizes = ({0: torch.export.Dim("samples", min=1, max=64)},)
    program = torch.export.export(model, (inputs,), dynamic_shapes=sizes).module()
    options = {} if name in ("guided_backprop", "deeplift") else {"batch_size": 16}
    expected = tl.attribute(model, inputs, targets, name, **options)
    assert expected.sum() > 0
    torch.testing.assert_close(tl.attribute(program, inputs, targets, name, **options), expected)


def test_excitation_rules_reach_programs_of_torch_export(batch):
    inputs, _ = batch
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 5)
    ).eval()
    model[1].running_mean += 0.3
    found = []
    for one in (model, torch.export.export(model, (inputs,)).module()):
        leaf = inputs.clone().requires_grad_()
        with excitation_rules([]) as rules:
            logits = one(leaf)
        found.append(torch.autograd.grad(logits[:, 0].sum(), leaf)[0])
        assert rules.used == 5
    assert found[0].abs().sum() > 0
    torch.testing.assert_close(found[1], found[0])


def test_integrated_gradients_are_complete(batch):
    model, (inputs, targets) = small_cnn().double(), batch
    inputs = inputs.double()
    request = make_request(model, inputs, targets, ids=None, seed=0, batch_size=64)
    signed = integrating(model, request, steps=128)(request)
    with torch.no_grad():
        gained = (model(inputs) - model(torch.zeros_like(inputs)))[torch.arange(6), targets]
    assert torch.allclose(signed.flatten(1).sum(dim=1), gained, rtol=0.01, atol=0.005)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ReLU6, nn.Hardswish, nn.ELU])
def test_deeplift_sums_to_the_change_of_the_logit(batch, activation):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.conv, self.gate, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Linear(8 * 49, 5)
            self.act = activation()

        def forward(self, x):
            x = self.act(self.conv(x))
            x = x * torch.sigmoid(self.gate(x.mean(dim=(2, 3), keepdim=True)))  # squeeze and excitation
            return self.head(F.max_pool2d(x, 2).flatten(1))

    model, (inputs, targets) = Gated().double(), batch
    request = make_request(model, inputs, targets, ids=None, seed=0)
    base = torch.zeros_like(request.inputs)
    with undisturbed(model):
        signed = contributing(model, base[:1], True, "difference")(request)
        with torch.no_grad():
            gained = (model(request.inputs) - model(base))[torch.arange(6), targets]
    assert torch.allclose(signed.flatten(1).sum(dim=1), gained, atol=1e-6)


def test_deeplift_refuses_what_it_has_no_rule_for():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))
    inputs = 3 * torch.randn(4, 6)
    with pytest.raises(ValueError, match=r"contributions of sample '\d' do not sum to the change of its logit"):
        tl.attribute(model, inputs, [0, 1, 2, 0], "deeplift")
    assert tl.attribute(model, inputs, [0, 1, 2, 0], "deeplift", check=False).shape == (4, 6)


def test_guided_backprop_knows_capped_relus(batch):
    model, (inputs, targets) = small_cnn(), batch
    expected = tl.attribute(model, inputs, targets, "guided_backprop")
    model[1], model[4] = nn.ReLU6(), nn.Hardtanh(0.0, 99.0)  # no activation here comes near the cap
    assert torch.allclose(tl.attribute(model, inputs, targets, "guided_backprop"), expected)


def test_guided_backprop_refuses_models_without_relu():
    with pytest.raises(ValueError, match="must have ReLUs for guided_backprop"):
        tl.attribute(
            nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), torch.rand(2, 3), [0, 1], "guided_backprop"
        )


def test_gradcam_is_the_hand_computation(batch):
    model, (inputs, targets) = Pooled(), batch
    with torch.no_grad():
        features = model.conv(inputs)
        active = (features > 0).double()
        # d logit / d feature = weight / pixels where the ReLU is open.
        weights = (model.linear.weight[targets][:, :, None, None] * active / 256).mean(dim=(2, 3), keepdim=True)
        expected = (weights * features).sum(dim=1).clamp(min=0).float()
    assert torch.allclose(tl.attribute(model, inputs, targets, "gradcam"), expected, atol=1e-6)


@pytest.mark.parametrize("between", [nn.BatchNorm2d(7), nn.Identity()])
def test_cam_is_the_hand_computation_and_knows_its_architecture(batch, between):
    inputs, targets = batch
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 7, 3, 2, 1), between, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(7, 5)
    )
    with torch.no_grad():
        features = model.eval()[:3](inputs)
        raw = (model[5].weight[targets][:, :, None, None] * features).sum(dim=1).clamp(min=0)
    expected = F.interpolate(raw[:, None], size=(16, 16), mode="bilinear", align_corners=False)[:, 0]
    assert torch.allclose(tl.attribute(model, inputs, targets, "cam"), expected, atol=1e-6)
    with pytest.raises(ValueError, match="Use gradcam"):
        tl.attribute(small_cnn(), inputs, targets, "cam")


def test_the_layer_is_found_or_named(batch):
    inputs, targets = batch
    model = small_cnn()
    assert find_layer(model, inputs) is model[3]  # the last convolution, as features.28 of VGG16
    assert torch.equal(
        tl.attribute(model, inputs, targets, "gradcam", layer="3"), tl.attribute(model, inputs, targets, "gradcam")
    )
    with pytest.raises(ValueError, match=r"`layer` must name a module of the model; got 'nine'"):
        tl.attribute(model, inputs, targets, "gradcam", layer="nine")
    with pytest.raises(ValueError, match="must have convolutional features"):
        tl.attribute(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), inputs, targets, "gradcam")
    with pytest.raises(ValueError, match="must be images"):
        tl.attribute(nn.Linear(4, 2), torch.rand(2, 4), [0, 1], "gradcam")


def test_gradcam_of_a_transformer_lies_on_the_patch_grid(batch):
    model, (inputs, targets) = TinyTransformer(), batch
    assert find_layer(model.eval(), inputs) is model.blocks[1]["norm1"]
    maps = tl.attribute(model, inputs, targets, "gradcam")
    assert maps.shape == (6, 16, 16)
    assert maps.amax() > 0


def test_excitation_backprop_spreads_the_probability_of_the_class(batch):
    """With positive weights everywhere no probability is lost: the parts of every sample sum to one."""
    inputs, targets = batch
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    model[4].weight.data.abs_()
    maps = tl.attribute(model, inputs, targets, "excitation_backprop", layer="1")
    assert torch.allclose(maps.sum(dim=(1, 2)), torch.ones(6), atol=1e-5)
    with torch.no_grad():
        hidden = model[:2](inputs)
        parts = hidden * model[4].weight[targets][:, :, None, None]
    expected = parts.sum(dim=1) / parts.sum(dim=(1, 2, 3))[:, None, None]
    assert torch.allclose(maps, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["ig_sg", "ig_sq", "ig_var"])
def test_ensembles_of_integrated_gradients(batch, name):
    model, (inputs, targets) = small_cnn(), batch
    options = {"samples": 3, "steps": 4, "variance": 0.3}
    request = make_request(model, inputs, targets, ids=None, seed=5)
    noise = [request.normal((3, 16, 16), "noise", k) for k in range(3)]
    explain = integrating(model, request, steps=4)
    draws = torch.stack([explain(replace(request, inputs=inputs + 0.3**0.5 * n)) for n in noise])
    combined = {"ig_sg": draws.mean(0), "ig_sq": (draws**2).mean(0), "ig_var": draws.var(0, unbiased=False)}[name]
    assert torch.allclose(tl.attribute(model, inputs, targets, name, seed=5, **options), positive(combined), atol=1e-5)
    without = tl.attribute(model, inputs, targets, name, samples=2, steps=4, variance=0.0)
    plain = explain(request)
    expected = {"ig_sg": plain, "ig_sq": plain**2, "ig_var": 0 * plain}[name]
    assert torch.allclose(without, positive(expected), atol=1e-5)


@pytest.mark.parametrize("ensemble", ["sg", "sq", "var"])
def test_ensembles_of_deepshap(batch, ensemble):
    model, (inputs, targets) = small_cnn(), batch
    request = make_request(model, inputs, targets, ids=None, seed=5)
    noise = [request.normal((3, 16, 16), "noise", k) for k in range(3)]
    parts = [replace(request, inputs=request.inputs + 0.3**0.5 * each) for each in noise]
    explain = contributing(model, torch.zeros_like(inputs[:1]), True, "difference")
    draws = torch.stack([explain(part) for part in parts])
    combined = {"sg": draws.mean(0), "sq": (draws**2).mean(0), "var": draws.var(0, unbiased=False)}[ensemble]
    maps = tl.attribute(model, inputs, targets, "deepshap", seed=5, ensemble=ensemble, samples=3)
    assert torch.allclose(maps, positive(combined), atol=1e-5)
    with pytest.raises(ValueError, match="`ensemble` must be one of sg, sq, var; got 'mean'"):
        tl.attribute(model, inputs, targets, "deepshap", ensemble="mean")


def test_kernel_shap_is_exact_for_linear_models():
    rng = np.random.default_rng(0)
    weights, inputs, mean = rng.normal(size=(30, 3)), rng.normal(size=(5, 30)), rng.normal(size=30)
    targets = np.array([0, 1, 2, 0, 1])
    exact = np.clip((inputs - mean) * weights[:, targets].T, 0, None)
    maps = tl.attribute(lambda x: x @ weights, inputs, targets, "kernel_shap", background=mean, coalitions=200)
    assert np.allclose(maps, exact, atol=1e-5)
    module = nn.Linear(30, 3, bias=False).double()
    module.weight.data = torch.from_numpy(weights.T.copy())
    assert np.allclose(
        tl.attribute(module, inputs, targets, "kernel_shap", background=mean, coalitions=200), exact, atol=1e-5
    )


def test_kernel_shap_over_all_coalitions_is_the_shapley_value():
    from itertools import permutations

    def model(x):
        z = x[:, 0] * x[:, 1] + np.maximum(x[:, 2], 0) - x[:, 3] * x[:, 0]
        return np.stack([z, -z], axis=1)

    row = np.array([[1.0, 2.0, 0.5, -1.5]])
    shapley = np.zeros(4)
    for order in permutations(range(4)):
        present = np.zeros((1, 4))
        for f in order:
            before = model(present * row)[0, 0]
            present[0, f] = 1
            shapley[f] += (model(present * row)[0, 0] - before) / 24
    assert np.allclose(tl.attribute(model, row, [0], "kernel_shap")[0], np.clip(shapley, 0, None), atol=1e-6)
    with pytest.raises(ValueError, match="`coalitions` must be at least"):
        tl.attribute(model, np.ones((1, 40)), [0], "kernel_shap", coalitions=3)


def test_controls(batch):
    model, (inputs, targets) = small_cnn(), batch
    bell = tl.attribute(model, inputs, targets, "centre")[0]
    assert bell[7:9, 7:9].mean() > 0.98
    assert torch.allclose(bell, bell.flip(0).flip(1))
    edge = torch.zeros(1, 3, 16, 16)
    edge[..., 8:] = 1
    marked = tl.attribute(model, edge, [0], "sobel")[0]
    assert torch.equal(marked.sum(dim=0).nonzero().flatten(), torch.tensor([7, 8]))
    base = tl.attribute(model, inputs, targets, "integrated_gradients")
    bands = tl.attribute(model, inputs, targets, "pooling")
    assert torch.allclose(bands[:, :3], base[:, :3].mean(dim=(1, 2), keepdim=True).expand(-1, 3, 16))
    assert all(len(one.unique()) <= 7 for one in bands)
    box = tl.attribute(model, inputs, targets, "rect")
    assert (box.sum(dim=(1, 2)) == 16).all()
    rows = (base.sum(dim=2) * torch.arange(16.0)).sum(dim=1) / base.sum(dim=(1, 2))
    middle = (box.sum(dim=2) * torch.arange(16.0)).sum(dim=1) / 16
    assert (middle - rows).abs().max() <= 0.51
    uniform = tl.attribute(model, inputs, targets, "random")
    assert 0.4 < uniform.mean() < 0.6


TESTED_ELSEWHERE = (
    "kernel_shap", "cam", "iba", "input_iba", "extremal_perturbation", "rise", "occlusion", "attention_rollout",
    "gradient_attention",
)  # fmt: skip
IMAGE_METHODS = [name for name in tl.METHODS if name not in TESTED_ELSEWHERE]
QUICK = {name: {"samples": 2, "steps": 4} for name in ("ig_sg", "ig_sq", "ig_var")}
QUICK |= {name: {"samples": 2} for name in ("smoothgrad", "gradient_shap")}


@pytest.mark.parametrize("name", IMAGE_METHODS)
def test_every_method_gives_sound_maps_and_leaves_the_model_alone(batch, name):
    inputs, targets = batch
    model = small_cnn(inplace=True).train()
    model[0].eval()
    model[3].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    fired = []
    model[1].register_forward_hook(lambda *_: fired.append(1))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ids = list("abcdef")
    maps = tl.attribute(model, inputs, targets, name, ids=ids, **QUICK.get(name, {}))
    assert maps.shape == (6, 16, 16)
    assert maps.dtype == torch.float32
    assert maps.amin() >= 0
    assert torch.isfinite(maps).all()
    # Neither the batch size nor the order of the samples changes a map.
    options = dict(QUICK.get(name, {}))
    if name not in ("random", "sobel", "centre", "rect", "pooling"):
        options["batch_size"] = 2
    order = [4, 0, 5, 2, 1, 3]
    again = tl.attribute(model, inputs[order], targets[order], name, ids=[ids[k] for k in order], **options)
    assert torch.allclose(again, maps[order], atol=1e-5)
    assert [part.training for part in (model, model[0], model[3])] == [True, False, True]
    assert not model[3].weight.requires_grad
    assert model[0].weight.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[3].weight.grad is None
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [len(part._forward_hooks) for part in model] == [0, 1, 0, 0, 0, 0, 0]
    assert not any(part._backward_hooks or part._forward_pre_hooks for part in model)


def test_channels_come_last_in_memory_where_the_model_bears_it():
    """On the CPU convolutions are faster so; a model that views its features is called as usual, from the start."""
    layouts = []

    class Watching(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, images):
            layouts.append(images.is_contiguous(memory_format=torch.channels_last))
            return self.model(images)

    images = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    tl.attribute(Watching(tiny_model()), images, [0] * 5, "occlusion")
    assert layouts
    assert all(layouts)
    layouts.clear()
    maps = tl.attribute(Watching(ViewedCNN()), images, [0] * 5, "input_x_gradient", batch_size=2)
    assert layouts == [True, False, False, False]
    plain = images.clone().requires_grad_()
    ViewedCNN()(plain)[:, 0].sum().backward()
    torch.testing.assert_close(maps, (plain.grad * images).sum(dim=1).clamp(min=0))


def test_a_failing_method_leaves_the_model_alone_too(batch):
    inputs, targets = batch
    model = small_cnn().train()
    with pytest.raises(ValueError, match="`targets` must lie within 0 … 4"):
        tl.attribute(model, inputs, targets + 5, "gradcam")
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert not any(part._forward_hooks for part in model.modules())


def test_unknown_names_options_and_inputs(batch):
    inputs, targets = batch
    with pytest.raises(ValueError, match=r"`method` must be one of saliency, input_x_gradient.*got 'gradcamm'"):
        tl.attribute(small_cnn(), inputs, targets, "gradcamm")
    with pytest.raises(TypeError, match=r"`step` is no option of integrated_gradients; its options are .*steps"):
        tl.attribute(small_cnn(), inputs, targets, "integrated_gradients", step=3)
    with pytest.raises(TypeError, match=r"`model` must be an nn\.Module"):
        tl.attribute(lambda x: x, inputs, targets, "saliency")
    with pytest.raises(TypeError, match="`targets` must be integers"):
        tl.attribute(small_cnn(), inputs, targets.float(), "saliency")
    with pytest.raises(ValueError, match="`baseline` must be a number or fit one input"):
        tl.attribute(small_cnn(), inputs, targets, "integrated_gradients", baseline=torch.ones(7))
    with pytest.raises(ValueError, match=r"`inputs` must be .* none of them empty; got shape \(0, 3, 16, 16\)"):
        tl.attribute(small_cnn(), inputs[:0], targets[:0], "saliency")
    wrong = {
        "integrated_gradients": {"steps": 0},
        "ig_sg": {"samples": 0},
        "ig_sq": {"variance": -1.0},
        "saliency": {"batch_size": 0},
    }
    for name, options in wrong.items():
        with pytest.raises(ValueError, match=f"`{next(iter(options))}` must"):
            tl.attribute(small_cnn(), inputs, targets, name, **options)


def test_a_custom_method_is_a_function(batch):
    inputs, targets = batch

    def brightness(model, inputs, targets, *, ids=None, seed=0, power=1.0):
        return inputs.abs().mean(dim=1) ** power

    maps = tl.attribute(small_cnn(), inputs, targets, brightness, power=2.0)
    assert torch.equal(maps, inputs.abs().mean(dim=1) ** 2)


def test_tabular_rows():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(4, 6)
    for name in ("saliency", "input_x_gradient", "guided_backprop", "integrated_gradients", "deeplift", "random"):
        assert tl.attribute(model, inputs, [0, 1, 2, 0], name).shape == (4, 6)
