"""Images whose evidence was planted, a network that finds it, and what every method has to hold there."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional

PATCH = 8


_BANDS = (-1.0) ** (torch.arange(PATCH) // 2)


PATTERNS = torch.stack([_BANDS[:, None].expand(PATCH, PATCH), _BANDS.expand(PATCH, PATCH)])


NOTHING = len(PATTERNS)


def planted_images(count, seed, *, empty=0.0):
    """Noise (count, 3, 32, 32) with a patch of stripes, the classes (the direction, or nothing), and where it lies."""
    g = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 32, 32, generator=g) * (0.2 + 0.2 * torch.rand(count, 1, 1, 1, generator=g))
    classes = torch.randint(0, NOTHING, (count,), generator=g)
    classes[torch.rand(count, generator=g) < empty] = NOTHING
    corners = torch.randint(2, 30 - PATCH, (count, 2), generator=g).tolist()
    inside = torch.zeros(count, 32, 32, dtype=torch.bool)
    for k, (row, column) in enumerate(corners):
        place = (slice(row, row + PATCH), slice(column, column + PATCH))
        inside[(k, *place)] = True
        if classes[k] < NOTHING:
            images[(k, slice(None), *place)] += 1.5 * PATTERNS[classes[k]]
    return images, classes, inside


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(16, NOTHING + 1),
    )


@functools.cache
def planted_model():
    """A small CNN that tells the direction of the stripes, wherever the patch lies, and noise of any strength."""
    torch.manual_seed(0)
    model = small_cnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        images, classes, _ = planted_images(48, 1000 + step, empty=0.4)
        images[classes == NOTHING] *= torch.linspace(0.3, 4.0, int((classes == NOTHING).sum()))[:, None, None, None]
        optimizer.zero_grad()
        functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
    optimizer.zero_grad()
    images, classes, _ = planted_images(200, 7, empty=0.2)
    assert (model(images).argmax(dim=1) == classes).float().mean() > 0.97
    return model


def density(maps, inside):
    """How much more mass lies on the patch of each image than a uniform map would put there."""
    on_patch = (maps * inside).sum(dim=(1, 2)) / maps.sum(dim=(1, 2))
    return on_patch / inside.float().mean(dim=(1, 2))


def trace(model):
    """All that a method might leave behind in a model."""
    return [
        *[(p.detach().clone().tolist(), p.requires_grad, p.grad) for p in model.parameters()],
        *[
            (m.training, len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks))
            for m in model.modules()
        ],
    ]


def check_leaves_no_trace(method):
    """A method leaves weights, gradients, modes and hooks alone, also when the model fails half-way."""
    images, classes, _ = planted_images(2, 3)
    model = nn.Sequential(*small_cnn(), nn.Dropout(0.5)).train()
    model[0].weight.requires_grad_(False)
    model[3].weight.grad = torch.ones_like(model[3].weight)
    before = trace(model)
    assert torch.equal(method(model, images, classes), method(model, images, classes))
    assert trace(model) == before

    class Failing(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 7:
                raise RuntimeError("broke half-way")
            return x

    failing = nn.Sequential(*small_cnn(), Failing()).train()
    before = trace(failing)
    with pytest.raises(ValueError, match="`model` raised RuntimeError: broke half-way"):
        method(failing, images, classes)
    assert trace(failing) == before


def check_batches(method, *, count=4, tolerance=1e-4):
    """Maps depend neither on the batch size nor on the order of the samples."""
    images, classes, _ = planted_images(count, 5)
    model, ids = planted_model(), [f"image-{k}" for k in range(count)]
    together = method(model, images, classes, ids=ids, batch_size=4)
    assert together.shape == (count, 32, 32)
    assert together.dtype == torch.float32
    assert together.min() >= 0
    scale = float(together.max())
    alone = method(model, images, classes, ids=ids, batch_size=1)
    backwards = method(model, images.flip(0), classes.flip(0), ids=ids[::-1], batch_size=3).flip(0)
    assert (together - alone).abs().max() < tolerance * scale
    assert (together - backwards).abs().max() < tolerance * scale
