"""A model and images so small that whole runs take moments."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F  # noqa: N812

SOURCE = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
    )
    model.preprocessing = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    return model

def number():
    return 7

def broken():
    raise RuntimeError("no weights today")
"""


def model_file(folder):
    path = Path(folder) / "tiny_model.py"
    path.write_text(SOURCE)
    return f"{path}:build"


class ViewedCNN(nn.Module):
    """Calls `view` on its features, which fails where their channels come last in memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.features = nn.Conv2d(3, 6, 3)
        self.classifier = nn.Linear(6 * 6 * 6, 3)

    def forward(self, images):
        return self.classifier(self.features(images).relu().view(len(images), -1))


class TinyTransformer(nn.Module):
    """Patches, a class token, pre-norm blocks: the layout of a vision transformer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm1": nn.LayerNorm(16), "attention": nn.MultiheadAttention(16, 2, batch_first=True),
                           "norm2": nn.LayerNorm(16), "mlp": nn.Linear(16, 16)}) for _ in range(2)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), self.patches(x).flatten(2).transpose(1, 2)], dim=1)
        for block in self.blocks:
            y = block["norm1"](x)
            x = x + block["attention"](y, y, y, need_weights=False)[0]
            x = x + F.gelu(block["mlp"](block["norm2"](x)))
        return self.head(self.norm(x)[:, 0])


def tiny_model():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
    )


def image_folder(folder, per_class=4, size=10, classes=("ant", "bee", "cow"), seed=0):
    """Writes PNG images, one folder per class, of smooth colours that differ by class."""
    rng = np.random.default_rng(seed)
    for k, name in enumerate(classes):
        (Path(folder) / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = rng.integers(0, 120, size=(size, size, 3), dtype=np.uint8)
            pixels[..., k % 3] += 130
            Image.fromarray(pixels).save(Path(folder) / name / f"{i}.png")
    return str(folder)


def read_results(path):
    """The content of a run's results.json."""
    return json.loads((Path(path) / "results.json").read_text())
