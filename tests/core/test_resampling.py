import numpy as np
import pytest

from twinlens.core.resampling import band, draw, pointwise


def test_draws_belong_to_ids():
    names = ["b", "a", "d", "c"]
    counts = draw(names, 50, seed=3)
    assert (counts.sum(axis=1) == 4).all()
    other = draw(names[::-1], 50, seed=3)
    assert np.array_equal(counts, other[:, ::-1])
    assert not np.array_equal(counts, draw(names, 50, seed=4))
    with pytest.raises(ValueError, match="`resamples` must be at least 2; got 1"):
        draw(names, 1, seed=0)


def test_bands_of_constant_and_of_undefined_values():
    replicates = np.random.default_rng(0).random((50, 3))
    replicates[:, 1], replicates[:, 2] = 0.5, np.nan
    for whole_curve in (False, True):
        low, high = band(replicates, 0.9, simultaneous=whole_curve)
        assert low[0] < high[0]
        assert low[1] == high[1] == 0.5
        assert np.isnan([low[2], high[2]]).all()
    replicates[::2, 2] = 1.0
    assert np.array_equal(pointwise(replicates, 0.9)[0][2], 1.0)
    with pytest.raises(ValueError, match=r"`confidence` must lie within \(0, 1\), such as 0.95; got 95"):
        pointwise(replicates, 95)
