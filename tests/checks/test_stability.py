"""Max-sensitivity at equal output and class similarity, on models where both are known."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.support.randomness import stream


def drawn(seed=0, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Square(nn.Module):
    """Two logits, ± the sum of squares: gradients are twice the input, so that maps follow it."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=torch.float64))

    def forward(self, x):
        total = self.scale * (x.flatten(1) ** 2).sum(dim=1)
        return torch.stack([total, -total], dim=1)


def test_the_largest_change_is_what_its_definition_says():
    inputs, names = drawn(1, 3, 1, 4, 4), ["a", "b", "c"]
    found = tl.checks.max_sensitivity(
        Square(1e-6), inputs, [0, 0, 1], "saliency", radius=0.2, change=1.0, perturbations=3, ids=names, seed=5
    )
    for k, name in enumerate(names):
        changes = []
        for number in range(3):
            generator = torch.Generator().manual_seed(stream(5, name, "perturbation", number))
            noise = torch.rand(1, 4, 4, generator=generator, dtype=torch.float64) * 2 - 1
            moved = inputs[k] + 0.2 * inputs[k].std(correction=0) * noise
            changes.append((moved.abs() - inputs[k].abs()).norm() / inputs[k].norm())  # the gradient is 2 x
        assert found.values[k] == pytest.approx(float(max(changes)), abs=1e-6)
    assert found.estimate().value == pytest.approx(found.values.mean())


def test_draws_that_change_the_answer_are_replaced():
    """Of a model that answers by the first value, only perturbations that leave its sign count."""
    seen = []

    class Sign(nn.Module):
        def forward(self, x):
            first = 100 * x[:, :1].sign()
            return torch.cat([first, -first], dim=1)

    def method(model, inputs, targets):
        seen.append(inputs[:, 0].clone())
        return inputs.abs()

    inputs = torch.cat([torch.full((6, 1), 0.01, dtype=torch.float64), drawn(2, 6, 5)], dim=1)
    inputs[3:, 0] = 5.0
    found = tl.checks.max_sensitivity(Sign(), inputs, [0] * 6, method, radius=0.5, perturbations=2)
    assert np.isfinite(found.values).all()
    assert all((first > 0).all() for first in seen)


def test_a_sample_whose_answer_always_changes_has_no_value():
    inputs = drawn(3, 4, 1, 4, 4)
    found = tl.checks.max_sensitivity(Square(100.0), inputs, [0] * 4, "saliency", change=0.0, perturbations=1)
    assert np.isfinite(found.values).all()  # probabilities of 1 stay as they are
    found = tl.checks.max_sensitivity(Square(0.01), inputs, [0] * 4, "saliency", change=0.0, perturbations=1)
    assert np.isnan(found.values).all()
    assert "max-sensitivity –" in repr(found)


def test_perturbations_do_not_depend_on_the_company():
    model, inputs = tiny_model(), drawn(4, 4, 3, 8, 8).float()
    names = ["a", "b", "c", "d"]
    whole = tl.checks.max_sensitivity(model, inputs, [0, 1, 2, 0], "saliency", ids=names, seed=1)
    part = tl.checks.max_sensitivity(model, inputs[2:], [2, 0], "saliency", ids=names[2:], seed=1)
    assert part.values == pytest.approx(whole.values[2:], rel=1e-4)
    assert (tl.checks.max_sensitivity(model, inputs, [0, 1, 2, 0], "random", ids=names).values == 0).all()


def test_regression_counts_changes_in_deviations_of_the_output():
    forest = lambda rows: rows @ np.array([1.0, 2.0, 0.0])  # noqa: E731
    rows = drawn(5, 20, 3).numpy()
    found = tl.checks.max_sensitivity(forest, rows, forest(rows), lambda m, x, t: x.abs(), radius=0.01, change=0.1)
    assert np.isfinite(found.values).all()
    assert 0 < found.estimate().value < 0.1


def test_class_similarity_is_the_rank_correlation_with_another_class():
    model, inputs = tiny_model(), drawn(6, 5, 3, 8, 8).float()
    labels = torch.tensor([0, 1, 2, 0, 1])
    found = tl.checks.class_similarity(model, inputs, labels, "input_x_gradient", seed=2)
    each = [tl.attribute(model, inputs, [k] * 5, "input_x_gradient").flatten(1) for k in range(3)]
    for k, (value, label) in enumerate(zip(found.values, labels.tolist(), strict=True)):
        others = [spearmanr(each[label][k], each[other][k])[0] for other in range(3) if other != label]
        assert min(abs(value - other) for other in others) < 1e-9
    assert tl.checks.class_similarity(model, inputs, labels, "random").values == pytest.approx(np.ones(5))
    drawn_again = [
        tl.checks.class_similarity(model, inputs, labels, "input_x_gradient", seed=s).values for s in range(4)
    ]
    assert len({tuple(values) for values in drawn_again}) > 1


def test_what_cannot_be_is_refused_by_name():
    model, inputs = tiny_model(), torch.rand(2, 3, 8, 8)
    for given, message in (
        ({"radius": 0.0}, "`radius` must be positive"),
        ({"change": -0.1}, "`change` must be at least 0"),
        ({"perturbations": 0}, "`perturbations` must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            tl.checks.max_sensitivity(model, inputs, [0, 1], "saliency", **given)
    with pytest.raises(ValueError, match="`targets` must be classes"):
        tl.checks.class_similarity(model, inputs, [0.5, 1.5], "saliency")
    with pytest.raises(ValueError, match="`similarity` must be one of spearman, pearson"):
        tl.checks.class_similarity(model, inputs, [0, 1], "saliency", similarity="cosine")
