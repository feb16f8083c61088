import json

import pytest
import torch

import twinlens as tl
from tests.small_runs import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.imputation.imputers import UnavailableImputer, describe_imputer, restore_imputer
from twinlens.run.manifest import SweepRecord, differences
from twinlens.run.plan import plan_sweeps
from twinlens.support.fields import from_json, to_json


@pytest.mark.parametrize("protocol", ["paper", "soco"])
def test_sweeps_survive_json(protocol):
    metrics = tl.Options(metrics=["soundness", "completeness"], protocol=protocol).metric_values
    bound = [metric.bound(tl.LinearImputer(), neighbours=True) for metric in metrics.values()]
    for sweep in plan_sweeps([sweep for metric in bound for sweep in metric.sweeps(784)], []):
        assert from_json(SweepRecord, json.loads(json.dumps(to_json(sweep))), "sweep") == sweep


def test_differences_are_named_by_field():
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == [
        "a.c is 3 there and 2 here",
        "d is 4 there and None here",
    ]


@pytest.mark.parametrize(
    "imputer", [tl.LinearImputer(noise=0.2), tl.ConstantImputer(0.5), tl.BlurImputer(sigma=2.0)], ids=repr
)
def test_imputers_are_made_again(imputer):
    assert restore_imputer(describe_imputer(imputer)) == imputer


def test_an_imputer_of_ones_own_is_named():
    def fill(inputs, keep, streams):
        return inputs

    assert describe_imputer(fill)["function"].endswith("fill")
    assert isinstance(restore_imputer(describe_imputer(fill)), UnavailableImputer)


def test_a_run_of_another_format_is_refused(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"format": 1, "model": {}}))
    with pytest.raises(
        RunError, match=r"holds a run of format 1, and this twinlens reads 6. Use the version that made it"
    ):
        evaluate(tiny_model(), samples(), ["random"], out=out, **OPTIONS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, r"seed is 0 there and 1 here"),
        ({"batch_size": 7}, r"execution\.batch_size is 16 there and 7 here"),
        ({"shard_size": 7}, r"execution\.shard_size is 4 there and 7 here"),
        ({"limit": 5}, r"data\.digest.*data\.samples is 10 there and 5 here"),
        ({"methods": {"random": "centre"}}, r"methods\.random\.method is 'random' there and 'centre' here"),
    ],
)
def test_another_run_in_the_same_directory_is_refused(tmp_path, change, message):
    out, data = tmp_path / "run", samples()
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": out, **OPTIONS}
    evaluate(tiny_model(), data, **asked)
    before = (out / "run.json").read_bytes()
    with pytest.raises(RunError, match=message):
        evaluate(tiny_model(), data, **{**asked, **change})
    assert (out / "run.json").read_bytes() == before


def test_another_model_or_data_in_the_same_directory_is_refused(tmp_path):
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": tmp_path / "run", **OPTIONS}
    evaluate(tiny_model(), samples(), **asked)
    other = tiny_model()
    with torch.no_grad():
        other[4].bias[0] += 1
    with pytest.raises(RunError, match=r"model\.digest is"):
        evaluate(other, samples(), **asked)
    inputs, labels = samples()
    inputs[3, 0, 0, 0] += 1
    with pytest.raises(RunError, match=r"data\.digest is"):
        evaluate(tiny_model(), (inputs, labels), **asked)


def test_what_was_chosen_is_kept(tmp_path, monkeypatch):
    asked = {"methods": ["random"], "metrics": ["road_morf"], "out": tmp_path / "run"}
    evaluate(tiny_model(), samples(), **asked)
    chosen = json.loads((tmp_path / "run" / "run.json").read_text())["execution"]
    monkeypatch.setattr("twinlens.run.execution_choice.choose_execution", lambda *_, **__: pytest.fail("chosen again"))
    evaluate(tiny_model(), samples(), **{**asked, "methods": ["random", "centre"]})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["execution"] == chosen
