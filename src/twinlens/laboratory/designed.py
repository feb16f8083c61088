"""A convolutional network whose weights are set by hand, with the signed effect of every pixel, as in AttributionLab.

Zhang et al. (2023, AttributionLab, by authors of the paper that twinlens implements) design data and network together:
detectors recognise colours, and an accumulator counts their pixels, so that the effect of each pixel is known with its
sign. This is a task of that kind, rebuilt from the paper's description, without its modulo. Methods of attribution can
explain it, because it is an ordinary module.

Shapes: N samples, K colours, C = 3 channels, H × W pixels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.laboratory.tasks import Task, labelled_task
from twinlens.support.arrays import Floats
from twinlens.support.randomness import stream

COLOURS = {"red": (1.0, 0.0, 0.0), "blue": (0.0, 0.0, 1.0), "green": (0.0, 1.0, 0.0), "grey": (0.5, 0.5, 0.5)}
"""Colours of the squares; the network reads the first two."""
SIGNS = {"red": 1.0, "blue": -1.0}
"""What a pixel of a colour counts."""

_WIDTH = 0.6  # distance from a colour, summed over channels, at which its detector falls silent
_JITTER = 0.06  # of each value of a square
_SQUARES = 4  # of each colour, at most


class ColourCounter(nn.Module):
    """Detectors of colours, made of two 1 × 1 convolutions with ReLUs, and a signed count of their pixels."""

    def __init__(self) -> None:
        super().__init__()
        colours = torch.tensor([COLOURS[name] for name in SIGNS], dtype=torch.float64)
        count = len(colours)
        self.differences = nn.Conv2d(3, 6 * count, 1, dtype=torch.float64)
        self.detectors = nn.Conv2d(6 * count, count, 1, dtype=torch.float64)
        self.evidence = nn.Conv2d(count, 1, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            # Two units per colour and channel: how far a value is above that of the colour, and how far below.
            eye = torch.eye(3, dtype=torch.float64).repeat(count, 1)
            self.differences.weight.copy_(torch.cat([eye, -eye])[:, :, None, None])
            self.differences.bias = nn.Parameter(torch.cat([-colours.flatten(), colours.flatten()]))
            own = torch.eye(count, dtype=torch.float64).repeat_interleave(3, dim=1).repeat(1, 2)
            self.detectors.weight.copy_(-own[:, :, None, None] / _WIDTH)
            self.detectors.bias = nn.Parameter(torch.ones(count, dtype=torch.float64))
            self.evidence.weight.copy_(torch.tensor([*SIGNS.values()], dtype=torch.float64).reshape(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Compute what each pixel counts, (N, 1, H, W), of images (N, 3, H, W)."""
        return self.evidence(self.detectors(self.differences(images).relu()).relu())  # type: ignore[no-any-return]


class _Classifier(nn.Module):
    """The network as a classifier; methods find its layers."""

    def __init__(self, counter: ColourCounter, decide: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.counter, self.decide = counter, decide

    def forward(self, images: Tensor) -> Tensor:
        return self.decide(images)


def colours(samples: int = 100, *, side: int = 20, seed: int = 0) -> Task:
    """Build images of coloured squares, and a network that counts red pixels for a class and blue ones against it.

    Green and grey squares are as conspicuous, and are not read. The score is a sum over pixels: the effect of each is
    what it counts. Its sign is known: blue speaks against the label where red outweighs it, and the other way round.

    Example:
        >>> task = colours(4)
        >>> task.inputs.shape, float(task.effects.min()) < 0 < float(task.effects.max())
        (torch.Size([4, 3, 20, 20]), True)
    """
    rng = np.random.default_rng(stream(seed, "colours"))
    counter = ColourCounter()

    def score(images: Tensor) -> Tensor:
        return counter(images).sum(dim=(1, 2, 3))  # type: ignore[no-any-return]

    def effects(images: Floats) -> Floats:
        with torch.no_grad():
            return np.asarray(counter(torch.from_numpy(images))[:, 0].numpy())

    with torch.no_grad():
        task = labelled_task("colours", score, _draw_squares(rng, samples, side), effects)
    return dataclasses.replace(task, model=_Classifier(counter, task.model))


def _draw_squares(rng: np.random.Generator, samples: int, side: int) -> Floats:
    """Draw images (N, 3, H, W): squares of each colour on black, later ones over earlier ones."""
    images = np.zeros((samples, 3, side, side))
    for image in images:
        drawn = [name for name in COLOURS for _ in range(rng.integers(1, _SQUARES + 1))]
        for name in rng.permutation(drawn):
            size = rng.integers(2, 5)
            top, left = rng.integers(0, side - size + 1, size=2)
            square = np.array(COLOURS[name])[:, None, None] + _JITTER * rng.uniform(-1, 1, size=(3, size, size))
            image[:, top : top + size, left : left + size] = square
    return images
