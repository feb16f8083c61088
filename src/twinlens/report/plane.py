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
    """Both areas by chance, where the metric knows them."""
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
    pixels, reach = axes.transData.transform, figure.dpi / 72
    taken, lines = list[list[float]](), list[list[float]]()
    for point in plane.points:
        start, end = np.array(pixels([point.exchanged or point.at, point.at]))
        taken += [[*(at - size * reach), *(at + size * reach)] for at, size in ((start, 3), (end, 5))]
        lines += [[*at, *at] for at in np.linspace(start, end, 20)]
        (x, y), (across, along) = point.at, (side.area.interval for side in point.sides)
        lines += [pixels([(low, y), (high, y)]).ravel().tolist() for low, high in ([across] if across else [])]
        lines += [pixels([(x, low), (x, high)]).ravel().tolist() for low, high in ([along] if along else [])]
    (left, right), (bottom, top), (x_chance, y_chance) = axes.get_xlim(), axes.get_ylim(), plane.chance
    if x_chance is not None and y_chance is not None:
        cross = [(x_chance, bottom), (x_chance, top)], [(left, y_chance), (right, y_chance)]
        lines += [pixels(line).ravel().tolist() for line in cross]
    missing = []
    for point in sorted(plane.points, key=lambda point: not point.front):
        colour = "0.4" if point.baseline else "0.1"
        # A name over a line is better than none.
        if not any(place_label(axes, point.method, point.at, taken, more, colour) for more in (lines, [])):
            missing.append(point.method)
    if x_chance is not None and y_chance is not None:
        place_label(axes, "chance", (x_chance, y_chance), taken, lines, "0.5")
    return missing


def _error_bar(area: Estimate) -> Floats | None:
    """Return the lengths (2, 1) of an error bar."""
    if area.value is None or area.interval is None:
        return None
    low, high = area.interval
    return np.maximum([[area.value - low], [high - area.value]], 0.0)
