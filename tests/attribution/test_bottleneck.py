"""IBA and InputIBA: against torch's own divergences, and on images whose evidence was planted."""

import functools
import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from tests.attribution.planted import (
    check_batches,
    check_leaves_no_trace,
    density,
    planted_images,
    planted_model,
    small_cnn,
)
from twinlens.attribution import bottleneck, feature_point
from twinlens.attribution.bottleneck import _information, iba, input_iba
from twinlens.attribution.feature_point import LayerRun, Moments, corners, one_corner, whole_inputs
from twinlens.attribution.harness import make_request

quick_input_iba = functools.partial(
    input_iba, layer="3", rounds=2, critic_steps=2, critic_noise=4, steps=8, noise=4, feature_steps=5
)


def test_information_is_the_divergence_from_noise():
    features, share = torch.randn(2, 3, 4, 4), torch.rand(2, 3, 4, 4) * 0.98
    mean, std = torch.randn(3, 4, 4), torch.rand(3, 4, 4) + 0.1
    passed = Normal(share * features + (1 - share) * mean, (1 - share) * std)
    torch.testing.assert_close(
        _information(features, share, Moments(mean, std, torch.ones(()))),
        kl_divergence(passed, Normal(mean, std)),
        rtol=1e-3,
        atol=1e-5,
    )


def test_information_beyond_a_free_mask_is_the_divergence_from_the_masked_input():
    features, share, free = torch.randn(2, 3, 4, 4), torch.rand(2, 3, 4, 4) * 0.98, torch.rand(2, 3, 4, 4)
    moments = Moments(torch.zeros(()), torch.ones(()), torch.ones(()))
    passed = Normal(share * features, 1 - share)
    known = Normal(share * free * features, 1 - share * free)
    torch.testing.assert_close(
        _information(features, share, moments, free=free), kl_divergence(passed, known), rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_iba_finds_the_patch():
    images, classes, inside = planted_images(8, 21)
    reference, _, _ = planted_images(64, 22, empty=0.2)
    for given in (None, reference):
        maps = iba(planted_model(), images, classes, reference=given)
        assert maps.shape == (8, 32, 32)
        assert density(maps, inside).min() > 3


def test_bits_fall_as_their_price_rises():
    images, classes, _ = planted_images(4, 23)
    bits = [iba(planted_model(), images, classes, beta=beta).sum(dim=(1, 2)) for beta in (10.0, 100.0, 1000.0)]
    assert (bits[0] > 1.5 * bits[1]).all()
    assert (bits[1] > 1.5 * bits[2]).all()
    assert min(float(b.min()) for b in bits) >= 0


def test_features_that_the_class_does_not_need_carry_no_bits():
    class Left(nn.Module):
        """Reads the left half of its single feature map."""

        def __init__(self):
            super().__init__()
            self.map = nn.Conv2d(1, 1, 1, bias=False)
            nn.init.ones_(self.map.weight)

        def forward(self, x):
            left = 3 * self.map(x)[..., :8].mean(dim=(1, 2, 3))
            return torch.stack([left, -left], dim=1)

    images = torch.randn(4, 1, 16, 16)
    images[..., 2:14] += torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None, None]
    maps = iba(Left(), images, [0, 1, 0, 1], layer="map", steps=30)
    assert (maps[..., :6].sum(dim=(1, 2)) > 2 * maps[..., 10:].sum(dim=(1, 2))).all()


@pytest.mark.parametrize("stand_in", [one_corner, corners])
def test_stand_ins_lead_to_the_same_maps(stand_in, monkeypatch):
    images, classes, _ = planted_images(2, 24)
    monkeypatch.setattr(feature_point, "_CORNER", 4)
    monkeypatch.setattr(feature_point, "_find_stand_in", lambda *_: stand_in)
    cheap = iba(planted_model(), images, classes, layer="3")
    monkeypatch.setattr(feature_point, "_find_stand_in", lambda *_: whole_inputs)
    torch.testing.assert_close(iba(planted_model(), images, classes, layer="3"), cheap, rtol=1e-3, atol=1e-4)


def test_a_model_that_counts_its_rows_is_given_corners_of_copies(monkeypatch):
    class Counting(nn.Module):
        def __init__(self, sides=()):
            super().__init__()
            self.stem, self.head, self.sides = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Linear(4, 3), sides

        def forward(self, x):
            assert not self.sides or x.shape[2:] == self.sides
            return self.head(self.stem(x).mean(dim=(2, 3)).view(len(x), -1))

    images, _, _ = planted_images(1, 26)
    monkeypatch.setattr(feature_point, "_CORNER", 4)
    model, strict = Counting(), Counting(images.shape[2:])
    assert feature_point._find_stand_in(LayerRun(model, model.stem, 1), images) is corners
    assert feature_point._find_stand_in(LayerRun(strict, strict.stem, 1), images) is whole_inputs


@pytest.mark.parametrize(("channels", "rows"), [(4, 20), (400, 5)])
def test_copies_behind_a_wide_layer_are_taken_one_after_the_other(channels, rows):
    """Five samples in four copies, of a layer that has about as many numbers as the input, or a hundred times more."""
    images, classes, _ = planted_images(5, 25)
    seen = []
    model = nn.Sequential(
        nn.Conv2d(3, channels, 1), nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)
    )
    model[4].register_forward_hook(lambda _module, _given, logits: seen.append(len(logits)))
    iba(model, images, classes, layer="1", steps=2, noise=4, batch_size=5)
    assert max(seen) == rows
    assert seen.count(rows) == 2 * 20 // rows


def test_layers_within_a_shortcut(monkeypatch):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.branch = nn.Conv2d(4, 4, 3, padding=1)
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            x = self.stem(x)
            return self.head((x + self.branch(x)).relu().mean(dim=(2, 3)))

    images, classes, _ = planted_images(3, 25)
    model = Residual()
    monkeypatch.setattr(feature_point, "_CORNER", 4)
    # Of a constant image, too, whose rows are all the same.
    for image in (images[:1], torch.zeros_like(images[:1])):
        assert feature_point._find_stand_in(LayerRun(model, model.branch, 1), image) is whole_inputs
    assert feature_point._find_stand_in(LayerRun(model, model.stem, 1), images[:1]) is one_corner
    for layer in ("branch", "stem"):
        together = iba(model, images, classes, layer=layer, batch_size=3)
        alone = iba(model, images, classes, layer=layer, batch_size=1)
        torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-5)


def test_statistics_are_those_of_the_reference():
    images, classes, _ = planted_images(7, 26)
    request = make_request(planted_model(), images[:2], classes[:2], ids=None, seed=0, batch_size=3)
    features = planted_model()[:4](images).detach()
    find = functools.partial(feature_point.FeaturePoint.find, planted_model(), request, "3")
    point = find(images)
    torch.testing.assert_close(point.moments.mean, features.mean(dim=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        point.moments.std, features.std(dim=0, correction=0).clamp(min=0.01), rtol=1e-3, atol=1e-4
    )
    point = find(None)
    torch.testing.assert_close(point.moments.mean.flatten(), features[:2].mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-5)


def test_input_iba_finds_the_patch():
    images, classes, inside = planted_images(4, 21)
    maps = input_iba(planted_model(), images, classes, rounds=5, critic_noise=8, batch_size=40)
    assert maps.shape == (4, 32, 32)
    assert maps.max() <= 1
    assert density(maps, inside).min() > 3


def test_the_game_moves_masked_inputs_towards_the_bottleneck():
    images, classes, _ = planted_images(2, 27)
    model = planted_model()
    request = make_request(model, images, classes, ids=None, seed=0, batch_size=16)
    point = feature_point.FeaturePoint.find(model, request, "3", None)
    features = point.read(request.inputs).detach()
    # Everything passes, so that the mask is to open and the noise to vanish.
    game = bottleneck._Game(point, request, features, torch.full_like(features, 0.999), copies=8)

    @torch.no_grad()
    def distance():
        return float((game._generate(16) - features[:, None]).square().mean())

    with torch.no_grad():
        game.mask.zero_()
    before, mask = distance(), game.mask.detach().clone()
    for _ in range(20):
        for _ in range(5):
            game.train_critic()
        game.train_generator()
    assert max(float(w.detach().abs().max()) for w in game.critic_weights) <= 0.01
    assert not torch.equal(game.mask, mask)
    assert distance() < 0.8 * before


@pytest.mark.parametrize("method", [iba, quick_input_iba], ids=["iba", "input_iba"])
def test_leaves_no_trace(method):
    check_leaves_no_trace(functools.partial(method, layer="3", batch_size=2))


@pytest.mark.parametrize(("method", "tolerance"), [(iba, 1e-4), (quick_input_iba, 1e-3)], ids=["iba", "input_iba"])
def test_batches_and_order_change_nothing(method, tolerance):
    # RMSprop divides each gradient by its own size, so that the game passes on what rounding leaves of the smallest.
    check_batches(method, tolerance=tolerance)


@pytest.mark.parametrize("method", [iba, quick_input_iba], ids=["iba", "input_iba"])
def test_seeds_change_the_noise(method):
    images, classes, _ = planted_images(1, 28)
    first, second = (method(planted_model(), images, classes, seed=seed) for seed in (0, 1))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=1.0, atol=0.5)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (iba, {"steps": 0}, "`steps` must be at least 1; got 0"),
        (iba, {"noise": 0}, "`noise` must be at least 1; got 0"),
        (iba, {"batch_size": 0}, "`batch_size` must be at least 1; got 0"),
        (iba, {"layer": "6"}, r"`layer` must return a convolutional feature map .* it returns \(1, 16\)"),
        (iba, {"reference": torch.ones(2, 1, 8, 8)}, r"`reference` must hold inputs of shape \(3, 32, 32\)"),
        (input_iba, {"rounds": 0}, "`rounds` must be at least 1; got 0"),
        (input_iba, {"critic_noise": 0}, "`critic_noise` must be at least 1; got 0"),
    ],
)
def test_refuses(method, options, message):
    images, classes, _ = planted_images(1, 1)
    with pytest.raises(ValueError, match=message):
        method(small_cnn(), images, classes, **options)


@pytest.mark.parametrize("method", [iba, input_iba])
def test_refuses_models_without_feature_maps_and_unknown_classes(method):
    with pytest.raises(ValueError, match=r"`inputs` must be images .* got shape \(1, 4\)"):
        method(nn.Linear(4, 2), torch.ones(1, 4), [0])
    images, _, _ = planted_images(1, 1)
    with pytest.raises(ValueError, match="convolutional"):
        method(nn.Sequential(nn.Flatten(), nn.Linear(3072, 2)), images, [0])
    with pytest.raises(ValueError, match="`targets` must lie within 0 … 2"):
        method(small_cnn(), images, [3])


def test_a_shared_activation_is_read_and_replaced_at_its_last_run():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, 3), nn.Linear(6, 3)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.head(self.act(self.second(self.act(self.first(x)))).mean(dim=(2, 3)))

    model, inputs = Shared(), torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # the search needs gradients, whatever the caller is in
        shared = bottleneck.iba(model, inputs, [0, 1], layer="act")
    apart = Shared()
    apart.last = nn.ReLU()
    apart.forward = lambda x: apart.head(apart.last(apart.second(apart.act(apart.first(x)))).mean(dim=(2, 3)))
    assert torch.allclose(shared, bottleneck.iba(apart, inputs, [0, 1], layer="last"), atol=1e-5)


class Stages(nn.Module):
    """Two stages: a shortcut leads around what the second begins with, and one activation serves both."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.narrow, self.down = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.short, self.act, self.head = nn.Conv2d(4, 8, 1, stride=2), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        x = self.act(self.first(self.act(self.stem(x))))
        x = self.act(self.down(self.act(self.narrow(x))) + self.short(x))
        return self.head(x.mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("build", "name", "run"),
    [
        (Stages, "act", 2),  # of four runs
        (small_cnn, "0", 1),  # the convolution, since the ReLU behind it works in place
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)), "0", 1),  # one stage
    ],
)
def test_the_default_layer_ends_the_last_stage_but_one(build, name, run):
    images, classes, _ = planted_images(2, 29)
    model = build().eval()
    model(images)
    request = make_request(model, images, classes, ids=None, seed=0, batch_size=2)
    point = feature_point.FeaturePoint.find(model, request, None, None)
    assert (point.layer, point.run) == (dict(model.named_modules())[name], run)
    features = point.read(images)
    torch.testing.assert_close(point.answer(images, features[:, None]), model(images), rtol=1e-4, atol=1e-5)


def test_units_that_are_never_active_carry_no_bits_and_stay_silent():
    model = small_cnn().eval()
    with torch.no_grad():
        model[3].bias[:8], model[3].bias[8:] = -1e3, 1.0
    images, classes, _ = planted_images(3, 30)
    request = make_request(model, images, classes, ids=None, seed=0, batch_size=3)
    point = feature_point.FeaturePoint.find(model, request, "4", None)
    assert point.moments.active.flatten().tolist() == [0.0] * 8 + [1.0] * 8
    features = point.read(images)
    nats = _information(features, torch.full_like(features, 0.5), point.moments)
    assert nats[:, :8].abs().max() == 0
    assert nats[:, 8:].min() > 0
    noisy = features[:, None].clone()
    noisy[:, :, :8] += 7
    torch.testing.assert_close(point.answer(images, noisy), model(images), rtol=1e-4, atol=1e-5)


def test_a_map_adds_up_to_the_bits_of_its_layer():
    images, classes, _ = planted_images(2, 31)
    request = make_request(planted_model(), images, classes, ids=None, seed=0, batch_size=2)
    point = feature_point.FeaturePoint.find(planted_model(), request, "3", None)
    features, share = point.read(images).detach(), torch.full((2, 16, 16, 16), 0.5)
    bits = _information(features, share, point.moments).sum(dim=(1, 2, 3)) / math.log(2)
    maps = bottleneck._bits_per_pixel(point, features, share, images)
    torch.testing.assert_close(maps.sum(dim=(1, 2)), bits, rtol=0.02, atol=0)
