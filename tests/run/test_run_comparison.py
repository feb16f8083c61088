"""Comparison between runs: tabular rows and models that read some of their features."""

import dataclasses
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.report.runs import make_run
from twinlens.cli.main import main
from twinlens.run.fingerprints import FILE, read_fingerprints
from twinlens.run.run_comparison import _Resampling, compare_evaluations
from twinlens.run.stored_run import run_labels

LEVELS = (0.9, 0.7, 0.5, 0.3, 0.1)
METRICS = {
    "completeness": tl.Completeness(performance="probability"),
    "soundness_rank": tl.Soundness(estimator="rank"),
}
OPTIONS = {
    "imputer": tl.ConstantImputer(0.0),
    "batch_size": 64,
    "memory_format": "contiguous",
    "resamples": 60,
    "control_share": 1.0,
}
WEIGHTS = (2.0, 2.0, 2.0, 0.0, 0.0, 0.0)
SAMPLES = 60


class Reads(nn.Module):
    """Tells two classes apart by the sign of a weighted sum."""

    def __init__(self, weights=WEIGHTS):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(weights))

    def forward(self, rows):
        total = (rows * self.weights).sum(1)
        return torch.stack([-total, total], dim=1)


def rows_of(seed=0, count=SAMPLES):
    rows = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    return rows, (rows @ np.array(WEIGHTS, np.float32) > 0).astype(int)


def marks(rows, labels):
    """What the weights above make of each feature."""
    return np.clip(rows * np.array(WEIGHTS, np.float32) * (2 * labels - 1)[:, None], 0, None) + 0.01


def evaluated(out, data=None, weights=WEIGHTS, *, ids=None, maps=marks, methods=(), **options):
    rows, labels = rows_of() if data is None else data
    samples = tl.data.from_arrays(rows, labels, ids=ids)
    given = {"metrics": METRICS, "maps": {"marks": maps(rows, labels)}, **OPTIONS, **options}
    return tl.evaluate(Reads(weights), samples, methods, out=out, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def right(folder):
    """A model that reads what the maps mark."""
    return evaluated(folder / "right")


@pytest.fixture(scope="module")
def other(folder):
    """A model that reads one of the three features that the maps mark, and three others."""
    return evaluated(folder / "other", weights=(2.0, 0.0, 0.0, 2.0, 2.0, 2.0))


def by_name(result):
    return {(pair.metric, pair.quantity, pair.first, pair.second): pair for pair in result.pairs}


def test_a_planted_difference_is_found(right, other):
    result = tl.compare([right, other])
    assert isinstance(result, tl.statistics.RunComparison)
    assert result.runs == ("right", "other")
    assert result.notes == ()
    found = by_name(result)
    assert len(found) == 4
    for (metric, quantity, *_), pair in found.items():
        assert pair.paired
        assert pair.samples == (SAMPLES, SAMPLES)
        assert pair.decided
        assert 0 < pair.difference.low < pair.difference.value < pair.difference.high
        if quantity == "area":
            areas = [run.results.area("marks", metric) for run in (right, other)]
            assert pair.difference.value == pytest.approx(areas[0] - areas[1])
        else:
            skills = [run.results.skill("marks", metric).value for run in (right, other)]
            assert pair.difference.value == pytest.approx(skills[0] - skills[1])
    assert result.verdicts[0].startswith("marks is better in completeness on right than on other by ")
    frame = result.to_frame()
    assert len(frame) == 4
    assert frame.attrs["notes"] == []
    turned = by_name(tl.compare([other, right]))["completeness", "area", "other", "right"]
    assert turned.difference.value == -found["completeness", "area", "right", "other"].difference.value


def test_equal_models_do_not_differ(right, folder):
    again = evaluated(folder / "again")
    for pair in tl.compare([right, again]).pairs:
        assert (pair.difference.value, pair.difference.p, pair.p_alone) == (0.0, 1.0, 1.0)
        # Of 60 samples, or 30 pairs of the control, none differs: 3.7 in as many others may, by at most 1.
        independent = 60 if pair.quantity == "area" else 30
        assert pair.difference.interval == pytest.approx([-3.69 / independent, 3.69 / independent], abs=1e-4)
        assert not pair.decided
        assert "is not decided with 60 samples" in pair.verdict


def test_names_of_the_persons_and_directories(right, other):
    result = tl.compare({"one": right, "two": str(other.path), "three": other.path})
    assert result.runs == ("one", "two", "three")
    assert {(pair.first, pair.second) for pair in result.pairs} == {("one", "two"), ("one", "three"), ("two", "three")}
    alone = tl.compare([right, other]).pairs[0].difference
    assert result.pairs[0].difference.interval == pytest.approx(alone.interval)
    assert tl.compare([right, right.path]).runs == (str(right.path), f"{right.path} (2)")
    assert run_labels([right, other]) == ["right", "other"]


def test_the_same_samples_in_another_order_are_paired(right, folder):
    rows, labels = rows_of()
    order = np.random.default_rng(1).permutation(SAMPLES)
    ids = [f"{k:05d}" for k in order]
    mixed = evaluated(folder / "mixed", (rows[order], labels[order]), ids=ids)
    assert mixed.results.data.digest != right.results.data.digest
    result = tl.compare([right, mixed])
    assert result.notes == ()
    [pair] = [pair for pair in result.pairs if (pair.metric, pair.quantity) == ("completeness", "area")]
    assert pair.paired
    assert pair.difference.value == pytest.approx(0.0, abs=1e-12)
    assert not pair.decided


def test_arrays_with_the_same_default_ids_are_not_paired(right, folder):
    data = rows_of(seed=9, count=50)
    elsewhere = evaluated(folder / "elsewhere", data)
    assert set(elsewhere.ids()) < set(right.ids())
    result = tl.compare([right, elsewhere])
    for pair in result.pairs:
        assert not pair.paired
        assert pair.samples == (SAMPLES, 50)
    assert result.notes[0] == (
        "right and elsewhere share no samples: the runs are compared as independent, with 60 and 50 samples. 50 ids "
        "occur in both, but with different content or labels."
    )
    # The spread of both is in the difference.
    pair = by_name(result)["completeness", "area", "right", "elsewhere"]
    reach = [run.results.methods["marks"].metrics["completeness"].area.interval for run in (right, elsewhere)]
    wanted = np.hypot(*(high - low for low, high in reach))
    assert pair.difference.high - pair.difference.low == pytest.approx(wanted, rel=0.25)


def test_runs_of_other_samples_are_resampled_by_draws_of_their_own(right, other, folder):
    elsewhere = evaluated(folder / "apart", rows_of(seed=11))
    resampling = _Resampling({"a": right, "b": other, "c": elsewhere}, 20, 5)
    paired, draws = resampling.draw(("a", "b"), "area")
    assert paired
    assert [seed for _, seed in draws] == [5, 5]
    (paired, one), (_, two) = (resampling.draw((name, "c"), "area") for name in "ab")
    assert [seed for _, seed in one] == [seed for _, seed in two]
    assert len({seed for _, seed in one}) == 2
    assert not paired


def test_a_difference_between_data_sets_is_found(right, folder):
    worse = evaluated(folder / "worse", rows_of(seed=9), maps=lambda rows, labels: marks(rows, labels)[:, ::-1])
    pair = by_name(tl.compare([right, worse]))["completeness", "area", "right", "worse"]
    assert not pair.paired
    assert pair.difference.low > 0.1


def test_samples_of_another_label_are_others(right, folder):
    rows, labels = rows_of()
    changed = np.where(np.arange(SAMPLES) < 20, 1 - labels, labels)
    relabelled = evaluated(folder / "relabelled", (rows, changed))
    result = tl.compare([right, relabelled])
    assert "share 40 samples" in result.notes[0]
    assert all(pair.samples == (40, 40) for pair in result.pairs)


def test_partly_shared_samples_are_compared_alone(right, folder):
    rows, labels = rows_of()
    more = rows_of(seed=9, count=15)
    data = np.concatenate([rows[:40], more[0]]), np.concatenate([labels[:40], more[1]])
    ids = [*(f"{k:05d}" for k in range(40)), *(f"new {k}" for k in range(15))]
    partly = evaluated(folder / "partly", data, ids=ids)
    result = tl.compare([right, partly])
    assert result.notes == (
        "right and partly share 40 samples and are compared on these, paired; 20 of right and 15 of partly are left "
        "out.",
    )
    pair = by_name(result)["completeness", "area", "right", "partly"]
    assert (pair.paired, pair.samples) == (True, (40, 40))
    assert pair.difference.value == pytest.approx(0.0, abs=1e-12)
    few = tl.compare(
        [partly, evaluated(folder / "few", (rows[35:], labels[35:]), ids=[f"{k:05d}" for k in range(35, 60)])]
    )
    assert "share 5 samples, too few to pair" in few.notes[0]
    assert {pair.paired for pair in few.pairs} == {False}


def test_three_runs_are_decided_at_once(right, other, folder):
    third = evaluated(folder / "third", weights=(2.0, 2.0, 0.0, 0.0, 0.0, 2.0))
    found, two = by_name(tl.compare([right, other, third])), by_name(tl.compare([right, other]))
    assert {key[2:] for key in found} == {("right", "other"), ("right", "third"), ("other", "third")}
    key = ("completeness", "area", "right", "other")
    three, pair = found[key].difference, two[key].difference
    assert three.value == pair.value
    assert found[key].p_alone == two[key].p_alone
    assert three.high - three.low > pair.high - pair.low


def test_another_question_is_not_compared(folder):
    soundness = tl.Soundness(performance="probability", levels=LEVELS)
    metrics = {"completeness": METRICS["completeness"], "soundness": soundness}
    right, other = (evaluated(folder / "judged" / name, metrics=metrics) for name in ("right", "other"))

    def asked(**changes):
        shutil.rmtree(other.path.parent / "asked", ignore_errors=True)
        copy = tl.open_evaluation(shutil.copytree(other.path, other.path.parent / "asked"))
        return copy.ask({**metrics, "soundness": dataclasses.replace(soundness, **changes)})

    result = tl.compare([right, asked(epsilon=0.05)])
    assert result.notes == (
        "soundness is not compared between right and asked (soundness-epsilon-0.05): epsilon is 0.01 in right and 0.05 "
        "in asked (soundness-epsilon-0.05). Ask both with the same settings: evaluation.ask(…), or twinlens ask --name "
        "NAME and twinlens compare --results NAME.",
    )
    assert {pair.metric for pair in result.pairs} == {"completeness"}
    [note] = tl.compare([right, asked(levels=(0.7, 0.5, 0.3))]).notes
    assert "levels is [0.9, 0.7, 0.5, 0.3, 0.1] in right and [0.7, 0.5, 0.3] in asked (" in note
    [note] = tl.compare([right, asked(performance="logit")]).notes
    assert "performance is 'probability' in right and 'logit' in asked (" in note
    lenient = dataclasses.replace(tl.metrics.PROTOCOLS["paper"], name="mine", levels=(0.5,), strict=False)
    [note] = tl.compare([right, asked(protocol=lenient)]).notes
    assert "protocol.strict is True in right and False in asked (" in note


def test_levels_that_are_named_and_those_by_default_are_the_same_question(right, folder):
    default = tl.Soundness(performance="probability")
    levels = default.sweeps(6)[0].schedule.levels
    runs = [
        evaluated(folder / name, metrics={"mine": dataclasses.replace(default, levels=given)}, control="none")
        for name, given in (("default", None), ("named", levels), ("fewer", levels[:-1]))
    ]
    assert [pair.difference.value for pair in tl.compare(runs[:2]).pairs] == [0.0]
    with pytest.raises(ValueError, match=r"levels is \[0.98, 0.97, … 0.02, 0.01\] \(98 values\) in default and \[0.98"):
        tl.compare([runs[0], runs[2]])


def test_nothing_in_common_is_refused_with_the_reasons(right, folder):
    metrics = {"deletion": tl.Deletion(performance="probability")}
    alone = evaluated(folder / "alone", metrics=metrics, control="none")
    with pytest.raises(ValueError, match=r"`compared` must hold runs that can be compared\. Of the metrics, complete"):
        tl.compare([right, alone])
    assert compare_evaluations({"a": right, "b": alone}).pairs == ()


@pytest.mark.slow
def test_other_imputers_inputs_and_methods_are_said(right, folder):
    blank = evaluated(folder / "blank", imputer=tl.ConstantImputer(0.5), methods=["random"])
    notes = compare_evaluations({"a": right, "b": blank}).notes
    assert "Of the methods, random is only in b." in notes
    assert any("imputer.value is 0.0 in a and 0.5 in b" in note for note in notes)
    data = [(rows_of(), "all"), (tuple(each[:50] for each in rows_of()), "most")]
    means = [evaluated(folder / f"mean {name}", given, imputer="mean") for given, name in data]
    assert "Removed features are replaced by different means in mean all and mean most." in tl.compare(means).notes
    pieces = evaluated(folder / "pieces", segments=np.tile([0, 0, 1, 2, 3, 4], (60, 1)))
    notes = compare_evaluations({"a": right, "b": pieces}).notes
    assert any("Features differ: single positions in a, segments ((6,)" in note for note in notes)
    sizes = [
        make_run(folder / f"size {n}", methods={"m": {"method": n}}, metrics="deletion") for n in ("sobel", "random")
    ]
    notes = tl.compare(sizes).notes
    assert "m differs: method is 'sobel' in size sobel and 'random' in size random." in notes


def test_areas_of_the_papers_soundness_are_taken_up_to_the_same_level(right, folder):
    metrics = {"soundness": tl.Soundness(performance="probability", levels=LEVELS)}
    runs = [evaluated(folder / f"{w}", weights=(w, w, w, 0.0, 0.0, 0.0), metrics=metrics) for w in (2.0, 0.4)]
    ends = [run.results.soundness_up_to["soundness"] for run in runs]
    assert ends[1] < ends[0]
    result = tl.compare(runs)
    assert result.notes == (
        f"Areas of soundness are taken up to probability {ends[1]:.3f} in both; separately, the limit is "
        f"{ends[0]:.3f} in 2.0 and {ends[1]:.3f} in 0.4.",
    )
    areas = [run.curve("marks", "soundness").area(high=ends[1]) for run in runs]
    assert result.pairs[0].difference.value == pytest.approx(areas[0] - areas[1])
    named = tl.compare(runs, high=0.55)
    assert named.notes == ()
    wanted = [run.curve("marks", "soundness").area(high=0.55) for run in runs]
    assert named.pairs[0].difference.value == pytest.approx(wanted[0] - wanted[1])


def test_runs_without_fingerprints_are_paired_by_the_digest_of_their_data_alone(right, other, folder):
    old = tl.open_evaluation(shutil.copytree(other.path, folder / "old"))
    (old.path / FILE).unlink()
    assert tl.compare([right, old]).pairs == tl.compare({"right": right, "old": other}).pairs
    some = tl.open_evaluation(evaluated(folder / "some", tuple(each[:40] for each in rows_of())).path)
    assert tl.compare([right, some]).pairs[0].paired
    (some.path / FILE).unlink()
    result = tl.compare([right, some])
    assert not result.pairs[0].paired
    assert result.notes[0].startswith(
        f"The samples that right and some share are unknown, because some has no {FILE}: the runs are compared as "
        "independent, with 60 and 40 samples."
    )


def test_damaged_fingerprints_are_refused(right, folder):
    some = evaluated(folder / "damaged", tuple(each[:40] for each in rows_of()))
    assert len(read_fingerprints(some.run)) == 40
    shutil.copy(right.path / FILE, some.path / FILE)
    with pytest.raises(tl.RunError, match="does not hold the samples of its run"):
        tl.compare([right, some])
    (some.path / FILE).write_bytes(b"nothing")
    with pytest.raises(tl.RunError, match="is damaged"):
        tl.compare([right, some])


def test_refusals(right, other):
    curve = right.curve("marks", "completeness")
    with pytest.raises(ValueError, match="`compared` must hold curves of methods or runs; got both"):
        tl.compare({"a": right, "b": curve})
    with pytest.raises(ValueError, match="at least two methods or runs to compare; got 1"):
        tl.compare([right])
    with pytest.raises(ValueError, match="`baselines` can only be set for curves"):
        tl.compare([right, other], baselines=["marks"])
    with pytest.raises(TypeError, match="`compared` must be"):
        tl.compare([right, 3])
    with pytest.raises(ValueError, match="holds no run"):
        tl.compare([right, "nowhere"])
    with pytest.raises(ValueError, match="`confidence` must lie within"):
        tl.compare([right, other], confidence=2.0)


def test_curves_are_compared_as_before(right, other):
    curves = {"one": right.curve("marks", "completeness"), "two": other.curve("marks", "completeness")}
    found = tl.compare(curves)
    assert isinstance(found, tl.statistics.Comparison)
    pair = by_name(tl.compare([right, other]))["completeness", "area", "right", "other"]
    assert found.pairs[0].difference == pair.difference
    assert found.pairs[0].p_alone == pair.p_alone


def test_verify_finds_damaged_fingerprints(folder, capsys):
    some = evaluated(folder / "verified", metrics={"completeness": METRICS["completeness"]}, control="none")
    assert main(["verify", str(some.path)]) == 0
    (some.path / FILE).write_bytes((some.path / FILE).read_bytes()[:-1] + b"\0")
    assert main(["verify", str(some.path)]) == 2
    assert FILE in capsys.readouterr().out
