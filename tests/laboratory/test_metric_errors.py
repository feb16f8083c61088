import numpy as np
import pandas as pd
import pytest

import twinlens as tl
from twinlens.laboratory import metric_errors, rank_correlations, true_completeness, true_soundness_curve
from twinlens.laboratory.metric_errors import ESTIMATORS
from twinlens.laboratory.tasks import TASKS, interaction, map_grid, network, sparse_linear

OURS = {name: ESTIMATORS[name] for name in ("soundness", "completeness", "calibration")}


@pytest.fixture(scope="module")
def errors():
    return metric_errors(sparse_linear(60, seed=5), seed=5)


def test_every_map_is_measured_by_every_metric(errors):
    assert len(errors) == 9 * len(ESTIMATORS)
    calls = errors.groupby("metric")["calls"].max()
    assert calls["soundness"] == calls["completeness"] == calls["calibration"] == 38
    assert calls["soundness, paper, accuracy"] == 98
    assert errors[errors["metric"] == "ROAD"]["error"].isna().all()
    assert errors["value"].notna().all()


def test_values_and_truths_are_those_of_the_functions():
    task = sparse_linear(20, features=40)
    maps = map_grid(task)["introduced 0.5"]
    rows = metric_errors(
        task, metrics={"sound": "soundness", "complete": "completeness", "share": "completeness_share"}
    )
    row = rows[rows["map"] == "introduced 0.5"].set_index("metric")
    arguments = (task.model, task.inputs, task.labels, maps)
    curve = tl.soundness(*arguments, imputer=task.imputer)
    true = np.nanmean(true_soundness_curve(maps, task.predictive, curve.table), axis=0)
    assert row.loc["sound", "error"] == pytest.approx(np.abs(curve.values - true).mean())
    complete = tl.completeness(*arguments, imputer=task.imputer)
    assert row.loc["complete", "value"] == pytest.approx(complete.area())
    above = [true_completeness(maps, task.information, threshold).mean() for threshold in complete.levels]
    assert row.loc["complete", "truth"] == pytest.approx(np.mean(above))
    share = tl.completeness(*arguments, imputer=task.imputer, estimator="share")
    assert row.loc["share", "value"] == pytest.approx(share.area())


def test_steps_of_single_features_are_exact_but_for_the_third_class():
    """Log-odds are not quite the score of the task: "undecided" takes part of the probability."""
    rows = metric_errors(sparse_linear(20, features=20), metrics=OURS)
    assert rows["error"].max() < 0.02
    assert (rows["value"] - rows["truth"]).abs().max() < 0.02


def test_the_metrics_without_a_threshold_are_nearer_to_the_truth(errors):
    error = errors.groupby("metric")["error"].mean()
    assert error["soundness"] < 0.06
    assert error["completeness"] < 0.03
    assert error["calibration"] < 0.03
    assert error["soundness"] < error[[name for name in error.index if name.startswith("soundness, ")]].min() / 2
    pairs = rank_correlations(errors).set_index("metric")["pairs"]
    assert pairs["soundness"] > 0.8
    assert pairs["completeness"] > 0.9 > pairs["ROAD"]


def test_ties_of_the_truth_do_not_count():
    rows = {"task": "t", "metric": "m", "truth": [0.5, 0.505, 0.6, 0.7], "value": [0.9, 0.1, 0.6, 0.7]}
    found = rank_correlations(pd.DataFrame(rows)).iloc[0]
    # Of five pairs that differ, the first map is in the wrong order with two.
    assert found["pairs"] == pytest.approx(1 / 5)
    assert found["spearman"] == pytest.approx(-0.2)
    same = pd.DataFrame({"task": "t", "metric": "m", "truth": [0.5, 0.501], "value": [0.1, 0.2]})
    assert np.isnan(rank_correlations(same).iloc[0]["pairs"])


@pytest.mark.slow
def test_errors_with_other_seeds_and_tasks():
    """With seeds and tasks that were not used to choose anything."""
    new = {name: make(100, seed=61) for name, make in TASKS.items()}
    new |= {"deep": network(100, depth=2, seed=61), "triples": interaction(100, groups=30, partners=3, seed=61)}
    rows = pd.concat([metric_errors(task, metrics=OURS, seed=61).assign(task=name) for name, task in new.items()])
    error = (
        rows.assign(area=(rows["value"] - rows["truth"]).abs()).groupby(["metric", "task"])[["error", "area"]].mean()
    )
    for metric in ("soundness", "completeness"):
        assert (error.loc[metric].max() <= 0.08).all()
        assert (error.loc[metric].mean() <= 0.05).all()
    correlations = rank_correlations(rows).set_index(["metric", "task"])
    assert correlations.loc["completeness", "spearman"].min() >= 0.85
    assert correlations.loc["soundness", "pairs"].min() >= 0.85
