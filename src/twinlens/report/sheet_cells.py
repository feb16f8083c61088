"""Cells of the contact sheet: one sample, and the maps of each method on it, by kind of data.

Shapes: C channels, S = spatial shape, T tokens or time steps.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from twinlens.data.word_pieces import join_pieces, style_of
from twinlens.errors import printable_line
from twinlens.report.picture_view import slices
from twinlens.report.pictures import Picture, input_pictures, map_picture
from twinlens.report.scene import kind_of, relative, shades_of, summed_shares
from twinlens.report.table_view import column_names
from twinlens.report.text_view import text_of
from twinlens.run.sample_selection import SelectedSamples
from twinlens.run.stored_run import StoredRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cell = Callable[..., None]
"""Draws into axes."""

_ROWS, _WIDE = 10, 24  # columns, words or channels of a sample, and characters of each
_TOP = 0.995  # quantile of a map that is drawn brightest: single pixels do not darken the rest
_BLUE = "#0072b2"


def draw_sample(
    evaluation: StoredRun, selected: SelectedSamples, place: int, maps: Mapping[str, Tensor]
) -> tuple[Cell, dict[str, Cell]]:
    """Return the cell of a selected sample, and that of each method for its map (*S)."""
    return _KINDS[kind_of(evaluation.results.data)](evaluation, selected, place, maps)


def _picture_cells(
    evaluation: StoredRun, selected: SelectedSamples, place: int, maps: Mapping[str, Tensor]
) -> tuple[Cell, dict[str, Cell]]:
    """Draw an image, or the slice of a volume that has most attribution, and maps as bright as their values."""
    inputs, note, shown = selected.inputs[place : place + 1], "", dict(maps)
    if inputs.dim() > 4:
        volumes = {method: slices(values) for method, values in maps.items()}
        whole_volume = slices(inputs[0].mean(dim=0))
        total = summed_shares(volumes.values(), tuple(whole_volume.shape))
        number = int(total.flatten(1).sum(dim=1).argmax())
        inputs = whole_volume[None, number : number + 1]
        note, shown = f"slice {number + 1}", {method: values[number] for method, values in volumes.items()}
    [whole] = input_pictures(inputs, shades_of(evaluation, selected, place))
    pictures = {method: map_picture(clipped(values)) for method, values in shown.items()}
    return partial(_show, picture=whole, note=note), {
        method: partial(_show, picture=each) for method, each in pictures.items()
    }


def _signal_cells(
    _: StoredRun, selected: SelectedSamples, place: int, maps: Mapping[str, Tensor]
) -> tuple[Cell, dict[str, Cell]]:
    """Draw a line for each channel, one below the other, and maps as areas."""
    return partial(_draw_lines, signal=selected.inputs[place]), {
        method: partial(_draw_area, values=values) for method, values in maps.items()
    }


def _row_cells(
    evaluation: StoredRun, selected: SelectedSamples, place: int, maps: Mapping[str, Tensor]
) -> tuple[Cell, dict[str, Cell]]:
    """List the columns or words with most attribution by any method, and draw maps as bars next to them."""
    segments, inputs = selected.segments, selected.inputs[place]
    strengths = {method: relative(values, segments, place) for method, values in maps.items()}
    total = torch.stack([*strengths.values(), torch.zeros(evaluation.results.data.spatial)]).amax(dim=0)
    if segments is not None:
        total = total.where(segments[place] >= 0, -1.0)  # what is no feature is not listed
    if evaluation.results.data.tokens:
        words = text_of(selected, place)
        names = [text for text, _ in join_pieces(words, style_of(words))]
    else:
        columns = column_names(selected.feature_names, range(len(inputs)))
        values = [f"{value:.4g}" for value in inputs.tolist()]
        names = [f"{wrapped(name, _WIDE - len(value), 1)} {value}" for name, value in zip(columns, values, strict=True)]
    first = total.topk(min(_ROWS, len(total))).indices.sort().values.tolist()
    shown = [k for k in first if total[k] >= 0]
    return partial(_write_rows, texts=[names[k] for k in shown]), {
        method: partial(_draw_bars, values=values[shown].tolist()) for method, values in strengths.items()
    }


_KINDS = {
    "image": _picture_cells,
    "volume": _picture_cells,
    "signal": _signal_cells,
    "table": _row_cells,
    "text": _row_cells,
}


def clipped(values: Tensor) -> Tensor:
    """Clip the highest values of a map (*S), unless nearly all are zero."""
    flat = values.flatten()
    top = flat.kthvalue(max(1, math.ceil(_TOP * len(flat)))).values
    return values.clamp(max=top) if top > 0 else values


def _show(axes: Axes, *, picture: Picture, note: str = "") -> None:
    axes.imshow(picture, interpolation="antialiased")
    axes.text(0.03, 0.04, note, fontsize=4.6, color="white", transform=axes.transAxes)


def _draw_lines(axes: Axes, *, signal: Tensor) -> None:
    for k, channel in enumerate(signal[:_ROWS]):
        low, high = channel.min(), channel.max()
        height = (channel - low) / (high - low).clamp(min=1e-12)
        axes.plot(0.85 * height - k, color="0.2", linewidth=0.5)


def _draw_area(axes: Axes, *, values: Tensor) -> None:
    axes.fill_between(range(len(values)), values, step="mid", color=_BLUE, linewidth=0)
    axes.set_ylim(0, max(float(values.max()), 1e-12) * 1.05)


def _write_rows(axes: Axes, *, texts: Sequence[str]) -> None:
    axes.set_ylim(_ROWS, 0)
    for k, text in enumerate(texts):
        axes.text(0.97, k + 0.5, wrapped(text, _WIDE + 1, 1), fontsize=4.6, ha="right", va="center", parse_math=False)


def _draw_bars(axes: Axes, *, values: Sequence[float]) -> None:
    axes.set_ylim(_ROWS, 0)
    axes.set_xlim(0, 1)
    axes.barh([k + 0.5 for k in range(len(values))], values, height=0.7, color=_BLUE)


def wrapped(text: str, width: int, lines: int) -> str:
    """Return text in at most so many lines of a width."""
    return "\n".join(textwrap.wrap(printable_line(text), width, max_lines=lines, placeholder=" …"))
