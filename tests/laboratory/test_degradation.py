import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory.degradation import LEVELS, degrade, rank_degraded, selftest
from twinlens.laboratory.tasks import linear, map_grid, network, patch, sparse_linear


def test_degraded_maps_are_nested_and_belong_to_ids():
    maps = torch.rand(3, 6, 7, generator=torch.manual_seed(0)) + 1
    little, much = (degrade(maps, share, ids=["a", "b", "c"], seed=2) for share in (0.25, 0.75))
    assert torch.equal(degrade(maps, 0.0), maps)
    touched = little != maps
    assert touched.flatten(1).sum(1).tolist() == [round(0.25 * 42)] * 3
    assert not torch.equal(touched[0], touched[1])
    assert torch.equal(much[touched], little[touched])
    assert bool((much.flatten(1).amax(1) <= maps.flatten(1).amax(1)).all())
    assert not (degrade(maps, 1.0) == maps).any()
    shuffled = degrade(maps[[2, 0]], 0.25, ids=["c", "a"], seed=2)
    assert torch.equal(shuffled, little[[2, 0]])
    assert not torch.equal(degrade(maps, 0.25, ids=["a", "b", "c"], seed=3), little)
    with pytest.raises(ValueError, match=r"`share` must lie within \[0, 1\]; got 20"):
        degrade(maps, 20)
    with pytest.raises(ValueError, match="`maps` must not be negative"):
        degrade(-maps, 0.2)


def test_metrics_rank_degraded_maps():
    task = network(50, features=30, planted=6)
    result = selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer).set_index("metric")
    assert set(result.index) == {
        "soundness",
        "soundness_rank",
        "completeness",
        "road_morf",
        "deletion",
        "insertion",
    }
    assert result.loc["soundness_rank", "correlation"] > 0.9
    two = tl.soundness(task.model, task.inputs, task.labels, task.information, imputer=task.imputer, levels=LEVELS,
                       estimator="rank")  # fmt: skip
    # Over its levels, whatever the others reach, and in steps as they were measured.
    assert result.loc["soundness_rank", "share 0"] == two.in_steps().area()
    assert result.loc["road_morf", "correlation"] > 0.9
    assert result.loc["insertion", "correlation"] > 0.9
    assert result.loc["insertion", "share 0"] < result.loc["insertion", "share 1"]  # of a loss, less is better
    upside_down = selftest(task.model, task.inputs, task.labels, map_grid(task)["inverted"], imputer=task.imputer,
                           shares=(0.0, 0.5, 1.0)).set_index("metric")  # fmt: skip
    assert upside_down.loc["road_morf", "correlation"] < 0


def test_a_metric_that_never_changes_has_no_correlation():
    task = linear(10, features=40)
    curve = tl.completeness(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
    result = rank_degraded({"completeness": {0.0: curve, 0.5: curve}})
    assert np.isnan(result["correlation"][0])
    assert result["share 0.5"][0] == curve.area()


def test_selftest_on_images_uses_the_imputers_of_each_metric():
    task = patch(8, side=18, patch=4)
    maps = task.information[:, None]
    options = {"performance": "probability"}
    result = selftest(task.model, task.inputs, task.labels, maps, shares=(0.0, 1.0), levels=(0.9, 0.6, 0.3), **options)
    assert result.set_index("metric").loc["road_morf", "correlation"] == pytest.approx(1.0)
    areas = result.set_index("metric")["share 0"]
    arguments = (task.model, task.inputs, task.labels, task.information)
    assert areas["deletion"] == tl.deletion(*arguments, **options).area()
    assert areas["insertion"] == tl.insertion(*arguments, **options).area()
    assert areas["road_morf"] == tl.road(*arguments, **options).area()
    assert areas["road_morf"] != areas["deletion"]


def test_on_tabular_rows_every_metric_has_the_imputer_that_was_given():
    task, imputer = sparse_linear(30, features=40), tl.ConstantImputer(-1.0)
    result = selftest(task.model, task.inputs, task.labels, task.information, shares=(0.0, 1.0), imputer=imputer)
    areas = result.set_index("metric")["share 0"]
    arguments = (task.model, task.inputs, task.labels, task.information)
    assert areas["deletion"] == tl.deletion(*arguments, imputer=imputer).area()
    assert areas["insertion"] == tl.insertion(*arguments, imputer=imputer).area()
    assert areas["insertion"] != tl.insertion(*arguments, imputer=tl.ConstantImputer(0.0)).area()


def test_metrics_may_be_values_with_names_of_their_own():
    task = sparse_linear(30, features=40)
    metrics = {"strict": tl.Soundness(epsilon=0.2), "ROAD": "road_lerf"}
    result = selftest(task.model, task.inputs, task.labels, task.information, shares=(0.0, 1.0), imputer=task.imputer,
                      metrics=metrics).set_index("metric")  # fmt: skip
    assert list(result.index) == ["strict", "ROAD"]
    expected = tl.road(task.model, task.inputs, task.labels, task.information, order="lerf", imputer=task.imputer)
    assert result.loc["ROAD", "share 0"] == expected.area()
