"""Feature maps are identified by their location in a pass: of modules that run several times, of programs."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import twinlens as tl
from twinlens.attribution.feature_maps import choose, find_layer, recording


class Shared(nn.Module):
    """One activation for everything, also behind the pooling, where its last run is no feature map."""

    def __init__(self, activation=nn.ReLU6):
        super().__init__()
        torch.manual_seed(3)
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.body, self.late = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.hidden, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.act = activation()

    def features(self, x):
        x = functional.max_pool2d(self.act(self.norm(self.stem(x))), 2)
        return self.act(self.late(self.body(x)) + x)

    def forward(self, x):
        return self.head(self.act(self.hidden(self.features(x).mean(dim=(2, 3)))))


class ChannelsLast(nn.Module):
    """Works on (B, h, w, K) at its end, as ConvNeXt and Swin do, with a norm behind the pooling."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.stem, self.norm, self.late = nn.Conv2d(3, 6, 3), nn.LayerNorm(6), nn.LayerNorm(6)
        self.dense, self.head, self.turn = nn.Linear(6, 6), nn.Linear(6, 4), Turn()

    def forward(self, x):
        x = functional.relu(self.stem(x)).permute(0, 2, 3, 1)
        x = self.turn(x + functional.gelu(self.dense(self.norm(x))))
        return self.head(self.late(x.mean(dim=(2, 3))))


class Turn(nn.Module):
    def forward(self, x):
        return x.permute(0, 3, 1, 2)


class Patches(nn.Module):
    """A vision transformer of two blocks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.patch, self.token = nn.Conv2d(3, 12, 4, 4), nn.Parameter(torch.randn(1, 1, 12))
        self.norms = nn.ModuleList(nn.LayerNorm(12) for _ in range(5))
        self.mixes = nn.ModuleList(nn.Linear(12, 36) for _ in range(2))
        self.dense = nn.ModuleList(nn.Linear(12, 12) for _ in range(2))
        self.head = nn.Linear(12, 4)

    def attend(self, mixed):
        q, k, v = mixed.unflatten(2, (3, 2, 6)).permute(2, 0, 3, 1, 4).unbind(0)
        return ((q @ k.transpose(-2, -1) * 0.4).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        x = x + self.attend(self.mixes[0](self.norms[0](x)))
        x = x + functional.gelu(self.dense[0](self.norms[1](x)))
        x = x + self.attend(self.mixes[1](self.norms[2](x)))
        x = x + functional.gelu(self.dense[1](self.norms[3](x)))
        return self.head(self.norms[4](x)[:, 0])


def plain():
    """Without normalisation, and in place: the last convolution is meant, whose output the ReLU overwrites."""
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def program(model, images, *, decomposed=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = {0: torch.export.Dim("batch", min=1, max=64)}
        exported = torch.export.export(model.eval(), (images,), dynamic_shapes=(sizes,))
        return (exported.run_decompositions() if decomposed else exported).module()


@pytest.fixture(scope="module")
def images():
    return torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


TARGETS = [0, 1, 2, 3, 1]


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("build", [plain, Shared, Patches, ChannelsLast])
def test_gradcam_of_a_program_is_that_of_its_model(images, build, decomposed):
    model = build()
    expected = tl.attribute(model, images, TARGETS, "gradcam")
    assert (expected.amax(dim=(1, 2)) > 0).sum() >= 3
    exported = program(model, images, decomposed=decomposed)
    before = {name: value.clone() for name, value in exported.state_dict().items()}
    hooks = dict(exported._forward_hooks)
    for size in (1, 5):
        maps = tl.attribute(exported, images, TARGETS, "gradcam", batch_size=size)
        torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in exported.state_dict().items())
    assert dict(exported._forward_hooks) == hooks


def test_cam_of_a_program_is_that_of_its_model(images):
    model = plain()
    expected = tl.attribute(model, images, TARGETS, "cam")
    torch.testing.assert_close(tl.attribute(program(model, images), images, TARGETS, "cam"), expected)
    with pytest.raises(ValueError, match="`model` must pool its last feature map globally into its last linear layer"):
        tl.attribute(program(Shared(), images), images, [3] * 5, "cam")


def test_cam_reads_a_convolution_of_one_pixel(images):
    model = plain()
    apart = nn.Sequential(*model[:6], nn.Conv2d(8, 4, 1), nn.Flatten())
    apart[6].load_state_dict({"weight": model[7].weight[:, :, None, None], "bias": model[7].bias})
    torch.testing.assert_close(tl.attribute(apart, images, TARGETS, "cam"), tl.attribute(model, images, TARGETS, "cam"))


@pytest.mark.parametrize("activation", [nn.ReLU6, nn.SiLU])
def test_a_shared_activation_is_read_at_the_run_that_is_a_feature_map(images, activation):
    """The last run is behind the pooling; the one before it counts."""
    model = Shared(activation).eval()
    features = model.features(images).detach().requires_grad_()
    logits = model.head(model.act(model.hidden(features.mean(dim=(2, 3)))))
    (gradient,) = torch.autograd.grad(logits.gather(1, torch.tensor(TARGETS)[:, None]).sum(), features)
    wanted = (gradient.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1).clamp(min=0)
    wanted = functional.interpolate(wanted[:, None], size=(16, 16), mode="bilinear")[:, 0].detach()
    torch.testing.assert_close(tl.attribute(model, images, TARGETS, "gradcam"), wanted)
    with torch.no_grad(), recording(model) as outputs:
        model(images[:1])
    location = choose(outputs, images.dim(), activated=False).location
    assert (location.source, location.run) == (model.act, 1)


def test_a_layer_that_never_runs_is_refused(images):
    model = Shared()
    model.unused = nn.Identity()
    with pytest.raises(ValueError, match="`layer` must be a module that the model runs; this one is never called"):
        tl.attribute(model, images, TARGETS, "gradcam", layer="unused")


def test_programs_are_refused_where_a_module_is_needed(images):
    exported = program(plain(), images)
    for method, options in (("excitation_backprop", {}), ("gradcam", {"layer": "3"})):
        with pytest.raises(ValueError, match=r"`model` must consist of modules for this method; .* Use gradcam"):
            tl.attribute(exported, images, TARGETS, method, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.trace(plain().eval(), images)
    for method in ("gradcam", "excitation_backprop"):
        with pytest.raises(ValueError, match=r"`model` is a TorchScript program, .* integrated_gradients"):
            tl.attribute(scripted, images, TARGETS, method)
    assert find_layer(plain(), images)
