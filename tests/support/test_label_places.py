"""Labels beside points."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.support.label_places import _crossed, place_labels

NONE = np.empty((0, 4))


def placed(points, sizes=None, *, taken=(), lines=NONE, costs=None, within=(0, 0, 400, 300)):
    sizes = sizes or [(60, 10)] * len(points)
    costs = np.ones(len(lines)) if costs is None else costs
    return place_labels(points, sizes, taken=taken, lines=lines, costs=costs, within=within, scale=1.0)


def test_a_label_is_above_its_point_where_there_is_room():
    [place] = placed([(200, 150)])
    assert place.side == (0, 1)
    assert place.box == (170, 156, 230, 166)
    assert not place.far


def test_labels_avoid_the_edge_boxes_and_lines():
    [right] = placed([(5, 150)])
    assert right.side[0] == 1
    [below] = placed([(200, 150)], taken=[(160, 151, 240, 200)])
    assert below.side == (0, -1)
    line = np.array([[150.0, 161.0, 250.0, 161.0]])
    [aside] = placed([(200, 150)], lines=line)
    assert not _crossed(aside.box, line).any()
    [across] = placed([(200, 150)], lines=line, costs=np.array([0.0]))
    assert across.side == (0, 1)
    assert placed([(200, 150)], taken=[(0, 0, 400, 300)]) == [None]


def test_a_label_is_nearer_to_its_own_point_than_to_others():
    points = [(200.0, 150.0), (200.0, 162.0)]
    low, high = placed(points, taken=[(197, 147, 203, 153), (197, 159, 203, 165)])
    assert low.box[3] < high.box[1]


def test_where_not_all_have_room_the_first_stays():
    first, second = placed([(30, 10), (31, 10)], within=(-2, 0, 64, 28))
    assert first is not None
    assert second is None


coordinates = st.tuples(st.floats(0, 400), st.floats(0, 300))


@given(st.lists(coordinates, min_size=1, max_size=9))
def test_no_two_labels_overlap_and_none_is_outside(points):
    boxes = [place.box for place in placed(points) if place is not None]
    for one, other in itertools.combinations(boxes, 2):
        assert one[0] >= other[2] or one[2] <= other[0] or one[1] >= other[3] or one[3] <= other[1]
    for left, bottom, right, top in boxes:
        assert 0 < left < right < 400
        assert 0 < bottom < top < 300


@pytest.mark.parametrize(
    ("line", "through"),
    [
        ((0, 0, 10, 10), True),
        ((0, 5, 10, 5), True),
        ((5, 0, 5, 10), True),
        ((0, 0, 3, 3), False),  # ends before it
        ((0, 7, 10, 7), False),
        ((0, 5, 5, 11), False),  # past a corner
        ((5, 5, 5, 5), True),  # a point inside
        ((9, 9, 9, 9), False),
    ],
)
def test_lines_that_pass_through_a_box_are_found(line, through):
    assert _crossed((4, 4, 6, 6), np.array([line], dtype=float)).tolist() == [through]
