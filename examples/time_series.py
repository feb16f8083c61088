"""Signals (N, C, T): train a network, and measure how far explanations of it can be trusted.

python examples/time_series.py

Two noisy channels. A short wave somewhere in the first of them decides the class: it is fast or slow.
"""

import torch
from torch import Tensor, nn

import twinlens as tl

LENGTH, WAVE = 96, 24
COLUMNS = ["method", "metric", "value", "low", "high", "skill"]


def signals(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Generate signals (N, 2, T), their classes, and the start of their wave."""
    draw = torch.Generator().manual_seed(seed)
    inputs = 0.3 * torch.randn(count, 2, LENGTH, generator=draw)
    labels = torch.randint(2, (count,), generator=draw)
    starts = torch.randint(LENGTH - WAVE, (count,), generator=draw)
    time = torch.arange(WAVE)
    for signal, label, start in zip(inputs, labels, starts, strict=True):
        signal[0, start : start + WAVE] += torch.sin(time * (0.9 if label else 0.45))
    return inputs, labels, starts


def train() -> nn.Module:
    """Train a network of one-dimensional convolutions."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 16, 9, padding=4), nn.ReLU(), nn.Conv1d(16, 16, 9, padding=4), nn.ReLU(),
        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(200):
        inputs, labels, _ = signals(64, seed=step + 1)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def main() -> None:
    """Print soundness and completeness, by single time steps and by segments of six."""
    inputs, labels, starts = signals(150, seed=0)
    model, methods = train(), ["integrated_gradients", "saliency", "random"]
    pieces = (torch.arange(LENGTH) // 6).expand(len(inputs), -1)
    for name, segments in (("single moments", None), ("pieces of six", pieces)):
        evaluation = tl.evaluate(model, (inputs, labels), methods, segments=segments, metrics="headline")
        print(f"{name}: {evaluation.title}")
        print(evaluation.summary()[COLUMNS].round(3).to_string(index=False), end="\n\n")
    time = torch.arange(LENGTH)
    inside = (time >= starts[:, None]) & (time < starts[:, None] + WAVE)
    for method in methods:
        maps = evaluation.maps(method)
        print(f"{method:22}{(maps * inside).sum() / maps.sum():.0%} of the attribution lies in the wave")


if __name__ == "__main__":
    main()
