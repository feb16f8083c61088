"""In-filling models as imputers: OpenCV's inpainting, and a small denoising network that is trained on the spot.

twinlens demo --out digits
python examples/infilling.py digits            # minutes; the table of docs/concepts/imputation.md

An imputer is any function (inputs, keep, streams). Both functions of this file can be named on the command line, too:

twinlens check imputers digits --imputers examples/infilling.py:inpaint,examples/infilling.py:denoise
"""

import argparse
import time
from functools import cache
from pathlib import Path

import cv2  # pip install opencv-python-headless
import numpy as np
import torch
from torch import Tensor, nn

import twinlens as tl
from twinlens.models.mnist_cnn import mnist_digits


def inpaint(inputs: Tensor, keep: Tensor, streams) -> Tensor:  # noqa: ARG001 (nothing is drawn)
    """Fill in pixels by Telea's fast marching, in 8 bits between the extremes of what is kept of each image."""
    filled = inputs.clone()
    for image, kept in zip(filled, keep, strict=True):
        low, high = (float(end) for end in image[:, kept].aminmax()) if kept.any() else (0.0, 0.0)
        missing = (~kept).to(torch.uint8).numpy()
        for channel in image:
            grey = ((channel.clamp(low, high) - low) / max(high - low, 1e-6) * 255).round().to(torch.uint8).numpy()
            known = grey * (1 - missing)  # nothing of the removed pixels may leak
            found = torch.from_numpy(cv2.inpaint(known, missing, 3, cv2.INPAINT_TELEA)).to(channel) / 255
            channel.copy_(torch.where(kept, channel, low + found * (high - low)))
    return filled


class Denoiser(nn.Module):
    """Convolutions with growing dilation, from an image without its removed pixels, and the mask, to the image."""

    def __init__(self, channels: int, width: int = 24) -> None:
        super().__init__()
        sizes = [(channels + 1, width), (width, width), (width, width), (width, width)]
        layers = [
            layer
            for k, (inwards, outwards) in enumerate(sizes)
            for layer in (nn.Conv2d(inwards, outwards, 3, padding=2**k, dilation=2**k), nn.ReLU())
        ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, channels, 3, padding=1))

    def forward(self, inputs: Tensor, keep: Tensor) -> Tensor:
        """Return the images (N, C, H, W) with what is not kept (N, H, W) filled in."""
        mask = keep.unsqueeze(1)
        guess = self.layers(torch.cat([inputs * mask, mask.to(inputs)], dim=1))
        return torch.where(mask, inputs, guess)


def digits(held_out: bool) -> Tensor:
    """Return digits (N, 1, 28, 28) from 0 to 1, as mnist-cnn expects them."""
    return torch.from_numpy(mnist_digits(held_out=held_out)[0].astype(np.float32) / 255)[:, None]


@cache
def trained(steps: int = 600) -> Denoiser:
    """Train a network to fill in digits, of which a random share of the pixels is removed."""
    # Imputers are called in inference mode, in which nothing can be trained.
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
        images = digits(held_out=False)
        torch.manual_seed(0)
        model = Denoiser(images.shape[1])
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(steps):
            batch = images[torch.randint(len(images), (64,))]
            keep = torch.rand(64, *batch.shape[2:]) >= torch.rand(64, 1, 1)
            loss = nn.functional.mse_loss(model(batch, keep), batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()


def denoise(inputs: Tensor, keep: Tensor, streams) -> Tensor:  # noqa: ARG001 (nothing is drawn)
    """Fill in pixels by the network, which is trained at the first call."""
    with torch.no_grad():
        return trained()(inputs, keep)


def seconds_of(imputer, images: Tensor, repeats: int = 3) -> float:
    """Return the seconds that an image takes, half of it removed; the first call trains and compiles."""
    keep = torch.rand(len(images), *images.shape[2:], generator=torch.Generator().manual_seed(0)) < 0.5
    imputer(images[:2], keep[:2], [0, 1])
    start = time.perf_counter()
    for _ in range(repeats):
        imputer(images, keep, list(range(len(images))))
    return (time.perf_counter() - start) / repeats / len(images)


def main() -> None:
    """Compare them with the run's imputer, in cost and in what becomes of the ranking."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run on digits, such as that of twinlens demo")
    parser.add_argument("--limit", type=int, default=100)
    given = parser.parse_args()
    here = Path(__file__)
    options = tl.checks.CheckOptions(limit=given.limit, imputers=(f"{here}:inpaint", f"{here}:denoise", "constant"))
    check = tl.checks.run_check(tl.open_evaluation(given.run), "imputers", options=options)
    images = digits(held_out=True)[:64]
    imputers = {
        "linear": tl.LinearImputer(),
        "inpaint": inpaint,
        "denoise": denoise,
        "constant": tl.ConstantImputer(0.0),
    }
    print("| imputer | ms per image |" + " | ".join(column.title for column in check.columns) + " |")
    print("|---" * (2 + len(check.columns)) + "|")
    for name, row in check.methods.items():
        cost = f"{1000 * seconds_of(imputers[name], images):.2f}"
        print(f"| {name} | {cost} | " + " | ".join(map(str, row.values)) + " |")
    print(check.line, *check.notes, sep="\n")


if __name__ == "__main__":
    main()
