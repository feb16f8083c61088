import dataclasses

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.statistics.diagnostics import diagnose, resolved_levels, tie_share

LEVELS = tuple(p / 100 for p in range(98, 0, -2))
SWEEP = tl.Schedule(by="area", order="lerf", levels=LEVELS)


@pytest.fixture(scope="module")
def task():
    return sparse_linear(400, features=60)


@pytest.fixture(scope="module")
def table(task):
    maps = map_grid(task)["introduced 0.5"]
    return tl.probe(task.model, task.inputs, task.labels, maps, schedule=SWEEP, imputer=task.imputer)


def by_kind(findings):
    assert len({finding.kind for finding in findings}) == len(findings)
    return {finding.kind: finding for finding in findings}


def with_hits(table, hits):
    return dataclasses.replace(table, target_rank=1 - hits.astype(np.int64))


def test_a_sound_result_gives_no_warning(task):
    maps = task.information + 1e-6 * np.random.default_rng(0).random(task.information.shape)
    curve = tl.completeness(task.model, task.inputs, task.labels, maps, imputer=task.imputer)
    findings = diagnose(curve, maps=maps)
    assert [finding.message for finding in findings] == [None] * len(findings)
    assert by_kind(findings)["base performance"].value == curve.baseline == pytest.approx(0.9)
    assert by_kind(findings)["tied values"].value == 0
    assert str(findings[0]) == "degenerate maps: 0"


def test_degenerate_maps_are_counted(task):
    maps = task.information.copy()
    maps[0], maps[1:4] = 0.0, 1.0
    curve = tl.completeness(task.model, task.inputs, task.labels, maps, imputer=task.imputer)
    found = by_kind(diagnose(curve))["degenerate maps"]
    assert found.value == 0.01
    assert "Of 400 maps, 3 all constant and 1 all zero" in found.message


def test_base_performance_too_low(task, table):
    wrong = tl.completeness(task.model, task.inputs, 1 - task.labels, task.information, imputer=task.imputer)
    found = by_kind(diagnose(wrong))["base performance"]
    assert found.value == wrong.baseline < 0.1
    assert "accuracy is 0.0" in found.message
    assert "with nothing removed" in found.message
    best = by_kind(diagnose(with_hits(table, np.zeros(table.removed.shape))))["base performance"]
    assert best.value == 0
    assert "at its best level" in best.message


def test_steps_that_fall_beyond_noise(table):
    rising = np.arange(400)[:, None] < 8 * np.arange(1, 50)[None]
    assert by_kind(diagnose(with_hits(table, rising)))["falling steps"].value == 0
    level = np.broadcast_to(np.arange(400)[:, None] < 300, (400, 49)).copy()
    level[0, 20] = False  # one sample of 400: a fall, but within noise
    found = by_kind(diagnose(with_hits(table, level)))["falling steps"]
    assert found.value == pytest.approx(1 / 48)
    assert found.message is None
    broken = rising.copy()
    broken[:100, 20] = False
    found = by_kind(diagnose(with_hits(table, broken)))["falling steps"]
    assert found.value == pytest.approx(1 / 48)
    assert "In 1 of 48 steps performance falls by more than two standard errors" in found.message


def test_decisions_that_chance_takes(table):
    hits = np.random.default_rng(0).random(table.removed.shape) < 0.5
    few, many = with_hits(table, hits), with_hits(table, np.broadcast_to(hits[:, :1], hits.shape))
    noisy = by_kind(diagnose(few))
    # Independent guesses: the standard error of a gain is sqrt(0.5 / 400).
    assert noisy["noisy decisions"].value == 1.0
    assert noisy["noisy performance"].value == 1.0
    wanted = int(noisy["noisy decisions"].message.split("about ")[1].split()[0])
    assert noisy["noisy decisions"].message.removesuffix(".").split()[-1] in tl.METRICS  # advice for every way to ask
    assert wanted == pytest.approx(0.5 / 0.01**2, rel=0.1)
    calm = by_kind(diagnose(many))
    assert calm["noisy decisions"].value == 0
    assert calm["noisy decisions"].message is None
    assert calm["noisy performance"].value == 1.0
    assert by_kind(diagnose(few, epsilon=0.1))["noisy decisions"].value == 0
    curve = tl.soundness_from_probes(few, epsilon=0.1)
    assert by_kind(diagnose(curve))["noisy decisions"].value == 0
    assert "noisy decisions" not in by_kind(diagnose(tl.soundness_from_probes(few, performance="probability")))


def test_one_sample_worth_more_than_epsilon(table):
    assert by_kind(diagnose(table))["one sample"].message is None
    few = by_kind(diagnose(table.take(range(32))))["one sample"]
    assert few.value == 1 / 32
    assert "One of 32 samples is worth 0.031" in few.message
    assert "at least 200 samples" in few.message


def test_the_two_sided_estimator_does_not_decide_by_accuracy(task):
    curve = tl.soundness(task.model, task.inputs, task.labels, task.information, levels=LEVELS, imputer=task.imputer,
                         estimator="two_sided")  # fmt: skip
    assert {"noisy decisions", "one sample"}.isdisjoint(by_kind(diagnose(curve)))


def test_ties_of_quantised_maps():
    rng = np.random.default_rng(0)
    fine = rng.random((5, 32, 32))
    coarse = np.round(fine * 255).astype(np.uint8)
    assert tie_share(fine).tolist() == [0.0] * 5
    assert (tie_share(coarse) > 0.9).all()
    sweep = tl.Schedule(by="area", order="lerf", levels=tl.PROTOCOLS["paper"].levels)
    assert resolved_levels(fine, sweep).tolist() == [1.0] * 98
    rough = resolved_levels(coarse, sweep)
    assert 0.1 < rough.mean() < 0.4  # about one in four levels meets one of 256 borders
    back = dataclasses.replace(sweep, order="morf", levels=tuple(1 - level for level in sweep.levels))
    assert np.allclose(resolved_levels(coarse, back), rough)
    with pytest.raises(ValueError, match="`schedule` must be by area; got one by value"):
        resolved_levels(fine, tl.Schedule(by="value", order="morf", levels=(0.5,)))


def test_ties_by_a_slow_count():
    maps = np.random.default_rng(1).integers(0, 6, size=(4, 9)).astype(float)
    for row, share in zip(maps, tie_share(maps), strict=True):
        assert share == np.mean([(row == value).sum() > 1 for value in row])
    shares = (0.8, 0.5, 0.2)
    resolved = resolved_levels(maps, tl.Schedule(by="area", order="lerf", levels=shares))
    for share, found in zip(shares, resolved, strict=True):
        ordered, cut = np.sort(maps, axis=1), round(9 * share)
        assert found == np.mean(ordered[:, cut] > ordered[:, cut - 1])


def test_ties_are_reported_with_a_remedy(task):
    maps = (task.information > 0).astype(float)
    curve = tl.soundness(task.model, task.inputs, task.labels, maps, levels=LEVELS, imputer=task.imputer)
    found = by_kind(diagnose(curve, maps=maps))
    assert found["tied values"].value == tie_share(maps).mean() == 1.0
    assert "100% of the features share their value" in found["tied values"].message
    assert "Only " in found["resolved levels"].message
    tensor = by_kind(diagnose(curve, maps=torch.from_numpy(maps)))
    assert tensor["resolved levels"].value == found["resolved levels"].value
    complete = tl.completeness(task.model, task.inputs, task.labels, maps, imputer=task.imputer)
    assert "resolved levels" not in by_kind(diagnose(complete, maps=maps))


def test_regression_tables_are_looked_at_too():
    rng = np.random.default_rng(0)
    inputs, weights = rng.normal(size=(30, 10)), rng.normal(size=10)
    curve = tl.completeness(lambda x: x @ weights, inputs, inputs @ weights, np.abs(inputs), performance="r2",
                            imputer=tl.ConstantImputer(0.0))  # fmt: skip
    assert by_kind(diagnose(curve.table))["base performance"].value == pytest.approx(1.0)
    assert by_kind(diagnose(curve))["base performance"].message is None
