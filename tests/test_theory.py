"""Maps whose true soundness and completeness are known, because the model is linear and half of its weights are zero.

The predictive features are those with a weight; the information of a feature is its contribution to the right class.
Removing attribution costs completeness and no soundness; introducing it on features without a weight costs soundness
and no completeness.
"""

import numpy as np
import pytest
import torch

import twinlens as tl

SAMPLES, FEATURES = 300, 200
ONE_BY_ONE = tuple(k / FEATURES for k in range(FEATURES - 1, -1, -1))
ZERO = tl.ConstantImputer(0.0)  # the mean of every feature


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=FEATURES)
    weights[FEATURES // 2 :] = 0
    inputs = rng.normal(size=(SAMPLES, FEATURES))
    labels = (inputs @ weights > 0).astype(int)
    truth = np.clip(np.where(labels == 1, 1, -1)[:, None] * inputs * weights, 0, None)
    maps = {"truth": truth}
    for share in (0.25, 0.5, 0.75):
        maps[f"removed {share}"] = truth * (rng.random(truth.shape) >= share)
    for strength in (0.25, 0.5, 1.0):
        added = strength * truth.max(axis=1, keepdims=True) * rng.random(truth.shape) * (weights == 0)
        maps[f"introduced {strength}"] = truth + added
    soundness = {k: (m[:, weights != 0].sum(axis=1) / m.sum(axis=1)).mean() for k, m in maps.items()}
    complete = {k: ((truth * (m > 0)).sum(axis=1) / truth.sum(axis=1)).mean() for k, m in maps.items()}
    return torch.from_numpy(weights), torch.from_numpy(inputs), labels, maps, soundness, complete


def two_classes(weights, scale=1.0):
    def model(x):
        score = scale * (x @ weights)
        return torch.stack([-score, score], dim=1)

    return model


def test_score_mode_one_feature_at_a_time_finds_the_true_soundness(case):
    weights, inputs, labels, maps, true, _ = case
    model = two_classes(weights, scale=0.02)  # flat enough that no probability is rounded to 1
    for name, values in maps.items():
        curve = tl.soundness(model, inputs, labels, values, levels=ONE_BY_ONE, performance="probability",
                             epsilon=1e-9, imputer=ZERO)  # fmt: skip
        assert curve.values[-1] == pytest.approx(true[name], abs=1e-9), name


def test_completeness_orders_the_maps_as_the_truth_does(case):
    weights, inputs, labels, maps, _, true = case
    area = {k: tl.completeness(two_classes(weights), inputs, labels, m, imputer=ZERO).area() for k, m in maps.items()}
    falling = ["truth", "removed 0.25", "removed 0.5", "removed 0.75"]
    assert sorted(falling, key=true.get, reverse=True) == falling
    assert sorted(falling, key=area.get, reverse=True) == falling
    for strength in (0.25, 0.5, 1.0):
        assert true[f"introduced {strength}"] == pytest.approx(1.0)
        assert area[f"introduced {strength}"] == pytest.approx(area["truth"])


def test_accuracy_mode_sees_strong_false_attribution(case):
    """A third class wins until there is evidence enough, so that accuracy grows with what is kept."""
    weights, inputs, labels, maps, _, _ = case

    def model(x):
        score = x @ weights
        return torch.stack([-score, score, torch.full_like(score, 8.0)], dim=1)

    curves = {k: tl.soundness(model, inputs, labels, maps[k], imputer=ZERO) for k in ("truth", "introduced 1.0")}
    assert curves["truth"].area(0, 0.9) == 1.0
    assert curves["introduced 1.0"].area(0, 0.9) < 0.9
