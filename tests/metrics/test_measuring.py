import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score

import twinlens as tl
from tests import reference
from twinlens.metrics.performance import measure
from twinlens.metrics.soundness_curve import soundness_area


def linear_case(seed, samples, features, classes=3):
    """A random linear classifier on random rows, maps without ties, and labels that it partly misses."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(features, classes))
    inputs = rng.normal(size=(samples, features))
    labels = np.where(rng.random(samples) < 0.8, (inputs @ weights).argmax(1), rng.integers(0, classes, samples))
    maps = rng.permutation(samples * features).reshape(samples, features) + rng.random((samples, features)) * 0.5 + 0.1
    return weights, inputs, labels, maps


def as_model(weights):
    matrix = torch.from_numpy(weights)
    return lambda x: x @ matrix


LEVELS = tuple(p / 100 for p in range(98, 0, -3))


@settings(max_examples=30)
@given(
    st.integers(0, 10_000),
    st.integers(1, 30),
    st.integers(2, 30),
    st.sampled_from(["accuracy", "score"]),
    st.sampled_from(["paper", "soco"]),
    st.sampled_from([0.0, 0.01, 0.1]),
)
def test_soundness_is_that_of_the_dense_reference(seed, samples, features, mode, protocol, epsilon):
    weights, inputs, labels, maps = linear_case(seed, samples, features)
    curve = tl.soundness(
        as_model(weights), torch.from_numpy(inputs), labels, maps, levels=LEVELS, epsilon=epsilon,
        performance=mode, protocol=protocol, imputer=tl.ConstantImputer(0.0),
    )  # fmt: skip
    expected, false = reference.soundness(lambda x: x @ weights, inputs, labels, maps, LEVELS, epsilon, mode, protocol)
    assert np.allclose(curve.performance, [s for s, _ in expected], atol=1e-6)
    assert np.allclose(curve.values, [q for _, q in expected], atol=1e-6)
    shown = curve.false_features(maps)
    assert [set(np.flatnonzero(row)) for row in shown.numpy()] == false


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(2, 30), st.sampled_from(["paper", "soco"]))
def test_losses_are_those_of_the_dense_reference(seed, samples, features, protocol):
    weights, inputs, labels, maps = linear_case(seed, samples, features)
    model, x, zero = as_model(weights), torch.from_numpy(inputs), tl.ConstantImputer(0.0)
    options = {"imputer": zero, "protocol": protocol}
    case = (lambda x: x @ weights, inputs, labels, maps)
    thresholds, shares = (0.9, 0.75, 0.5, 0.1), (0.1, 0.5, 0.9)
    complete = tl.completeness(model, x, labels, maps, thresholds=thresholds, **options)
    assert np.allclose(complete.values, reference.loss(*case, thresholds, protocol, by="value"), atol=1e-12)
    for order in ("morf", "lerf"):
        curve = tl.road(model, x, labels, maps, levels=shares, order=order, **options)
        assert np.allclose(curve.values, reference.loss(*case, shares, protocol, by="area", order=order), atol=1e-12)
    deleted = tl.deletion(model, x, labels, maps, levels=shares, **options)
    inserted = tl.insertion(model, x, labels, maps, levels=shares, **options)
    assert np.array_equal(deleted.values, tl.road(model, x, labels, maps, levels=shares, **options).values)
    assert np.array_equal(inserted.values, curve.values)


def soundness_table(seed=0, samples=40, features=25, **options):
    weights, inputs, labels, maps = linear_case(seed, samples, features)
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=LEVELS)
    options = {"imputer": tl.ConstantImputer(0.0), "schedule": schedule} | options
    return tl.probe(as_model(weights), torch.from_numpy(inputs), labels, maps, **options), maps


def test_a_gain_of_exactly_epsilon_is_no_false_attribution():
    """200 samples, two more correct at each step: 1%, which differences of rounded quotients miss at random."""
    table, _ = soundness_table(samples=200)
    hits = np.zeros_like(table.target_rank)
    for level in range(hits.shape[1]):
        hits[2 * (level + 1) :, level] = 1
    table = dataclasses.replace(table, target_rank=hits)
    assert not tl.soundness_from_probes(table, epsilon=0.01).judged_false.any()
    quotients = tl.soundness_from_probes(table, performance=lambda t: t.correct.mean(axis=0))
    assert quotients.judged_false.any()
    # The authors divide by n + 1e-6, so there every such gain falls short.
    assert tl.soundness_from_probes(table, protocol="soco").judged_false[:, 5:].all()


def test_soundness_at_a_level_that_is_not_reached_is_no_number():
    table, _ = soundness_table()
    curve = tl.soundness_from_probes(table)
    assert curve.at(2.0) is None
    assert curve.area(high=2.0) is None
    first = int(np.flatnonzero(curve.performance >= 0.5)[0])
    assert curve.at(0.5) == curve.values[first]
    assert curve.at(0.0) == curve.values[0]


@pytest.mark.slow
def test_area_is_the_mean_of_soundness_over_predictive_levels():
    table, _ = soundness_table(seed=3)
    curve = tl.soundness_from_probes(table)
    assert (np.diff(curve.performance) < 0).any()  # performance also falls, so that records matter
    top = curve.performance.max()
    grid = (np.arange(20_000) + 0.5) / 20_000
    assert curve.area() == pytest.approx(np.mean([curve.at(v) for v in grid * top]), abs=1e-3)
    middle = 0.2 + grid * 0.2
    assert curve.area(0.2, 0.4) == pytest.approx(np.mean([curve.at(v) for v in middle]), abs=1e-3)


def test_order_based_metrics_cannot_tell_values_apart_and_ours_can():
    """The example of the paper's section 3.3: [1, 2, 3] against [1, 1.1, 100]."""
    weights = np.array([[1.0, -1.0], [1.0, -1.0], [1.0, -1.0]])
    inputs, labels = torch.ones(4, 3, dtype=torch.float64), [0] * 4
    one, other = (torch.tensor(m).expand(4, 3) for m in ([1.0, 2.0, 3.0], [1.0, 1.1, 100.0]))
    model, options = as_model(weights), {"imputer": tl.ConstantImputer(-1.0), "performance": "probability"}
    shares = {"levels": (0.3, 0.6)}
    for metric in (tl.road, tl.deletion, tl.insertion):
        a, b = (metric(model, inputs, labels, m, **options, **shares) for m in (one, other))
        assert np.array_equal(a.values, b.values)
    a, b = (tl.completeness(model, inputs, labels, m, **options) for m in (one, other))
    assert not np.array_equal(a.values, b.values)
    falling = {"levels": (0.6, 0.3, 0.0), "epsilon": 0.2}
    a, b = (tl.soundness(model, inputs, labels, m, **options, **falling) for m in (one, other))
    assert not np.array_equal(a.values, b.values)


def test_zero_maps_are_left_out_of_soundness_and_counted():
    weights, inputs, labels, maps = linear_case(5, 12, 20)
    maps[3], maps[7] = 0.0, 2.0
    arguments = (as_model(weights), torch.from_numpy(inputs), labels, maps)
    options = {"imputer": tl.ConstantImputer(0.0)}
    curve = tl.soundness(*arguments, **options)
    assert curve.degenerate == {"zero": 1, "constant": 1}
    assert "1 constant maps, 1 zero maps" in repr(curve)
    assert np.isnan(curve.per_sample[3]).all()
    assert np.isfinite(curve.per_sample[7]).all()
    assert (curve.defined == 11).all()
    assert np.allclose(curve.values, np.delete(curve.per_sample, 3, axis=0).mean(axis=0))
    # The authors' offset makes it zero instead, and it stays in the mean.
    soco = tl.soundness(*arguments, protocol="soco", **options)
    assert (soco.per_sample[3] == 0).all()
    complete = tl.completeness(*arguments, **options)
    assert (complete.table.removed[3] == 0).all()
    assert (complete.table.removed[7, 1:] == 20).all()
    assert complete.degenerate == {"zero": 1, "constant": 1}


@pytest.mark.filterwarnings("ignore:`maps` are zero everywhere")
def test_soundness_of_zero_maps_alone_is_undefined():
    curve = tl.soundness(as_model(np.eye(2)), torch.rand(3, 2).double(), [0, 1, 0], torch.zeros(3, 2),
                         imputer=tl.ConstantImputer(0.0), levels=(0.5, 0.0))  # fmt: skip
    assert np.isnan(curve.values).all()
    assert curve.defined.tolist() == [0, 0]


def test_one_table_answers_every_question():
    table, _ = soundness_table()
    low, high = (tl.soundness_from_probes(table, epsilon=e) for e in (0.0, 0.5))
    assert low.values[-1] > high.values[-1]
    late = dataclasses.replace(tl.metrics.PROTOCOLS["paper"], start_level=0.4, name="late")
    started = tl.soundness_from_probes(table, protocol=late, epsilon=0.1)
    assert not started.judged_false[:, started.performance <= 0.4].any()
    assert started.judged_false.any()
    metric = tl.Soundness(start_level=0.4, epsilon=0.1)
    assert np.array_equal(metric.read([table]).judged_false, started.judged_false)
    assert metric.read([table]).conditions != tl.Soundness(epsilon=0.1).read([table]).conditions
    assert metric.sweeps(None) == tl.Soundness().sweeps(None)  # the same probes


def test_the_start_level_is_that_of_the_protocol_by_default():
    assert tl.Soundness().rules.start_level is None
    assert tl.Soundness(protocol="soco").rules.start_level == 0.04
    assert tl.Soundness(protocol="soco", start_level=-1.0).rules.start_level == -1.0  # from the first level


def test_every_performance_measure():
    table, _ = soundness_table(samples=60)
    paper, soco = tl.metrics.PROTOCOLS["paper"], tl.metrics.PROTOCOLS["soco"]
    right = table.predicted == table.labels[:, None]
    assert np.array_equal(right, table.correct)
    assert np.allclose(measure(table, "accuracy", paper).mean, right.mean(axis=0))
    assert np.allclose(measure(table, "accuracy", soco).mean, right.sum(axis=0) / (60 + 1e-6))
    assert np.allclose(measure(table, "top1", paper).mean, right.mean(axis=0))
    assert np.allclose(measure(table, "top3", paper).mean, 1.0)
    assert (measure(table, "top2", paper).mean >= right.mean(axis=0)).all()
    recalls = [right[table.labels == k].mean(axis=0) for k in range(3)]
    assert np.allclose(measure(table, "balanced_accuracy", paper).mean, np.mean(recalls, axis=0))
    assert measure(table, "score", paper).name == "probability"
    assert measure(table, "score", soco).name == "logit"
    assert np.allclose(measure(table, "logit", paper).mean, table.logit.mean(axis=0))
    assert measure(table, "probability", paper).gain.shape == table.probability.shape
    own = measure(table, lambda t: t.probability.min(axis=0), paper)
    assert np.allclose(own.mean, table.probability.min(axis=0))
    with pytest.raises(ValueError, match="top5 for a classification model, or a function of the probe table; got 'r2'"):
        measure(table, "r2", paper)
    with pytest.raises(ValueError, match="`performance` must return shape"):
        measure(table, lambda t: t.logit[0, 0], paper)


def test_regression_models():
    rng = np.random.default_rng(0)
    weights, inputs = rng.normal(size=20), rng.normal(size=(50, 20))
    labels = inputs @ weights
    contributions = np.abs(inputs * weights)

    def predict(x):
        return x @ weights

    options = {"imputer": tl.MeanImputer(inputs.mean(axis=0)), "epsilon": 0.0}
    good = tl.soundness(predict, inputs, labels, contributions, performance="r2", **options)
    bad = tl.soundness(predict, inputs, labels, rng.random((50, 20)), performance="r2", **options)
    assert good.performance[-1] == pytest.approx(1.0)
    assert good.area() > bad.area()
    loss = tl.completeness(predict, inputs, labels, contributions, performance="neg_mse", imputer=options["imputer"])
    predicted, error = loss.table.predicted, loss.table.predicted - labels[:, None]
    assert np.allclose(loss.performance, -(error[:, 1:] ** 2).mean(axis=0))
    assert predicted.dtype == np.float64
    # 'neg_mse' is 'r2' in other units, so with the scaled epsilon it decides alike.
    scale = np.var(labels)
    a = tl.soundness_from_probes(good.table, performance="r2", epsilon=0.02)
    b = tl.soundness_from_probes(good.table, performance="neg_mse", epsilon=0.02 * scale)
    assert np.array_equal(a.judged_false, b.judged_false)
    with pytest.raises(ValueError, match=r"one of r2, neg_mse, score for a regression model.*got 'accuracy'"):
        tl.soundness_from_probes(good.table)


def test_false_features_up_to_a_level_and_for_other_maps():
    table, maps = soundness_table()
    curve = tl.soundness_from_probes(table, epsilon=0.05)
    middle = curve.false_features(maps, level=LEVELS[10])
    last = curve.false_features(maps)
    assert bool((last | ~middle).all())
    assert int(middle.sum()) < int(last.sum())
    scaled = maps / maps.max(axis=1, keepdims=True)
    assert np.allclose((last.numpy() * scaled).sum(axis=1), (table.added_mass * curve.judged_false).sum(axis=1))
    with pytest.raises(ValueError, match="the map of sample '0' is another one"):
        curve.false_features(maps[::-1])
    with pytest.raises(ValueError, match="`level` must be one of those measured"):
        curve.false_features(maps, level=0.123)


def test_wrong_tables_and_levels_are_refused():
    table, _ = soundness_table()
    with pytest.raises(ValueError, match="by value, among them level 1"):
        tl.completeness_from_probes(table)
    with pytest.raises(ValueError, match="by area, among them level 0"):
        tl.removal_from_probes(table)
    with pytest.raises(ValueError, match="`protocol` must be one of paper, soco"):
        tl.soundness_from_probes(table, protocol="sokko")
    arguments = (as_model(np.eye(2)), torch.rand(2, 2).double(), [0, 1], torch.rand(2, 2))
    with pytest.raises(ValueError, match=r"`levels` must decrease within \[0, 1\); got 0.2 then 0.5. Sort them"):
        tl.soundness(*arguments, levels=(0.2, 0.5))
    with pytest.raises(ValueError, match=r"`thresholds` must decrease within \[0, 1\); got 1."):
        tl.completeness(*arguments, thresholds=(1.0, 0.5))
    with pytest.raises(ValueError, match=r"`levels` must increase within \(0, 1\]; got 0."):
        tl.road(*arguments, levels=(0.0, 0.5))
    with pytest.raises(ValueError, match="at least one level"):
        tl.road(*arguments, levels=())
    removal = tl.soundness_from_probes(table).table
    reverse = dataclasses.replace(
        removal.settings, schedule=dataclasses.replace(removal.settings.schedule, levels=LEVELS[::-1])
    )
    with pytest.raises(ValueError, match="with decreasing levels"):
        tl.soundness_from_probes(dataclasses.replace(removal, settings=reverse))


def test_curves_show_themselves():
    from matplotlib import pyplot as plt

    table, maps = soundness_table()
    curve = tl.soundness_from_probes(table)
    frame = curve.to_frame()
    assert list(frame.columns) == ["level", "performance", "value", "defined"]
    assert np.array_equal(frame["value"], curve.values)
    weights, inputs, labels, maps = linear_case(0, 10, 8)
    loss = tl.completeness(as_model(weights), torch.from_numpy(inputs), labels, maps,
                           imputer=tl.ConstantImputer(0.0))  # fmt: skip
    removal = tl.deletion(as_model(weights), torch.from_numpy(inputs), labels, maps)
    assert loss.at(0.5) == loss.values[4]
    assert removal.area() == pytest.approx(np.trapezoid(removal.values, removal.levels) / 0.8)
    with pytest.raises(ValueError, match="one of those measured"):
        loss.at(0.55)
    for shown, label in (
        (curve, "soundness"),
        (loss, "completeness (loss of accuracy)"),
        (removal, "loss of accuracy"),
    ):
        axes = shown.plot()
        assert axes.get_ylabel() == label
        assert np.array_equal(axes.lines[0].get_ydata(), shown.values)
        again = shown.plot(axes)
        assert again is axes
        plt.close(axes.figure)


def test_r2_is_that_of_scikit_learn_whatever_the_mean_of_the_labels():
    rng = np.random.default_rng(0)
    weights, inputs = rng.normal(size=8), rng.normal(size=(30, 8)) + 1
    labels = inputs @ weights + 5
    curve = tl.deletion(lambda x: x @ weights + 5, inputs, labels, np.abs(inputs), levels=(0.25, 0.5), performance="r2")
    expected = [r2_score(labels, predicted) for predicted in curve.table.predicted[:, -2:].T]
    np.testing.assert_allclose(curve.performance[-2:], expected)
    np.testing.assert_allclose(curve.replicate(np.ones((1, 30)))[0][0][-2:], expected)


def test_the_area_between_two_predictive_levels():
    performance, values = np.array([0.2, 0.6, 1.0]), np.array([1.0, 0.5, 0.25])
    assert soundness_area(performance, values, low=0.4) == pytest.approx((0.2 * 0.5 + 0.4 * 0.25) / 0.6)
    assert soundness_area(performance, values, low=0.4, high=0.5) == pytest.approx(0.5)
    assert soundness_area(performance, values, high=1.1) is None


def test_estimators_are_told_apart_where_they_are_shown():
    metrics = [
        tl.Soundness(estimator="rank"),
        tl.Soundness(),
        tl.Soundness(steps=20),
        tl.Soundness(levels=(0.5,), steps=9),
    ]
    assert [metric.about.title for metric in metrics] == [
        "Soundness", "Soundness (paper)", "Soundness (paper, coarse)", "Soundness (paper)"
    ]  # fmt: skip
    assert [metric.about.short for metric in metrics[:3]] == [
        "soundness ↑", "soundness (paper) ↑", "soundness (paper, coarse) ↑"
    ]  # fmt: skip
    both = tl.Completeness(estimator="share"), tl.Completeness()
    assert [metric.about.short for metric in both] == ["completeness ↑", "completeness (paper) ↑"]


def test_a_coarse_reading_of_the_papers_soundness_needs_no_probe_of_its_own():
    for features in (7, 30, 784, None):
        [coarse] = tl.Soundness(steps=20).sweeps(features)
        assert coarse == tl.Soundness(estimator="rank").sweeps(features)[0]
    assert tl.Soundness(steps=20, levels=(0.9, 0.5)).sweeps(784) == tl.Soundness(levels=(0.9, 0.5)).sweeps(784)
