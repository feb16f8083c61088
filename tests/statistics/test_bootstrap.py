import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

import twinlens as tl
from twinlens.laboratory.tasks import sparse_linear
from twinlens.metrics.curves import loss_area
from twinlens.metrics.soundness_curve import soundness_area
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import draw

ZERO = tl.ConstantImputer(0.0)
LEVELS = tuple(p / 100 for p in range(98, 0, -4))


def case(seed=0, samples=40, features=25, classes=3):
    """A random linear classifier, labels that it partly misses, and maps of which some are degenerate."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(features, classes))
    inputs = rng.normal(size=(samples, features))
    labels = np.where(rng.random(samples) < 0.8, (inputs @ weights).argmax(1), rng.integers(0, classes, samples))
    maps = np.abs(inputs * weights[:, labels].T) + 0.05 * rng.random(inputs.shape)
    maps[0] = 0.0
    if samples > 3:
        maps[2], maps[3, : features // 2] = 1.0, 0.0
    matrix = torch.from_numpy(weights)
    return lambda x: x @ matrix, torch.from_numpy(inputs), labels, maps


def curves(seed=0, samples=40, epsilon=0.01, **options):
    arguments = case(seed, samples)
    options = {"imputer": ZERO} | options
    return (
        tl.soundness(*arguments, levels=LEVELS, epsilon=epsilon, **options),
        tl.completeness(*arguments, **options),
        tl.road(*arguments, order="lerf", **options),
    )


def again(curve, table):
    """The same question to another table."""
    options = {"performance": curve.requested, "protocol": curve.protocol}
    if isinstance(curve, tl.CompletenessCurve):
        return tl.completeness_from_probes(table, **options)
    if isinstance(curve, tl.RemovalCurve):
        return tl.removal_from_probes(table, **options)
    return tl.soundness_from_probes(table, epsilon=curve.epsilon, **options)


def mean_probability(table):
    return table.probability.mean(axis=0)


def probability_by_itself(table):
    return table.probability


@pytest.mark.filterwarnings("ignore:`maps` are zero everywhere")
@settings(max_examples=25)
@given(
    st.integers(0, 1000),
    st.integers(1, 40),
    st.sampled_from(["accuracy", "top2", "balanced_accuracy", "score", mean_probability, probability_by_itself]),
    st.sampled_from(["paper", "soco"]),
)
def test_a_resample_is_the_metric_of_the_resampled_table(seed, samples, performance, protocol):
    for curve in curves(seed, samples, performance=performance, protocol=protocol):
        index = np.random.default_rng(seed).integers(samples, size=samples)
        counts = np.bincount(index, minlength=samples).astype(float)
        performances, values = curve.replicate(np.stack([counts, np.ones(samples)]))
        # The authors' offsets are the same for one sample drawn twice as for two samples.
        expected = again(curve, curve.table.take(np.sort(index)))
        assert np.allclose(performances[0], expected.performance, atol=1e-12, equal_nan=True)
        assert np.allclose(values[0], expected.values, atol=1e-12, equal_nan=True)
        assert np.array_equal(values[1], curve.values, equal_nan=True)
        assert np.array_equal(performances[1], curve.performance, equal_nan=True)


def test_a_class_may_be_missing_in_a_resample():
    curve = curves(samples=12, performance="balanced_accuracy")[1]
    labels = curve.table.labels
    weights = np.where(labels == labels[0], 0.0, 1.0)
    expected = again(curve, curve.table.take(np.flatnonzero(weights)))
    assert np.allclose(curve.replicate(weights[None])[1][0], expected.values)


def test_the_start_level_is_looked_for_in_each_resample():
    """Samples judge for themselves, but from where on depends on the mean over all."""
    late = dataclasses.replace(tl.metrics.PROTOCOLS["paper"], start_level=0.5)
    curve = curves(protocol=late, performance="probability", epsilon=0.05)[0]
    sure = (curve.table.probability[:, -1] > 0.5).astype(float)
    expected = again(curve, curve.table.take(np.flatnonzero(sure)))
    assert (expected.performance > 0.5).sum() > (curve.performance > 0.5).sum()
    assert np.allclose(curve.replicate(sure[None])[1][0], expected.values)


def test_a_resample_of_a_regression_model():
    rng = np.random.default_rng(0)
    weights, inputs = rng.normal(size=20), rng.normal(size=(50, 20))
    labels = inputs @ weights
    index = np.sort(rng.integers(50, size=50))
    counts = np.bincount(index, minlength=50).astype(float)
    for performance in ("r2", "neg_mse"):
        curve = tl.completeness(lambda x: x @ weights, inputs, labels, np.abs(inputs * weights), imputer=ZERO,
                                performance=performance)  # fmt: skip
        expected = again(curve, curve.table.take(index))
        assert np.allclose(curve.replicate(counts[None])[1][0], expected.values)


@settings(max_examples=10)
@given(st.integers(0, 1000), st.booleans())
def test_the_order_of_samples_changes_no_interval(seed, whole_curve):
    order = np.random.default_rng(seed).permutation(40)
    for curve in curves(seed % 3, performance="probability"):
        shuffled = again(curve, curve.table.take(order))
        one, other = (c.band(resamples=50, simultaneous=whole_curve) for c in (curve, shuffled))
        assert np.allclose(one, other, atol=1e-12)


def test_intervals_do_not_depend_on_threads():
    threads = torch.get_num_threads()
    curve = curves(performance="probability")[0]
    try:
        torch.set_num_threads(1)
        one = curve.band(resamples=100, seed=5)
        torch.set_num_threads(2)
        assert np.array_equal(one, curve.band(resamples=100, seed=5))
    finally:
        torch.set_num_threads(threads)
    assert not np.array_equal(one, curve.band(resamples=100, seed=6))


def test_interval_of_a_mean_is_that_of_theory():
    """The loss of one level is a mean of ±1 and 0, whose standard error is known."""
    curve = tl.road(*case(1, samples=400), imputer=ZERO, levels=(0.5,))
    low, high = curve.band(resamples=2000)
    correct = curve.table.correct.astype(float)
    error = (correct[:, 0] - correct[:, 1]).std() / 20
    assert high[0] - low[0] == pytest.approx(2 * 1.96 * error, rel=0.08)
    assert (high[0] + low[0]) / 2 == pytest.approx(curve.values[0], abs=0.2 * error)
    narrow = curve.band(0.5, resamples=2000)
    assert low[0] < narrow[0][0] < curve.values[0] < narrow[1][0] < high[0]


def test_whole_curves_stay_within_the_simultaneous_band():
    found = bootstrap(curves()[1], resamples=400)
    low, high = found.band(0.9)
    below, above = found.band(0.9, simultaneous=True)
    assert (below <= low).all()
    assert (above >= high).all()
    # Scaled up for the small sample, the band holds a little more than its share of the replicates.
    within = ((below <= found.values + 1e-12) & (found.values <= above + 1e-12)).all(axis=1).mean()
    each = ((low <= found.values) & (found.values <= high)).all(axis=1).mean()
    assert each < 0.9 <= within <= 0.96


def test_bootstrap_knows_areas_and_levels():
    sound, complete, _ = curves(performance="probability")
    found = bootstrap(sound, resamples=60)
    assert "60 resamples of SoundnessCurve" in repr(found)
    assert found.areas_up_to(None)[1][7] == soundness_area(found.performance[7], found.values[7])
    area = found.area()
    assert area.value == sound.area()
    assert area.low < area.value < area.high
    v = float(np.quantile(found.performance.max(axis=1), 0.3))
    at = found.at(v)
    reached = found.performance.max(axis=1) >= v
    assert np.isfinite(at.replicates).mean() == reached.mean() < 1
    first = [
        values[np.flatnonzero(performance >= v)[0]]
        for performance, values in zip(found.performance, found.values, strict=True)
        if performance.max() >= v
    ]
    assert at.interval == pytest.approx(Estimate.of(sound.at(v), np.array(first), samples=40).interval)
    nowhere = found.at(2.0)
    assert (nowhere.value, nowhere.interval) == (None, None)
    found = bootstrap(complete, resamples=60)
    assert found.areas_up_to(None)[1][3] == loss_area(complete.levels, found.values[3])
    assert found.at(0.5).value == complete.at(0.5)
    strays = np.sort(np.abs(found.values[:, 4] - complete.at(0.5)))
    # Two of 60 resamples may stray farther; resamples of few samples stray less than new samples would.
    scale = np.sqrt(np.mean(strays**2))
    student = t.isf(norm.sf(strays[-3] / scale), 39) * np.sqrt(40 / 39)
    assert found.at(0.5).high == pytest.approx(complete.at(0.5) + scale * student)
    with pytest.raises(ValueError, match="one of those measured"):
        found.at(0.55)
    assert complete.interval(resamples=60) == found.area()
    assert sound.interval(resamples=60) == area


@pytest.mark.parametrize("protocol", ["paper", "soco"])
@pytest.mark.parametrize("performance", ["accuracy", "balanced_accuracy", mean_probability])
def test_soundness_that_is_judged_for_all_samples_at_once_has_no_interval(performance, protocol):
    sound, complete, _ = curves(performance=performance, protocol=protocol)
    assert complete.has_interval
    assert np.isfinite(complete.band(resamples=50)).all()
    assert not sound.has_interval
    assert np.isnan(sound.band(resamples=50)).all()
    found = bootstrap(sound, resamples=50)
    area, at = found.area(), found.at(float(sound.performance.max()))
    assert area.interval is at.interval is None
    assert np.isnan(found.band(simultaneous=True)).all()
    assert area.value == sound.interval(resamples=50).value == sound.area()
    assert str(area) == f"{sound.area():.3f}"
    for judged_alone in (curves(performance="score")[0], curves(performance=probability_by_itself)[0]):
        assert np.isfinite(judged_alone.band(resamples=50)).any()


def test_intervals_of_soundness_by_score():
    curve = tl.soundness(*case(2), levels=LEVELS, imputer=ZERO, performance="score")
    low, high = curve.band(resamples=200)
    inside = (low <= curve.values) & (curve.values <= high)
    assert inside.all()
    # Its decisions are each sample's own, so that a resample is a weighted mean of fixed numbers.
    counts = draw(curve.table.ids, 5, seed=0)
    defined = np.isfinite(curve.per_sample)
    mean = counts @ np.where(defined, curve.per_sample, 0) / (counts @ defined)
    assert np.allclose(curve.replicate(counts)[1], mean)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["completeness", "soundness"])
def test_coverage_on_a_known_population(metric):
    """A reduced version of benchmarks/interval_coverage.py: the population is known, samples of it are drawn."""
    arguments = case(4, samples=1500, features=30)
    if metric == "completeness":
        population = tl.completeness(*arguments, imputer=ZERO)
    else:
        population = tl.soundness(*arguments, imputer=ZERO, estimator="rank")
    rng, held = np.random.default_rng(0), []
    for _ in range(100):
        index = rng.integers(1500, size=100)
        table = population.table.take(index)
        if metric == "completeness":
            curve = tl.completeness_from_probes(table)
        else:
            curve = tl.Soundness(estimator="rank").read([table, population.opposite.take(index)])
        area = bootstrap(curve, resamples=150).area()
        held.append(area.low <= population.area() <= area.high)
    assert 0.88 <= np.mean(held) <= 0.99


def test_intervals_of_soundness_end_where_no_share_can_be():
    task = sparse_linear(12, features=40)
    maps = task.information.copy()
    maps[:2] = maps[:2].max() - maps[:2]  # two of twelve are upside down, so that the area is high and uncertain
    curve = tl.soundness(
        task.model, task.inputs, task.labels, maps, performance="score", imputer=task.imputer, levels=(0.9, 0.5, 0.1)
    )
    found = bootstrap(curve, resamples=100)
    strays = np.abs(found.areas_up_to(None)[1] - curve.area()).max()
    assert curve.area() + strays > 1  # so that a symmetric interval would reach beyond
    assert 0 <= found.area().low < curve.area() < found.area().high == 1.0
    low, high = curve.band(resamples=100)
    assert low.min() >= 0
    assert high.max() == 1.0
