"""The contact sheet: the maps of all methods on a few inputs, as one picture that fits on a page.

Rows are inputs and columns are methods, after the input itself; many methods are split into bands. A method that failed
shows its error instead of maps.

Shapes: E samples that are shown, S = spatial shape. Pictures are (H, W, 3) uint8.
"""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from twinlens.errors import RunError, first_line, printable_line
from twinlens.probing.answers import REGRESSION
from twinlens.probing.probe_table import ProbeTable
from twinlens.report.explorer import class_name, load_selected_maps, shades_of
from twinlens.report.figures import METADATA, styled_figure
from twinlens.report.pictures import Picture, input_pictures, map_picture
from twinlens.run.sample_selection import SelectedSample, SelectedSamples, read_selection
from twinlens.run.stored_run import StoredRun
from twinlens.support.arguments import checked
from twinlens.support.fields import check_count
from twinlens.support.files import as_path, is_local, written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = ("png", "pdf", "svg")
_MOST = 100  # samples
_WIDEST = 11  # methods in a band; more leave no room for their names
_ASPECT = 1.3  # target ratio of width to height
_CELL, _TEXT, _HEAD, _MARGIN = 1.0, 1.05, 0.36, 0.05  # inches: a picture, names of samples, a heading, the margin
_TOP = 0.995  # quantile of a map that is drawn brightest: single pixels do not darken the rest
_GREY, _WRONG = "#777777", "#b33000"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One sample."""

    name: str
    answer: str
    label: str | None
    """The class that is explained, where the model predicts another."""
    picture: Picture


@checked
def write_sheet(evaluation: StoredRun, path: str | os.PathLike[str], *, samples: int = 8) -> Path:
    """Draw the maps of every method of a run on a few of its samples, as one picture.

    Args:
        evaluation: the run, with or without metrics.
        path: FILE.png, .pdf or .svg.
        samples: the maximum number of samples, out of those stored with the run. A run of at most eight samples stores
            all of them, a larger one those on which methods disagree or agree most, or those that `show` names.

    Returns:
        The path.
    """
    target = check_sheet_path(path)
    check_count("samples", samples, _MOST)
    selected = read_selection(evaluation.run)
    if selected is None or not selected.samples:
        raise RunError(f"{evaluation.run} has no samples to show. Start it again with the same command.")
    places = sorted(range(len(selected.samples)), key=lambda place: selected.samples[place].position)[:samples]
    rows = [_row(evaluation, selected, place) for place in places]
    columns = _columns(evaluation, [selected.samples[place] for place in places])
    wide = _band_width(len(columns), len(rows))
    bands = [list(columns)[start : start + wide] for start in range(0, len(columns), wide)]
    with styled_figure(_size(wide, len(bands), len(rows))) as figure:
        figure.set_layout_engine("none")  # cells have fixed positions
        _draw(figure, rows, columns, bands, wide, evaluation.results.baselines)
        kind = target.suffix[1:].lower()
        with written_whole(target) as unfinished, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a box is drawn instead
            figure.savefig(unfinished, format=kind, dpi=130, metadata=METADATA[kind])
    return target


def check_sheet_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a sheet; refuse remote paths and other suffixes."""
    target = as_path(path)
    if not is_local(target) or target.suffix[1:].lower() not in _KINDS:
        raise ValueError(f"`path` must be a file on this machine that ends in .png, .pdf or .svg; got {str(path)!r}.")
    return target


def _row(evaluation: StoredRun, selected: SelectedSamples, place: int) -> _Row:
    sample, model = selected.samples[place], evaluation.results.model
    size = evaluation.run.manifest.execution.shard_size
    table, row = ProbeTable.load(evaluation.run.original_shard(sample.position // size)), sample.position % size
    predicted, own = class_name(model, table.predicted[row, 0]), class_name(model, sample.label)
    sure = "" if model.task == REGRESSION else f" {table.probability[row, 0]:.2f}"
    right = bool(table.correct[row, 0])
    # The stored probability is that of the label.
    answer = f"{predicted}{sure}" if right else predicted
    [picture] = input_pictures(selected.inputs[place : place + 1], shades_of(evaluation, selected, place))
    return _Row(name=sample.id, answer=answer, label=None if right else f"{own}{sure}", picture=picture)


def _columns(evaluation: StoredRun, samples: Sequence[SelectedSample]) -> dict[str, list[Picture] | str]:
    """Return the maps of each method as pictures, or the reason why it has none."""
    columns: dict[str, list[Picture] | str] = {}
    positions = [sample.position for sample in samples]
    for method in evaluation.run.manifest.methods:
        if method in evaluation.failures:
            columns[method] = first_line(evaluation.failures[method])
            continue
        maps = load_selected_maps(evaluation, method, positions)
        columns[method] = "no maps" if maps is None else [map_picture(_clipped(values)) for values in maps]
    return columns


def _clipped(values: Tensor) -> Tensor:
    """Clip the highest values of a map (*S), unless nearly all are zero."""
    flat = values.flatten()
    top = flat.kthvalue(max(1, math.ceil(_TOP * len(flat)))).values
    return values.clamp(max=top) if top > 0 else values


def _band_width(methods: int, rows: int) -> int:
    """Return the number of methods per band that brings the sheet closest to the shape of a page."""

    def distance(wide: int) -> float:
        width, height = _size(wide, math.ceil(methods / wide), rows)
        return abs(math.log(width / height / _ASPECT))

    # Evenly filled bands.
    widths = {math.ceil(methods / bands) for bands in range(1, methods + 1)}
    return min((wide for wide in widths if wide <= _WIDEST), key=distance)


def _size(wide: int, bands: int, rows: int) -> tuple[float, float]:
    """Return the width and height of a sheet, in inches."""
    return _TEXT + _CELL * (wide + 1), bands * (_HEAD + rows * _CELL) + _MARGIN


def _draw(
    figure: Figure,
    rows: Sequence[_Row],
    columns: Mapping[str, list[Picture] | str],
    bands: Sequence[Sequence[str]],
    wide: int,
    baselines: Sequence[str],
) -> None:
    width, height = _size(wide, len(bands), len(rows))

    def place(band: int, row: float, column: int, *, side: float = 0.94) -> Axes:
        """Add axes at a cell; column -1 is the text of a row, row -1 the heading."""
        left = 0.0 if column < 0 else _TEXT + _CELL * column
        top = band * (_HEAD + _CELL * len(rows)) + (_HEAD + _CELL * row if row >= 0 else 0.0)
        across, down = (_TEXT if column < 0 else _CELL), (_CELL if row >= 0 else _HEAD)
        box = (
            left / width,
            1 - (top + down) / height,
            across * side / width,
            down * (side if row >= 0 else 1) / height,
        )
        axes = figure.add_axes(box)
        axes.set_axis_off()
        return axes

    for band, methods in enumerate(bands):
        _write_heading(place(band, -1, 0), "input", "black")
        for k, method in enumerate(methods, start=1):
            _write_heading(place(band, -1, k), method, _GREY if method in baselines else "black")
        for number, row in enumerate(rows):
            _write_sample(place(band, number, -1), row)
            _show(place(band, number, 0), row.picture)
            for k, method in enumerate(methods, start=1):
                pictures = columns[method]
                if isinstance(pictures, str):
                    _write_note(place(band, number, k), pictures)
                else:
                    _show(place(band, number, k), pictures[number])


def _show(axes: Axes, picture: Picture) -> None:
    flat = picture.shape[0] * 8 < picture.shape[1]  # a table row or a signal fills its cell
    axes.imshow(picture, aspect="auto" if flat else "equal", interpolation="nearest" if flat else "antialiased")


def _write_heading(axes: Axes, text: str, colour: str) -> None:
    lines = textwrap.wrap(_plain(text).replace("_", "_ "), 15, break_long_words=True)
    written = "\n".join(lines).replace("_ ", "_")
    axes.text(
        0.48, 0.08, written, fontsize=6.5, ha="center", va="bottom", linespacing=1.05, color=colour, parse_math=False
    )


def _write_sample(axes: Axes, row: _Row) -> None:
    parts = [(_wrapped(row.name, 19, 2, tail=True), _GREY), (_wrapped(row.answer, 19, 3), "black")]
    if row.label is not None:
        parts.append((_wrapped(f"explained: {row.label}", 19, 3), _WRONG))
    top = 0.98
    for text, colour in parts:
        axes.text(0.04, top, text, fontsize=6, va="top", linespacing=1.1, color=colour, parse_math=False)
        top -= 0.11 * (text.count("\n") + 1) + 0.05


def _write_note(axes: Axes, text: str) -> None:
    axes.fill_between([0, 1], 0, 1, transform=axes.transAxes, color="#f2f2f2", linewidth=0)
    axes.text(
        0.06,
        0.94,
        _wrapped(text, 25, 10),
        transform=axes.transAxes,
        fontsize=4.6,
        va="top",
        color=_WRONG,
        parse_math=False,
    )


def _wrapped(text: str, width: int, lines: int, *, tail: bool = False) -> str:
    """Wrap text to a few lines, leaving out the end of long text, or with `tail` the beginning."""
    plain = _plain(text)
    if tail and len(plain) > width * lines:
        plain = f"…{plain[-width * lines + 1 :]}"
    return "\n".join(textwrap.wrap(plain, width, max_lines=lines, placeholder=" …"))


def _plain(text: str) -> str:
    return printable_line(text)
