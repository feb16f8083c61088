"""What plots and notebooks share: matplotlib where it is installed, and drawings that need none.

Functions here take plain arrays, so that anything above can show itself.

Shapes: L points of a curve.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.support.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; without the yellow one, which
# vanishes on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 360, 200, 44, 40
_CELL = "padding:0.2em 0.7em;text-align:right"


def import_pyplot() -> Any:
    """Import matplotlib's pyplot, or say how to install it."""
    try:
        from matplotlib import pyplot  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib. Run: pip install 'twinlens[plot]'") from error
    return pyplot


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on: those given, or new ones."""
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
    """Return how a marker on the plane is filled: white towards a side without skill.

    Args:
        skilled: whether there is skill in the horizontal and in the vertical metric.
        colour: the colour of the rest.

    Example:
        >>> marker_fill([False, True], "blue")["fillstyle"], marker_fill([True, False], "blue")["fillstyle"]
        ('left', 'bottom')
    """
    across, along = skilled
    style = {(False, True): "left", (True, False): "bottom"}.get((across, along), "full")
    face = colour if across or along else "white"
    return {"fillstyle": style, "markerfacecolor": face, "markerfacecoloralt": "white"}


def draw_arrow(axes: Axes, start: Sequence[float], end: Sequence[float], colour: str) -> None:
    """Draw an arrow to a marker at `end`, from a small hollow point at `start`, which belongs to no legend."""
    axes.plot(*start, "o", color=colour, markersize=3, markerfacecolor="none", markeredgewidth=0.8, label="_exchanged")
    props = {"arrowstyle": "-|>", "color": colour, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 4, "mutation_scale": 7}
    axes.annotate("", xy=(end[0], end[1]), xytext=(start[0], start[1]), arrowprops=props)


def sketch_line(x: Floats, y: Floats, labels: tuple[str, str], *, flipped: bool = False) -> str:
    """Draw one curve (L,) as a small SVG that stands by itself; `flipped` puts the largest x on the left.

    Example:
        >>> sketch_line(np.array([0.1, 0.9]), np.array([0.0, 1.0]), ("threshold", "loss"))[:4]
        '<svg'
    """
    across = _scale(x, _LEFT, _WIDTH - 12, flipped=flipped)
    along = _scale(y, _HEIGHT - _BOTTOM, 12)
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(across, along, strict=True) if np.isfinite(b)]
    dots = "".join(f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="2"/>' for point in points)
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>'
    base = _HEIGHT - _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{html.escape(labels[1])}" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
        f'<path d="M{_LEFT} 8V{base}H{_WIDTH - 8}" fill="none" stroke="currentColor" stroke-opacity="0.35"/>'
        f'{_ends(x, y, flipped=flipped)}{line}<g fill="{COLOURS[0]}">{dots}</g>'
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(labels[0])}</text>'
        f'<text x="12" y="{base / 2}" text-anchor="middle" transform="rotate(-90 12 {base / 2})">'
        f"{html.escape(labels[1])}</text>"
        "</svg>"
    )


def html_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Lay out a table for a notebook; `heads` are text, the cells of `body` are markup.

    Example:
        >>> html_table(["a"], [["<b>1</b>"]]).count("<td")
        1
    """
    head = "".join(f"<th style='{_CELL}'>{html.escape(text)}</th>" for text in heads)
    style = repr(f"{_CELL};white-space:nowrap")
    rows = "".join(f"<tr>{''.join(f'<td style={style}>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _limits(values: Floats) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    low, high = (min(0.0, float(known.min())), max(1.0, float(known.max()))) if len(known) else (0.0, 1.0)
    return low, high


def _scale(values: Floats, start: float, end: float, *, flipped: bool = False) -> Floats:
    low, high = _limits(values)
    share = (values - low) / (high - low)
    return np.asarray(start + (end - start) * (1 - share if flipped else share))


def _ends(x: Floats, y: Floats, *, flipped: bool) -> str:
    base = _HEIGHT - _BOTTOM
    left, right = _limits(x)[::-1] if flipped else _limits(x)
    bottom, top = _limits(y)
    marks = (
        (_LEFT, base + 14, "middle", left),
        (_WIDTH - 12, base + 14, "middle", right),
        (_LEFT - 6, base, "end", bottom),
        (_LEFT - 6, 16, "end", top),
    )
    return "".join(f'<text x="{a}" y="{b}" text-anchor="{anchor}">{value:.3g}</text>' for a, b, anchor, value in marks)
