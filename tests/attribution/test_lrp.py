"""LRP: against Captum, hand computations and its own axiom, conservation, on networks of every kind."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import twinlens as tl
from tests.attribution.planted import density, planted_images, planted_model, trace
from twinlens.attribution.harness import make_request, undisturbed
from twinlens.attribution.lrp import _box, _choose, relevance_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from captum import attr as captum
    from captum.attr._utils.lrp_rules import Alpha1_Beta0_Rule, EpsilonRule, GammaRule

RULES = (
    "epsilon", "gamma", "alpha1beta0", "alpha2beta1",
    "epsilon_plus", "epsilon_plus_flat", "epsilon_gamma_box", "epsilon_alpha2beta1_flat",
)  # fmt: skip


class Plain(nn.Module):
    """Convolutions, ReLUs, max pooling, dense layers, as Captum's LRP takes them."""

    def __init__(self, *, bias=True):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=bias), nn.Conv2d(8, 6, 3, padding=1, bias=bias)
        self.hidden, self.head = nn.Linear(6 * 64, 20, bias=bias), nn.Linear(20, 5, bias=bias)
        self.relu1, self.relu2, self.relu3, self.pool = nn.ReLU(), nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2)

    def forward(self, x):
        x = self.relu2(self.second(self.pool(self.relu1(self.first(x)))))
        return self.head(self.relu3(self.hidden(x.flatten(1))))


def with_rules(model, convolution, dense):
    for layer in (model.first, model.second):
        layer.rule = convolution()
    for layer in (model.hidden, model.head):
        layer.rule = dense()
    model.pool.rule = EpsilonRule()
    return model


CAPTUM = {
    "epsilon": (True, EpsilonRule, EpsilonRule, {}),
    "epsilon_plus": (True, lambda: Alpha1_Beta0_Rule(set_bias_to_zero=True), EpsilonRule, {"bias": "spread"}),
    "gamma": (False, GammaRule, GammaRule, {}),
}


@pytest.mark.parametrize("rule", CAPTUM)
def test_lrp_agrees_with_captum(rule):
    bias, convolution, dense, options = CAPTUM[rule]
    inputs = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    model = Plain(bias=bias)
    targets = model(inputs).argmax(dim=1)  # Captum's gamma rule is meant for positive outputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = captum.LRP(with_rules(Plain(bias=bias), convolution, dense)).attribute(inputs, target=targets)
    expected = theirs.sum(dim=1).clamp(min=0).detach()
    assert expected.amax() > 0
    torch.testing.assert_close(
        tl.attribute(model, inputs, targets, "lrp", rule=rule, **options), expected, rtol=1e-3, atol=1e-5
    )


class Residual(nn.Module):
    """What networks are made of: folded and standing batch normalisation, re-used and functional activations, a gate,
    padding, residual sums, concatenation and all kinds of pooling."""

    def __init__(self, activation=F.relu):
        super().__init__()
        torch.manual_seed(1)
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8)
        self.conv, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.gate, self.before = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(16)
        self.head, self.norm3 = nn.Linear(16, 5), nn.BatchNorm1d(5)
        self.activation, self.relu = activation, nn.ReLU(inplace=True)
        for norm in (self.norm, self.norm2, self.before, self.norm3):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            nn.init.normal_(norm.bias)

    def forward(self, x):
        x = self.relu(self.norm(self.stem(F.pad(x, (0, 1, 0, 1)))))
        y = self.norm2(self.conv(x))
        y = y * torch.sigmoid(self.gate(y.mean(dim=(2, 3), keepdim=True)))  # squeeze and excitation
        x = self.activation(x + y)
        x = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], dim=1)
        x = F.relu6(self.before(x))
        return self.norm3(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)))


def relevance(model, inputs, targets, rule, *, spread=False, check=True):
    request = make_request(model, inputs, targets, ids=None, seed=0)
    composite = _choose(rule, 1e-6, 0.25, _box(None, None, request.inputs), spread)
    with undisturbed(model):
        return relevance_of(model, request, composite, check=check)


def check_conserved(model, inputs, targets, rule, **options):
    arrived, kept, logits = relevance(model, inputs, targets, rule, **options)
    with torch.no_grad():
        own = model.eval()(inputs.to(logits.dtype)).gather(1, torch.as_tensor(targets)[:, None])[:, 0]
    torch.testing.assert_close(logits, own, rtol=1e-4, atol=1e-5)  # the rules leave the answer as it is
    total = arrived.flatten(1).sum(dim=1) + kept
    assert ((total - logits).abs() <= 0.01 * logits.abs()).all()
    assert (arrived.flatten(1).abs().sum(dim=1) > 0).all()
    return arrived, kept


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("activation", [F.relu, F.silu, F.gelu, torch.tanh, F.hardswish, F.softplus])
def test_relevance_is_conserved_within_one_percent(rule, activation):
    inputs = torch.randn(5, 3, 15, 15, generator=torch.Generator().manual_seed(2))
    check_conserved(Residual(activation), inputs, [0, 1, 2, 3, 4], rule)


@pytest.mark.parametrize("name", ["resnet10t", "efficientnet_lite0"])
def test_relevance_is_conserved_in_networks_of_timm(name):
    timm = pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4)
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 32, 32))  # so that normalisation has something to do
    check_conserved(model, torch.randn(2, 3, 32, 32), [0, 1], "epsilon_plus_flat")


def test_where_no_bias_is_in_the_way_everything_arrives_at_the_input():
    inputs = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    for model, options in ((Plain(bias=False), {}), (Plain(), {"spread": True})):
        targets = model(inputs).argmax(dim=1)
        arrived, kept = check_conserved(model, inputs, targets, "alpha1beta0", **options)
        assert kept.abs().max() < 1e-6
        assert arrived.min() >= 0
        bias = "spread" if options else "keep"
        maps = tl.attribute(model, inputs, targets, "lrp", rule="alpha1beta0", bias=bias)
        logits = model(inputs).amax(dim=1).detach()
        torch.testing.assert_close(maps.sum(dim=(1, 2)), logits, rtol=1e-4, atol=1e-6)


def test_what_is_kept_is_the_share_of_the_bias_by_hand():
    """One dense layer: y = 2 · 3 - 1 · 1 + 3 = 8; each rule's shares are fractions that a person can check."""
    model = nn.Linear(2, 1)
    model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.tensor([3.0])
    inputs = torch.tensor([[3.0, 1.0]])
    expected = {
        "epsilon": ([6, -1], 3),
        "gamma": ([8 * 7.5 / 10.25, 8 * -1 / 10.25], 8 * 3.75 / 10.25),
        "alpha1beta0": ([8 * 6 / 9, 0], 8 * 3 / 9),
        "alpha2beta1": ([16 * 6 / 9, -8], 16 * 3 / 9),
    }
    for rule, (shares, bias) in expected.items():
        arrived, kept, logits = relevance(model, inputs, [0], rule)
        assert logits.item() == 8
        torch.testing.assert_close(arrived, torch.tensor([shares]).float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(kept, torch.tensor([bias]).float(), rtol=1e-5, atol=1e-5)


def test_box_and_flat_rules_by_hand():
    model = nn.Sequential(nn.Conv2d(1, 1, (1, 2), bias=False), nn.Flatten(), nn.Linear(1, 1, bias=False))
    model[0].weight.data, model[2].weight.data = torch.tensor([[[[2.0, -1.0]]]]), torch.ones(1, 1)
    inputs = torch.tensor([[[[3.0, 1.0]]]])  # the logit is 5; shares in the box: 6 - 2 · low, -1 + high
    maps = tl.attribute(model, inputs, [0], "lrp", rule="epsilon_gamma_box", low=-1.0, high=4.0)
    torch.testing.assert_close(maps, torch.tensor([[[5 * 8 / 11, 5 * 3 / 11]]]))
    torch.testing.assert_close(tl.attribute(model, inputs, [0], "lrp"), torch.tensor([[[2.5, 2.5]]]))
    with pytest.raises(ValueError, match=r"`low` must be a number or fit one input \(1, 1, 2\); got shape \(7,\)"):
        tl.attribute(model, inputs, [0], "lrp", rule="epsilon_gamma_box", low=torch.ones(7))
    with pytest.raises(ValueError, match="`high` must be finite"):
        tl.attribute(model, inputs, [0], "lrp", rule="epsilon_gamma_box", high=float("nan"))
    with pytest.raises(ValueError, match=r"`rule` must be one of .*epsilon_plus_flat.*; got 'zplus'"):
        tl.attribute(model, inputs, [0], "lrp", rule="zplus")


@pytest.mark.parametrize("rule", ["epsilon", "epsilon_plus_flat", "epsilon_gamma_box", "epsilon_alpha2beta1_flat"])
def test_maps_lie_on_the_planted_patch(rule):
    images, classes, inside = planted_images(12, 3)
    maps = tl.attribute(planted_model(), images, classes, "lrp", rule=rule)
    assert density(maps, inside).min() > 4  # of 16 at most


@pytest.mark.parametrize("rule", ["epsilon_gamma_box", "alpha2beta1"])
def test_neither_batch_size_nor_order_changes_a_map_and_the_model_is_left_alone(rule):
    inputs = torch.randn(5, 3, 15, 15, generator=torch.Generator().manual_seed(2))
    model, targets = Residual().train(), torch.tensor([0, 1, 2, 3, 4])
    before = trace(model)
    maps = tl.attribute(model, inputs, targets, "lrp", rule=rule)
    assert maps.amax() > 0
    order = [3, 0, 4, 2, 1]
    again = tl.attribute(model, inputs[order], targets[order], "lrp", rule=rule, batch_size=2)
    torch.testing.assert_close(again, maps[order], rtol=1e-4, atol=1e-6)
    assert trace(model) == before


def test_programs_of_torch_export_follow_the_rules():
    inputs = torch.randn(2, 3, 15, 15, generator=torch.Generator().manual_seed(2))
    model = Residual(F.hardswish).eval()
    program = torch.export.export(model, (inputs,)).module()
    expected = tl.attribute(model, inputs, [0, 1], "lrp")
    assert expected.amax() > 0
    torch.testing.assert_close(tl.attribute(program, inputs, [0, 1], "lrp"), expected, rtol=1e-4, atol=1e-6)


def test_operations_without_a_rule_are_refused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(torch.cos(self.linear(x)))

    inputs = torch.randn(3, 4)
    with pytest.raises(ValueError, match=r"relevance of sample '0' and of biases sum to .* and not to the logit"):
        tl.attribute(Odd(), inputs, [0, 1, 0], "lrp")
    assert tl.attribute(Odd(), inputs, [0, 1, 0], "lrp", check=False).shape == (3, 4)


def test_a_first_layer_that_does_not_read_the_input_wants_another_rule():
    model = nn.Sequential(nn.AvgPool2d(2), Plain())
    inputs = torch.rand(2, 3, 32, 32)
    with pytest.raises(ValueError, match=r"must not end in a flat or box rule .* Use 'epsilon_plus'"):
        tl.attribute(model, inputs, [0, 1], "lrp")
    assert tl.attribute(model, inputs, [0, 1], "lrp", rule="epsilon_plus").shape == (2, 32, 32)
