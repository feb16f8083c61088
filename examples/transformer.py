"""A small vision transformer learns handwritten digits; every method that looks into it, as one picture.

    python examples/transformer.py --out transformer-sheet.png [--epochs 12] [--digits 6]

Needs timm and the digits of `pip install "twinlens[demo]"`. One minute of training on one core.
"""

import argparse
from pathlib import Path

import timm
import torch
from matplotlib.figure import Figure

import twinlens as tl
from twinlens.models.mnist_cnn import mnist_digits
from twinlens.models.training import Training, accuracy, train

METHODS = {
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


def build() -> torch.nn.Module:
    """Build an untrained transformer of 49 patches and a class token."""
    return timm.models.vision_transformer.VisionTransformer(
        img_size=28, patch_size=4, in_chans=1, embed_dim=48, depth=4, num_heads=3, num_classes=10
    )


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
    """Train, explain, and make the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("transformer-sheet.png"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--digits", type=int, default=6)
    options = parser.parse_args()
    settings = Training(epochs=options.epochs, batch_size=64, rate=2e-3, schedule="one_cycle")
    model = train(build, *load_digits(held_out=False), training=settings)
    digits, labels = load_digits(held_out=True)
    print(f"accuracy on {len(labels)} digits that were held out: {accuracy(model, digits, labels):.3f}")
    chosen = [int((labels == k).nonzero()[0]) for k in range(options.digits)]
    images, classes = digits[chosen], labels[chosen]
    others = digits[::20]
    maps = {}
    for name, method in METHODS.items():
        more = {"reference": others} if method["method"] == "gradient_shap" else {}
        maps[name] = tl.attribute(model, images, classes, **method, **more)
    draw(images, maps).savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
