import dataclasses

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.statistics.comparison import compare_curves
from twinlens.support.estimate import Estimate

LEVELS = tuple(p / 100 for p in range(98, 0, -4))


@pytest.fixture(scope="module")
def task():
    return sparse_linear(150, features=60)


@pytest.fixture(scope="module")
def measured(task):
    grid = map_grid(task)
    maps = {"truth": grid["truth"], "half": grid["removed 0.5"], "false": grid["introduced 1"]}
    options = {"imputer": task.imputer, "performance": "probability"}
    arguments = (task.model, task.inputs, task.labels)
    return {
        name: {
            "soundness_rank": tl.soundness(*arguments, m, estimator="rank", **options),
            "completeness": tl.completeness(*arguments, m, **options),
            "insertion": tl.insertion(*arguments, m, **options),
        }
        for name, m in maps.items()
    }


def test_differences_ranks_and_words(measured):
    result = compare_curves(measured, resamples=200)
    frame = result.to_frame().set_index(["metric", "first", "second"])
    assert len(frame) == 9
    sound = frame.loc[("soundness_rank", "truth", "false")]
    assert sound["low"] < sound["difference"] < sound["high"]
    assert sound["difference"] > 0.1
    assert sound["wins"] == 1.0
    assert sound["sample_wins"] > 0.9
    assert sound["p_value"] == sound["p_adjusted"] == pytest.approx(1 / 201)
    complete = frame.loc[("completeness", "truth", "half")]
    areas = {name: measured[name]["completeness"].area() for name in measured}
    assert complete["difference"] == pytest.approx(areas["truth"] - areas["half"])
    # The smaller the loss of insertion the better, so that the winner has the negative difference.
    insertion = frame.loc[("insertion", "truth", "false")]
    assert insertion["difference"] < 0
    assert insertion["wins"] == 1.0
    ranks = {(row.metric, row.method): (row.rank, row.best_rank, row.worst_rank) for row in result.ranking}
    assert ranks["insertion", "truth"][0] == 1
    assert ranks["soundness_rank", "false"] == (3, 3, 3)
    assert [row.rank for row in result.ranking if row.metric == "soundness_rank"] == [1, 2, 3]
    verdict = result.verdicts[1]
    assert verdict.startswith(f"truth is sounder than false by {sound['difference']:.3f} ")
    assert f"[{sound['low']:.3f}, {sound['high']:.3f}]; truth is better in completeness than false by" in verdict
    assert "; truth is better in insertion than false by" in verdict


def test_a_verdict_says_what_is_not_decided_and_how_many_samples_would_decide(measured):
    mixed = {"IG": measured["false"], "IG-SG": measured["truth"] | {"completeness": measured["false"]["completeness"]}}
    verdict = compare_curves(mixed, resamples=100).verdicts[0]
    assert verdict.startswith("IG-SG is sounder than IG by 0.")
    # No sample differs, but 3.7 in 150 others may: the rule of three.
    undecided = "completeness is not decided with 150 samples (0.000 [-0.025, 0.025]; about 230 would decide)"
    assert f"]; {undecided}; IG-SG is better in insertion" in verdict


def test_a_verdict_on_few_samples_says_how_many_it_takes(measured):
    few = {
        name: tl.completeness_from_probes(curves["completeness"].table.take(range(9)), performance="probability")
        for name, curves in measured.items()
    }
    result = compare_curves(few, resamples=100)
    pair = result.pairs[1]
    assert (pair.difference.interval, pair.difference.p, pair.p_alone, pair.wins) == (None, None, None, None)
    size = f"{pair.difference.value:.3f}"
    assert result.verdicts[1] == (
        f"truth and false: completeness is not decided with 9 samples ({size}; at least 10 are needed)."
    )
    assert result.clear_best("completeness") is None
    assert all((row.best_rank, row.worst_rank) == (1, 3) for row in result.ranking)


def test_few_samples_have_no_front(measured):
    def take(count):
        return {
            name: {
                "soundness_rank": tl.Soundness(estimator="rank").read(
                    [
                        each.take(range(count))
                        for each in (curves["soundness_rank"].table, curves["soundness_rank"].opposite)
                    ]
                ),
                "completeness": tl.completeness_from_probes(curves["completeness"].table.take(range(count))),
            }
            for name, curves in measured.items()
        }

    assert compare_curves(take(9), resamples=50).pareto == {}
    assert "truth" in compare_curves(take(10), resamples=50).pareto


def test_the_worse_method_may_come_first(measured):
    pair = compare_curves(
        {"false": measured["false"]["soundness_rank"], "truth": measured["truth"]["soundness_rank"]}, resamples=50
    )
    assert pair.pairs[0].metric == "soundness_rank"
    assert pair.pairs[0].difference.value < 0
    assert pair.verdicts[0].startswith("truth is sounder than false by 0.")
    assert "-" not in pair.verdicts[0]


def test_the_pareto_front(measured):
    two = {name: measured[name] for name in ("truth", "false")}
    assert compare_curves(two, resamples=100).pareto == {"truth": 1.0}
    without = {name: {"soundness_rank": m["soundness_rank"]} for name, m in measured.items()}
    assert compare_curves(without, resamples=10).pareto == {}
    # The first is better in one metric, the last in the other.
    crossed = {
        "one": {
            "soundness_rank": measured["truth"]["soundness_rank"],
            "completeness": measured["half"]["completeness"],
        },
        "other": {
            "soundness_rank": measured["false"]["soundness_rank"],
            "completeness": measured["truth"]["completeness"],
        },
    }
    assert compare_curves(crossed, resamples=50).pareto == {"one": 1.0, "other": 1.0}


def test_a_method_does_not_differ_from_itself(measured):
    curve = measured["truth"]["completeness"]
    pair = compare_curves({"one": curve, "same": curve}, resamples=50).pairs[0]
    # No sample differs; how often others would is unknown.
    unseen = -np.log(2 / 51 / 2) / 150
    assert (pair.difference.value, *pair.difference.interval) == pytest.approx((0.0, -unseen, unseen))
    assert (pair.p_alone, pair.wins) == (1.0, 0.5)
    assert compare_curves({"one": curve, "same": curve}, resamples=50).verdicts == (
        "one and same: completeness is not decided with 150 samples (0.000 [-0.026, 0.026]; about 260 would decide).",
    )


def test_samples_are_matched_by_id(measured):
    one, other = measured["truth"]["completeness"], measured["half"]["completeness"]
    order = np.random.default_rng(0).permutation(len(other.table))
    shuffled = tl.completeness_from_probes(other.table.take(order), performance="probability")
    a, b = (compare_curves({"one": one, "other": curve}, resamples=60).pairs[0] for curve in (other, shuffled))
    assert a.difference.low == pytest.approx(b.difference.low, abs=1e-12)
    assert a.sample_wins == b.sample_wins
    # Paired differences are narrower than those of methods that were resampled apart.
    apart = [curve.replicate(np.random.default_rng(k).multinomial(150, np.full(150, 1 / 150), size=60).astype(float))[1]
             for k, curve in enumerate((one, other))]  # fmt: skip
    assert a.difference.high - a.difference.low < np.ptp(
        np.quantile((apart[0] - apart[1]).mean(axis=1), [0.025, 0.975])
    )


def test_areas_of_soundness_are_those_of_each_curve_by_itself(task):
    """A further method changes no area, and one that does not reach the level has none."""
    grid = map_grid(task)
    arguments, options = (task.model, task.inputs, task.labels), {"imputer": task.imputer, "levels": LEVELS}
    curves = {name: tl.soundness(*arguments, grid[name], **options) for name in ("truth", "removed 0.5", "inverted")}

    def areas(names, **given):
        result = compare_curves({name: curves[name] for name in names}, resamples=30, **given)
        return {row.method: row.area.value for row in result.ranking}

    own = {name: curve.area() for name, curve in curves.items()}
    assert areas(curves) == own
    assert areas(["truth", "inverted"]) == {name: own[name] for name in ("truth", "inverted")}
    fixed = {name: curve.area(high=0.3) for name, curve in curves.items()}
    assert areas(curves, high=0.3) == areas(curves, high={"soundness": 0.3}) == fixed
    assert areas(curves, high={"completeness": 0.3}) == own
    tops = {name: curve.performance.max() for name, curve in curves.items()}
    assert tops["inverted"] < tops["truth"]
    result = compare_curves(curves, resamples=30, high=tops["truth"])
    pair = next(pair for pair in result.pairs if (pair.first, pair.second) == ("truth", "inverted"))
    assert (pair.difference.value, pair.difference.interval, pair.difference.p, pair.p_alone) == (None,) * 4
    assert "truth and inverted: soundness is not decided (inverted not reached)." in result.verdicts
    never = compare_curves(curves, resamples=30, high=2.0)
    assert never.verdicts[0] == "truth and removed 0.5: soundness is not decided (truth and removed 0.5 not reached)."


def test_no_number_is_a_negative_zero(measured):
    result = compare_curves({name: m["completeness"] for name, m in measured.items()}, resamples=50)
    size = Estimate(value=-1e-5, low=-2e-5, high=1e-5, p=0.5, samples=150)
    area = Estimate(value=-1e-5, low=-2e-5, high=-1e-6, samples=150)
    tiny = dataclasses.replace(
        result,
        pairs=tuple(dataclasses.replace(pair, difference=size) for pair in result.pairs),
        ranking=tuple(dataclasses.replace(row, area=area) for row in result.ranking),
    )
    assert "completeness differs by less than 0.02 (0.000 [0.000, 0.000])." in tiny.verdicts[0]
    assert str(tiny.ranking[0].area) == "0.000 [0.000, 0.000]"


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_verdicts_and_intervals_agree(task, confidence):
    """Many maps of nearly equal quality, so that some pairs are decided, some are not, and some are on the edge."""
    rng = np.random.default_rng(0)
    maps = {f"{k}": task.information * (rng.random(task.information.shape) > 0.02 * k) + 1e-3 for k in range(8)}
    curves = {
        name: tl.completeness(task.model, task.inputs, task.labels, m, imputer=task.imputer) for name, m in maps.items()
    }
    result = compare_curves(curves, resamples=200, confidence=confidence)
    sizes = [pair.difference for pair in result.pairs]
    decided = [size.low > 0 or size.high < 0 for size in sizes]
    assert decided == [size.p < 1 - confidence for size in sizes] == [p.decided for p in result.pairs]
    assert 0 < sum(decided) < len(decided)
    assert all(size.low <= size.value <= size.high for size in sizes)
    # Corrected for 28 pairs, each interval is wider than for its pair alone, and no p-value is smaller.
    assert all(pair.p_alone <= pair.difference.p for pair in result.pairs)
    alone = compare_curves({name: curves[name] for name in ("0", "7")}, resamples=200, confidence=confidence).pairs[0]
    pair = next(pair for pair in result.pairs if (pair.first, pair.second) == ("0", "7"))
    assert (alone.difference.value, alone.p_alone) == (pair.difference.value, pair.p_alone)
    assert alone.difference.p == alone.p_alone
    assert pair.difference.low < alone.difference.low
    for verdict, one in zip(result.verdicts, result.pairs, strict=True):
        assert ("is not decided with 150 samples" in verdict or "differs by less than" in verdict) == (not one.decided)
        assert f"{abs(one.difference.value):.3f}" in verdict
        assert f"{max(map(abs, one.difference.interval)):.3f}]" in verdict
    # Ranks leave open what is not decided.
    for row in result.ranking:
        assert row.best_rank <= row.rank <= row.worst_rank
        assert row.area.low < row.area.value < row.area.high
    first = result.ranking[0]
    beaten = sum(pair.decided for pair in result.pairs if first.method in (pair.first, pair.second))
    assert (first.best_rank, first.worst_rank) == (1, len(curves) - beaten)


def test_the_best_is_clear_of_all_other_methods(measured):
    complete = {name: m["completeness"] for name, m in measured.items()}
    assert compare_curves(complete, resamples=100).clear_best("completeness") == "truth"
    twice = complete | {"again": complete["truth"]}
    assert compare_curves(twice, resamples=100).clear_best("completeness") is None
    assert compare_curves(twice, resamples=100, baselines=["again"]).clear_best("completeness") == "truth"
    assert compare_curves(complete, resamples=100, baselines=["truth"]).clear_best("completeness") == "false"
    assert compare_curves(complete, resamples=100, baselines=["truth", "half"]).clear_best("completeness") is None
    # The smaller the loss of insertion the better.
    insertion = {name: m["insertion"] for name, m in measured.items()}
    assert insertion["truth"].area() < insertion["false"].area()
    assert compare_curves(insertion, resamples=100).clear_best("removal (lerf)") == "truth"


def test_baselines_are_compared_but_never_on_the_front(measured):
    two = {name: measured[name] for name in ("truth", "false")}
    plain, result = compare_curves(two, resamples=100), compare_curves(two, resamples=100, baselines=["truth"])
    assert result.pairs == plain.pairs
    assert result.ranking == plain.ranking
    # The baseline beats the other on both sides, and neither is on the front nor keeps the other off it.
    assert plain.pareto == {"truth": 1.0}
    assert result.pareto == {"false": 1.0}


def test_soundness_without_an_interval_is_not_decided(task):
    grid = map_grid(task)
    arguments, options = (task.model, task.inputs, task.labels), {"imputer": task.imputer, "levels": LEVELS}
    curves = {name: tl.soundness(*arguments, grid[name], **options) for name in ("truth", "random", "inverted")}
    result = compare_curves(curves, resamples=50)
    for pair in result.pairs:
        assert (pair.difference.interval, pair.difference.p, pair.p_alone) == (None, None, None)
        assert np.isfinite([pair.difference.value, pair.wins]).all()
    assert result.verdicts[0].startswith("truth and random: soundness is not decided (0.")
    assert result.verdicts[0].endswith(", without an interval).")
    assert {(row.best_rank, row.worst_rank) for row in result.ranking} == {(1, 3)}
    assert {row.area.interval for row in result.ranking} == {None}
    assert result.clear_best("soundness") is None
    found = tl.skill(curves["truth"], curves["random"], resamples=50)
    assert (found.interval, found.p) == (None, None)
    assert np.isfinite(found.value)


def test_what_cannot_be_compared_is_refused(measured):
    complete = {name: m["completeness"] for name, m in measured.items()}
    with pytest.raises(ValueError, match="at least two methods to compare; got 1"):
        compare_curves({"truth": complete["truth"]})
    few = tl.completeness_from_probes(complete["half"].table.take(range(100)), performance="probability")
    with pytest.raises(
        ValueError, match=r"completeness of 'half' has 100, the first curve 150, and 50 ids are in one"
    ) as refused:
        compare_curves({"truth": complete["truth"], "half": few})
    assert str(refused.value).endswith("to both, or take the common samples with ProbeTable.take.")
    with pytest.raises(ValueError, match="'half' has no completeness"):
        compare_curves({"truth": measured["truth"], "half": {"soundness_rank": measured["half"]["soundness_rank"]}})
    other = tl.completeness_from_probes(complete["half"].table)
    with pytest.raises(
        ValueError, match=r"completeness of 'half' was measured as completeness, accuracy.*, that of 'truth' as"
    ):
        compare_curves({"truth": complete["truth"], "half": other})
    with pytest.raises(ValueError, match="`confidence` must lie within"):
        compare_curves(complete, confidence=5)


def test_measures_of_the_data_set_have_no_sample_wins(measured):
    curves = {
        name: tl.completeness_from_probes(m["completeness"].table, performance="balanced_accuracy")
        for name, m in measured.items()
    }
    assert compare_curves(curves, resamples=10).pairs[0].sample_wins is None
    by_accuracy = {name: tl.completeness_from_probes(m["completeness"].table) for name, m in measured.items()}
    assert 0 <= compare_curves(by_accuracy, resamples=10).pairs[0].sample_wins <= 1


def test_false_alarms_are_rare():
    """Two maps of equal quality, swapped at random; a reduced version of benchmarks/interval_coverage.py."""
    task = sparse_linear(800, features=60)
    rng = np.random.default_rng(0)
    pair = [task.information * (rng.random(task.information.shape) > 0.5) + 1e-3 for _ in range(2)]
    curves = [tl.completeness(task.model, task.inputs, task.labels, m, imputer=task.imputer) for m in pair]
    tables = [dataclasses.replace(c.table, ids=tuple(f"{k}-{n}" for n in c.table.ids)) for k, c in enumerate(curves)]
    both, names = tl.ProbeTable.concatenate(tables), tuple(map(str, range(120)))
    alarms = []
    for _ in range(120):
        index, swap = rng.integers(800, size=120), rng.integers(0, 2, size=120)
        one, other = (
            tl.completeness_from_probes(dataclasses.replace(both.take(index + 800 * side), ids=names))
            for side in (swap, 1 - swap)
        )
        alarms.append(compare_curves({"one": one, "other": other}, resamples=120).pairs[0].p_alone < 0.05)
    assert 0.01 <= np.mean(alarms) <= 0.1


def test_torch_threads_change_nothing(measured):
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(compare_curves(measured, resamples=30, seed=4))
    finally:
        torch.set_num_threads(threads)
    assert results[0] == results[1]
