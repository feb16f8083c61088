"""The soundness–completeness plane as values, and paths through it, which figures, notebooks and the page draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from twinlens.report.styles import MARKERS, MethodStyle
from twinlens.run.results import CurveResults, Results
from twinlens.run.wording import name_of, settings_of
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.label_places import Box
from twinlens.support.plotting import darker, draw_arrow, draw_chance, marker_fill, write_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ARROW, _THIN = 2.0, 0.7  # how bad it is if a name covers an arrow, or a thinner line
_MARKED = (0.1, 0.25, 0.5)  # shares of features on the trade-off


@dataclass(frozen=True, kw_only=True)
class PlaneSide:
    """One method by one of the two metrics, as in `CurveResults`."""

    area: Estimate
    control: Estimate | None
    skill: Estimate | None
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class PlanePoint:
    """One method on the plane."""

    method: str
    sides: tuple[PlaneSide, PlaneSide]
    """Its soundness and its completeness. The marker is empty towards a side on which it has no skill."""
    front: bool
    baseline: bool

    @property
    def at(self) -> tuple[float, float]:
        """Both areas."""
        x, y = (0.0 if side.area.value is None else side.area.value for side in self.sides)
        return x, y

    @property
    def bars(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        """Both ends of the interval of each area, where it has one."""
        (x, y), (across, along) = self.at, (side.area.interval for side in self.sides)
        bars = [] if across is None else [((across[0], y), (across[1], y))]
        return bars if along is None else [*bars, ((x, along[0]), (x, along[1]))]

    @property
    def exchanged(self) -> tuple[float, float] | None:
        """Both areas with exchanged maps, where the arrow starts; None where one of them is unknown."""
        values = [side.control.value for side in self.sides if side.control and side.control.value is not None]
        return (values[0], values[1]) if len(values) == 2 else None


@dataclass(frozen=True, kw_only=True)
class Plane:
    """All methods of a run that have both areas, best first."""

    metrics: tuple[str, str]
    titles: tuple[str, str]
    settings: tuple[str, str]
    """What both depend on: epsilon, levels or steps."""
    chance: tuple[float | None, float | None]
    """Both areas of random maps, where the metric knows them."""
    points: tuple[PlanePoint, ...]


def plane_of(results: Results) -> Plane | None:
    """Build the plane of a run; None where soundness or completeness was not measured."""
    if len(results.sides) < 2:
        return None
    across, along = results.sides
    points = []
    for method in results.best_first():
        own = results.methods[method]
        sides = [
            PlaneSide(area=curve.area, control=curve.control, skill=curve.skill, direction=curve.direction)
            for metric in (across, along)
            if (curve := own.metrics.get(metric)) is not None and curve.area.value is not None
        ]
        if len(sides) == 2:
            front = method in results.front
            points.append(PlanePoint(method=method, sides=(sides[0], sides[1]), front=front, baseline=own.baseline))
    titles = (name_of(results, across), name_of(results, along))
    chance = (results.about(across).chance, results.about(along).chance)
    settings = (settings_of(results, across), settings_of(results, along))
    return Plane(metrics=(across, along), titles=titles, settings=settings, chance=chance, points=tuple(points))


@dataclass(frozen=True, kw_only=True)
class Tradeoff:
    """The path through the plane of each method, as features enter in the order of its maps."""

    marks: tuple[int, ...]
    """Positions of the marked levels: about a tenth, a quarter and half of the features, and the whole map."""
    curves: Mapping[str, tuple[CurveResults, CurveResults]] = field(metadata={"stored": False})
    """Soundness and completeness over the same levels, by method, best first."""


def tradeoff_of(results: Results) -> Tradeoff | None:
    """Return the trade-off of a run; None where the sides of its plane were not measured over the same axis."""
    abouts = [results.about(metric) for metric in results.plane]
    if len({(about.across, about.stairs) for about in abouts}) != 1:
        return None
    curves: dict[str, tuple[CurveResults, CurveResults]] = {}
    for method in results.best_first():
        sound, complete = map(results.methods[method].metrics.get, results.plane)
        if sound and complete and sound.levels == complete.levels and None not in (*sound.values, *complete.values):
            curves[method] = sound, complete
    levels = np.array(next((sound.levels for sound, _ in curves.values()), ()), dtype=np.float64)
    if len(levels) < 2:  # no method, or maps of a single feature
        return None
    marks = dict.fromkeys(int(np.abs(levels[:-1] - share).argmin()) for share in _MARKED)
    return Tradeoff(marks=(*marks, len(levels) - 1), curves=curves)


def draw_points(axes: Axes, plane: Plane, styles: Mapping[str, MethodStyle]) -> None:
    """Draw completeness over soundness, with intervals, the Pareto front, and arrows from exchanged maps."""
    for point in plane.points:
        style = styles[point.method]
        across, along = (_error_bar(side.area) for side in point.sides)
        skilled = [side.direction in (None, "better") for side in point.sides]
        axes.errorbar(
            *point.at, xerr=across, yerr=along, fmt=MARKERS[style.symbol], color=style.colour, label=point.method,
            markersize=5, elinewidth=0.8, markeredgewidth=0.8, **marker_fill(skilled, style.colour),
        )  # fmt: skip
        if point.exchanged is not None:
            draw_arrow(axes, point.exchanged, point.at, style.colour)
    front = sorted(point.at for point in plane.points if point.front)
    if front:
        # Drawn between the methods only; lines to the axes would widen their range.
        x, y = zip(*front, strict=True)
        axes.step(x, y, where="pre", color="0.4", linestyle="--", linewidth=0.8, zorder=1)
    draw_chance(axes, *plane.chance)
    axes.set_xlabel(f"{plane.titles[0]}, {plane.settings[0]}")
    axes.set_ylabel(f"{plane.titles[1]}, {plane.settings[1]}")


def label_points(axes: Axes, plane: Plane, styles: Mapping[str, MethodStyle]) -> None:
    """Write names next to points where they cover no other, and "chance" where its lines cross."""
    figure = axes.figure.canvas.figure
    figure.draw_without_rendering()  # lays it out
    pixels, reach = axes.transData.transform, figure.dpi / 72
    taken, lines, costs = list[Box](), list[list[float]](), list[float]()
    for point in plane.points:
        start, end = pixels([point.exchanged or point.at, point.at])
        taken += [(*(at - size * reach), *(at + size * reach)) for at, size in ((start, 3), (end, 5))]
        lines += [[*start, *end], *([*pixels(one), *pixels(other)] for one, other in point.bars)]
        costs += [_ARROW, *(_THIN for _ in point.bars)]
    ordered = sorted(plane.points, key=lambda point: not point.front)
    labels = [(point.method, point.at, darker(styles[point.method].colour)) for point in ordered]
    x, y = plane.chance
    if x is not None or y is not None:
        at = (axes.get_xlim()[1] if x is None else x, axes.get_ylim()[1] if y is None else y)
        labels.append(("chance", at, "0.5"))
        (left, bottom, right, top), (across, along) = axes.bbox.extents, pixels(at)
        lines += [] if x is None else [[across, bottom, across, top]]
        lines += [] if y is None else [[left, along, right, along]]
        costs += [_THIN] * (len(lines) - len(costs))
    write_beside(axes, labels, taken=taken, lines=np.array(lines).reshape(-1, 4), costs=np.array(costs))


def _error_bar(area: Estimate) -> Floats | None:
    """Return the lengths (2, 1) of an error bar."""
    if area.value is None or area.interval is None:
        return None
    low, high = area.interval
    return np.maximum([[area.value - low], [high - area.value]], 0.0)
