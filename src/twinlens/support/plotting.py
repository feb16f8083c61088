"""Drawing for plots and notebooks: matplotlib if it is installed, and tables as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.errors import install_hint
from twinlens.support.arrays import Floats
from twinlens.support.label_places import Box, place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colour-blind safe palette of Okabe and Ito, without yellow, which is invisible on white. Violet and brown differ
# from its other colours for all kinds of sight, and can be seen on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a37d1", "#96302c")

_ACROSS, _ALONG = {-1: "right", 0: "center", 1: "left"}, {-1: "top", 0: "center", 1: "bottom"}
_BEHIND = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}  # lines stay visible below a label

_CELL = "padding:0.2em 0.7em;text-align:right"


def import_pyplot() -> Any:
    """Import matplotlib's pyplot; the error says how to install it."""
    try:
        from matplotlib import pyplot  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError(f"Plotting needs matplotlib. Run: {install_hint('plot')}") from error
    return pyplot


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on, new ones if None."""
    if ax is not None:
        return ax
    axes: Axes = import_pyplot().subplots(layout="constrained")[1]
    return axes


def draw_line(ax: Axes | None, x: Floats, y: Floats, labels: tuple[str, str]) -> Axes:
    """Draw one curve with its axis labels."""
    axes = new_axes(ax)
    axes.plot(x, y, marker=".")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return axes


def darker(colour: str) -> str:
    """Return a colour as text can have it on white: closer to black.

    Example:
        >>> darker("#e69f00")
        '#8a5f00'
    """
    return "#" + "".join(f"{round(0.6 * int(colour[k : k + 2], 16)):02x}" for k in (1, 3, 5))


def marker_fill(skilled: Sequence[bool], colour: str) -> dict[str, Any]:
    """Return how a marker on the plane is filled: white towards a side without skill, first horizontal, then vertical.

    Example:
        >>> marker_fill([False, True], "blue")["fillstyle"], marker_fill([True, False], "blue")["fillstyle"]
        ('left', 'bottom')
    """
    across, along = skilled
    style = {(False, True): "left", (True, False): "bottom"}.get((across, along), "full")
    face = colour if across or along else "white"
    return {"fillstyle": style, "markerfacecolor": face, "markerfacecoloralt": "white"}


def draw_arrow(axes: Axes, start: Sequence[float], end: Sequence[float], colour: str) -> None:
    """Draw an arrow from a small hollow point at `start`, without a legend entry, to a marker at `end`."""
    axes.plot(*start, "o", color=colour, markersize=3, markerfacecolor="none", markeredgewidth=0.8, label="_exchanged")
    props = {"arrowstyle": "-|>", "color": colour, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 4, "mutation_scale": 7}
    axes.annotate("", xy=(end[0], end[1]), xytext=(start[0], start[1]), arrowprops=props)


def draw_chance(axes: Axes, x: float | None, y: float | None) -> None:
    """Draw quiet lines at what chance alone gives, which stays within the limits."""
    style: Any = {"color": "0.6", "linestyle": ":", "linewidth": 0.9, "zorder": 0.5, "label": "_chance"}
    for line, at in ((axes.axvline, x), (axes.axhline, y)):
        if at is not None:
            line(at, **style)


def write_beside(
    axes: Axes,
    labels: Sequence[tuple[str, tuple[float, float], str]],
    *,
    taken: Sequence[Box],
    lines: Floats,
    costs: Floats,
) -> None:
    """Write texts in colours beside points where they cover neither points nor each other, and few lines.

    Those without room are left out. `place_labels` explains the last three; the axes must be laid out.
    """
    style: Any = {"textcoords": "offset points", "parse_math": False, "fontsize": "small", "zorder": 4, "bbox": _BEHIND}
    texts = [axes.annotate(text, at, (0, 0), color=colour, **style) for text, at, colour in labels]
    extents = [text.get_window_extent() for text in texts]
    places = place_labels(
        [tuple(axes.transData.transform(at)) for _, at, _ in labels],
        [(box.width, box.height) for box in extents],
        taken=taken,
        lines=lines,
        costs=costs,
        within=axes.bbox.extents,
        scale=axes.figure.dpi / 72,
    )
    for text, place, (_, _, colour) in zip(texts, places, labels, strict=True):
        if place is None:
            text.remove()
            continue
        text.xyann = place.offset
        text.set(ha=_ACROSS[place.side[0]], va=_ALONG[place.side[1]])
        if place.far:
            way: Any = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 3}
            axes.annotate("", text.xy, place.offset, textcoords="offset points", arrowprops=way, zorder=1)


def label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Write texts in colours to the right of the axes, each at its height or as near as the others allow."""
    labels = sorted(labels)
    style: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    style |= {"fontsize": "small", "parse_math": False, "annotation_clip": False}
    texts = [axes.annotate(text, (1.0, at), (4, 0), color=colour, **style) for at, text, colour in labels]
    heights = axes.transData.transform([(0.0, at) for at, *_ in labels])[:, 1] * 72 / axes.figure.dpi
    gaps = 1.3 * float(texts[0].get_fontsize()) * np.arange(len(texts))
    upper, lower = np.maximum.accumulate(heights - gaps), np.minimum.accumulate((heights - gaps)[::-1])[::-1]
    for text, shift in zip(texts, (upper + lower) / 2 + gaps - heights, strict=True):
        text.xyann = (4, shift)


def html_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML for a notebook; `heads` are text, the cells of `body` are markup.

    Example:
        >>> html_table(["a"], [["<b>1</b>"]]).count("<td")
        1
    """
    head = "".join(f"<th style='{_CELL}'>{html.escape(text)}</th>" for text in heads)
    style = repr(f"{_CELL};white-space:nowrap")
    rows = "".join(f"<tr>{''.join(f'<td style={style}>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
