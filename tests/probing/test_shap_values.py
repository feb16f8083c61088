"""Explanations of shap, handed over as they are: the contributions to each sample's own class."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

import twinlens as tl
from twinlens.probing.shap_values import contributions_to_targets

QUICK = {"metrics": ["soundness_rank"], "control": "none", "resamples": 50, "threads": 1, "progress": False}


@dataclasses.dataclass
class Explanation:
    """The attributes of a `shap.Explanation` that are read."""

    values: Any
    base_values: Any
    data: Any = None


def explain_linear(model, rows, coefficients):
    """What `shap.LinearExplainer` returns: each coefficient times the deviation from the mean."""
    deviation = (rows - rows.mean(axis=0))[..., None]
    values = deviation * coefficients.T if len(coefficients) > 1 else deviation[..., 0] * coefficients[0]
    return Explanation(values, np.zeros(len(rows)), rows)


@pytest.fixture(scope="module")
def flowers():
    rows, labels = load_iris(return_X_y=True)
    _, first = np.unique(rows, axis=0, return_index=True)
    rows, labels = rows[np.sort(first)], labels[np.sort(first)]
    return rows, labels, LogisticRegression(max_iter=1000).fit(rows, labels)


@pytest.fixture(scope="module")
def two_flowers(flowers):
    rows, labels, _ = flowers
    rows, labels = rows[labels > 0], labels[labels > 0] - 1
    return rows, labels, LogisticRegression(max_iter=1000).fit(rows, labels)


def test_contributions_to_every_class_are_read_at_the_label(flowers):
    rows, labels, model = flowers
    explanation = explain_linear(model, rows, model.coef_)
    found = tl.evaluate(model, (rows, labels), ["random"], maps={"shap": explanation}, **QUICK)
    maps = found.maps("shap").numpy()
    expected = np.clip(model.coef_[labels] * (rows - rows.mean(axis=0)), 0, None)
    assert np.allclose(maps, expected, atol=1e-5)
    values = found.summary().set_index("method")["value"]
    assert values["shap"] > 0.8 > values["random"]
    record = found.results.methods["shap"]
    assert record.sign == "positive"
    assert record.properties["negative"].value > 0.1


def test_a_single_output_speaks_for_class_1_and_against_class_0(two_flowers):
    rows, labels, model = two_flowers
    explanation = explain_linear(model, rows, model.coef_)
    found = tl.evaluate(
        model, (rows, labels), [], maps={"shap": explanation, "class_1": np.clip(explanation.values, 0, None)}, **QUICK
    )
    values = found.summary().set_index("method")["value"]
    assert values["shap"] > values["class_1"] + 0.1
    towards = np.where(labels == 1, 1, -1)[:, None] * explanation.values
    assert np.allclose(found.maps("shap"), np.clip(towards, 0, None), atol=1e-5)


def test_functions_take_them_too(two_flowers):
    rows, labels, model = two_flowers
    explanation = explain_linear(model, rows, model.coef_)
    towards = np.where(labels == 1, 1, -1)[:, None] * explanation.values
    how = {"estimator": "rank", "imputer": tl.MeanImputer(rows.mean(axis=0))}
    ours = tl.soundness(model.predict_proba, rows, labels, explanation, **how).area()
    assert ours == tl.soundness(model.predict_proba, rows, labels, towards, sign="positive", **how).area()
    signed = tl.soundness(model.predict_proba, rows, labels, explanation, sign="signed", evidence="against", **how)
    theirs = tl.soundness(model.predict_proba, rows, labels, towards, sign="signed", evidence="against", **how)
    assert signed.area() == theirs.area()


def test_a_regression_has_no_classes():
    rows, values = load_diabetes(return_X_y=True)
    model = LinearRegression().fit(rows, values)
    explanation = explain_linear(model, rows, model.coef_[None])
    assert torch.equal(contributions_to_targets(explanation, values, rows), torch.from_numpy(explanation.values))
    found = tl.evaluate(model, (rows[:40], values[:40]), ["random"], performance="r2", **QUICK)
    assert found.results.methods.keys() == {"random"}


def test_texts_of_several_lengths():
    tokens = torch.tensor([[[7, 8, 9], [1, 1, 1]], [[7, 5, 0], [1, 1, 0]]])
    ragged = np.empty(2, dtype=object)
    ragged[:] = [np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)]
    explanation = Explanation(ragged, np.zeros((2, 2)))
    assert contributions_to_targets(explanation, [1, 0], tokens).tolist() == [[1, 3, 5], [0, 2, 0]]


def test_channels_are_summed():
    inputs, values = torch.rand(2, 3, 8), np.random.default_rng(0).normal(size=(2, 3, 8, 2))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 2))
    found = tl.evaluate(model, (inputs, [1, 0]), [], maps={"shap": Explanation(values, np.zeros((2, 2)))}, **QUICK)
    expected = np.stack([values[0, ..., 1], values[1, ..., 0]]).sum(axis=1).clip(0)
    assert np.allclose(found.maps("shap"), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: {"values": rows[:5]}, "of 5 samples, and there are 149. Explain all of them"),
        (lambda rows: {"values": rows, "data": rows[::-1]}, r"of other samples: at \(0, 0\) it has 5.9, and the input"),
        (lambda rows: {"values": rows}, "a single output, which is that of class 1 of two; the label of sample 100 is"),
        (lambda rows: {"values": rows[:, :3]}, r"shape \(3,\); they must have that of the input, \(4,\)"),
        (lambda rows: {"values": np.stack([rows, rows], axis=-1)}, "explains 2 outputs; the label of sample 100 is 2"),
    ],
)
def test_what_does_not_fit_is_refused(flowers, change, message):
    rows, labels, model = flowers
    explanation = Explanation(base_values=np.zeros(len(rows)), **change(rows))
    with pytest.raises(ValueError, match=f"`maps.shap` .*{message}"):
        tl.evaluate(model, (rows, labels), [], maps={"shap": explanation}, **QUICK)


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(20, random_state=0), GradientBoostingClassifier(n_estimators=9)]
)
def test_the_library_itself(two_flowers, model):
    shap = pytest.importorskip("shap")
    rows, labels, _ = two_flowers
    model.fit(rows, labels)
    explanation = shap.TreeExplainer(model)(rows)
    found = tl.evaluate(
        model, (rows, labels), {"explainer": shap.TreeExplainer(model), "random": "random"}, maps={"shap": explanation},
        **QUICK,
    )  # fmt: skip
    assert torch.allclose(found.maps("explainer"), found.maps("shap"), atol=1e-4)
    values = found.summary().set_index("method")["value"]
    assert values["shap"] > values["random"] + 0.1


@pytest.mark.parametrize("kind", ["DeepExplainer", "GradientExplainer"])
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept context")  # of shap
def test_an_explainer_of_a_network_is_a_method(kind):
    shap = pytest.importorskip("shap")
    torch.manual_seed(0)
    network, images = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)), torch.randn(12, 3, 4, 4)
    labels = network(images).argmax(dim=1)
    explainer = getattr(shap, kind)(network, torch.zeros(2, 3, 4, 4))  # of a linear network both are exact
    evaluation = tl.evaluate(network, (images, labels), {"shap": explainer}, **QUICK)
    exact = (images * network[1].weight[labels].reshape(images.shape)).sum(dim=1).clamp(min=0)
    assert torch.allclose(evaluation.maps("shap"), exact.detach(), atol=1e-4)
