import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.small_runs import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.outcome import open_evaluation
from twinlens.run.sample_selection import read_selection


@pytest.mark.parametrize("imputer", ["constant", "mean", "blur", {"name": "constant", "value": 0.5}])
def test_imputers_by_name(tmp_path, imputer):
    data = samples()
    evaluation = evaluate(
        tiny_model(), data, ["random"], metrics=["road_morf"], imputer=imputer, out=tmp_path / "run", **OPTIONS
    )
    known = {
        "constant": tl.ConstantImputer(0.0),
        "blur": tl.BlurImputer(),
        "mean": tl.MeanImputer(data[0].mean(axis=(0, 2, 3), dtype=np.float64)),
    }
    own = known[imputer] if isinstance(imputer, str) else tl.ConstantImputer(0.5)
    expected = tl.road(
        tiny_model(), *map(torch.from_numpy, data), evaluation.maps("random"), imputer=own, ids=evaluation.ids(),
        batch_size=16,
    )  # fmt: skip
    found = evaluation.curve("random", "road_morf")
    np.testing.assert_allclose(found.table.probability, expected.table.probability, atol=1e-6)
    assert open_evaluation(tmp_path / "run").curve("random", "road_morf").table == found.table


def test_the_mean_as_an_imputer_of_one_metric(tmp_path):
    data = samples()
    metrics = {"by_mean": {"metric": "road_morf", "imputer": "mean"}}
    evaluation = evaluate(tiny_model(), data, ["random"], metrics=metrics, out=tmp_path / "run", **OPTIONS)
    stored = evaluation.results.settings.metrics["by_mean"]["imputer"]
    np.testing.assert_allclose(stored["mean"], data[0].mean(axis=(0, 2, 3), dtype=np.float64))


def test_tabular_rows(tmp_path):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(0, 2, 20)
    evaluation = evaluate(
        nn.Linear(6, 2), (rows, labels), ["integrated_gradients", "random"], out=tmp_path / "run", **OPTIONS
    )
    described = evaluation.run.manifest.settings.imputer
    assert described == {"name": "mean", "mean": pytest.approx(rows.mean(axis=0), abs=1e-6)}
    assert evaluation.summary()["value"].notna().all()


def test_labels_beyond_the_model_are_refused(tmp_path):
    inputs, labels = samples()
    with pytest.raises(ValueError, match=r"label 5 \(sample '00003'\), and the model knows 0 to 2"):
        evaluate(
            tiny_model(), (inputs, np.where(np.arange(10) == 3, 5, labels)), ["random"], out=tmp_path / "run", **OPTIONS
        )


def test_samples_for_the_report_can_be_named(tmp_path):
    asked = {"methods": ["random"], "metrics": ["deletion"], **OPTIONS}
    evaluation = evaluate(tiny_model(), samples(), show=["00004"], out=tmp_path / "run", **asked)
    shown = read_selection(evaluation.run)
    assert shown.samples[0].id == "00004"
    torch.testing.assert_close(shown.inputs[0], torch.from_numpy(samples()[0][4]))
    with pytest.raises(ValueError, match="`show` must hold ids of samples of this run, such as '00000'; got 'cat'"):
        evaluate(tiny_model(), samples(), show=["cat"], out=tmp_path / "run", **asked)
    with pytest.raises(ValueError, match="`show` must hold ids of samples of this run, such as '00000'; got 'cat'"):
        evaluate(tiny_model(), samples(40), show=["cat"], out=tmp_path / "other", **asked)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": "names.txt"}, "`classes` belongs to data that is opened by its path"),
        ({"model": 7}, "must be a spec such as 'timm:resnet50', an nn.Module, a function .*; got int"),
        ({"model": nn.Conv2d(1, 2, 3)}, r"`model` Conv2d fails on an input of shape \(1, 3, 9, 9\): .*channels"),
        ({"model": nn.Conv2d(3, 2, 3)}, r"must return logits \(samples, classes\)"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_any_work(tmp_path, change, message):
    arguments = {"model": tiny_model(), "data": samples(), "methods": ["random"], "out": tmp_path / "run", **OPTIONS}
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(**{**arguments, **change})
    assert not (tmp_path / "run").exists()
