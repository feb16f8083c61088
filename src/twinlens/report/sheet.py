"""The contact sheet: the maps of all methods on a few inputs, as one picture that fits on a page.

Rows are inputs and columns are methods, after the input itself; many methods are split into bands. A method that failed
shows its error instead of maps. Of tables and texts, the columns and words with most attribution are shown.
"""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from twinlens.errors import RunError, first_line, printable_line
from twinlens.probing.answers import REGRESSION
from twinlens.report.figures import METADATA, styled_figure
from twinlens.report.scene import class_name, load_selected_maps, original_answers
from twinlens.report.sheet_cells import Cell, draw_sample, wrapped
from twinlens.run.sample_selection import SelectedSample, SelectedSamples, read_selection
from twinlens.run.stored_run import StoredRun
from twinlens.support.arguments import checked
from twinlens.support.fields import check_count
from twinlens.support.files import as_path, is_local, written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 100  # samples
_WIDEST = 11  # methods in a band; more leave no room for their names
_CELL, _TEXT, _HEAD, _GAP = 1.0, 1.05, 0.36, 0.06  # inches: a picture, names of samples, a heading, between pictures
_GREY, _WRONG = "#777777", "#b33000"


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
    chosen = [selected.samples[place] for place in places]
    methods = list(evaluation.run.manifest.methods)
    maps = {method: _maps(evaluation, method, chosen) for method in methods}
    inputs, columns = _draw(evaluation, selected, places, maps)
    wide = _band_width(len(methods))
    with styled_figure(_size(wide, len(methods), len(chosen))) as figure:
        figure.set_layout_engine("none")  # cells have fixed positions
        for start in range(0, len(methods), wide):
            band = {"input": inputs} | {method: columns[method] for method in methods[start : start + wide]}
            top = start // wide * (_HEAD + len(chosen) * _CELL)
            for row, sample in enumerate(chosen):
                _write_sample(_axes(figure, top + _HEAD + row * _CELL, 0.0, _TEXT, _CELL), evaluation, sample)
            for k, (name, cells) in enumerate(band.items()):
                left, colour = _TEXT + k * _CELL, _GREY if name in evaluation.results.baselines else "black"
                _write_heading(_axes(figure, top, left, _CELL, _HEAD), name, colour)
                for row, cell in enumerate(cells):
                    cell(_axes(figure, top + _HEAD + row * _CELL + _GAP, left, _CELL - _GAP, _CELL - _GAP))
        kind = target.suffix[1:].lower()
        with written_whole(target) as unfinished, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a box is drawn instead
            figure.savefig(unfinished, format=kind, dpi=130, metadata=METADATA[kind])
    return target


def check_sheet_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a sheet; refuse remote paths and other suffixes."""
    target = as_path(path)
    if not is_local(target) or target.suffix[1:].lower() not in METADATA:
        raise ValueError(f"`path` must be a file on this machine that ends in .png, .pdf or .svg; got {str(path)!r}.")
    return target


def _maps(evaluation: StoredRun, method: str, samples: list[SelectedSample]) -> Tensor | str:
    """Return the maps of a method, or the reason why it has none."""
    if method in evaluation.failures:
        return first_line(evaluation.failures[method])
    maps = load_selected_maps(evaluation, method, [sample.position for sample in samples])
    return "no maps" if maps is None else maps


def _draw(
    evaluation: StoredRun, selected: SelectedSamples, places: list[int], maps: Mapping[str, Tensor | str]
) -> tuple[list[Cell], dict[str, list[Cell]]]:
    """Return the cells of the inputs, and those of each method: its maps, or the reason why it has none."""
    inputs: list[Cell] = []
    columns = {method: list[Cell]() for method in maps}
    for method, values in maps.items():
        if isinstance(values, str):
            columns[method] = [partial(_write_note, text=values)] * len(places)
    for row, place in enumerate(places):
        own = {method: values[row] for method, values in maps.items() if not isinstance(values, str)}
        whole, cells = draw_sample(evaluation, selected, place, own)
        inputs.append(whole)
        for method, cell in cells.items():
            columns[method].append(cell)
    return inputs, columns


def _band_width(methods: int) -> int:
    """Return the number of methods per band, for evenly filled bands."""
    return math.ceil(methods / math.ceil(methods / _WIDEST))


def _size(wide: int, methods: int, rows: int) -> tuple[float, float]:
    """Return the width and height of a sheet, in inches."""
    return _TEXT + _CELL * (wide + 1), math.ceil(methods / wide) * (_HEAD + rows * _CELL) + _GAP


def _axes(figure: Figure, top: float, left: float, width: float, height: float) -> Axes:
    """Add empty axes at a place in inches."""
    across, down = figure.get_size_inches()
    axes = figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))
    axes.set_axis_off()
    return axes


def _write_heading(axes: Axes, text: str, colour: str) -> None:
    lines = textwrap.wrap(printable_line(text).replace("_", "_ "), 15)
    heading = "\n".join(lines).replace("_ ", "_")
    axes.text(0.48, 0.08, heading, fontsize=6.5, ha="center", linespacing=1.05, color=colour, parse_math=False)


def _write_sample(axes: Axes, evaluation: StoredRun, sample: SelectedSample) -> None:
    """Write the name of a sample, what the model predicts, and the class that is explained if it is another."""
    model, (table, row) = evaluation.results.model, original_answers(evaluation, sample)
    right = bool(table.correct[row, 0])
    predicted, label = class_name(model, table.predicted[row, 0]), class_name(model, sample.label)
    sure = "" if model.task == REGRESSION else f" {table.probability[row, 0]:.2f}"  # of the label
    texts = [(f"…{sample.id[-37:]}" if len(sample.id) > 38 else sample.id, _GREY)]
    texts += (
        [(f"{predicted}{sure}", "black")] if right else [(predicted, "black"), (f"explained: {label}{sure}", _WRONG)]
    )
    top = 0.92
    for text, colour in texts:
        lines = wrapped(text, 19, 3)
        axes.text(0.04, top, lines, fontsize=6, va="top", linespacing=1.1, color=colour, parse_math=False)
        top -= 0.11 * (lines.count("\n") + 1) + 0.05


def _write_note(axes: Axes, *, text: str) -> None:
    axes.imshow([[(242, 242, 242)]], extent=(0, 1, 0, 1))
    axes.text(0.06, 0.94, wrapped(text, 25, 10), fontsize=4.6, va="top", color=_WRONG, parse_math=False)
