"""Parity with the slow reference, on numbers that are stored beside the tests."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.golden_set import EPSILON, FILE, LEVELS, SHARES, START, THRESHOLDS, make_case, make_curves

IMPUTER = tl.LinearImputer(noise=0.0)


@pytest.fixture(scope="module")
def stored():
    return json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def case(stored):
    weights = torch.tensor(stored["weights"], dtype=torch.float64)
    inputs, maps = (torch.tensor(stored[name], dtype=torch.float64) for name in ("inputs", "maps"))
    return lambda x: x.flatten(1) @ weights, inputs, stored["labels"], maps.reshape(-1, 6, 6)


@pytest.mark.parametrize("mode", ["accuracy", "score", "probability"])
@pytest.mark.parametrize("protocol", ["paper", "soco"])
def test_soundness(stored, case, protocol, mode):
    curve = tl.soundness(*case, levels=LEVELS, epsilon=EPSILON, performance=mode, protocol=protocol, imputer=IMPUTER)
    performance, values = np.array(stored["curves"][f"{protocol} soundness {mode}"]).T
    np.testing.assert_allclose(curve.performance, performance, atol=1e-5)
    np.testing.assert_allclose(curve.values, values, atol=1e-5)


def test_soundness_from_another_start(stored, case):
    late = dataclasses.replace(tl.metrics.PROTOCOLS["soco"], start_level=START)
    curve = tl.soundness(*case, levels=LEVELS, epsilon=EPSILON, protocol=late, imputer=IMPUTER)
    _, values = np.array(stored["curves"][f"soco soundness from {START}"]).T
    np.testing.assert_allclose(curve.values, values, atol=1e-5)
    assert np.abs(values - np.array(stored["curves"]["soco soundness accuracy"])[:, 1]).max() > 0.01


@pytest.mark.parametrize("protocol", ["paper", "soco"])
def test_losses(stored, case, protocol):
    curve = tl.completeness(*case, thresholds=THRESHOLDS, protocol=protocol, imputer=IMPUTER)
    np.testing.assert_allclose(curve.values, stored["curves"][f"{protocol} completeness"], atol=1e-12)
    for order in ("morf", "lerf"):
        curve = tl.road(*case, levels=SHARES, order=order, protocol=protocol, imputer=IMPUTER)
        np.testing.assert_allclose(curve.values, stored["curves"][f"{protocol} road {order}"], atol=1e-12)
    curve = tl.deletion(*case, levels=SHARES, protocol=protocol)
    np.testing.assert_allclose(curve.values, stored["curves"][f"{protocol} deletion"], atol=1e-12)


def test_the_set_is_what_the_reference_gives(stored):
    case = make_case()
    for name, array in zip(("inputs", "weights", "labels", "maps"), case, strict=True):
        np.testing.assert_array_equal(stored[name], array)
    again = make_curves(*case)
    assert again.keys() == stored["curves"].keys()
    for name, curve in again.items():
        np.testing.assert_allclose(curve, stored["curves"][name], atol=1e-12)


def test_the_curves_are_worth_comparing(stored):
    """No curve is flat, none equals another, and the two protocols differ."""
    curves = {name: np.array(curve) for name, curve in stored["curves"].items()}
    assert all(np.ptp(curve.reshape(len(curve), -1)[:, -1]) > 0.05 for curve in curves.values())
    for mode in ("accuracy", "score"):
        assert np.abs(curves[f"paper soundness {mode}"] - curves[f"soco soundness {mode}"]).max() > 0.01
