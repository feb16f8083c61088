"""Signals on the page: a line for each channel, the attribution below, and the lines that the model sees.

Attribution is drawn once, of time steps; or below each channel, if each has its own.

Shapes: K levels, C channels, T time steps, B bins of time steps, P points of a line.
"""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.report.packing import packed, short_number
from twinlens.report.scene import Scene, View
from twinlens.support.fields import JSON

_MOST, _FEWEST = 1000, 60  # points of a line
_CHANNELS = 16


def view_signal(scene: Scene, place: int, share: int) -> View:
    """Return the lines of one sample, the attribution of each method, and what it leaves for the model to see."""
    signal, names = scene.selected.inputs[place], scene.selected.feature_names
    channels, steps = min(len(signal), _CHANNELS), signal.shape[1]
    keep = {method: scene.keep_at_levels(place, method) for method in scene.maps}
    frames = {method: scene.impute_at_levels(place, kept) for method, kept in keep.items()}
    drawn = max((channels if kept.dim() == 3 else 1 for kept in keep.values()), default=1)  # maps of one method
    points = int(share / (1.4 * (channels + len(keep) * (channels * len(scene.schedule.levels) + 3 * drawn))))
    points = min(max(points, _FEWEST), _MOST)
    bins = steps if steps <= points else points // 2
    seen = [frame[:, :channels] for frame in frames.values() if frame is not None]
    ranges = _ranges(torch.cat([signal[None, :channels], *seen]))

    def lines(values: Tensor) -> list[JSON]:
        return [
            packed(255 * (_line(one, bins) - low) / (high - low))
            for one, (low, high) in zip(values[:channels], ranges, strict=True)
        ]

    view: dict[str, JSON] = {
        "lines": lines(signal),
        "names": [f"channel {k}" if names is None else names[k] for k in range(channels)],
        "ranges": [[short_number(end) for end in ends] for ends in ranges],
        "steps": steps,
        "rate": scene.selected.sampling_rate,
        "of": len(signal),
    }
    return view, {
        method: {
            "marks": _marks(scene, place, method, keep[method], bins)[:channels],
            "frames": None if frame is None else [lines(one) for one in frame],
        }
        for method, frame in frames.items()
    }


def _marks(scene: Scene, place: int, method: str, keep: Tensor, bins: int) -> list[JSON]:
    """Return the attribution of time steps, and at how many levels each is kept: once, or for each channel."""
    strength, judged = scene.strength(place, method), scene.false.get(method)
    false = torch.zeros_like(strength) if judged is None else strength * judged[place]
    stays = keep.sum(dim=0).float()

    def marks(strength: Tensor, false: Tensor, stays: Tensor) -> JSON:
        own = _binned(strength, bins, "sum")
        return {
            "strength": packed(100 * _binned(strength, bins, "amax")),
            "false": None if judged is None else packed(_binned(false, bins, "sum") > own / 2),
            "stays": packed(_binned(stays, bins, "mean")),
        }

    rows = [each if each.dim() == 2 else each[None] for each in (strength, false, stays)]
    return [marks(*row) for row in zip(*rows, strict=True)]


def _ranges(signals: Tensor) -> list[tuple[float, float]]:
    """Return the lowest and highest number of each channel of some signals (N, C, T)."""
    ends = zip(signals.amin(dim=(0, 2)).tolist(), signals.amax(dim=(0, 2)).tolist(), strict=True)
    return [(low, high) if high > low else (low - 0.5, low + 0.5) for low, high in ends]


def _line(values: Tensor, bins: int) -> Tensor:
    """Return the points of a line (P,): all time steps, or the lowest and highest of each bin."""
    if len(values) == bins:
        return values
    return torch.stack([_binned(values, bins, "amin"), _binned(values, bins, "amax")], dim=1).flatten()


def _binned(values: Tensor, bins: int, how: str) -> Tensor:
    """Reduce values (T,) to bins (B,) of equal length, by "sum", "mean", "amin" or "amax".

    Example:
        >>> _binned(torch.tensor([1.0, 2.0, 5.0, 3.0]), 2, "amax")
        tensor([2., 5.])
    """
    index = torch.arange(len(values)) * bins // len(values)
    return torch.zeros(bins).scatter_reduce(0, index, values.float(), how, include_self=False)
