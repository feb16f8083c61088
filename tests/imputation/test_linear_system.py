import numpy as np
import pytest

from tests.reference import impute_linear
from twinlens.imputation.linear_system import assemble, neighbours, solve_direct


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
