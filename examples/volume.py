"""Volumes (N, C, D, H, W): train a 3-D network, and measure how far explanations of it can be trusted.

python examples/volume.py

Noise with a small body somewhere: a ball or a rod. Which of them decides the class.
"""

import torch
from torch import Tensor, nn

import twinlens as tl

SIDE = 20
BODIES = ["ball", "rod"]
COLUMNS = ["method", "metric", "value", "low", "high", "skill"]


def volumes(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Generate volumes (N, 1, D, H, W), their classes, and where the body is (N, D, H, W)."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=draw)
    middle = torch.randint(5, SIDE - 5, (count, 3, 1, 1, 1), generator=draw)
    axes = torch.meshgrid(*[torch.arange(SIDE)] * 3, indexing="ij")
    distance = torch.stack(axes) - middle  # (N, 3, D, H, W)
    ball = (distance**2).sum(dim=1) <= 6
    rod = (distance[:, 1:].abs().amax(dim=1) == 0) & (distance[:, 0].abs() <= 4)
    where = torch.where(labels[:, None, None, None] == 0, ball, rod)
    inputs = 0.2 * torch.randn(count, 1, SIDE, SIDE, SIDE, generator=draw) + where[:, None]
    return inputs, labels, where


def train(steps: int = 120) -> nn.Module:
    """Train a network of three-dimensional convolutions."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv3d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool3d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        inputs, labels, _ = volumes(16, seed=step + 1)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Print how sound and how complete each explanation is, and how much of it lies in the body."""
    inputs, labels, where = volumes(40, seed=0)
    data = tl.data.from_arrays(inputs, labels, classes=BODIES, name="bodies")
    methods = ["integrated_gradients", "gradcam", "saliency", "random"]
    evaluation = tl.evaluate(train(), data, methods, metrics="headline")
    print(evaluation.title)
    print(evaluation.summary()[COLUMNS].round(3).to_string(index=False), end="\n\n")
    for method in methods:
        maps = evaluation.maps(method)
        print(f"{method:22}{float((maps * where).sum() / maps.sum()):.0%} of the attribution lies in the body")


if __name__ == "__main__":
    main()
