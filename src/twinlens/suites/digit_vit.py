"""A small vision transformer for handwritten digits.

`python -m twinlens.suites.digit_vit FOLDER` trains it within minutes and writes its weights, of which those for this
package were made. They are shipped because training on another processor rounds differently.

Shapes: N images, D = 48 values of a token's state, 50 tokens: a class token and 7 × 7 patches.
"""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import torch
from safetensors.torch import load, save_file
from torch import Tensor, nn

from twinlens.models.mnist_cnn import mnist_digits
from twinlens.models.training import Training, train

_WIDTH, _HEADS, _LAYERS, _PATCH, _TOKENS = 48, 4, 4, 4, 50
_WEIGHTS = "digit_vit.safetensors"


class DigitViT(nn.Module):
    """Four layers of four heads on patches of 4 × 4 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, _WIDTH, _PATCH, stride=_PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.positions = nn.Parameter(0.02 * torch.randn(1, _TOKENS, _WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(_WIDTH, _HEADS, 2 * _WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(_LAYERS)
        )
        self.norm, self.classifier = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, 10) of images (N, 1, 28, 28) with values of 0 to 1."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        for layer in self.layers:
            tokens = layer(tokens)
        return self.classifier(self.norm(tokens[:, 0]))  # type: ignore[no-any-return]


def trained_vit() -> DigitViT:
    """Return the network with the weights that come with twinlens."""
    with torch.random.fork_rng(devices=[]):
        model = DigitViT()
    model.load_state_dict(load(resources.files("twinlens.suites").joinpath(_WEIGHTS).read_bytes()))
    return model.eval()


def train_vit() -> DigitViT:
    """Train on the 4,000 digits that are not in the data set "mnist"."""
    pixels, labels = mnist_digits(held_out=False)
    images = torch.from_numpy(pixels).unsqueeze(1).float() / 255
    training = Training(epochs=30, batch_size=64, rate=2e-3, schedule="one_cycle")
    return train(DigitViT, images, labels, training=training, device="cpu")


if __name__ == "__main__":
    save_file(train_vit().state_dict(), Path(sys.argv[1], _WEIGHTS))
