"""Attribution maps: what a map must be before anything is measured with it.

Negative values and several channels are refused until the caller decides what they mean, non-finite numbers always.

Shapes: N samples, C channels, S = spatial shape: (H, W) for images, (T,) for signals, (D,) for tabular rows.
Inputs are (N, C, *S), or (N, D) for tabular rows, which have no channel; maps are (N, *S).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from twinlens.errors import short_repr
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.fields import check_types

CHANNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda maps: maps.sum(dim=1),
    "mean": lambda maps: maps.mean(dim=1),
    "max": lambda maps: maps.amax(dim=1),
    "absolute_sum": lambda maps: maps.abs().sum(dim=1),
    "norm": lambda maps: torch.linalg.vector_norm(maps, dim=1),
}
"""Reductions of the channels of a map (N, C, *S) to one value per feature."""

SIGNS: dict[str, Callable[[Tensor], Tensor]] = {
    "error": lambda maps: maps,
    "positive": lambda maps: maps.clamp(min=0),
    "absolute": lambda maps: maps.abs(),
    "signed": lambda maps: maps,
}
"""Meanings of a negative value: a mistake, evidence against the target (dropped), importance, or the same (judged)."""

Features = Literal["positions", "channels"]
"""What a feature is: a position with all of its channels, or one channel of a position."""

PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "positive": lambda maps: maps.clamp(min=0),
    "negative": lambda maps: (-maps).clamp(min=0),
}
"""The parts of a signed map: evidence for the target, and evidence against it."""


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Maps."""

    sign: Literal["error", "positive", "absolute", "signed"] = "error"
    """What a negative value of your own maps means: "error" refuses it, "positive" drops it, "absolute" takes
    magnitudes. "signed" judges it as evidence against the target, also in maps of built-in methods, which drop negative
    values otherwise; the groups of metrics then include soundness and completeness of that evidence."""

    channels: Literal["sum", "mean", "max", "absolute_sum", "norm"] | None = None
    """How several channels of your own maps become one value per feature."""


@dataclass(frozen=True, kw_only=True)
class Reading(ReadingOptions):
    """How the maps of one method are read."""

    resize: Literal["bilinear", "nearest"] | None = None
    """How maps are brought to the size of the inputs; maps of another size are refused by default."""

    def __post_init__(self) -> None:
        check_types(self)


_LARGEST_EXPONENT = 90  # float32 has -126 to 127; smaller values of the same map need some of them

AS_IT_IS = Reading()
"""Maps are taken unchanged: one value >= 0 per feature."""


def spatial_shape(inputs_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape S of one map for inputs of that shape."""
    if len(inputs_shape) < 2 or 0 in inputs_shape:
        raise ValueError(
            "`inputs` must be (samples, channels, *spatial) or (samples, features), none of them empty; "
            f"got shape {tuple(inputs_shape)}."
            + (" Of a single sample, add the batch dimension: inputs[None]." if len(inputs_shape) == 1 else "")
        )
    return tuple(inputs_shape[2:] if len(inputs_shape) > 2 else inputs_shape[1:])


def feature_shape(inputs_shape: Sequence[int], features: str) -> tuple[int, ...]:
    """Return the shape S of one map; if each channel of a position is a feature, the channels are its first axis."""
    spatial = spatial_shape(inputs_shape)
    if features == "positions":
        return spatial
    if len(inputs_shape) < 3:
        raise ValueError(
            "`features` 'channels' needs inputs (samples, channels, *spatial), such as signals (N, C, T); got shape "
            f"{tuple(inputs_shape)}, where each column is a feature already. Leave it out."
        )
    return tuple(inputs_shape[1:])


def spread_over_channels(maps: Tensor, shape: Sequence[int]) -> Tensor:
    """Share values (N, *S) equally among the channels of inputs of that shape (N, C, *S); leave other maps alone."""
    if tuple(maps.shape[1:]) != tuple(shape[2:]):
        return maps
    return (maps / shape[1]).unsqueeze(1).expand(len(maps), *shape[1:])


def check_ids(ids: Sequence[str | int] | None, count: int) -> tuple[str, ...]:
    """Return the ids as strings, by default 0 … N-1; one per sample, each only once."""
    try:  # one more than allowed, because an iterator may be endless
        names = tuple(str(i) for i in islice(range(count) if ids is None else ids, count + 1))
    except TypeError:
        raise TypeError(f"`ids` must name each of the {count} samples; got {short_repr(ids)}.") from None
    if len(names) != count:
        number = len(ids) if isinstance(ids, Sized) else f"{len(names)} or more" if len(names) > count else len(names)
        raise ValueError(f"`ids` must name each of the {count} samples; got {number} ids.")
    if len(set(names)) != count:
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"`ids` must differ, because ties and noise are drawn from them; {twice!r} occurs twice.")
    return names


def check_maps(maps: ArrayLike, spatial: tuple[int, ...], *, ids: Sequence[str], reading: Reading = AS_IT_IS) -> Tensor:
    """Check attribution maps against the inputs they explain and reduce them to (N, *S), values >= 0 unless signed.

    Args:
        maps: (N, *S), (N, 1, *S), or (N, C, *S) with a channel reduction.
        spatial: S, the shape that one map must have.
        ids: one name per sample, used in errors.
        reading: how channels are reduced, then negative values treated, then maps resized.

    Returns:
        A tensor (N, *S), float32 or float64, on the device of the maps.
    """
    values = as_tensor(maps, "maps")
    if values.dtype not in (torch.float32, torch.float64):
        exact_in_float32 = (torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.bool)
        values = values.to(torch.float32 if values.dtype in exact_in_float32 else torch.float64)
    reduced = _reduce_channels(values, spatial, ids, reading)
    # A maximum hides -inf in another channel, and a sum may overflow.
    infinite = ~(values.isfinite().flatten(1).all(dim=1) & reduced.isfinite().flatten(1).all(dim=1))
    if infinite.any():
        first = int(infinite.nonzero()[0])
        raise ValueError(
            f"`maps` must be finite; the map of sample {ids[first]!r} contains NaN or infinity, as do "
            f"{int(infinite.sum())} of {len(ids)} maps. Leave these samples out or repair the attribution method."
        )
    values = SIGNS[reading.sign](reduced)
    negative = (values < 0).flatten(1).any(dim=1)
    if reading.sign != "signed" and negative.any():
        first = int(negative.nonzero()[0])
        raise ValueError(
            f"`maps` must not be negative; the map of sample {ids[first]!r} goes down to "
            f"{values[first].min().item():g}, and {int(negative.sum())} of {len(ids)} maps have negative values. "
            "Say what they mean: sign='positive' drops them, sign='absolute' takes magnitudes, sign='signed' judges "
            "them as evidence against the target."
        )
    return values if reading.resize is None else resize_maps(values, spatial, reading.resize)


LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
"""Torch's names of linear interpolation, by the number of spatial axes."""


def resize_maps(maps: Tensor, spatial: tuple[int, ...], how: str) -> Tensor:
    """Interpolate maps (N, *S) to another spatial shape."""
    if tuple(maps.shape[1:]) == spatial:
        return maps
    mode = how if how == "nearest" else LINEAR[len(spatial)]
    return torch.nn.functional.interpolate(maps[:, None], size=spatial, mode=mode)[:, 0]


def _reduce_channels(values: Tensor, spatial: tuple[int, ...], ids: Sequence[str], reading: Reading) -> Tensor:
    """Reduce maps to (N, *S); refuse a wrong count and a wrong shape."""
    count, shape, resizing = len(ids), tuple(values.shape), reading.resize is not None
    if not shape or shape[0] != count:
        raise ValueError(
            f"`maps` must hold one map for each of the {count} samples (ids {ids[0]!r} to {ids[-1]!r}); "
            f"got shape {shape}.{_batch_advice(shape, spatial, count)}"
        )
    if shape[1:] == spatial or (resizing and len(shape) == len(spatial) + 1 and 0 not in shape):
        return values
    fits = shape[2:] == spatial or (resizing and len(shape) == len(spatial) + 2)
    if not fits or 0 in shape:
        raise ValueError(
            f"`maps` must have shape {(count, *spatial)}, or that with a channel axis second, to match the inputs; "
            f"got {shape}. Say how to resize them: resize='bilinear' or 'nearest'."
        )
    if shape[1] == 1:
        return values[:, 0]
    if reading.channels is None:
        raise ValueError(
            f"`maps` have {shape[1]} channels per feature, and the metrics need one value. Say how to reduce them: "
            f"channels={' or '.join(map(repr, CHANNELS))}."
        )
    return CHANNELS[reading.channels](values)


def _batch_advice(shape: tuple[int, ...], spatial: tuple[int, ...], samples: int) -> str:
    """Return a sentence about a map without a batch dimension, with a space before it; empty for other maps."""
    if shape == spatial:
        return (
            " This is a single map: add the batch dimension, maps[None]." if samples == 1 else " This is a single map."
        )
    if samples > 1 or shape[1:] != spatial:
        return ""
    if len(spatial) == 1:  # `inputs` may be an image that was taken for a signal of many channels
        return " If these are one image and its map, add the batch dimension to both: inputs[None], maps[None]."
    return " This is a single map with channels: add the batch dimension, maps[None]."


def negative_share(maps: Tensor) -> Tensor:
    """Return the share (N,) of each map's attribution (N, *S) that is negative; NaN for a map of zeros."""
    parts = [PARTS[part](maps.double()).flatten(1).sum(dim=1) for part in ("negative", "positive")]
    return parts[0] / sum(parts)


def normalise(maps: Tensor) -> Tensor:
    """Scale each map (N, *S) to a maximum of 1, in float64; a map of zeros stays zero."""
    values = maps.to(torch.float64)
    peak = values.flatten(1).amax(dim=1).reshape(-1, *[1] * (values.dim() - 1))
    return values / torch.where(peak > 0, peak, 1.0)


def to_float32(maps: Tensor) -> Tensor:
    """Return maps (N, *S) in float32; one whose largest value is beyond its range is scaled by a power of two.

    Metrics compare values within a map, and a power of two changes no digit of them.

    Example:
        >>> to_float32(torch.tensor([[1e-60, 2e-60], [1.0, 2.0]], dtype=torch.float64))
        tensor([[0.4017, 0.8035],
                [1.0000, 2.0000]])
    """
    if maps.dtype != torch.float64:
        return maps.float()
    peak = maps.abs().flatten(1).amax(dim=1)
    exponent = torch.frexp(peak).exponent
    exponent = torch.where((peak > 0) & (exponent.abs() > _LARGEST_EXPONENT), exponent, 0)
    half = torch.div(exponent, 2, rounding_mode="floor")  # in two steps: 2 to the power of 1074 is infinite
    for part in (half, exponent - half):
        maps = maps * torch.pow(2.0, -part.double()).reshape(-1, *[1] * (maps.dim() - 1))
    return maps.float()


def map_kinds(maps: Tensor) -> list[str]:
    """Classify each map (N, *S) as "regular", "constant" or all "zero".

    Constant and zero maps are legal, but degenerate: they rank no feature above another.
    """
    flat = maps.flatten(1)
    constant, zero = (flat == flat[:, :1]).all(dim=1), (flat == 0).all(dim=1)
    return [
        "zero" if z else "constant" if c else "regular" for z, c in zip(zero.tolist(), constant.tolist(), strict=True)
    ]


def warn_of_zeros(maps: Tensor, consequence: str, part: str = "positive") -> None:
    """Warn the caller of a public function if all maps (N, *S), or their negative parts, are zero everywhere."""
    if not bool(PARTS[part](maps).any()):
        what = "are zero everywhere" if part == "positive" else "have no negative values"
        warnings.warn(
            f"`maps` {what} for all {len(maps)} samples: they rank no feature above another, and {consequence} is not "
            "defined.",
            stacklevel=4,
        )
