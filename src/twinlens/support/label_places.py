"""Places for labels beside points: no label covers a point or another label, and few cover a line.

Shapes: B boxes (left, bottom, right, top), K lines (x1, y1, x2, y2), all in pixels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twinlens.support.arrays import Floats

Box = tuple[float, float, float, float]

# Directions from a point, best first.
_SIDES = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
_DISTANCES = (6.0, 13.0, 22.0, 32.0)  # from the point, in points
_TRIALS = 40  # orders in which labels choose
_MISSING = 50.0  # cost of a label without a place
_SIDE, _AWAY, _AMBIGUOUS = (
    0.1,
    0.15,
    4.0,
)  # costs: of each less good side, of each point away, of being nearer to others


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a label is."""

    side: tuple[int, int]
    """Its direction from the point, across and along; also the side of the point that the text is aligned with."""
    offset: tuple[float, float]
    """From the point, in points."""
    box: Box
    cost: float
    """What makes it less good: its distance, lines that it covers, and points of others that are nearer."""

    @property
    def far(self) -> bool:
        """Whether a line should lead to it."""
        return max(map(abs, self.offset)) > _DISTANCES[1]


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    *,
    taken: Sequence[Box],
    lines: Floats,
    costs: Floats,
    within: Box,
    scale: float,
) -> list[Place | None]:
    """Find a place for the label of each point; None for those without room, later ones first.

    Args:
        points: where labels belong.
        sizes: width and height of each label.
        taken: (B, 4) what no label may cover.
        lines: (K, 4) what labels should not cover.
        costs: (K,) how bad it is to cover each line; a step of seven points away from the point costs 1.
        within: the box that holds all labels.
        scale: pixels per point.
    """
    possible = []
    for k, (point, size) in enumerate(zip(points, sizes, strict=True)):
        others = [*points[:k], *points[k + 1 :]]
        places = [
            replace(each, cost=each.cost + _price(each.box, point, others, lines, costs))
            for each in _places(point, size, scale)
            if _inside(each.box, within) and not _covers(each.box, taken)
        ]
        possible.append(sorted(places, key=lambda place: place.cost))
    # Labels choose one after the other. Which of them first matters, and the best of some orders is kept.
    shuffled, orders = random.Random(0), [list(range(len(points)))]
    orders += [shuffled.sample(orders[0], len(points)) for _ in range(_TRIALS)]
    return min((_choose(possible, order) for order in orders), key=_total)


def _choose(possible: Sequence[Sequence[Place]], order: Sequence[int]) -> list[Place | None]:
    """Let labels take their best free places in an order."""
    chosen: list[Place | None] = [None] * len(possible)
    boxes: list[Box] = []
    for k in order:
        chosen[k] = place = next((each for each in possible[k] if not _covers(each.box, boxes)), None)
        boxes += [] if place is None else [place.box]
    return chosen


def _total(places: Sequence[Place | None]) -> float:
    """Return the cost of all places; a missing label costs more than any other place, and the first ones most."""
    earlier = _MISSING / max(len(places), 1)
    return sum(2 * _MISSING - earlier * k if place is None else place.cost for k, place in enumerate(places))


def _places(point: tuple[float, float], size: tuple[float, float], scale: float) -> list[Place]:
    places = []
    for away in _DISTANCES:
        for rank, (across, along) in enumerate(_SIDES):
            shrink = 0.75 if across and along else 1.0
            offset = (across * away * shrink, along * away * shrink)
            left, bottom = (
                at + scale * shift + (side - 1) / 2 * length
                for at, shift, side, length in zip(point, offset, (across, along), size, strict=True)
            )
            cost = _AWAY * (away - _DISTANCES[0]) + _SIDE * rank
            box = (left, bottom, left + size[0], bottom + size[1])
            places.append(Place(side=(across, along), offset=offset, box=box, cost=cost))
    return places


def _price(
    box: Box, point: tuple[float, float], others: Sequence[tuple[float, float]], lines: Floats, costs: Floats
) -> float:
    """Return the cost of covering lines, and of being nearer to another point than to its own."""
    nearest = min((_distance(box, other) for other in others), default=math.inf)
    ambiguous = _AMBIGUOUS if nearest < _distance(box, point) else 0.0
    return ambiguous + float(costs[_crossed(box, lines)].sum())


def _distance(box: Box, point: tuple[float, float]) -> float:
    left, bottom, right, top = box
    x, y = point
    return math.hypot(max(left - x, 0.0, x - right), max(bottom - y, 0.0, y - top))


def _inside(box: Box, frame: Box) -> bool:
    return frame[0] < box[0] and frame[1] < box[1] and box[2] < frame[2] and box[3] < frame[3]


def _covers(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < o[2] and box[2] > o[0] and box[1] < o[3] and box[3] > o[1] for o in others)


def _crossed(box: Box, lines: Floats) -> NDArray[np.bool_]:
    """Return which lines (K,) pass through a box: the part of each that is between all four sides is not empty."""
    start, way = lines[:, :2], lines[:, 2:] - lines[:, :2]
    low, high = np.array(box[:2]), np.array(box[2:])
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.sort([(low - start) / way, (high - start) / way], axis=0)  # (2, K, 2)
    level = way == 0  # along an axis: inside, or never
    within = (start > low) & (start < high)
    enter = np.where(level, np.where(within, -np.inf, np.inf), ends[0]).max(axis=1)
    leave = np.where(level, np.where(within, np.inf, -np.inf), ends[1]).min(axis=1)
    crossed: NDArray[np.bool_] = np.maximum(enter, 0.0) < np.minimum(leave, 1.0)
    return crossed
