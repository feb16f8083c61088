import dataclasses
import math

import numpy as np
import pytest

import twinlens as tl
from twinlens.laboratory.tasks import sparse_linear
from twinlens.statistics.bootstrap import bootstrap
from twinlens.statistics.contrasts import RunValues, compare_runs
from twinlens.support.estimate import Estimate

SIMULATED, SAMPLES, RESAMPLES = 200, 60, 200


@pytest.fixture(scope="module")
def shape():
    """A table whose answers are replaced by simulated ones."""
    task = sparse_linear(SAMPLES, features=8)
    maps = task.information + 1e-3
    return tl.probe(
        *(task.model, task.inputs, task.labels, maps),
        imputer=task.imputer,
        schedule=tl.probing.Schedule(by="value", order="morf", levels=(1.0, 0.7, 0.4, 0.1)),
    )


def simulated(shape, samples, rng, *, shift=0.0, ids=""):
    """A curve of which each sample has a loss of its own, larger than the noise of one run."""
    own = samples[:, None] + 0.05 * rng.normal(size=(len(shape), 3)) + shift
    probability = np.concatenate([np.full((len(shape), 1), 0.9), 0.9 - own], axis=1)
    table = dataclasses.replace(shape, probability=probability, ids=tuple(f"{ids}{k}" for k in range(len(shape))))
    return tl.completeness_from_probes(table, performance="probability")


def contrast(one, other, *, paired, method="m", runs=("a", "b"), metric="completeness", quantity="area"):
    curves = ((one, 0), (other, 0 if paired else 1))
    values = tuple(bootstrap(curve, resamples=RESAMPLES, seed=seed).area() for curve, seed in curves)
    return RunValues(
        metric=metric,
        method=method,
        quantity=quantity,
        runs=runs,
        values=values,
        paired=paired,
        higher_is_better=True,
    )


def width(estimate):
    return estimate.high - estimate.low


@pytest.mark.parametrize("paired", [True, False])
def test_false_alarms_are_rare(shape, paired):
    """Of 200 pairs of equal runs, 5% are to be taken for different: between 1% and 9.5%, three standard errors."""
    rng, alarms = np.random.default_rng(1), []
    for _ in range(SIMULATED):
        first, other = rng.normal(0.3, 0.15, size=(2, SAMPLES))
        pair = [simulated(shape, first, rng), simulated(shape, first if paired else other, rng)]
        [found] = compare_runs([contrast(*pair, paired=paired)])
        assert found.decided == (found.p_alone < 0.05)
        alarms.append(found.decided)
    assert 0.01 <= np.mean(alarms) <= 0.095


def test_pairing_takes_what_samples_do_out_of_the_difference(shape):
    rng = np.random.default_rng(2)
    samples = rng.normal(0.3, 0.15, size=SAMPLES)
    pair = [simulated(shape, samples, rng, shift=0.03), simulated(shape, samples, rng)]
    widths = []
    for paired in (True, False):
        [found] = compare_runs([contrast(*pair, paired=paired)])
        assert found.difference.value == pytest.approx(0.03, abs=0.02)
        assert found.decided == paired
        widths.append(width(found.difference))
    # By itself an area strays with sd 0.15 / √60 and each run with its own: the two-sample interval is √2 as wide.
    alone = bootstrap(pair[0], resamples=RESAMPLES).area()
    assert widths[1] == pytest.approx(math.sqrt(2) * width(alone), rel=0.2)
    assert widths[0] < 0.3 * widths[1]


def test_all_differences_of_a_metric_are_decided_at_once(shape):
    rng, samples = np.random.default_rng(3), np.full(SAMPLES, 0.3)
    pairs = [[simulated(shape, samples, rng, shift=0.002 * k), simulated(shape, samples, rng)] for k in range(8)]
    contrasts = [contrast(*pair, paired=True, method=f"m{k}") for k, pair in enumerate(pairs)]
    together, [alone] = compare_runs(contrasts), compare_runs(contrasts[:1])
    assert [pair.method for pair in together] == [f"m{k}" for k in range(8)]
    for pair in together:
        assert pair.difference.p >= pair.p_alone
        assert (pair.difference.p < 0.05) == pair.decided
    assert width(together[0].difference) > width(alone.difference)
    assert together[0].p_alone == alone.p_alone == alone.difference.p
    # Another metric is another family.
    apart = compare_runs([contrasts[0], *(dataclasses.replace(each, metric="other") for each in contrasts[1:])])
    assert apart[0] == alone


def test_small_runs_widen_their_own_interval_alone(shape):
    rng, samples = np.random.default_rng(4), np.random.default_rng(5).normal(0.3, 0.15, size=SAMPLES)
    curves = [simulated(shape, samples, rng) for _ in range(2)]
    few = [tl.completeness_from_probes(c.table.take(range(6)), performance="probability") for c in curves]
    large, small = contrast(*curves, paired=True), contrast(*few, paired=True, method="few")
    [both, _], [alone] = compare_runs([large, small], confidence=0.5), compare_runs([large], confidence=0.5)
    assert both.p_alone == alone.p_alone
    assert both.samples == (SAMPLES, SAMPLES)


def test_what_is_not_defined_or_has_no_interval_is_said(shape):
    rng = np.random.default_rng(6)
    found = contrast(*(simulated(shape, np.full(SAMPLES, 0.3), rng) for _ in range(2)), paired=True)
    one, other = found.values
    nothing = Estimate.of(None, np.full(RESAMPLES, np.nan), samples=SAMPLES)
    loose = dataclasses.replace(one, replicates=np.full(RESAMPLES, np.nan))
    [none, without] = compare_runs(
        [
            dataclasses.replace(found, values=(nothing, other)),
            dataclasses.replace(found, values=(loose, other), metric="soundness"),
        ]
    )
    assert none.verdict == "m: completeness between a and b is not decided (not reached)."
    assert without.verdict.startswith("m: soundness between a and b is not decided (0.0")
    assert without.verdict.endswith("without an interval).")
    assert without.p_alone is None
    assert not none.decided
    assert not without.decided


def test_words(shape):
    rng, samples = np.random.default_rng(7), np.full(SAMPLES, 0.3)
    low, high = simulated(shape, samples, rng), simulated(shape, samples, rng, shift=0.2)
    [found] = compare_runs([contrast(low, high, paired=True, method="gradcam", runs=("small", "large"),
                                    metric="completeness_share")])  # fmt: skip
    size = found.difference
    between = f"by {-size.value:.3f} [{-size.high:.3f}, {-size.low:.3f}]."
    assert found.verdict == f"gradcam is more complete on large than on small {between}"
    [found] = compare_runs([contrast(low, high, paired=True, metric="mine", quantity="skill")])
    assert found.verdict.startswith("m has more skill in mine on b than on a by 0.2")
    less = contrast(low, high, paired=True, metric="insertion")
    [found] = compare_runs([dataclasses.replace(less, higher_is_better=False)])
    assert found.verdict.startswith("m is better in insertion on a than on b by 0.2")
