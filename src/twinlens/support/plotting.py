"""Drawing for plots and notebooks: matplotlib if it is installed, and tables as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinlens.support.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The colour-blind safe palette of Okabe and Ito, without yellow, which is invisible on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_CELL = "padding:0.2em 0.7em;text-align:right"


def import_pyplot() -> Any:
    """Import matplotlib's pyplot; the error says how to install it."""
    try:
        from matplotlib import pyplot  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib. Run: pip install 'twinlens[plot]'") from error
    return pyplot


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on, new ones if None."""
    if ax is not None:
        return ax
    axes: Axes = import_pyplot().subplots()[1]
    return axes


def draw_line(ax: Axes | None, x: Floats, y: Floats, labels: tuple[str, str]) -> Axes:
    """Draw one curve with its axis labels."""
    axes = new_axes(ax)
    axes.plot(x, y, marker=".")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return axes


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
