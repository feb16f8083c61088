"""Occlusion, RISE and Extremal Perturbation: against hand computations, and on images whose evidence was planted."""

import functools

import pytest
import torch
from torch import nn

from tests.attribution.planted import (
    check_batches,
    check_leaves_no_trace,
    density,
    planted_images,
    planted_model,
    small_cnn,
)
from twinlens.attribution.perturbation import _perturb, _pyramid, blur, extremal_perturbation, occlusion, rise


class Sum(nn.Module):
    """Logits: a weighted sum of the features, and 0."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x):
        total = (x.flatten(1) * self.weights.flatten()).sum(dim=1)
        return torch.stack([total, torch.zeros_like(total)], dim=1)


def test_occlusion_is_the_mean_drop_over_covering_windows():
    weights = torch.arange(1.0, 8.0).reshape(1, 7)
    maps = occlusion(Sum(weights), torch.ones(1, 1, 7), [0], window=3, stride=2, baseline=0.5)
    drops = {start: 0.5 * weights[0, start : start + 3].sum() for start in (0, 2, 4)}
    expected = [
        sum(d for s, d in drops.items() if s <= k < s + 3) / sum(s <= k < s + 3 for s in drops) for k in range(7)
    ]
    torch.testing.assert_close(maps[0], torch.tensor(expected))


def test_occlusion_reaches_the_last_feature_of_every_axis():
    weights = torch.rand(1, 10, 9) + 0.1
    maps = occlusion(Sum(weights), torch.ones(1, 1, 10, 9), [0], window=4, stride=3)
    rows, columns = (0, 3, 6), (0, 3, 5)
    total, cover = torch.zeros(10, 9), torch.zeros(10, 9)
    for r in rows:
        for c in columns:
            total[r : r + 4, c : c + 4] += weights[0, r : r + 4, c : c + 4].sum()
            cover[r : r + 4, c : c + 4] += 1
    torch.testing.assert_close(maps[0], total / cover)


def test_occlusion_of_tabular_rows_hides_one_feature_at_a_time():
    weights = torch.tensor([2.0, -1.0, 0.5] * 8)
    maps = occlusion(Sum(weights), torch.full((2, 24), 3.0), [0, 0])
    torch.testing.assert_close(maps, (3 * weights).clamp(min=0).expand(2, -1))


def test_rise_weights_masks_with_probabilities():
    images, classes, _ = planted_images(2, 11)
    model, seen = planted_model(), []
    # Where the input is one, what the model is shown is the mask.
    watcher = Sum(torch.ones(32 * 32))
    handle = watcher.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    rise(watcher, torch.ones(1, 1, 32, 32), [0], masks=50, probability=0.3, seed=4)
    handle.remove()
    masks = torch.cat(seen)[-50:, 0]
    assert masks.unique(dim=0).shape == masks.shape
    with torch.no_grad():
        scores = torch.stack([model(images * mask).softmax(dim=1)[torch.arange(2), classes] for mask in masks])
    expected = torch.einsum("mb,mhw->bhw", scores, masks) / (50 * 0.3)
    maps = rise(model, images, classes, masks=50, probability=0.3, seed=4, form="expectation")
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-5)
    # Without the mean: the covariance of mask and score, its positive part.
    expected = torch.einsum("mb,mhw->bhw", scores - scores.mean(dim=0), masks - masks.mean(dim=0)) / (50 * 0.3)
    for size in (1, 7, 64):
        maps = rise(model, images, classes, masks=50, probability=0.3, seed=4, batch_size=size)
        torch.testing.assert_close(maps, expected.clamp(min=0), rtol=1e-4, atol=1e-6)


def test_rise_without_the_mean_is_zero_where_nothing_depends_on_a_feature():
    images, classes, inside = planted_images(3, 12)
    paper, mean_free = (
        rise(planted_model(), images, classes, masks=800, form=form) for form in ("expectation", "covariance")
    )
    outside = ~inside
    highest = paper.amax(dim=(1, 2), keepdim=True)
    assert ((paper > 0.5 * highest) & outside).sum() > 0.9 * outside.sum()
    highest = mean_free.amax(dim=(1, 2), keepdim=True)
    assert ((mean_free > 0.5 * highest) & outside).sum() < 0.2 * outside.sum()
    assert density(mean_free, inside).min() > 2 * density(paper, inside).max()


def test_rise_masks_show_the_wanted_share_and_vary_over_few_cells():
    class Shown(nn.Module):
        """The probability of class 0 is what is shown of one feature."""

        def forward(self, x):
            shown = x[:, 0, 16, 16].clamp(1e-6, 1 - 1e-6)
            return torch.stack([shown.log(), (1 - shown).log()], dim=1)

    (far_and_near,) = rise(Shown(), torch.ones(1, 1, 32, 32), [0], masks=3000, form="expectation")
    # Far away, masks are independent: E[m m'] / p = p. At the feature itself, E[m²] / p is larger.
    assert far_and_near[:6].mean() == pytest.approx(0.5, abs=0.03)
    assert far_and_near.argmax() // 32 in (15, 16, 17)
    assert far_and_near[16, 16] > 0.6


def test_rise_of_tabular_rows_draws_features_by_themselves():
    maps = rise(Sum(torch.tensor([8.0, 0.0, 0.0, 0.0])), torch.ones(1, 4), [0], masks=2000)
    assert maps.argmax() == 0
    assert maps[0, 1:].max() < 0.1 * maps[0, 0]


def test_extremal_perturbation_finds_the_patch_within_the_area():
    images, classes, inside = planted_images(8, 21)
    maps = extremal_perturbation(planted_model(), images, classes, steps=200)
    assert density(maps, inside).min() > 3
    assert (maps.mean(dim=(1, 2)) - 0.1).abs().max() < 0.02
    assert maps.max() <= 1
    # Mostly ones and zeros: what is left between them is the smooth border.
    assert ((maps > 0.1) & (maps < 0.9)).float().mean() < 0.2


@pytest.mark.slow
def test_extremal_perturbation_meets_every_area():
    images, classes, _ = planted_images(2, 22)

    def search(areas):
        return extremal_perturbation(planted_model(), images, classes, areas=areas, steps=200)

    small, large = search(0.05), search((0.25,))
    assert (small.mean(dim=(1, 2)) - 0.05).abs().max() < 0.02
    assert (large.mean(dim=(1, 2)) - 0.25).abs().max() < 0.02
    torch.testing.assert_close(search((0.05, 0.25)), small + large, rtol=1e-3, atol=1e-4)


def test_extremal_perturbation_of_a_signal():
    weights = torch.zeros(1, 64)
    weights[0, 40:46] = 4.0
    maps = extremal_perturbation(Sum(weights), weights[None] / 4, [0], steps=200, areas=0.2)
    assert maps.shape == (1, 64)
    assert maps[0, 40:46].min() > 0.8
    assert maps.mean() == pytest.approx(0.2, abs=0.02)


def test_perturbed_images_interpolate_between_levels():
    torch.testing.assert_close(
        blur(torch.eye(3)[None, :1], 1.0), torch.tensor([[[0.5741, 0.2741, 0.0777]]]), rtol=0, atol=1e-4
    )
    images = torch.randn(1, 2, 9, 9)
    pyramid = _pyramid(images, 3, 2.0)
    torch.testing.assert_close(_perturb(pyramid, torch.ones(1, 9, 9)), images)
    torch.testing.assert_close(_perturb(pyramid, torch.zeros(1, 9, 9)), blur(images, 2.0))
    torch.testing.assert_close(
        _perturb(pyramid, torch.full((1, 9, 9), 0.75)), (blur(images, 1.0) + images) / 2, rtol=1e-4, atol=1e-5
    )


METHODS = {
    "occlusion": occlusion,
    "rise": functools.partial(rise, masks=30),
    "extremal_perturbation": functools.partial(extremal_perturbation, steps=30),
}


@pytest.mark.parametrize("name", METHODS)
def test_leaves_no_trace(name):
    check_leaves_no_trace(functools.partial(METHODS[name], batch_size=2))


@pytest.mark.parametrize("name", METHODS)
def test_batches_and_order_change_nothing(name):
    check_batches(METHODS[name])


def test_occlusion_finds_the_patch():
    images, classes, inside = planted_images(8, 21)
    assert density(occlusion(planted_model(), images, classes), inside).min() > 3


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (occlusion, {"window": 33}, r"`window` must lie within 1 … 32, to fit into inputs \(32, 32\); got 33"),
        (occlusion, {"window": 4, "stride": 5}, "`stride` must lie within 1 … 4, the window, to leave no gaps; got 5"),
        (occlusion, {"batch_size": 0}, "`batch_size` must be at least 1; got 0"),
        (rise, {"masks": 0}, "`masks` must be at least 1; got 0"),
        (rise, {"cells": 0}, "`cells` must be at least 1; got 0"),
        (rise, {"form": "mean"}, "`form` must be one of covariance, expectation; got 'mean'"),
        (rise, {"probability": 0.0}, r"`probability` must lie within \(0, 1\]; got 0"),
        (
            extremal_perturbation,
            {"areas": 1.5},
            r"`areas` must lie within \(0, 1\), at least one of them; got \(1.5,\)",
        ),
        (extremal_perturbation, {"areas": ()}, r"`areas` must lie within \(0, 1\), at least one of them; got \(\)"),
        (extremal_perturbation, {"steps": 0}, "`steps` must be at least 1; got 0"),
        (extremal_perturbation, {"batch_size": 0}, "`batch_size` must be at least 1; got 0"),
        (extremal_perturbation, {"area_weight": -1.0}, r"`area_weight` must lie within \[0, 1000000\]"),
    ],
)
def test_refuses(method, options, message):
    images, classes, _ = planted_images(1, 1)
    with pytest.raises(ValueError, match=message):
        method(small_cnn(), images, classes, **options)


@pytest.mark.parametrize("name", METHODS)
def test_refuses_targets_that_the_model_does_not_know(name):
    images, _, _ = planted_images(1, 1)
    with pytest.raises(ValueError, match="`targets` must lie within 0 … 2"):
        METHODS[name](small_cnn(), images, [3])


def test_extremal_perturbation_refuses_tabular_rows():
    with pytest.raises(ValueError, match=r"`inputs` must be images .* use occlusion or rise"):
        extremal_perturbation(nn.Linear(4, 2), torch.ones(1, 4), [0])
