"""The soundness–completeness plane as values, which figures, notebooks and the page draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twinlens.report.styles import MARKERS, MethodStyle
from twinlens.run.results import Results
from twinlens.run.wording import name_of
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import draw_arrow, draw_chance, marker_fill, place_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    def exchanged(self) -> tuple[float, float] | None:
        """Both areas with exchanged maps, where the arrow starts; None where one of them is unknown."""
        values = [side.control.value for side in self.sides if side.control and side.control.value is not None]
        return (values[0], values[1]) if len(values) == 2 else None


@dataclass(frozen=True, kw_only=True)
class Plane:
    """All methods of a run that have both areas, best first."""

    metrics: tuple[str, str]
    titles: tuple[str, str]
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
    return Plane(metrics=(across, along), titles=titles, chance=chance, points=tuple(points))


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
    axes.set_xlabel(plane.titles[0])
    axes.set_ylabel(plane.titles[1])


def label_points(axes: Axes, plane: Plane) -> list[str]:
    """Write names next to points, and "chance" where its lines cross; return the methods whose names have no room."""
    figure = axes.figure.canvas.figure
    figure.draw_without_rendering()  # lays it out
    pixels, reach, limits = axes.transData.transform, figure.dpi / 72, (axes.get_xlim(), axes.get_ylim())
    taken, lines = list[list[float]](), list[Floats]()
    for point in plane.points:
        ends = np.array([point.exchanged or point.at, point.at])
        taken += [[*(at - size), *(at + size)] for at, size in zip(pixels(ends), (3 * reach, 5 * reach), strict=True)]
        lines += [np.array([at, at]) for at in np.linspace(ends[0], ends[1], 20)]
        lines += [_line(point.at, k, side.area.interval) for k, side in enumerate(point.sides) if side.area.interval]
    x, y = (limit[1] if level is None else level for level, limit in zip(plane.chance, limits, strict=True))
    lines += [_line((x, y), 1 - k, limits[1 - k]) for k, level in enumerate(plane.chance) if level is not None]
    boxes = pixels(np.reshape(lines, (-1, 2))).reshape(-1, 4).tolist()

    def write(text: str, at: tuple[float, float], colour: str) -> bool:
        # A name over a line is better than none.
        return any(place_label(axes, text, at, taken, more, colour) for more in (boxes, []))

    first = sorted(plane.points, key=lambda point: not point.front)
    missing = [p.method for p in first if not write(p.method, p.at, "0.4" if p.baseline else "0.1")]
    if plane.chance != (None, None):
        write("chance", (x, y), "0.5")
    return missing


def _line(at: tuple[float, float], axis: int, ends: tuple[float, float]) -> Floats:
    """Return a line (2, 2) through a point along an axis."""
    line = np.array([at, at])
    line[:, axis] = ends
    return line


def _error_bar(area: Estimate) -> Floats | None:
    """Return the lengths (2, 1) of an error bar."""
    if area.value is None or area.interval is None:
        return None
    low, high = area.interval
    return np.maximum([[area.value - low], [high - area.value]], 0.0)
