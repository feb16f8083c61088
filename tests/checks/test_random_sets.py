import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from twinlens.checks.random_sets import random_removals, sensitivity_n
from twinlens.imputation.imputers import ConstantImputer
from twinlens.reproduction.networks import TinyResNet

WEIGHTS = torch.linspace(-1, 2, 30, dtype=torch.float64)


def linear(x):
    return torch.stack([x @ WEIGHTS, -(x @ WEIGHTS)], dim=1)


def rows(count=12, seed=0):
    return torch.randn(count, 30, generator=torch.Generator().manual_seed(seed)).double()


def stacked(scores):
    """(L, N) the values for each size."""
    return np.stack([each.values for each in scores.values()])


def test_exact_attribution_satisfies_it_and_exchanged_attribution_does_not():
    x = rows()
    exact = sensitivity_n(linear, x, [0] * 12, x * WEIGHTS, subsets=20)
    assert np.allclose(stacked(exact), 1)
    assert np.allclose(stacked(sensitivity_n(linear, x, [1] * 12, x * WEIGHTS, subsets=20)), -1)
    other = sensitivity_n(linear, x, [0] * 12, (x * WEIGHTS).roll(1, 0), subsets=20)
    assert stacked(other).mean() < 0.5


def test_one_sample_by_hand():
    """The sets are those that the model saw: removal and sums, counted again from the inputs that it is asked about."""
    x, seen = rows(1).abs() + 1, []

    def model(batch):
        seen.append(batch.clone())
        return linear(batch)

    maps = torch.rand(1, 30)
    found = sensitivity_n(model, x, [0], maps, shares=(0.3,), subsets=15)
    asked = torch.cat(seen)
    removed = asked == 0
    assert sorted(set(removed.sum(dim=1).tolist())) == [0, 9]
    asked, removed = asked[removed.any(dim=1)], removed[removed.any(dim=1)]
    drops = (linear(x)[0, 0] - linear(asked)[:, 0]).double()
    sums = (maps.double() * removed).sum(dim=1)
    assert list(found) == [9]
    assert found[9].values[0] == pytest.approx(pearsonr(sums, drops)[0])


def test_maps_without_negative_values_score_less():
    x = rows()
    found = sensitivity_n(linear, x, [0] * 12, (x * WEIGHTS).clamp(min=0), subsets=30)
    assert 0.3 < stacked(found).mean() < 0.95


def test_constant_maps_have_no_value():
    found = sensitivity_n(linear, rows(3), [0] * 3, torch.ones(3, 30), shares=(0.1, 0.5), subsets=5)
    assert np.isnan(stacked(found)).all()


def test_order_and_batches_of_samples_change_nothing():
    model, x = TinyResNet(3, 3, width=4).eval(), torch.randn(6, 3, 8, 8)
    maps, ids = torch.rand(6, 8, 8), list("abcdef")
    order = [3, 0, 5, 1, 4, 2]
    whole = random_removals(model, x, [0] * 6, shares=(0.1, 0.4), subsets=4, ids=ids)
    parts = random_removals(
        model, x[order], [0] * 6, shares=(0.1, 0.4), subsets=4, ids=[ids[k] for k in order], batch_size=3
    )
    assert np.allclose(whole.drops[:, order], parts.drops, atol=1e-5)
    one, other = stacked(whole.correlate(maps)), stacked(parts.correlate(maps[order]))
    assert np.allclose(one[:, order], other, atol=1e-4)


def test_each_sample_has_sets_of_its_own():
    x = rows(1).repeat(2, 1)
    one, other = random_removals(linear, x, [0, 0], shares=(0.3,), subsets=5).drops[0]
    assert not np.isclose(one, other).all()


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match="`subsets` must lie within"):
        sensitivity_n(linear, rows(2), [0, 0], rows(2), subsets=2)
    with pytest.raises(ValueError, match="`shares` must increase"):
        sensitivity_n(linear, rows(2), [0, 0], rows(2), shares=(0.5, 0.1), imputer=ConstantImputer(1.0))
    with pytest.raises(ValueError, match="`maps` must have shape"):
        sensitivity_n(linear, rows(2), [0, 0], torch.ones(2, 29), subsets=3)


def test_segments_are_refused():
    with pytest.raises(ValueError, match="`segments` are not supported here: sets are drawn from single features"):
        random_removals(linear, rows(3), [0] * 3, subsets=5, segments=torch.arange(30) // 3)
