"""Images and volumes on the page: pictures of inputs, of maps, and of what the model sees at each level.

The slices of a volume lie side by side in one picture, of which the page shows one.

Shapes: K levels, C channels, S = spatial shape, D slices of H × W pixels. Pictures are (H, W, 3) uint8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, pad

from twinlens.report.pictures import EXACT, Picture, data_uri, false_picture, input_pictures, map_picture
from twinlens.report.scene import Scene, View
from twinlens.support.fields import JSON

# Sizes and qualities of pictures; the first that fits a sample's share of the page is used.
_SIZES = ((224, 70), (192, 60), (160, 50), (128, 40), (96, 30))
# The same for slices, after their number.
_SLICES = ((64, 128, EXACT), (64, 128, 60), (48, 96, 50), (32, 96, 40), (24, 64, 40), (16, 64, 30), (12, 48, 30))
_WIDEST = 16_383  # pixels of a WebP picture

Pictures = dict[tuple[str, str], list[Picture]]
"""By method and kind: its map, what of it was judged false, and the imputed inputs; by ("", "input") the input."""


def view_image(scene: Scene, place: int, share: int) -> View:
    """Draw one sample, each method's map, what of it was judged false, and the imputed inputs."""
    shades = scene.shades(place)
    [whole] = input_pictures(scene.selected.inputs[place : place + 1], shades)
    pictures: Pictures = {("", "input"): [whole]}
    for method, maps in scene.maps.items():
        pictures[method, "map"] = [map_picture(maps[place])]
        if method in scene.false:
            pictures[method, "false"] = [false_picture(maps[place], scene.false[method][place], whole)]
        pictures[method, "frames"] = input_pictures(_frames(scene, place, method), shades)
    for side, quality in _SIZES:
        uris = _encode(pictures, side, quality)
        if _size(uris) <= share:
            break
    return uris["", "input"][0], {
        method: {
            "map": uris[method, "map"][0],
            "false": uris[method, "false"][0] if method in scene.false else None,
            "frames": [*uris[method, "frames"]],
        }
        for method in scene.maps
    }


def view_volume(scene: Scene, place: int, share: int) -> View:
    """Draw the slices of one sample along its first axis, with each method's map over them, and the imputed slices."""
    total = slices(scene.density(place))
    frames = {method: _frames(scene, place, method) for method in scene.maps}
    for most, side, quality in _SLICES:
        numbers = torch.linspace(0, len(total) - 1, min(len(total), most)).round().long()
        pictures = _draw_slices(scene, place, frames, partial(_mosaic, numbers=numbers, side=side))
        pixels = sum(each[..., 0].size for some in pictures.values() for each in some)
        if quality == EXACT and pixels > 2 * share:
            continue
        uris = _encode(pictures, _WIDEST, quality)
        if _size(uris) <= share:
            break
    view: JSON = {
        "sheet": uris["", "input"][0],
        "numbers": numbers.tolist(),
        "of": len(total),
        "across": _across(numbers),
        "shape": [min(length, side) for length in total.shape[1:]],
        "start": int(total[numbers].flatten(1).sum(dim=1).argmax()),
    }
    return view, {method: {"map": uris[method, "map"][0], "frames": [*uris[method, "frames"]]} for method in scene.maps}


def _draw_slices(scene: Scene, place: int, frames: dict[str, Tensor], lay: Callable[[Tensor], Tensor]) -> Pictures:
    """Draw a volume, and each method's map over it in two colours; `lay` puts the slices of a volume (*S) together."""

    def draw(volumes: Tensor) -> list[Picture]:
        return input_pictures(torch.stack([lay(volume.mean(dim=0)) for volume in volumes])[:, None], shades)

    shades = scene.shades(place)
    [whole] = draw(scene.selected.inputs[place : place + 1])
    pictures: Pictures = {("", "input"): [whole]}
    for method, maps in scene.maps.items():
        values = maps[place]
        false = scene.false[method][place] if method in scene.false else torch.zeros_like(values)
        pictures[method, "map"] = [false_picture(lay(values), lay(false) > 0.5, whole)]
        pictures[method, "frames"] = draw(frames[method])
    return pictures


def slices(values: Tensor) -> Tensor:
    """Return a volume (*S) as slices (D, H, W); of four and more axes all but the last two become one."""
    return values.reshape(-1, *values.shape[-2:])


def _mosaic(volume: Tensor, *, numbers: Tensor, side: int) -> Tensor:
    """Put some slices of a volume (*S) side by side, scaled down to at most `side` pixels.

    Each has a border of one pixel, which repeats its edge: scaled by a browser, no slice shows the next one.

    Example:
        >>> _mosaic(torch.tensor([1.0, 2.0]).reshape(2, 1, 1), numbers=torch.arange(2), side=8)[1]
        tensor([1., 1., 1., 2., 2., 2.])
    """
    tiles, across = slices(volume)[numbers].float(), _across(numbers)
    height, width = (min(length, side) for length in tiles.shape[1:])
    if (height, width) != tiles.shape[1:]:
        tiles = adaptive_avg_pool2d(tiles, (height, width))
    bordered = pad(tiles, (1, 1, 1, 1), mode="replicate")
    full = pad(bordered, (0, 0, 0, 0, 0, -len(tiles) % across))
    return full.reshape(-1, across, height + 2, width + 2).transpose(1, 2).reshape(-1, across * (width + 2))


def _across(numbers: Tensor) -> int:
    """Return the number of slices in a row."""
    return math.ceil(math.sqrt(len(numbers)))


def _frames(scene: Scene, place: int, method: str) -> Tensor:
    """Impute one sample at each level (K, C, *S); removed features are grey if the imputer is not available."""
    keep = scene.keep_at_levels(place, method)
    frames = scene.impute_at_levels(place, keep)
    if frames is None:
        frames = torch.where(keep.unsqueeze(1), scene.selected.inputs[place : place + 1], scene.shades(place).grey)
    return frames


def _encode(pictures: Pictures, side: int, quality: int) -> dict[tuple[str, str], list[str]]:
    return {key: [data_uri(each, side=side, quality=quality) for each in some] for key, some in pictures.items()}


def _size(uris: dict[tuple[str, str], list[str]]) -> int:
    return sum(len(uri) for some in uris.values() for uri in some)
