"""Train a small vision transformer on handwritten digits, and draw the maps of every suitable method.

    python examples/transformer.py --out transformer-sheet.png [--epochs 8] [--digits 6]

Needs the digits of `pip install ".[demo]"`. One minute of training on one core.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

import twinlens as tl
from twinlens.models.mnist_cnn import mnist_digits
from twinlens.models.training import Training, accuracy, train

METHODS: dict[str, dict[str, Any]] = {
    "rollout": {"method": "attention_rollout"},
    "gradient-weighted\nattention": {"method": "gradient_attention"},
    "AttnLRP": {"method": "attn_lrp"},
    "AttnLRP\nepsilon": {"method": "attn_lrp", "gamma": 0.0, "patch_gamma": 0.0},
    "attention\nconstant": {"method": "attn_lrp", "softmax": "constant"},
    "GradCAM": {"method": "gradcam"},
    "saliency": {"method": "saliency"},
    "SmoothGrad": {"method": "smoothgrad", "variance": 0.05},
    "IG": {"method": "integrated_gradients", "baseline": -1.0},
    "GradientSHAP": {"method": "gradient_shap"},
    "KernelSHAP": {"method": "kernel_shap", "cells": 7, "coalitions": 600, "background": -1.0},
    "random": {"method": "random"},
}


def load_digits(*, held_out: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Load digits (N, 1, 28, 28) from -1 to 1, and their labels."""
    pixels, labels = mnist_digits(held_out=held_out)
    return torch.from_numpy(pixels).reshape(-1, 1, 28, 28) / 127.5 - 1, torch.from_numpy(labels)


class DigitTransformer(nn.Module):
    """A transformer of 49 patches and a class token."""

    def __init__(self, size: int = 48, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, size, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.places = nn.Parameter(0.02 * torch.randn(1, 50, size))
        layer = nn.TransformerEncoderLayer(
            size, 3, 4 * size, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.head = nn.Linear(size, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, 10) of digits (N, 1, 28, 28)."""
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), tokens], dim=1)
        logits: torch.Tensor = self.head(self.layers(tokens + self.places)[:, 0])
        return logits


def draw(images: torch.Tensor, maps: dict[str, torch.Tensor]) -> Figure:
    """Draw one row per digit and one column per method."""
    figure = Figure(figsize=(1.1 * (len(maps) + 1), 1.1 * len(images) + 0.4))
    axes = figure.subplots(len(images), len(maps) + 1, squeeze=False)
    for column, (name, found) in enumerate({"input": images[:, 0], **maps}.items()):
        axes[0, column].set_title(name, fontsize=7)
        for row, one in zip(axes, found, strict=True):
            row[column].imshow(one.numpy(), cmap="gray" if name == "input" else "magma")
            row[column].set_axis_off()
    figure.tight_layout(pad=0.3)
    return figure


def main() -> None:
    """Train, explain, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("transformer-sheet.png"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--digits", type=int, default=6)
    options = parser.parse_args()
    settings = Training(epochs=options.epochs, batch_size=64, rate=2e-3, schedule="one_cycle")
    model = train(DigitTransformer, *load_digits(held_out=False), training=settings)
    digits, labels = load_digits(held_out=True)
    print(f"accuracy on {len(labels)} digits that were held out: {accuracy(model, digits, labels):.3f}")
    chosen = [int((labels == k).nonzero()[0]) for k in range(options.digits)]
    images, classes = digits[chosen], labels[chosen]
    others = digits[::20]
    maps = {}
    for name, method in METHODS.items():
        more = {"reference": others} if name == "GradientSHAP" else {}
        maps[name] = tl.attribute(model, images, classes, **(method | more))
    draw(images, maps).savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
