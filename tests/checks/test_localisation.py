import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from twinlens.checks.localisation import attribution_inside, pointing_game


def random_case(count=40, seed=0):
    generator = np.random.default_rng(seed)
    return generator.random((count, 6, 7)), generator.random((count, 6, 7)) < 0.3


def test_attribution_inside_is_the_share_of_each_sample():
    maps, region = random_case()
    expected = [m[r].sum() / m.sum() for m, r in zip(maps, region, strict=True)]
    result = attribution_inside(maps, region)
    assert np.allclose(result.values, expected)
    assert result.estimate().value == pytest.approx(np.mean(expected))
    assert result.estimate().samples == 40


def test_perfect_and_wrong_maps():
    _, region = random_case()
    assert attribution_inside(region.astype(float), region).values.tolist() == [1.0] * 40
    assert attribution_inside((~region).astype(float), region).values.tolist() == [0.0] * 40
    assert pointing_game((~region).astype(float), region).values.tolist() == [0.0] * 40


@given(st.integers(0, 100), st.floats(1e-3, 1e3))
def test_scale_and_order_change_nothing(seed, factor):
    maps, region = random_case(8, seed)
    order = np.random.default_rng(seed).permutation(8)
    for metric in (attribution_inside, pointing_game):
        values = metric(maps, region).values
        assert np.allclose(metric(maps * factor, region).values, values)
        assert np.array_equal(metric(maps[order], region[order]).values, values[order])


@pytest.mark.parametrize("metric", [attribution_inside, pointing_game])
def test_zero_maps_and_empty_regions_are_undefined_and_counted(metric):
    maps, region = random_case(5)
    maps[1], region[3] = 0, False
    result = metric(maps, region)
    assert np.flatnonzero(np.isnan(result.values)).tolist() == [1, 3]
    assert result.estimate().samples == 3
    assert "5 samples, 2 undefined" in repr(result)
    with pytest.warns(UserWarning, match="`maps` are zero everywhere for all 2 samples"):
        nothing = metric(np.zeros((2, 3)), np.ones((2, 3), dtype=bool))
    with pytest.warns(UserWarning, match="`region` is empty for all 5 samples"):
        metric(random_case(5)[0], np.zeros_like(region))
    assert nothing.estimate().value is None
    assert "–, 2 samples, 2 undefined" in repr(nothing)


def test_pointing_looks_at_the_largest_value():
    maps, region = random_case()
    expected = [float(r.ravel()[m.argmax()]) for m, r in zip(maps, region, strict=True)]
    assert pointing_game(maps, region).values.tolist() == expected
    assert 0 < np.mean(expected) < 1


def test_ties_count_by_their_share():
    region = np.zeros((1, 4, 5), dtype=bool)
    region[0, 0, :3] = True
    assert pointing_game(np.ones((1, 4, 5)), region).values[0] == pytest.approx(3 / 20)


@pytest.mark.parametrize(("tolerance", "hit"), [(0, 0.0), (4.9, 0.0), (5, 1.0), (6, 1.0)])
def test_tolerance_is_a_distance_in_pixels(tolerance, hit):
    maps, region = np.zeros((1, 10, 10)), np.zeros((1, 10, 10), dtype=bool)
    maps[0, 3, 4], region[0, 0, 0] = 1, True  # 5 = √(3² + 4²)
    assert pointing_game(maps, region, tolerance=tolerance).values[0] == hit


def test_tolerance_does_not_fill_an_empty_region():
    with pytest.warns(UserWarning, match="`region` is empty for all 1 samples"):
        empty = pointing_game(np.ones((1, 3, 3)), np.zeros((1, 3, 3), dtype=bool), tolerance=2)
    assert np.isnan(empty.values[0])


def test_maps_go_through_the_usual_checks():
    maps, region = random_case(3)
    with pytest.raises(ValueError, match="`maps` must not be negative"):
        attribution_inside(maps - 0.5, region)
    expected = attribution_inside(maps, region).values
    assert np.array_equal(attribution_inside(-maps, region, sign="absolute").values, expected)
    doubled = torch.from_numpy(np.stack([maps, maps], axis=1))
    assert attribution_inside(doubled, region, channels="sum").values == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"`maps` must have shape \(3, 6, 7\)"):
        pointing_game(maps[:, :5], region)


def test_regions_and_tolerance_are_checked():
    maps, region = random_case(3)
    with pytest.raises(ValueError, match=r"`region` must be boolean .* got torch.float64"):
        attribution_inside(maps, region.astype(float))
    with pytest.raises(ValueError, match="`tolerance` must be a distance >= 0"):
        pointing_game(maps, region, tolerance=-1)
    with pytest.raises(ValueError, match="`ids` must name each of the 3 samples"):
        attribution_inside(maps, region, ids=["a"])
