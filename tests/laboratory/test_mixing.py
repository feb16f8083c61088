import numpy as np
import pandas as pd
import pytest
import torch

import twinlens as tl
from twinlens.laboratory.mixing import SHARES, blur_maps, describe_selftest, mix_maps, selftest
from twinlens.laboratory.tasks import network, patch, sparse_linear

QUICK = {"resamples": 100}


def arguments(task, maps=None):
    return task.model, task.inputs, task.labels, task.information if maps is None else maps


def test_mixtures_of_maps_scaled_to_the_same_sum():
    maps, others = torch.tensor([[2.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 8.0], [3.0, 1.0]])
    assert mix_maps(maps, others, 0.5).tolist() == [[0.25, 0.75], [0.375, 0.125]]
    assert mix_maps(maps, others, 0).tolist() == [[0.5, 0.5], [0, 0]]
    images = torch.rand(3, 4, 5, generator=torch.manual_seed(0), dtype=torch.float64)
    mixed = mix_maps(images, images.flip(0), 0.25)
    assert torch.allclose(mixed.sum(dim=(1, 2)), torch.ones(3, dtype=torch.float64))


def test_a_blurred_copy_is_smoother_and_keeps_its_place():
    maps = torch.zeros(1, 40, 40)
    maps[0, 20, 10] = 1.0
    blurred = blur_maps(maps)
    assert blurred.argmax() == maps.argmax()
    assert 0 < blurred.max() < 0.2
    assert torch.equal(blur_maps(torch.ones(2, 5, 5)).round(decimals=5), torch.ones(2, 5, 5))


@pytest.fixture(scope="module")
def task():
    return network(50, features=40, planted=6)


def test_metrics_worsen_from_own_to_exchanged_maps(task):
    rows = selftest(
        *arguments(task), imputer=task.imputer, metrics=["soundness_rank", "completeness_share", "insertion"]
    )
    rows = rows.set_index("metric")
    exchanged = tl.probing.exchange_maps(task.information, task.labels)
    for maps, column in ((task.information, "share 0"), (exchanged, "share 1")):
        curve = tl.soundness(*arguments(task, maps), imputer=task.imputer, estimator="rank")
        assert rows.loc["soundness_rank", column] == pytest.approx(curve.area())
    assert (rows.loc[["soundness_rank", "insertion"], "correlation"] >= 0.9).all()
    assert rows.loc["completeness_share", "correlation"] >= 0.5  # a mixture may hold more than either of its parts
    assert (rows["difference_low"] > 0).all()
    assert rows.loc["insertion", "share 0"] < rows.loc["insertion", "share 1"]  # of a loss, less is better
    values = rows.loc["soundness_rank", [f"share {share:g}" for share in SHARES]].to_numpy(dtype=float)
    off = values - ((1 - np.array(SHARES)) * values[0] + np.array(SHARES) * values[-1])
    departure = rows.loc["soundness_rank", ["departure", "departure_low", "departure_high"]].to_numpy(dtype=float)
    assert departure[0] == pytest.approx(off[np.argmax(np.abs(off))])
    assert departure[1] < departure[0] < departure[2]
    assert rows["linear"].tolist() == [True, False, False]
    assert rows["blurred"].isna().all()  # rows of a table have no neighbours


def test_maps_that_say_nothing_about_the_input_are_not_judged(task):
    maps = torch.rand(task.information.shape, generator=torch.manual_seed(3))
    rows = selftest(*arguments(task, maps), imputer=task.imputer, metrics=["soundness_rank"], **QUICK)
    assert rows["difference_low"][0] < 0
    assert describe_selftest(rows)["soundness_rank"] == (
        "soundness_rank is not judged: own maps do not score clearly better than exchanged ones."
    )


def test_a_metric_that_never_changes_has_no_correlation(task):
    rows = selftest(*arguments(task, np.ones_like(task.information)), imputer=task.imputer, metrics=["soundness_rank"],
                    **QUICK)  # fmt: skip
    assert np.isnan(rows["correlation"][0])
    assert rows["share 0.5"][0] == pytest.approx(0.5)


def test_soundness_by_accuracy_has_no_interval_and_is_not_judged():
    task = sparse_linear(30, features=40)
    rows = selftest(*arguments(task), imputer=task.imputer, metrics={"mine": tl.Soundness(levels=(0.9, 0.6, 0.3))},
                    **QUICK)  # fmt: skip
    assert rows["metric"].tolist() == ["mine"]
    assert np.isnan(rows["departure_low"][0])
    assert np.isfinite(rows["departure"][0])
    assert describe_selftest(rows)["mine"] == "mine is not judged: it has no intervals."


def test_images_use_the_imputers_of_each_metric_and_have_a_blurred_copy():
    task = patch(8, side=18, patch=4)
    options = {"performance": "probability"}
    metrics = ["road_morf", "deletion", "soundness_rank"]
    rows = selftest(
        *arguments(task, task.information[:, None]), metrics=metrics, shares=(0, 0.5, 1), **options, **QUICK
    )
    rows = rows.set_index("metric")
    mixed = mix_maps(*(torch.from_numpy(each) for each in (task.information, task.information)), 0.0)
    assert rows.loc["deletion", "share 0"] == pytest.approx(tl.deletion(*arguments(task, mixed), **options).area())
    road = tl.road(*arguments(task, mixed), **options).area()
    assert rows.loc["road_morf", "share 0"] == pytest.approx(road)
    assert rows.loc["road_morf", "share 0"] != rows.loc["deletion", "share 0"]
    blurred = tl.road(*arguments(task, blur_maps(torch.from_numpy(task.information))), **options).area()
    assert rows.loc["road_morf", "blurred"] == pytest.approx(blurred - road)


def test_on_tabular_rows_every_metric_has_the_imputer_that_was_given():
    task, imputer = sparse_linear(30, features=40), tl.ConstantImputer(-1.0)
    rows = selftest(*arguments(task), imputer=imputer, metrics=["insertion"], **QUICK)
    assert rows["share 0"][0] == pytest.approx(tl.insertion(*arguments(task), imputer=imputer).area())
    assert rows["share 0"][0] != pytest.approx(tl.insertion(*arguments(task), imputer=tl.ConstantImputer(0.0)).area())


@pytest.mark.parametrize("shares", [(0.0, 1.0), (0.1, 0.5, 1.0), (0.0, 0.7, 0.5, 1.0), (0.0, 50.0, 100.0)])
def test_shares_are_refused(task, shares):
    with pytest.raises(ValueError, match="`shares` must increase from 0 to 1, with at least one between; got"):
        selftest(*arguments(task), shares=shares, imputer=task.imputer)


def test_verdicts_name_what_counts():
    row = {"metric": "m", "correlation": 1.0, "difference": 0.2, "difference_low": 0.1, "linear": True,
           "departure": -0.02, "blurred": 0.1, "blurred_low": 0.05}  # fmt: skip
    rows = pd.DataFrame([row | {"method": "a"}, row | {"method": "b", "correlation": 0.7, "blurred_low": -0.1}])
    assert describe_selftest(rows)["m"] == (
        "m fails: it worsens steadily from own to exchanged maps for 1 of 2 methods, at most 0.020 off the straight "
        "line on which the truth lies. Blurred copies of a score higher than the maps."
    )
    alone = pd.DataFrame([row | {"correlation": 0.2, "linear": False, "blurred": np.nan, "blurred_low": np.nan}])
    assert describe_selftest(alone)["m"] == "m fails: it does not worsen steadily from own to exchanged maps."
