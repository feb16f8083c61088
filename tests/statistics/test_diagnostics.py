import dataclasses

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.statistics.diagnostics import _cuts, diagnose, tie_share

LEVELS = tuple(p / 100 for p in range(98, 0, -2))
SWEEP = tl.probing.Schedule(by="area", order="lerf", levels=LEVELS)


def resolved_levels(maps, schedule):
    """For each level, the share of maps that order what it keeps above what it removes; NaN without such maps."""
    within, between = _cuts(maps, schedule)
    with np.errstate(invalid="ignore"):
        return (within & between).sum(axis=0) / within.sum(axis=0)


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
    assert found.message == (
        "Of 400 maps, 3 all constant and 1 all zero: they rank no feature above another; soundness leaves zero maps "
        "out. Check the attribution method on these samples."
    )


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
    assert noisy["noisy decisions"].message == (
        "In 100% of the steps the standard error of the gain exceeds epsilon (0.01): they are decided by chance. Use "
        f"about {wanted} samples, a larger epsilon, or the metric soundness_rank."
    )
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
    assert few.message == (
        "One of 32 samples is worth 0.031 of performance, more than epsilon (0.01): any gain passes. Use at least 200 "
        "samples, or a larger epsilon."
    )


def test_ties_of_quantised_maps():
    rng = np.random.default_rng(0)
    fine = rng.random((5, 32, 32))
    coarse = np.round(fine * 255).astype(np.uint8)
    assert tie_share(fine).tolist() == [0.0] * 5
    assert (tie_share(coarse) > 0.9).all()
    sweep = tl.probing.Schedule(by="area", order="lerf", levels=tl.metrics.PROTOCOLS["paper"].levels)
    assert resolved_levels(fine, sweep).tolist() == [1.0] * 98
    rough = resolved_levels(coarse, sweep)
    assert 0.1 < rough.mean() < 0.4  # about one in four levels meets one of 256 borders
    back = dataclasses.replace(sweep, order="morf", levels=tuple(1 - level for level in sweep.levels))
    assert np.allclose(resolved_levels(coarse, back), rough)


def test_ties_by_a_slow_count():
    maps = np.random.default_rng(1).integers(0, 4, size=(6, 9)).astype(float)
    assert (maps == 0).sum(axis=1).max() > 2  # some levels cut through zeros
    for row, share in zip(maps, tie_share(maps), strict=True):
        assert share == np.mean([(row == value).sum() > 1 for value in row if value])
    shares = (0.8, 0.5, 0.2)
    resolved = resolved_levels(maps, tl.probing.Schedule(by="area", order="lerf", levels=shares))
    for share, found in zip(shares, resolved, strict=True):
        cut = round(9 * share)
        ordered = [row for row in np.sort(maps, axis=1) if row[cut] > 0]
        assert found == np.mean([row[cut] > row[cut - 1] for row in ordered])


def test_zeros_are_no_ties():
    sparse = np.array([[0.0, 0.0, 0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 3.0, 3.0, 4.0]])
    assert tie_share(sparse).tolist() == [0.0, 2 / 3]
    sweep = tl.probing.Schedule(by="area", order="lerf", levels=(5 / 6, 4 / 6, 3 / 6, 2 / 6, 0.0))
    # Kept are 1, 2, 3, 4, 6: the first map has two features with attribution; in the second the level 4/6 parts the 3s.
    assert np.array_equal(resolved_levels(sparse, sweep), [1, 0.5, 1, np.nan, np.nan], equal_nan=True)
    assert np.isnan(tie_share(np.zeros((1, 6)))).all()
    assert np.isnan(resolved_levels(np.zeros((1, 6)), sweep)).all()
    full = tl.probing.Schedule(by="area", order="lerf", levels=(1.0, 0.0))
    assert resolved_levels(np.ones((1, 6)), full).tolist() == [
        1.0,
        1.0,
    ]  # nothing kept, nothing removed: nothing is cut


def test_ties_are_reported_with_a_remedy(task):
    maps = (task.information > 0).astype(float)
    curve = tl.soundness(task.model, task.inputs, task.labels, maps, levels=LEVELS, imputer=task.imputer)
    found = by_kind(diagnose(curve, maps=maps))
    assert found["tied values"].value == tie_share(maps).mean() == 1.0
    assert "100% of the features with attribution share their value" in found["tied values"].message
    attributed, kept = maps.sum(axis=1)[:, None], 60 - curve.table.removed
    assert found["resolved levels"].value == (kept == attributed).sum() / (kept <= attributed).sum()
    assert found["resolved levels"].message == (
        "Of the levels at which maps still have attribution, only 4% fall between two values of a map; the others "
        "separate equal values. Use values before rounding or thresholding, or fewer levels."
    )
    assert found["zeros"].value == (maps == 0).mean() > 0
    assert found["zeros"].message is None
    tensor = by_kind(diagnose(curve, maps=torch.from_numpy(maps)))
    assert tensor["resolved levels"].value == found["resolved levels"].value
    complete = tl.completeness(task.model, task.inputs, task.labels, maps, imputer=task.imputer)
    assert "resolved levels" not in by_kind(diagnose(complete, maps=maps))


def test_a_map_that_is_half_zero_is_not_blamed_on_8_bit_files(task):
    maps = task.information * (1 + 1e-6 * np.random.default_rng(0).random(task.information.shape))
    curve = tl.soundness(task.model, task.inputs, task.labels, maps, levels=LEVELS, imputer=task.imputer)
    found = by_kind(diagnose(curve, maps=maps))
    assert found["zeros"].value == (maps == 0).mean() > 0.5
    assert found["tied values"].value == 0
    assert found["resolved levels"].value == 1
    assert [found[kind].message for kind in ("zeros", "tied values", "resolved levels")] == [None] * 3


def ties_of(maps, levels=(0.75, 0.5, 0.25)):
    maps = np.asarray(maps, dtype=float)
    x = torch.ones(len(maps), maps.shape[1])
    curve = tl.soundness(lambda x: torch.stack([x.sum(1), 0 * x[:, 0]], dim=1), x, [0] * len(x), maps, levels=levels,
                         imputer=tl.ConstantImputer(0.0))  # fmt: skip
    found = by_kind(diagnose(curve, maps=maps))
    return {kind: found[kind].value for kind in ("zeros", "tied values", "resolved levels") if kind in found}


def test_degenerate_maps_have_no_part_in_ties():
    assert ties_of([[1, 1, 1, 1]]) == {"zeros": 0}
    assert ties_of([[1, 1, 1, 1], [0, 0, 0, 0]]) == {"zeros": 0.5}
    assert ties_of([[1, 2, 2, 3]]) == {"zeros": 0, "tied values": 0.5, "resolved levels": 2 / 3}
    assert ties_of([[1, 2, 2, 3], [1, 1, 1, 1]]) == ties_of([[1, 2, 2, 3]])
    assert ties_of([[1, 2, 2, 3], [0, 0, 0, 0]]) == ties_of([[1, 2, 2, 3]]) | {"zeros": 0.5}
    assert ties_of([[0, 0, 0, 1]], levels=(0.5, 0.25)) == {"zeros": 0.75, "tied values": 0}  # no level within A


def sweep_of(values, hits):
    """Ten maps of ten features, steps of two; `values` of each map are not zero, so many of them are hit per level."""
    maps = (np.arange(10) < np.array(values)[:, None]) / np.arange(1.0, 11.0)
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=(0.8, 0.6, 0.4, 0.2, 0.0))
    table = tl.probe(
        lambda x: x, torch.ones(10, 10), [0] * 10, maps, imputer=tl.ConstantImputer(0.0), schedule=schedule
    )
    return with_hits(table, np.arange(10)[:, None] < np.array(hits))


def test_maps_that_end_before_performance_is_reached():
    # Exhausted are, by level: 0, 0, 2 (of 4 values or less), 6 (of 6 or less), 6.
    table = sweep_of([4, 4, 5, 6, 6, 6, 10, 10, 10, 10], [1, 4, 3, 8, 10])
    found = by_kind(diagnose(tl.soundness_from_probes(table)))["exhausted maps"]
    assert found.value == 0.6
    assert found.message == (
        "Of 10 maps, 6 have run out of attribution when the accuracy reaches 90% of its best: further gains are not "
        "due to the map. More than half have run out by the level 0.2, and the accuracy before it is 0.40. "
        "Read soundness up to the predictive level 0.40, which is reached before 10% of the maps run out, or use maps "
        "with a value at every feature."
    )
    assert by_kind(diagnose(table))["exhausted maps"] == found
    early = by_kind(diagnose(sweep_of([4, 4, 5, 6, 6, 6, 10, 10, 10, 10], [1, 9, 3, 8, 10])))["exhausted maps"]
    assert (early.value, early.message) == (0.6, None)  # 90% is reached at the second level, by attribution
    one = by_kind(diagnose(sweep_of([4, *[10] * 9], [1, 2, 3, 4, 5])))["exhausted maps"]
    assert (one.value, one.message) == (0.1, None)


def test_maps_of_zeros_end_at_once_and_constant_ones_never():
    zero = by_kind(diagnose(sweep_of([0, 0, *[10] * 8], [1, 2, 3, 4, 5])))["exhausted maps"]
    assert zero.value == 0.2
    assert "Of 10 maps, 2 have run out" in zero.message
    assert zero.message.endswith("are not due to the map. Use maps with a value at every feature.")
    x = torch.ones(10, 4)
    constant = tl.soundness(lambda x: x, x, [0] * 10, x, imputer=tl.ConstantImputer(0.0), levels=(0.5, 0.25, 0.0))
    assert by_kind(diagnose(constant))["exhausted maps"].value == 0


@pytest.mark.parametrize("measure", ["logit", "probability", "balanced_accuracy"])
def test_exhausted_maps_by_any_measure(measure):
    table = sweep_of([4] * 10, [1, 2, 3, 4, 5])
    falling = dataclasses.replace(table, logit=np.tile([-5.0, -4.0, -3.0, -2.0, -1.0], (10, 1)),
                                  probability=np.tile([0.1, 0.2, 0.3, 0.4, 0.5], (10, 1)))  # fmt: skip
    found = by_kind(diagnose(tl.soundness_from_probes(falling, performance=measure)))["exhausted maps"]
    assert f"Of 10 maps, 10 have run out of attribution when the {measure}" in found.message


def test_regression_tables_are_looked_at_too():
    rng = np.random.default_rng(0)
    inputs, weights = rng.normal(size=(30, 10)), rng.normal(size=10)
    curve = tl.completeness(lambda x: x @ weights, inputs, inputs @ weights, np.abs(inputs), performance="r2",
                            imputer=tl.ConstantImputer(0.0))  # fmt: skip
    assert by_kind(diagnose(curve.table))["base performance"].value == pytest.approx(1.0)
    assert by_kind(diagnose(curve))["base performance"].message is None


def upper_part(model, inputs, targets, **options):
    maps = inputs.abs().sum(dim=1)
    return maps * (torch.arange(9) < 4)[:, None]


def test_runs_count_zeros_ties_and_exhausted_maps(tmp_path):
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(6, 3, 9, 9)).astype(np.float32), [0, 1, 2] * 2
    evaluation = tl.evaluate(tiny_model(), (inputs, labels), {"sparse": upper_part}, metrics="soundness", shard_size=4,
                             out=tmp_path / "run", resamples=20, batch_size=16, memory_format="contiguous")  # fmt: skip
    found = {finding.kind: finding.value for finding in evaluation.results.methods["sparse"].diagnostics}
    curve, first = evaluation.curve("sparse", "soundness"), evaluation.maps("sparse")[:4].numpy()
    assert found["exhausted maps"] == curve.exhausted[-1]
    assert found["exhausted maps"] == 1.0
    assert found["zeros"] == pytest.approx((first == 0).mean()) == 5 / 9
    assert {"tied values", "resolved levels"} <= set(found)


def test_curves_that_judge_no_steps_get_no_advice_about_steps():
    inputs = torch.rand(20, 40, generator=torch.manual_seed(0))
    arguments = (lambda x: torch.stack([x.sum(1), 0 * x[:, 0]], dim=1), inputs, [0] * 20, (inputs > 0.9).float())
    kinds = {"falling steps", "exhausted maps", "noisy decisions", "one sample"}
    for estimator, judges in (("paper", True), ("rank", False)):
        curve = tl.soundness(*arguments, imputer=tl.ConstantImputer(0.0), estimator=estimator)
        assert bool(kinds & {finding.kind for finding in tl.statistics.diagnose(curve)}) is judges
