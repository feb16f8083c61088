"""Our metrics among those of Quantus."""

import subprocess
import sys

import numpy as np
import pytest
import quantus
import torch
from torch import nn

import twinlens as tl
from tests.integrations.conftest import FEW, LEVELS
from twinlens.integrations.quantus import Completeness, Deletion, Insertion, Road, Soundness

OURS = [
    (Soundness(**FEW), tl.Soundness(estimator="rank", **FEW)),
    (Soundness(estimator="paper", **LEVELS), tl.Soundness(**LEVELS)),
    (Completeness(), tl.Completeness(estimator="share")),
    (Completeness(estimator="paper"), tl.Completeness(performance="probability")),
    (Road(order="lerf"), tl.Road(order="lerf", performance="probability")),
    (Deletion(performance="accuracy"), tl.Deletion()),
    (Insertion(), tl.Insertion(performance="probability")),
]


@pytest.fixture
def call(model, images, labels, maps):
    """Arrays, as Quantus has them."""
    return {"model": model, "x_batch": images.numpy(), "y_batch": labels.numpy(), "a_batch": maps, "device": "cpu"}


@pytest.mark.parametrize(("theirs", "ours"), OURS)
def test_scores_are_ours_whatever_the_batch_size(call, model, images, labels, maps, theirs, ours):
    expected = tl.metrics.measure_metric(ours, model, images, labels, maps).area_per_sample().tolist()
    assert theirs(**call) == expected
    assert theirs(**call, batch_size=4) == expected
    assert theirs(**call, batch_size=1) == expected
    assert theirs.all_evaluation_scores == expected * 3


def test_explanations_by_a_function_of_quantus(call, model, images, labels):
    lazily = {**call, "a_batch": None, "explain_func": quantus.explain, "explain_func_kwargs": {"method": "Saliency"}}
    scores = Deletion()(**lazily, batch_size=4)
    maps = quantus.explain(model, call["x_batch"], call["y_batch"], method="Saliency", device="cpu")
    expected = tl.deletion(model, images, labels, maps, performance="probability").area_per_sample()
    assert scores == pytest.approx(expected, abs=1e-6)


def test_quantus_evaluate(call, model, images, labels, maps):
    results = quantus.evaluate(
        metrics={"soundness": Soundness(**FEW), "completeness": Completeness(return_aggregate=True)},
        xai_methods={"mine": maps, "shuffled": maps[::-1].copy()},
        model=model,
        x_batch=call["x_batch"],
        y_batch=call["y_batch"],
        agg_func=np.mean,
        call_kwargs={"quickly": {"batch_size": 2, "device": "cpu"}},
    )
    assert set(results) == {"mine", "shuffled"}
    ours = tl.completeness(model, images, labels, maps, estimator="share")
    assert results["mine"]["completeness"] == pytest.approx(ours.area())
    sound = tl.soundness(model, images, labels, maps[::-1].copy(), estimator="rank", **FEW)
    assert results["shuffled"]["soundness"] == pytest.approx(sound.area_per_sample().mean())


def test_signed_explanations_need_a_meaning(call):
    signed = {**call, "a_batch": call["a_batch"] - 0.5}
    with pytest.raises(ValueError, match="sign='absolute'"):
        Deletion()(**signed)
    assert Deletion(abs=True)(**signed) == Deletion(sign="absolute")(**signed)


def test_models_that_return_probabilities(call, model):
    expected = Deletion()(**call)
    assert Deletion()(**call, softmax=True) == pytest.approx(expected, abs=1e-6)


def test_tabular_rows():
    rows = np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)
    model, labels = nn.Linear(10, 2).eval(), np.array([0, 1, 0, 1, 1])
    scores = Deletion()(model=model, x_batch=rows, y_batch=labels, a_batch=np.abs(rows), device="cpu")
    inputs, classes = torch.from_numpy(rows), torch.from_numpy(labels)
    assert (
        scores == tl.deletion(model, inputs, classes, abs(inputs), performance="probability").area_per_sample().tolist()
    )


def test_a_call_that_failed_leaves_nothing_behind(call):
    metric = Deletion()
    with pytest.raises(ValueError, match="`labels` must lie within"):
        metric(**{**call, "y_batch": call["y_batch"] + 7})
    assert metric(**call) == Deletion()(**call)


def test_the_direction_of_scores_is_known_to_quantus():
    directions = [metric.score_direction.value for metric in (Soundness(), Road(), Road(order="lerf"), Insertion())]
    assert directions == ["higher", "higher", "lower", "lower"]


@pytest.mark.slow
def test_a_missing_package_is_named_with_its_remedy():
    program = """
import sys
from importlib import import_module
for package in ("quantus", "torchmetrics"):
    sys.modules[package] = None
    try:
        import_module(f"twinlens.integrations.{package}")
    except ImportError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "twinlens.integrations.quantus needs Quantus: pip install quantus",
        "twinlens.integrations.torchmetrics needs torchmetrics: pip install torchmetrics",
    ]
