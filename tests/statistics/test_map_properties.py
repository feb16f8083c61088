"""Sparseness and entropy of maps, against their definitions."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import twinlens as tl
from twinlens.statistics.map_properties import MAP_PROPERTIES

MAPS = arrays(np.float64, (3, 7), elements=st.floats(0, 1000, allow_subnormal=False))


def gini_by_definition(values):
    """Half the mean absolute difference of all pairs of features, relative to the mean."""
    differences = [abs(a - b) for a, b in itertools.product(values, repeat=2)]
    return sum(differences) / len(differences) / 2 / (sum(values) / len(values))


def entropy_by_definition(values):
    shares = [value / sum(values) for value in values]
    return -sum(share * math.log(share) for share in shares if share > 0) / math.log(len(values))


@given(MAPS)
def test_both_are_what_their_definitions_say(maps):
    for found, definition in (
        (tl.statistics.sparseness, gini_by_definition),
        (tl.statistics.map_entropy, entropy_by_definition),
    ):
        for value, own in zip(found(maps), maps, strict=True):
            if own.max() == 0:
                assert np.isnan(value)
            elif own.min() > 1e-9 or own.max() < 1e3:
                assert value == pytest.approx(definition(own), abs=1e-9)


@given(MAPS, st.floats(1e-3, 1e3))
def test_a_scaled_or_shuffled_map_is_as_sparse(maps, scale):
    for measure in MAP_PROPERTIES.values():
        first = measure(torch.from_numpy(maps))
        again = measure(torch.from_numpy(maps[:, ::-1] * scale))
        assert np.allclose(first, again, equal_nan=True, atol=1e-9)


def test_sparseness_is_that_of_quantus():
    metric = pytest.importorskip("quantus").Sparseness(disable_warnings=True)
    maps = torch.rand(5, 6, 6, generator=torch.Generator().manual_seed(0)) ** 4
    theirs = metric.evaluate_batch(x_batch=maps.numpy(), a_batch=maps.numpy())
    assert tl.statistics.sparseness(maps) == pytest.approx(theirs, abs=1e-6)


def test_extremes():
    even, single = np.ones((1, 5, 5)), np.eye(25)[:1].reshape(1, 5, 5)
    assert tl.statistics.sparseness(even) == pytest.approx([0])
    assert tl.statistics.sparseness(single) == pytest.approx([1 - 1 / 25])
    assert tl.statistics.map_entropy(even) == pytest.approx([1])
    assert tl.statistics.map_entropy(single) == pytest.approx([0])
    assert tl.statistics.map_entropy(np.ones((1, 1))) == pytest.approx([0])  # a single feature has no choice


def test_maps_are_read_as_everywhere():
    with pytest.raises(ValueError, match="`maps` must not be negative; the map of sample '1'"):
        tl.statistics.sparseness([[1.0, 2.0], [1.0, -2.0]])
    assert tl.statistics.sparseness([[1.0, -3.0]], sign="absolute") == pytest.approx([0.25])
    with pytest.raises(ValueError, match=r"`maps` must be \(samples, \*spatial\)"):
        tl.statistics.map_entropy([1.0, 2.0])
    coloured = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    assert tl.statistics.sparseness(coloured, channels="sum") == pytest.approx(
        tl.statistics.sparseness(coloured.sum(dim=1))
    )
