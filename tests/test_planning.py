import pytest

import twinlens as tl
from twinlens.planning import METRICS, Sweep, describe_imputer, plan_sweeps, rebuild_imputer

PAPER = tl.PROTOCOLS["paper"]


def test_no_probe_is_planned_twice():
    sweeps = plan_sweeps(METRICS, PAPER)
    assert [sweep.name for sweep in sweeps] == [
        "area-lerf-main", "value-morf-main", "area-morf-main", "area-morf-constant", "area-lerf-blur"
    ]  # fmt: skip
    assert len(sweeps[0].schedule.levels) == len(PAPER.levels) + 1  # ROAD adds the untouched input and no other
    assert plan_sweeps(METRICS, PAPER, sweeps) == []


def test_a_metric_that_is_added_needs_only_new_levels():
    first = plan_sweeps(["road_lerf"], PAPER)
    more = plan_sweeps(["road_lerf", "soundness"], PAPER, first)
    assert [sweep.name for sweep in more] == ["area-lerf-main-2"]
    there, added = set(first[0].schedule.levels), set(more[0].schedule.levels)
    assert not there & added
    assert there | added == {0.0, *PAPER.levels}


def test_sweeps_survive_json():
    import json

    for sweep in plan_sweeps(METRICS, tl.PROTOCOLS["soco"]):
        assert Sweep.from_json(json.loads(json.dumps(sweep.to_json()))) == sweep


@pytest.mark.parametrize("imputer", [tl.LinearImputer(noise=0.2), tl.ConstantImputer(0.5), tl.BlurImputer(sigma=2.0)])
def test_imputers_are_made_again(imputer):
    assert rebuild_imputer(describe_imputer(imputer)) == imputer


def test_an_imputer_of_ones_own_is_named():
    def fill(inputs, keep, streams):
        return inputs

    assert describe_imputer(fill)["name"].endswith("fill")
    assert rebuild_imputer(describe_imputer(fill)) is None
