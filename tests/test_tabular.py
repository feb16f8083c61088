"""scikit-learn's models on tabular rows."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import twinlens as tl
from twinlens.models.callables import from_function


@pytest.fixture(scope="module")
def data():
    x, y = load_breast_cancer(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(x, y, random_state=0, test_size=0.3)
    scaler = StandardScaler().fit(train)
    return scaler.transform(train), train_labels, scaler.transform(test), test_labels


def contributions(linear, train, test, labels):
    """The exact Shapley values of a linear model towards the label, clipped at zero as in the paper."""
    towards = np.where(labels == 1, 1, -1)[:, None]
    return np.clip(towards * linear.coef_[0] * (test - train.mean(axis=0)), 0, None)


def test_a_booster_does_not_tell_its_classes(data):
    class Booster:  # as of XGBoost and LightGBM
        def predict(self, rows):
            return rows[:, 0]

    with pytest.raises(TypeError, match=r"`model` is a Booster.* Pass the estimator around it, such as XGBClassifier"):
        tl.evaluate(Booster(), (data[2], data[3]), ["occlusion"])


@pytest.mark.parametrize("performance", ["accuracy", "score"])
def test_exact_contributions_beat_random_maps(data, performance):
    train, train_labels, test, labels = data
    linear = LogisticRegression().fit(train, train_labels)
    maps = {
        "exact": contributions(linear, train, test, labels),
        "random": np.random.default_rng(0).random(test.shape),
    }
    options = {"imputer": tl.MeanImputer(train.mean(axis=0)), "performance": performance}
    sound = {k: tl.soundness(linear.predict_proba, test, labels, m, **options) for k, m in maps.items()}
    complete = {k: tl.completeness(linear.predict_proba, test, labels, m, **options) for k, m in maps.items()}
    reached = min(curve.performance.max() for curve in sound.values())
    assert sound["exact"].area(0, reached) > sound["random"].area(0, reached) + 0.05
    assert sound["exact"].at(0.9) > sound["random"].at(0.9)
    assert complete["exact"].area() > complete["random"].area()


def test_a_random_forest(data):
    train, train_labels, test, labels = data
    forest = RandomForestClassifier(50, random_state=0).fit(train, train_labels)
    impurity = np.broadcast_to(forest.feature_importances_, test.shape)  # read-only, one map for all
    options = {"imputer": tl.MeanImputer(train.mean(axis=0)), "performance": "probability"}
    important = tl.deletion(forest.predict_proba, test, labels, impurity, **options)
    random = tl.deletion(forest.predict_proba, test, labels, np.random.default_rng(0).random(test.shape), **options)
    assert important.area() > random.area()
    curve = tl.soundness(forest.predict_proba, test, labels, impurity, **options)
    assert curve.performance[-1] == pytest.approx(
        forest.predict_proba(test)[np.arange(len(labels)), labels].mean(), abs=0.02
    )
    assert 0 < curve.values[-1] <= 1


def test_a_pipeline_is_called_by_its_last_step(data):
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(data[0], data[1])
    assert from_function(linear, on_arrays=True).name == "LogisticRegression"
    assert from_function(linear[-1], on_arrays=True).name == "LogisticRegression"


def test_constant_imputation_of_rows(data):
    train, train_labels, test, labels = data
    linear = LogisticRegression().fit(train, train_labels)
    maps = contributions(linear, train, test, labels)
    loss = tl.completeness(linear.predict_proba, test, labels, maps, imputer=tl.ConstantImputer(0.0))
    by_mean = tl.completeness(linear.predict_proba, test, labels, maps, imputer=tl.MeanImputer(0.0))
    assert np.array_equal(loss.values, by_mean.values)
    assert loss.values[-1] > 0.5
    assert loss.baseline == pytest.approx(linear.score(test, labels))


@pytest.mark.parametrize("method", ["occlusion", "rise"])
def test_methods_that_only_call_the_model_explain_estimators(data, method):
    train, train_labels, test, labels = data
    for model in (RandomForestClassifier(10, random_state=0), LogisticRegression()):
        fitted = model.fit(train, train_labels)
        evaluation = tl.evaluate(
            fitted, (test[:30], labels[:30]), [method, "random"], metrics="headline", strict=True, progress=False
        )
        soundness = evaluation.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
        assert soundness[method] > soundness["random"] + 0.15


def test_the_default_methods_explain_tables(data):
    train, train_labels, test, labels = data
    how = {"metrics": ["soundness_rank"], "control": "none", "strict": True, "progress": False}
    found = tl.evaluate(LogisticRegression().fit(train, train_labels), (test[:12], labels[:12]), **how)
    assert sorted(found.methods) == ["kernel_shap", "occlusion", "random"]
    found = tl.evaluate(nn.Linear(train.shape[1], 2), (torch.tensor(test[:12]).float(), labels[:12]), **how)
    assert sorted(found.methods) == ["integrated_gradients", "occlusion", "random", "saliency"]


@pytest.mark.parametrize("method", ["occlusion", "rise", "kernel_shap"])
def test_hidden_columns_have_their_mean_in_whatever_unit_they_are(data, method):
    """The same forest on columns of other units and origins has the same explanations."""
    train, train_labels, test, labels = data
    scale, shift = np.logspace(-2, 2, train.shape[1]), np.linspace(5, 50, train.shape[1])
    soundness = []
    for unit, origin in ((1, 0), (scale, shift)):
        forest = RandomForestClassifier(10, random_state=0).fit(train * unit + origin, train_labels)
        rows = (test * unit + origin)[:30]
        found = tl.evaluate(
            forest, (rows, labels[:30]), [method], metrics=["soundness_rank"], control="none", progress=False
        )
        soundness.append(found.summary()["value"].item())
    assert min(soundness) > 0.75
    assert soundness[0] == pytest.approx(soundness[1], abs=0.03)


def test_rise_weighs_masks_with_the_probabilities_that_an_estimator_returns(data):
    """Maps of an estimator are those of the same model as a module, whose logits have these probabilities."""
    train, train_labels, test, labels = data
    linear = LogisticRegression().fit(train, train_labels)
    module = nn.Linear(train.shape[1], 2).double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.concatenate([-linear.coef_, linear.coef_]) / 2))
        module.bias.copy_(torch.from_numpy(np.concatenate([-linear.intercept_, linear.intercept_]) / 2))
    expected = tl.attribute(module, test[:4], labels[:4], "rise", masks=200, reference=test[:4])
    evaluation = tl.evaluate(
        linear, (test[:4], labels[:4]), {"rise": {"method": "rise", "masks": 200}}, metrics=[], progress=False
    )
    maps = evaluation.maps("rise")
    assert np.allclose(maps, expected, atol=1e-6)


def test_rise_and_occlusion_explain_regressions(data):
    train, _, test, _ = data
    linear = Ridge().fit(train, 3 * train[:, 4])
    rows = test[np.abs(test[:, 4]) > 0.5][:20]
    evaluation = tl.evaluate(
        linear, (rows, 3 * rows[:, 4]), ["occlusion", "rise"], metrics="headline", performance="r2",
        strict=True, sign="signed", progress=False,
    )  # fmt: skip
    for method in ("occlusion", "rise"):
        assert (evaluation.maps(method, signed=True).abs().argmax(dim=1) == 4).all()
