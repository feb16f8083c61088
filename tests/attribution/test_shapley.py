"""KernelSHAP on segments of images, and on cells of a grid."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.attribution.planted import density, planted_images, planted_model, trace


def linear(shape=(2, 4, 6), classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


def test_segments_of_a_linear_model_have_the_sum_of_their_contributions():
    model, inputs, targets = linear(), torch.randn(3, 2, 4, 6), [0, 1, 2]
    segments = torch.randint(0, 7, (3, 4, 6), generator=torch.Generator().manual_seed(1))
    segments[0, 0, 0], segments[1, 1] = -1, 40  # of no segment, and numbers with gaps
    background = torch.randn(2, 4, 6)
    parts = ((inputs - background) * model[1].weight[targets].reshape(3, 2, 4, 6)).sum(dim=1).detach()
    expected = torch.zeros(3, 4, 6)
    for own, numbers, values in zip(expected, segments, parts, strict=True):
        for number in numbers.unique():
            own[numbers == number] = values[numbers == number].sum() if number >= 0 else 0
    maps = tl.attribute(model, inputs, targets, "kernel_shap", segments=segments, background=background)
    torch.testing.assert_close(maps, expected.clamp(min=0), rtol=1e-4, atol=1e-5)
    again = tl.attribute(
        model, inputs, targets, "kernel_shap", segments=segments, background=background, batch_size=2, coalitions=60
    )
    torch.testing.assert_close(again, maps, rtol=1e-4, atol=1e-5)


def test_cells_of_a_grid_are_the_shapley_values_and_sum_to_the_change_of_the_logit():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Softplus(), nn.Linear(6, 2))
    for weight in model.parameters():
        weight.data.abs_()  # so that no value is negative and dropped
    image = torch.rand(1, 1, 4, 4)
    maps = tl.attribute(model, image, [1], "kernel_shap", cells=2)[0]
    shapley = torch.zeros(4)
    with torch.no_grad():
        for order in permutations(range(4)):
            present = torch.zeros(1, 1, 4, 4)
            for cell in order:
                before = model(present * image)[0, 1]
                row, column = divmod(cell, 2)
                present[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 1
                shapley[cell] += (model(present * image)[0, 1] - before) / 24
        gained = (model(image) - model(0 * image))[0, 1]
    torch.testing.assert_close(maps[::2, ::2].flatten(), shapley, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(maps, maps[::2, ::2].repeat_interleave(2, 0).repeat_interleave(2, 1))
    torch.testing.assert_close(maps[::2, ::2].sum(), gained, rtol=1e-4, atol=1e-6)


def test_signals_are_cut_into_parts_and_the_reference_gives_absent_values():
    model, signals = linear((1, 12), 2), torch.randn(2, 1, 12)
    reference = torch.randn(9, 1, 12)
    maps = tl.attribute(model, signals, [0, 1], "kernel_shap", cells=3, reference=reference)
    parts = ((signals - reference.mean(dim=0)) * model[1].weight[:, None]).detach()[:, 0]
    expected = parts.unflatten(1, (3, 4)).sum(dim=2).repeat_interleave(4, 1).clamp(min=0)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-5)


def test_maps_lie_on_the_planted_patch_and_the_model_is_left_alone():
    images, classes, inside = planted_images(4, 3)
    model = planted_model()
    before = trace(model)
    maps = tl.attribute(model, images, classes, "kernel_shap", coalitions=300, cells=8)
    assert density(maps, inside).mean() > 3
    assert trace(model) == before


def test_what_does_not_fit_is_refused():
    model, inputs = linear(), torch.randn(3, 2, 4, 6)
    with pytest.raises(ValueError, match=r"`segments` must have the shape \(3, 4, 6\)"):
        tl.attribute(model, inputs, [0, 1, 2], "kernel_shap", segments=torch.zeros(3, 4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`background` must be a number or fit one input \(2, 4, 6\)"):
        tl.attribute(model, inputs, [0, 1, 2], "kernel_shap", background=torch.zeros(5))
    with pytest.raises(ValueError, match="`coalitions` must be at least 48"):
        tl.attribute(model, inputs, [0, 1, 2], "kernel_shap", coalitions=10)


def test_a_run_explains_its_own_segments():
    generator = torch.Generator().manual_seed(2)
    images, labels = torch.randn(6, 2, 4, 6, generator=generator), torch.tensor([0, 1, 2] * 2)
    segments = torch.randint(0, 5, (6, 4, 6), generator=generator)
    evaluation = tl.evaluate(
        linear(), (images, labels), {"shap": {"method": "kernel_shap", "background": 0.0}},
        segments=segments, metrics=["deletion"], control="none", imputer=tl.ConstantImputer(),
    )  # fmt: skip
    maps = evaluation.maps("shap")
    for own, numbers in zip(torch.as_tensor(maps), segments, strict=True):
        assert all(len(own[numbers == number].unique()) == 1 for number in numbers.unique())
        assert len(own.unique()) > 1
