import copy

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from twinlens.checks.randomisation import (
    data_randomisation,
    efficient_randomisation,
    model_randomisation,
    train_on_permuted_labels,
)
from twinlens.integrations.explanations import attribute
from twinlens.models.training import Training
from twinlens.reproduction.networks import TinyResNet
from twinlens.support.correlation import pearson, spearman


class Backwards(nn.Module):
    """Calls its parts in another order than it lists them, and one of them never."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.unused = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(6)
        self.body = nn.Linear(5, 6)

    def forward(self, x):
        return self.head(self.norm(self.body(x)).relu())


class WithToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(4, 5) + 3)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(x * self.token.mean(dim=0))


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_cascade_goes_from_the_output_down_in_the_order_of_calls():
    assert list(model_randomisation(Backwards(), torch.randn(6, 5), [0] * 6)) == ["head", "body"]


def test_the_model_and_torch_are_left_alone():
    model, inputs = Backwards().train(), torch.randn(6, 5)
    before, hooks = state(model), len(model.body._forward_pre_hooks)
    torch.manual_seed(8)
    expected = torch.rand(2)
    torch.manual_seed(8)
    model_randomisation(model, inputs, [0] * 6)
    assert torch.equal(torch.rand(2), expected)
    assert same(before, model.state_dict())
    assert model.training
    assert len(model.body._forward_pre_hooks) == hooks


def test_each_step_randomises_its_layer_and_what_normalises_it():
    model = Backwards()
    model.norm.weight.data.fill_(7.0)
    seen = []

    def watch(model, inputs, targets, *, ids=None, seed=0):
        seen.append(copy.deepcopy(model.state_dict()))
        return torch.rand(len(inputs), 5)

    model_randomisation(model, torch.randn(4, 5), [0] * 4, watch)
    trained, first, second = seen
    changed = [{name for name in trained if not torch.equal(trained[name], other[name])} for other in (first, second)]
    assert changed[0] == {"head.weight", "head.bias"}
    assert changed[1] == {"head.weight", "head.bias", "body.weight", "body.bias", "norm.weight"}
    assert torch.equal(first["head.weight"], second["head.weight"])


def test_what_ignores_the_model_stays_and_what_reads_it_changes():
    model, inputs = Backwards(), torch.randn(30, 5)

    def edges(model, inputs, targets, *, ids=None, seed=0):
        return torch.as_tensor(inputs).abs()

    for step in model_randomisation(model, inputs, [0] * 30, edges).values():
        assert np.allclose(step.values, 1.0)
    *_, last = model_randomisation(model, inputs, [0] * 30, "saliency").values()
    assert last.estimate().value < 0.9


def test_the_seed_decides():
    model, inputs = Backwards(), torch.randn(10, 5)
    runs = [
        [step.values for step in model_randomisation(model, inputs, [0] * 10, "saliency", seed=seed).values()]
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(runs[0], runs[1], equal_nan=True)
    assert not np.array_equal(runs[0], runs[2], equal_nan=True)


def test_parameters_of_a_module_that_cannot_reset_itself_keep_their_mean_and_deviation():
    model, seen = WithToken(), []

    def watch(model, inputs, targets, *, ids=None, seed=0):
        seen.append(model.token.detach().clone())
        return torch.rand(len(inputs), 5)

    assert list(model_randomisation(model, torch.randn(4, 5), [0] * 4, watch)) == ["head", ""]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert seen[2].mean() == pytest.approx(seen[0].mean(), abs=1)


def test_rank_correlation_is_scipy_s():
    generator = np.random.default_rng(0)
    one, other = generator.integers(0, 5, (2, 20, 30)).astype(float)
    assert np.allclose(spearman(one, other), [spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)])
    assert np.allclose(pearson(one, other), [np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)])


def test_a_constant_row_correlates_with_nothing_whatever_its_rounding():
    generator = np.random.default_rng(0)
    for similarity in (spearman, pearson):
        assert np.isnan(similarity(np.full((1, 7), 0.1), generator.random((1, 7)))).all()
        assert np.isnan(similarity(generator.random((1, 7)), np.full((1, 7), 0.7))).all()


def test_constant_maps_have_no_similarity_and_are_counted():
    calls = []

    def sometimes_zero(model, inputs, targets, *, ids=None, seed=0):
        maps = torch.rand(len(inputs), 5, generator=torch.Generator().manual_seed(len(calls)))
        calls.append(None)
        maps[0] = 0.1
        return maps

    scores = model_randomisation(Backwards(), torch.randn(7, 5), [0] * 7, sometimes_zero)
    assert [step.estimate().samples for step in scores.values()] == [6, 6]


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`similarity` must be one of spearman, pearson; got 'ssim'"):
        model_randomisation(Backwards(), torch.randn(2, 5), [0, 0], similarity="ssim")
    with pytest.raises(ValueError, match="`model` must have layers with weights"):
        model_randomisation(nn.Sequential(nn.Flatten()), torch.randn(2, 5), [0, 0])
    with pytest.raises(TypeError, match="`stepz` is no option of integrated_gradients"):
        model_randomisation(Backwards(), torch.randn(2, 5), [0, 0], stepz=3)


def test_the_efficient_variant_by_hand():
    """Entropy before and after, from maps made one by one, of the model that the cascade ends with."""
    torch.manual_seed(2)
    model, inputs = TinyResNet(3, 3, width=4).eval(), torch.randn(5, 3, 8, 8)
    seen = []

    def method(network, x, targets, *, ids, seed):
        maps = attribute(network, x, targets, "saliency", ids=ids, seed=seed)
        seen.append((state(network), maps))
        return maps

    scores = efficient_randomisation(model, inputs, [1] * 5, method)
    (trained, before), (random, after) = seen
    model_randomisation(model, inputs, [1] * 5, method)
    assert same(random, seen[-1][0])
    assert same(trained, state(model))
    entropies = np.empty((2, 5))
    for row, maps in zip(entropies, (before, after), strict=True):
        for k, one in enumerate(maps):
            counts, _ = np.histogram(one.double().numpy(), bins=100)
            shares = counts[counts > 0] / counts.sum()
            row[k] = -(shares * np.log(shares)).sum()
    assert np.allclose(scores.values, (entropies[1] - entropies[0]) / entropies[0])


def test_constant_maps_have_no_rise():
    def constant(network, x, targets, *, ids, seed):
        return torch.ones(len(x), *x.shape[2:])

    scores = efficient_randomisation(TinyResNet(3, 3, width=4), torch.randn(4, 3, 8, 8), [0] * 4, constant)
    assert np.isnan(scores.values).all()


def test_data_randomisation_compares_with_each_network():
    torch.manual_seed(3)
    model, other = (nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) for _ in range(2))
    inputs = torch.randn(6, 1, 4, 4)
    scores = data_randomisation(model, {"itself": model, "other": other}, inputs, [0] * 6, "saliency")
    assert list(scores) == ["itself", "other"]
    assert np.allclose(scores["itself"].values, 1)
    one, two = (np.abs(network[1].weight[0].detach().numpy()) for network in (model, other))
    assert np.allclose(scores["other"].values, spearmanr(one, two)[0])
    with pytest.raises(ValueError, match="`networks` must hold at least one"):
        data_randomisation(model, {}, inputs, [0] * 6)
    with pytest.raises(ValueError, match="`similarity` must be one of"):
        data_randomisation(model, {"itself": model}, inputs, [0] * 6, similarity="ssim")


def test_permuted_labels_are_those_that_were_learned():
    inputs = torch.eye(12)
    labels = torch.arange(12) % 3
    network, learned = train_on_permuted_labels(
        lambda: nn.Linear(12, 3), inputs, labels, training=Training(epochs=200, rate=0.1), seed=1
    )
    given = network(inputs).argmax(dim=1)
    assert learned == 1.0
    assert torch.bincount(given).tolist() == [4, 4, 4]
    assert 0 < (given == labels).sum() < 12
