"""The results of a run: values, controls and skill add up, in every view of them."""

import json

import numpy as np
import pytest

import twinlens as tl
from tests.small_runs import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate

METRICS = ["soundness_rank", "completeness_share", "calibration", "road_morf", "road_lerf", "completeness"]


@pytest.fixture(scope="module", params=[0.5, 1.0])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis") / "run"
    return evaluate(
        tiny_model(), samples(24), ["saliency", "random"], metrics=METRICS, control_share=request.param, out=folder,
        **OPTIONS,
    )  # fmt: skip


def test_value_and_control_differ_by_the_skill(run):
    """Also where the control was measured on half of the samples; less is better by calibration and ROAD's second."""
    frame = run.summary()
    sign = np.where(frame["metric"].isin(["calibration", "road_lerf"]), -1, 1)
    assert len(frame) == 2 * len(METRICS)
    np.testing.assert_allclose(sign * (frame["value"] - frame["control"]), frame["skill"], atol=1e-12)
    headline = frame[frame["metric"].isin(["soundness_rank", "completeness_share", "calibration"])]
    for column in ("value", "control", "low", "high"):
        assert headline[column].between(0, 1).all()
    share = run.results.settings.control_share
    assert {run.results.skill(m, "soundness_rank").samples for m in run.methods} == {24 * share}


def test_all_views_have_the_same_numbers(run):
    frame = run.summary().set_index(["method", "metric"])
    stored = json.loads((run.path / "results.json").read_text())["methods"]
    for (method, metric), row in frame.iterrows():
        curve = stored[method]["metrics"][metric]
        numbers = [curve[name]["value"] for name in ("area", "control", "skill")]
        assert numbers == [row["value"], row["control"], row["skill"]]
        assert curve["skill"]["p"] == row["p"]


def test_skill_is_that_of_samples_that_exchanged_their_maps(run):
    """The interval is that of `tl.skill` with these drawn together; p is below 5% where it excludes 0."""
    metric, settings, reader = run.metric_values["completeness_share"], run.results.settings, run.reader
    own = reader.curve("random", metric, ids=reader.controlled_ids(settings.control_share))
    exchanged = reader.curve("random", metric, settings.exchanged(metric, reader.features))
    groups = tl.probing.exchange_groups(run.ids(), reader.original.labels, seed=0)
    assert tl.skill(own, exchanged, groups=groups, resamples=100) == run.results.skill("random", "completeness_share")
    frame = run.summary()
    decided = (frame["skill_low"] > 0) | (frame["skill_high"] < 0)
    assert (decided == (frame["p"] < 0.05)).all()
