import json

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.probing import execution
from twinlens.run import execution_choice

DATA = (torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)), np.arange(8) % 3)
QUICK = {"metrics": ["completeness"], "resamples": 20, "progress": False, "imputer": tl.ConstantImputer(0.0)}


def evaluate(out, methods=("saliency", "random"), **options):
    return tl.evaluate(tiny_model(), DATA, list(methods), out=out, **{**QUICK, **options})


@pytest.fixture
def eager_for_bfloat16(monkeypatch):
    """Let even short runs of a tiny model try bfloat16, whatever the processor."""
    monkeypatch.setattr(execution_choice, "worth_trying", lambda _: True)
    monkeypatch.setattr(execution, "native_precisions", lambda _: ("bfloat16",))
    monkeypatch.setattr(execution, "count_operations", lambda *_: 10**8)


def record(out):
    return json.loads((out / "run.json").read_text())["execution"]


def test_two_fresh_runs_give_the_same_bytes(tmp_path, eager_for_bfloat16):
    for name in ("one", "two"):
        evaluate(tmp_path / name)
    assert (tmp_path / "one" / "results.json").read_bytes() == (tmp_path / "two" / "results.json").read_bytes()
    assert record(tmp_path / "one") == record(tmp_path / "two")
    assert record(tmp_path / "one")["precision"] == "bfloat16"


def test_the_choice_does_not_depend_on_how_many_methods_there_are(tmp_path, monkeypatch):
    rows = []
    monkeypatch.setattr(execution_choice, "worth_trying", lambda n: rows.append(n) or False)
    evaluate(tmp_path / "one", ["random"])
    evaluate(tmp_path / "two", ["random", "saliency"])
    assert set(rows) == {8 * 10 + 8 * 10}  # levels of own and of exchanged maps


def test_precision_and_agreement_are_on_record(tmp_path, eager_for_bfloat16):
    evaluation = evaluate(tmp_path / "run")
    found = record(tmp_path / "run")
    assert found["precision"] == "bfloat16"
    assert [(trial["precision"], trial["predictions"]) for trial in found["trials"]] == [("bfloat16", 1.0)]
    assert 0 < found["trials"][0]["probabilities"] <= 0.02
    page = (evaluation.path / "report.html").read_text()
    assert "bfloat16: 100.00% of 128 trial probes predicted as in float32, probabilities within 0.0" in page


def test_probes_change_with_the_precision_and_maps_do_not(tmp_path, eager_for_bfloat16):
    lower, plain = evaluate(tmp_path / "lower"), evaluate(tmp_path / "plain", precision="float32")
    assert record(tmp_path / "plain")["precision"] == "float32"
    assert torch.equal(lower.maps("saliency"), plain.maps("saliency"))
    tables = [run.curve("saliency", "completeness").table for run in (lower, plain)]
    assert not np.array_equal(tables[0].probability, tables[1].probability)
    np.testing.assert_allclose(tables[0].probability, tables[1].probability, atol=0.02)


def test_a_run_keeps_to_its_precision(tmp_path, eager_for_bfloat16):
    evaluate(tmp_path / "run", ["random"])
    evaluate(tmp_path / "run", ["random", "saliency"])
    assert record(tmp_path / "run")["precision"] == "bfloat16"
    with pytest.raises(tl.RunError, match=r"execution\.precision is 'bfloat16' there and 'float32' here"):
        evaluate(tmp_path / "run", precision="float32")
    with pytest.raises(tl.RunError, match=r"execution\.compiled is False there and True here"):
        evaluate(tmp_path / "run", compile=True)


def test_options_are_checked():
    with pytest.raises(ValueError, match="`precision` must be one of auto, float32, bfloat16, float16; got 'half'"):
        tl.Options(precision="half")
    with pytest.raises((ValueError, TypeError), match=r"`compile`.*got 'maybe'"):
        tl.Options(compile="maybe")
    assert tl.Options(compile=True).compile is True


def test_shards_hold_a_minute_of_work():
    assert [execution_choice.choose_shard_size(samples, 3 * 224 * 224) for samples in (500, 50_000)] == [16, 50]
