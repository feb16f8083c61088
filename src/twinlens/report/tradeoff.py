"""The trade-off: soundness of what is included against completeness, as features enter in the map's order.

It is read as precision and recall are. Shapes: L levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from twinlens.report.styles import MARKERS, MethodStyle
from twinlens.run.results import CurveResults, Results
from twinlens.run.wording import name_of, performance_of
from twinlens.support.plotting import draw_chance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKED = (0.1, 0.25, 0.5)  # shares of features


@dataclass(frozen=True, kw_only=True)
class Tradeoff:
    """The curves of both sides over the same levels, for each method that has both."""

    metrics: tuple[str, str]
    """Soundness and completeness."""
    titles: tuple[str, str]
    chance: float | None
    """Soundness of whole random maps."""
    marks: tuple[int, ...]
    """Positions of the marked levels: about a tenth, a quarter and half of the features, and the whole map."""
    curves: Mapping[str, tuple[CurveResults, CurveResults]] = field(metadata={"stored": False})
    """By method, best first."""


def tradeoff_of(results: Results) -> Tradeoff | None:
    """Return the trade-off of a run; None where both sides were not measured over the same axis."""
    if not results.plane or len({_axis(results, metric) for metric in results.plane}) > 1:
        return None
    across, along = results.plane
    curves: dict[str, tuple[CurveResults, CurveResults]] = {}
    for method in results.best_first():
        sound, complete = (results.methods[method].metrics.get(metric) for metric in (across, along))
        if sound and complete and sound.levels == complete.levels and None not in (*sound.values, *complete.values):
            curves[method] = sound, complete
    levels = np.array(next((sound.levels for sound, _ in curves.values()), ()), dtype=np.float64)
    if len(levels) < 2:  # no method, or maps of a single feature
        return None
    marks = (*dict.fromkeys(int(np.abs(levels[:-1] - share).argmin()) for share in _MARKED), len(levels) - 1)
    return Tradeoff(
        metrics=(across, along),
        titles=(name_of(results, across), name_of(results, along)),
        chance=results.about(across).chance,
        marks=marks,
        curves=curves,
    )


def _axis(results: Results, metric: str) -> tuple[str, bool]:
    """Return what a curve is drawn over."""
    about = results.about(metric)
    return about.axes(performance_of(results, metric))[0], about.stairs


def draw_tradeoff(axes: Axes, tradeoff: Tradeoff, styles: Mapping[str, MethodStyle]) -> list[str]:
    """Draw the curve of each method with its band and its name; return the methods that need a legend, which is none.

    Marks are the shares of features of `Tradeoff.marks`, and the large one at the end is the whole map.
    """
    marks, labels = list(tradeoff.marks), [] if tradeoff.chance is None else [(tradeoff.chance, "chance", "0.5")]
    for method, (sound, complete) in tradeoff.curves.items():
        style = styles[method]
        x, y, low, high = (
            np.array(c, dtype=np.float64) for c in (complete.values, sound.values, sound.low, sound.high)
        )
        look: Any = {"color": style.colour, "marker": MARKERS[style.symbol]}
        axes.plot(x, y, label=method, linestyle=style.line, markersize=3.5, markevery=marks[:-1], **look)
        axes.plot(x[-1:], y[-1:], label="_whole", markersize=6, **look)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.12, linewidth=0)
        labels.append((float(y[-1]), method, style.colour))
    draw_chance(axes, None, tradeoff.chance)
    axes.set_xlabel(tradeoff.titles[1])
    axes.set_ylabel(f"{tradeoff.titles[0]} of what is included")
    _label_marks(axes, tradeoff)
    _label_ends(axes, labels)
    return []


def _label_marks(axes: Axes, tradeoff: Tradeoff) -> None:
    """Write the shares of features above the highest curve."""
    *marks, _ = tradeoff.marks
    sound, complete = max(tradeoff.curves.values(), key=lambda pair: sum(pair[0].values[k] or 0.0 for k in marks))
    for k in marks:
        at, share = (complete.values[k], sound.values[k]), sound.levels[k]
        style: Any = {"textcoords": "offset points", "ha": "center", "va": "bottom", "color": "0.4"}
        axes.annotate(f"{share:.0%}", at, (0, 5), fontsize="x-small", **style)


def _label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
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
