import numpy as np
import pytest
import torch
from torch import nn

from tests.checks.colours import SIZE, Colours, examples, known
from twinlens.checks.generated_features import (
    CHANGE,
    class_sensitivity,
    generate_features,
    null_player,
)


@pytest.fixture(scope="module")
def generated():
    return generate_features(Colours(), examples(), count=8, steps=300)


def by_class(upper, lower):
    """A method that puts these numbers on both halves, for the first class of a pair and mirrored for the second."""

    def method(model, inputs, targets, *, ids, seed):
        maps = torch.zeros(len(inputs), 4, 4)
        for one, target in zip(maps, targets, strict=True):
            one[:2], one[2:] = (upper, lower) if target % 2 == 0 else (lower, upper)
        return maps

    return method


def same(model, inputs, targets, *, ids, seed):
    return torch.ones(len(inputs), 4, 4)


def nothing(model, inputs, targets, *, ids, seed):
    return torch.zeros(len(inputs), 4, 4)


def test_what_is_generated_is_what_it_is_said_to_be(generated):
    """Each patch contributes to its class alone, asked of the model again."""
    assert len(generated.ids) >= 6
    model = Colours()
    low, high = examples().amin(), examples().amax()
    assert low <= generated.inputs.min()
    assert generated.inputs.max() <= high
    assert not (generated.patches[:, 0] & generated.patches[:, 1]).any()
    assert set(generated.patches.flatten(2).sum(dim=2).flatten().tolist()) == {round(0.38 * SIZE) ** 2}
    for x, (a, b), patches in zip(generated.inputs, generated.classes, generated.patches, strict=True):
        background = x[:, ~patches.any(dim=0)].mean()
        first = torch.where(patches[1], background, x)[None]
        second = torch.where(patches[0], background, x)[None]
        neither = torch.where(patches.any(dim=0), background, x)[None]
        assert a != b
        assert model(first).argmax() == a
        assert model(second).argmax() == b
        for own, other, target in ((first, second, a), (second, first, b)):
            gain = (model(own) - model(neither))[0, target]
            # The background below the patches is not known here, but on average.
            assert abs((model(x[None]) - model(own))[0, target]) < 1.5 * CHANGE * gain
            assert abs((model(other) - model(neither))[0, target]) < 1.5 * CHANGE * gain
    assert (generated.change < CHANGE).all()


def test_a_pair_does_not_depend_on_how_many_others_there_are(generated):
    few = generate_features(Colours(), examples(), count=3, steps=300)
    assert few.tried == 3
    assert few.ids == generated.ids[: len(few.ids)]
    assert torch.allclose(few.inputs, generated.inputs[: len(few.ids)])


def test_the_model_is_left_as_it_was():
    parts = nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)
    model = nn.Sequential(*parts).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with pytest.raises(ValueError, match="generated none of 2 pairs"):
        generate_features(model, examples(), count=2, steps=2)
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())


def test_null_player_is_the_share_on_the_other_patch():
    model = nn.Identity()
    assert null_player(model, known(), by_class(1.0, 0.0)).values.tolist() == [0.0, 0.0]
    assert null_player(model, known(), by_class(3.0, 1.0)).values.tolist() == [0.25, 0.25]
    assert null_player(model, known(), by_class(0.0, 1.0)).values.tolist() == [1.0, 1.0]
    assert null_player(model, known(), same).values.tolist() == [0.5, 0.5]
    assert np.isnan(null_player(model, known(), nothing).values).all()
    assert null_player(model, known(), nothing).estimate().value is None


def test_class_sensitivity_is_the_overlap_on_the_patches():
    model = nn.Identity()
    assert class_sensitivity(model, known(), by_class(1.0, 0.0)).values.tolist() == [0.0, 0.0]
    assert class_sensitivity(model, known(), by_class(4.0, 1.0)).values.tolist() == [0.25, 0.25]
    assert class_sensitivity(model, known(), by_class(0.0, 1.0)).values.tolist() == [1.0, 1.0]
    assert class_sensitivity(model, known(), same).values.tolist() == [1.0, 1.0]
    assert np.isnan(class_sensitivity(model, known(), nothing).values).all()


def test_maps_of_two_classes_are_compared_at_one_scale():
    """A class whose map is larger everywhere does not overlap less for that."""

    def louder(model, inputs, targets, *, ids, seed):
        return by_class(4.0, 1.0)(model, inputs, targets, ids=ids, seed=seed) * (1.0 + 9.0 * (targets[0] % 2))

    assert class_sensitivity(nn.Identity(), known(), louder).values.tolist() == [0.25, 0.25]


def test_methods_that_look_at_the_model_are_told_from_those_that_do_not(generated):
    model = Colours()
    assert null_player(model, generated, "input_x_gradient").estimate().value < 0.3
    assert null_player(model, generated, "random").estimate().value == pytest.approx(0.5)
    assert class_sensitivity(model, generated, "input_x_gradient").estimate().value < 0.3
    assert class_sensitivity(model, generated, "sobel").estimate().value == pytest.approx(1.0)


def test_signals_have_patches_too():
    signals = torch.rand(6, 3, 20, generator=torch.Generator().manual_seed(0)) * (torch.arange(6) % 2)[:, None, None]

    class Sums(nn.Module):
        def forward(self, x):
            return 30 * x.clamp(min=0).mean(dim=2)

    found = generate_features(Sums(), signals, count=3, steps=300)
    assert found.patches.shape[1:] == (2, 20)
    assert found.patches.sum(dim=2).unique().tolist() == [8]


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match="must have space for patches"):
        generate_features(nn.Linear(3, 2), torch.rand(2, 3))
    with pytest.raises(ValueError, match="`count` must be at least 1"):
        generate_features(Colours(), examples(), count=0)
    with pytest.raises(ValueError, match="`probability` must lie within"):
        generate_features(Colours(), examples(), probability=1.0)
    # A patch of 5 × 5 of 12 × 12 pixels adds at most 30 · 25 / 144 to its logit.
    with pytest.raises(ValueError, match=r"reached a probability of 0\.999 for one class"):
        generate_features(Colours(), examples(), count=3, steps=300, probability=0.999)
    with pytest.raises(ValueError, match="generated none of 1 pairs of features in 1 steps"):
        generate_features(Colours(), examples(), count=1, steps=1)
