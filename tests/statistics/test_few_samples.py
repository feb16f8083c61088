"""A short part of benchmarks/few_samples.py: what intervals and p-values hold with few samples."""

import numpy as np
import pytest

import twinlens as tl
from benchmarks import few_samples
from twinlens.probing.exchange import draw_partners, exchange_groups
from twinlens.support.resampling import draw

NAMES = ("soundness_rank", "completeness")
HOW = {"draws": 200, "resamples": 300}


@pytest.fixture(scope="module")
def population():
    return few_samples.make_population("integrated_gradients", 200, ("completeness",))["completeness"]


@pytest.fixture(scope="module")
def bank():
    return few_samples.make_bank(20, 20, NAMES)


def test_intervals_cover_a_small_and_skewed_value(population):
    """The paper's completeness of IG is below 0.1: most samples lose nothing, a few lose all.

    Symmetric intervals cover 83% of 400 data sets here; 88% is three standard errors below 92%.
    """
    assert population.mean() < 0.1
    covered, width = few_samples.count_covered(population, 20, draws=400, resamples=300)
    assert covered >= 0.88
    assert width < 0.25


@pytest.mark.parametrize("name", NAMES)
def test_few_samples_have_neither_intervals_nor_p_values(population, bank, name):
    areas, labels = bank
    how = {"draws": 5, "resamples": 50}
    assert np.isnan(few_samples.count_covered(population, 9, **how)).all()
    assert all(np.isnan(few_samples.count_skills(areas[name], labels, size, **how)) for size in (2, 3, 5, 6, 10, 11))
    assert all(np.isnan(few_samples.count_pairs(areas[name], size, 3, **how)) for size in (2, 9))
    assert all(np.isnan(few_samples.count_runs(areas[name], 9, paired=paired, **how)) for paired in (True, False))


@pytest.mark.parametrize("name", NAMES)
def test_false_alarms_of_random_maps(bank, name):
    """5%, and not more than three standard errors of 200 data sets above it."""
    areas, labels = bank
    for size in (12, 20):
        assert few_samples.count_skills(areas[name], labels, size, **HOW) <= 0.096
    for many in (3, 8):  # with a factor √(N / (N − 3)) instead of Student's t, 8 methods raise 15% of alarms
        assert few_samples.count_pairs(areas[name], 10, many, **HOW) <= 0.096
    for paired in (True, False):
        assert few_samples.count_runs(areas[name], 10, paired=paired, **HOW) <= 0.096


def test_the_shortcut_is_the_skill_that_users_get():
    """The benchmark computes skill from areas; `tl.skill` from curves, with the same draws of groups."""
    inputs, labels = few_samples.digits(14, seed=3)
    maps = np.random.default_rng(0).random((14, 28, 28)).astype(np.float32)
    ids, metric = [str(k) for k in range(14)], tl.METRICS["completeness"]
    partners, groups = draw_partners(ids, labels, seed=0), exchange_groups(ids, labels, seed=0)
    model, [sweep] = few_samples.trained_cnn().eval(), metric.sweeps(28 * 28)
    how = {"schedule": sweep.schedule, "imputer": sweep.imputer, "ids": ids}
    curves = [metric.read([tl.probe(model, inputs, labels, each, **how)]) for each in (maps, maps[partners])]
    found = tl.skill(*curves, groups=groups, resamples=200)
    names = sorted(set(groups.values()))
    counts = draw([groups[name] for name in ids], 200, 0)[:, [ids.index(name) for name in names]]
    again = few_samples.skill_of(*(curve.area_per_sample() for curve in curves), groups, counts)
    assert (found.value, *found.interval, found.p) == pytest.approx((again.value, *again.interval, again.p))
