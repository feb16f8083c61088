import numpy as np
import pytest
import torch

from tests.reference import impute_linear
from twinlens.imputation.linear_system import assemble, interpolate, neighbours, solve_direct


def random_case(shape, share, seed=0, channels=2):
    rng = np.random.default_rng(seed)
    keep = rng.random(shape) >= share
    keep.flat[rng.integers(keep.size)] = True
    return rng.normal(size=(channels, *shape)), keep


def test_weights_are_those_of_the_paper():
    plane = dict(neighbours(2))
    assert sum(plane.values()) == 12
    assert plane[0, 1] / 12 == pytest.approx(1 / 6)
    assert plane[1, 1] / 12 == pytest.approx(1 / 12)
    assert sum(dict(neighbours(3)).values()) == 56
    matrix = assemble((3, 4)).toarray()
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix.sum(axis=1), np.zeros(12))


@pytest.mark.parametrize("shape", [(1,), (2,), (17,), (1, 1), (1, 9), (6, 7), (2, 3, 4)])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_the_direct_solution_is_that_of_the_definition(shape, share):
    values, keep = random_case(shape, share)
    assert np.allclose(solve_direct(values, keep), impute_linear(values, np.flatnonzero(keep)), atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_along_one_axis_the_solution_is_a_line(length, share):
    cases = [random_case((length,), share, seed=seed) for seed in range(5)]
    values, keep = (np.stack(each) for each in zip(*cases, strict=True))
    found = interpolate(torch.from_numpy(values), torch.from_numpy(keep)).numpy()
    for filled, (signal, kept) in zip(found, cases, strict=True):
        assert np.allclose(filled, solve_direct(signal, kept), rtol=0, atol=1e-13)
        there = np.flatnonzero(kept)
        for channel, given in zip(filled, signal, strict=True):
            assert np.allclose(channel, np.interp(np.arange(length), there, given[there]), rtol=0, atol=1e-13)
