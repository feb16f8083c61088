import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from twinlens.laboratory import true_steps
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.probing.ranking import rank_features

TASK = sparse_linear(6, features=30)


def test_the_true_rank_is_the_percentile_of_the_effect_weighted_by_attribution():
    for maps in map_grid(TASK).values():
        percentile = (rankdata(TASK.effects, axis=1) - 1) / 29  # half of the unused features count as less
        weighted = (maps * percentile).sum(axis=1) / maps.sum(axis=1)
        assert true_steps(maps, TASK.effects).soundness()[:, -1] == pytest.approx(weighted)


def test_true_completeness_follows_the_order_of_the_map():
    maps = map_grid(TASK)["removed 0.5"]
    exact = true_steps(maps, TASK.effects, ids=list("abcdef"), seed=3)
    rank = rank_features(torch.from_numpy(maps), ids=list("abcdef"), seed=3).rank.numpy()
    for sample in range(6):
        for count in (1, 7, 30):
            first = rank[sample] >= 30 - count
            share = TASK.information[sample][first].sum() / TASK.information[sample].sum()
            assert exact.completeness()[sample, count - 1] == pytest.approx(share)
    assert exact.kept()[0, 6] == pytest.approx(7 / 30)


def test_the_truth_is_calibrated_and_other_maps_are_not():
    shares = np.linspace(0.1, 1, 10)
    assert true_steps(TASK.information, TASK.effects).calibration(shares) == pytest.approx(0, abs=1e-12)
    assert true_steps(map_grid(TASK)["introduced 1"], TASK.effects).calibration(shares).mean() > 0.1


def test_a_map_of_zeros_and_effects_of_another_shape():
    maps = TASK.information.copy()
    maps[2] = 0
    assert np.isnan(true_steps(maps, TASK.effects).soundness()[:, -1]).tolist() == [False, False, True] + [False] * 3
    with pytest.raises(ValueError, match=r"`effects` must have the shape \(6, 30\) of the maps, or \(30,\); got"):
        true_steps(maps, TASK.effects[:, :5])
