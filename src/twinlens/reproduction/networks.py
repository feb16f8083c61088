"""Networks that experiments train: the two of the paper's experiments with CIFAR, and a small one for two cores.

Shapes: N images, C channels, H × W pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.integrations.explanations import attribute
from twinlens.models.training import PAPER, Training, recognised, train
from twinlens.reproduction.image_sets import ImageExperiment, ImageSet, LazyInputs
from twinlens.support.estimate import Estimate

QUICK = Training(epochs=6, batch_size=64, rate=0.01, weight_decay=1e-4, schedule="one_cycle")
"""A short training, where the paper's 35 epochs would take too long."""

_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0 halves the sides


class SmallCNN(nn.Module):
    """Convolutions that halve the image three times, and a linear layer over all positions."""

    def __init__(self, channels: int, classes: int, *, size: int = 32, width: int = 8) -> None:
        super().__init__()
        if size < 8:
            raise ValueError(f"`size` must be at least 8 pixels, since it is halved three times; got {size}.")
        self.features = nn.Sequential(
            *_convolution(channels, width, stride=2),
            *_convolution(width, 2 * width),
            nn.MaxPool2d(2),
            *_convolution(2 * width, 4 * width),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(4 * width * (-(-size // 2) // 4) ** 2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        return self.classifier(self.features(images).flatten(1))  # type: ignore[no-any-return]


class TinyResNet(nn.Module):
    """A ResNet (He et al. 2016) of eight residual blocks, two in each of four stages, as in the paper's appendix C."""

    def __init__(self, channels: int, classes: int, *, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_convolution(channels, width))
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(ResidualBlock(inwards, outwards, 1 if k == 0 else 2), ResidualBlock(outwards, outwards))
                for k, (inwards, outwards) in enumerate(pairwise(widths))
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        return self.classifier(self.pool(self.stages(self.stem(images))).flatten(1))  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, inwards: int, outwards: int, stride: int = 1) -> None:
        super().__init__()
        second = nn.Conv2d(outwards, outwards, 3, padding=1, bias=False)
        self.body = nn.Sequential(*_convolution(inwards, outwards, stride), second, nn.BatchNorm2d(outwards))
        same = stride == 1 and inwards == outwards
        projection = nn.Sequential(nn.Conv2d(inwards, outwards, 1, stride, bias=False), nn.BatchNorm2d(outwards))
        self.shortcut = nn.Identity() if same else projection
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Compute feature maps."""
        return self.relu(self.body(images) + self.shortcut(images))  # type: ignore[no-any-return]


class VGG16(nn.Module):
    """VGG16 (Simonyan and Zisserman 2015) for images of 32 × 32 pixels or more, with batch normalisation."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for width in _VGG16:
            parts += [nn.MaxPool2d(2)] if width == 0 else _convolution(channels, width)
            channels = width or channels
        self.features = nn.Sequential(*parts)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(channels, channels), nn.ReLU(), nn.Dropout(), nn.Linear(channels, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, K) of images (N, C, H, W)."""
        return self.classifier(self.pool(self.features(images)).flatten(1))  # type: ignore[no-any-return]


def _convolution(inwards: int, outwards: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inwards, outwards, 3, stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outwards), nn.ReLU()]


def train_network(
    images: ImageSet,
    mean: NDArray[np.float64],
    experiment: ImageExperiment,
    paper_network: Callable[[int, int], nn.Module],
    task: str,
) -> nn.Module:
    """Train a network on images, which sees the colour `mean` (C,) as zero; a small one without `options.paper`."""
    options, progress = experiment.options, experiment.progress
    channels, training = images.images.shape[3], PAPER if options.paper else QUICK
    if options.epochs is not None:
        training = replace(training, epochs=options.epochs)
    small = partial(SmallCNN, channels, experiment.classes, size=images.side)
    progress.begin({task: training.epochs})
    return train(
        partial(paper_network, channels, experiment.classes) if options.paper else small,
        images.inputs(mean),
        images.labels,
        training=training,
        seed=options.seed,
        device=options.device,
        advance=lambda done, total: progress.advance(task, 1, f"epoch {done} of {total}"),
    )


def explain(
    network: nn.Module,
    inputs: Tensor,
    labels: NDArray[np.int64],
    methods: Mapping[str, str],
    experiment: ImageExperiment,
    *,
    ids: Sequence[str],
    task: str,
) -> Iterator[tuple[str, Tensor]]:
    """Yield the maps (N, H, W) of each method, by its title."""
    experiment.progress.begin({task: len(methods)})
    for title, method in methods.items():
        experiment.progress.advance(task, 0, title)
        yield title, attribute(network, inputs, labels, method, ids=ids, seed=experiment.options.seed)
        experiment.progress.advance(task, 1, title)


def measure_accuracy(network: nn.Module, inputs: Tensor | LazyInputs, labels: NDArray[np.int64]) -> Estimate:
    """Estimate the accuracy of a network over test images, which are the same in all sets; not over trainings."""
    correct = recognised(network, inputs, labels).astype(np.float64)
    return Estimate.of_mean(correct, [str(k) for k in range(len(correct))])
