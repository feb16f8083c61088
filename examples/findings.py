"""Several findings per patient: one row per finding that is present, and each is explained by itself.

python examples/findings.py

Images (N, 1, 24, 24) of noise with up to three findings: a disc, a cross, a stripe. The network has one independent
logit for each.
"""

import torch
from torch import Tensor, nn

import twinlens as tl

FINDINGS = ["disc", "cross", "stripe"]
SIDE = 24


def patients(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Generate images (N, 1, H, W), which findings each shows (N, 3), and where (N, 3, H, W)."""
    draw = torch.Generator().manual_seed(seed)
    present = torch.rand(count, len(FINDINGS), generator=draw) < 0.5
    y, x = torch.arange(SIDE)[:, None], torch.arange(SIDE)
    middle = torch.randint(4, SIDE - 4, (2, count, len(FINDINGS), 1, 1), generator=draw)
    down, right = (y - middle[0]).abs(), (x - middle[1]).abs()
    near = torch.maximum(down, right) <= 3
    shapes = [
        (down**2 + right**2 <= 9)[:, 0],
        (((down == 0) | (right == 0)) & near)[:, 1],
        ((down + 0 * right <= 0) & (right <= 8))[:, 2],
    ]
    where = torch.stack(shapes, dim=1) & present[..., None, None]
    images = 0.3 * torch.randn(count, 1, SIDE, SIDE, generator=draw) + where.any(dim=1, keepdim=True)
    return images, present.long(), where


def train(steps: int = 400) -> nn.Module:
    """Train a network with one logit for each finding."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        images, present, _ = patients(64, seed=step + 1)
        loss = nn.functional.binary_cross_entropy_with_logits(model(images), present.float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Print how sound and how complete each explanation is, and how much of it lies on the finding it explains."""
    images, present, where = patients(80, seed=0)
    rows, labels = present.nonzero(as_tuple=True)  # one row for each finding that is present
    data = tl.data.from_arrays(images[rows], labels, classes=FINDINGS, name="findings")
    methods = ["integrated_gradients", "gradcam", "occlusion", "random"]
    evaluation = tl.evaluate(train(), data, methods, output="multi_label", metrics="headline")
    print(evaluation.title)
    columns = ["method", "metric", "value", "low", "high", "skill"]
    print(evaluation.summary()[columns].round(3).to_string(index=False), end="\n\n")
    for method in methods:
        maps = evaluation.maps(method)
        total = maps.sum()
        own, all_of_them = where[rows, labels], where[rows].any(dim=1)
        print(
            f"{method:22}{float((maps * own).sum() / total):.0%} of the attribution lies on the finding, "
            f"{float((maps * (all_of_them & ~own)).sum() / total):.0%} on others"
        )


if __name__ == "__main__":
    main()
