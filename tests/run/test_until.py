"""Samples in growing rounds until they are enough: the numbers of as many samples at once, with wider intervals."""

import dataclasses
import json
import logging

import numpy as np
import pytest

import twinlens as tl
from tests.fuzz.commands import parser_of
from tests.growing_runs import METHODS, OPTIONS, SAMPLES, SIZES, Model, good, run
from tests.small_runs import contents
from twinlens import evaluation as module
from twinlens.cli.flags import read_arguments
from twinlens.cli.main import main
from twinlens.cli.printing import print_evaluation
from twinlens.errors import RunError
from twinlens.options import Until
from twinlens.outcome import open_evaluation
from twinlens.run import distribution
from twinlens.run.directory import Run, read_run
from twinlens.run.plan import draw_rounds
from twinlens.run.sample_selection import read_selection
from twinlens.run.verification import verify_run
from twinlens.run.wording import describe_stopping
from twinlens.support.progress import Quiet
from twinlens.support.randomness import drawn_order

NUMBERS = ["value", "control", "skill"]
NEVER = 1e-9


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that has enough after its second round."""
    out = tmp_path_factory.mktemp("until") / "run"
    return run(0.06, out)


def test_a_run_stops_when_every_interval_of_the_headline_is_narrow_enough(stopped, capsys):
    found = stopped.results.stopping
    assert (found.until, found.met, found.samples, found.of, found.look, found.looks) == ("0.06", True, 128, 260, 2, 4)
    frame = stopped.summary()
    reach = np.maximum(frame["value"] - frame["low"], frame["high"] - frame["value"]).max()
    assert found.widest == pytest.approx(reach)
    assert reach <= 0.06
    assert stopped.results.data.samples == len(stopped.ids()) == 128
    assert 0.98 < found.confidence < 0.985
    assert 0.02 < found.spent < 0.05
    sentence = "Stopped after 128 of 260 samples: every interval within ±0.06, 2 of 4 looks."
    print_evaluation(stopped)
    assert sentence in capsys.readouterr().out
    assert sentence in stopped._repr_html_()
    assert (
        f"{sentence} Intervals hold simultaneously for all looks: each has a confidence of 98"
        in (stopped.path / "report.html").read_text()
    )
    assert stopped.overview()["stopping"]["samples"] == 128
    assert json.loads((stopped.path / "results.json").read_text())["stopping"]["look"] == 2


def test_it_has_the_numbers_of_as_many_samples_at_once_and_wider_intervals(stopped):
    once = run(None, limit=128)
    one, other = stopped.summary(), once.summary()
    np.testing.assert_allclose(one[NUMBERS], other[NUMBERS], atol=1e-12)
    assert set(stopped.ids()) == set(once.ids())
    assert (one["low"] <= other["low"]).all() & (one["high"] >= other["high"]).all()
    assert (one["skill_high"] - one["skill_low"] > 1.1 * (other["skill_high"] - other["skill_low"])).all()
    assert (one["p"] > other["p"]).all()
    pairs = [each.comparison().to_frame() for each in (stopped, once)]
    np.testing.assert_allclose(pairs[0]["difference"], pairs[1]["difference"], atol=1e-12)
    assert (pairs[0]["high"] > pairs[1]["high"]).all()
    assert (pairs[0]["p_adjusted"] > pairs[1]["p_adjusted"]).all()
    assert once.results.stopping is None


@pytest.mark.slow
def test_each_round_adds_samples_to_the_last_and_leaves_its_parts_as_they_are(stopped, tmp_path):
    """The second round of one run is the same files as that of another that goes on; nothing is measured twice."""
    model = Model()
    first = run(0.06, tmp_path / "run", model=model)
    before = contents(tmp_path / "run")
    everything = run(NEVER, tmp_path / "run", model=model)
    assert everything.results.stopping.samples == 260
    assert not everything.results.stopping.met
    assert everything.ids()[:128] == first.ids() == stopped.ids()
    assert list(everything.ids()) == [f"{k:05d}" for k in drawn_order([f"{k:05d}" for k in range(260)], seed=0)]
    parts = {name: content for name, content in before.items() if name.startswith(("maps", "probes"))}
    after = contents(tmp_path / "run")
    assert {name: after[name] for name in parts} == parts
    fresh = Model()
    run(NEVER, tmp_path / "fresh", model=fresh)
    assert model.asked == fresh.asked + 16  # the calls before the work, and two compared answers
    assert contents(tmp_path / "fresh") == after


@pytest.mark.slow
def test_whatever_the_size_of_a_shard(stopped):
    small = run(0.06, shard_size=30)
    assert small.run.manifest.shards == 2 * 3  # each round of 64 by itself
    np.testing.assert_allclose(small.summary()[NUMBERS], stopped.summary()[NUMBERS], atol=1e-7)


class Killed(BaseException):
    """What ends a process at once."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["maps", "manifest", "look", "results"])
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(stopped, tmp_path, monkeypatch, moment):
    out, count = tmp_path / "run", [0]

    def dying(function, at):
        def call(*given, **options):
            count[0] += 1
            if count[0] == at:
                raise Killed
            return function(*given, **options)

        return call

    with monkeypatch.context() as patch:
        if moment == "maps":  # of the second round
            patch.setattr(Run, "save_maps", dying(Run.save_maps, 5))
        elif moment == "manifest":  # between the rounds
            patch.setattr(Run, "write_manifest", dying(Run.write_manifest, 1))
        elif moment == "look":  # at the second round
            patch.setattr(distribution, "analyse", dying(distribution.analyse, 2))
        else:
            patch.setattr(module, "write_results", dying(module.write_results, 1))
        with pytest.raises(Killed):
            run(0.06, out)
    assert not (out / "results.json").exists()
    run(0.06, out)
    assert contents(out) == contents(stopped.path)


def test_comparisons_are_enough_where_they_are_what_is_asked(caplog):
    with caplog.at_level(logging.INFO, logger="twinlens"):
        evaluation = run("decided:0.05")
    found = evaluation.results
    assert found.stopping.until == "decided:0.05"
    assert found.stopping.met
    looks = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Look")]
    assert looks == [f"Look 1 of 4, 64 of 260 samples: {found.stopping.widest:.3f} open"]
    pairs = [pair.difference.interval for pair in evaluation.comparison().pairs]
    skills = [
        skill.interval
        for method in ("good", "blurred")
        for metric in found.sides
        if (skill := found.skill(method, metric))
    ]
    left = [0.0 if low > 0 or high < 0 else max(-low, high) for low, high in [*pairs, *skills]]
    assert found.stopping.widest == pytest.approx(max(left))
    assert max(left) <= 0.05


@pytest.mark.slow
def test_it_goes_on_while_a_comparison_is_open(tmp_path):
    """Two methods that are the same are never decided: they must come within the margin."""
    same = {"good": good, "again": good}
    assert run("decided:0.05", methods=same).results.stopping.look == 2  # 64 that agree leave ±0.06 open

    def alike(model, inputs, targets):
        return good(model, inputs, targets) + 0.05 * (inputs > 0.5)

    open_pair = run("decided:0.0001", methods={"good": good, "alike": alike}, out=tmp_path / "run")
    assert open_pair.results.stopping.look == 4
    assert not open_pair.results.stopping.met
    text = (tmp_path / "run" / "report.html").read_text()
    assert "All 260 samples were measured, not enough for ±0.0001: differences up to 0." in text


def test_few_samples_are_one_look_and_cost_nothing():
    one, other = (run(until, limit=100).summary() for until in (0.5, None))
    numbers = ["value", "low", "high", "skill", "skill_low", "p"]
    np.testing.assert_allclose(one[numbers], other[numbers], atol=1e-12)


def test_limit_is_the_upper_end():
    found = run(NEVER, limit=150).results.stopping
    assert (found.samples, found.of, found.looks) == (150, 150, 2)


@pytest.mark.slow
def test_another_question_pays_for_the_same_looks(tmp_path):
    first = run(0.06, tmp_path / "run")
    again = open_evaluation(tmp_path / "run").ask(OPTIONS["metrics"])
    assert (again.results, again.query) == (first.results, None)
    assert [finding for finding in verify_run(again.run) if finding.problem] == []
    narrower = again.ask({"completeness": OPTIONS["metrics"]["completeness"]}).results.stopping
    assert (narrower.look, narrower.confidence) == (2, first.results.stopping.confidence)


@pytest.mark.slow
def test_results_stay_readable_while_the_next_round_is_measured(tmp_path, monkeypatch):
    """A run that is killed on its way to more samples has what it found before, and can be asked about it."""
    first = run(0.06, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_maps", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            run(NEVER, tmp_path / "run")
    assert '"samples": 192' in (tmp_path / "run" / "run.json").read_text()
    found = open_evaluation(tmp_path / "run")
    assert found.ids() == first.ids()
    assert found.curve("good", "completeness").area() == first.results.area("good", "completeness")
    problems = {finding.file: finding.problem for finding in verify_run(read_run(tmp_path / "run")) if finding.problem}
    assert problems["results.json"] == "older than the last command, which has not ended"
    mine = {"completeness": OPTIONS["metrics"]["completeness"]}
    again = found.ask(mine, name="mine").results.stopping
    assert (again.until, again.met, again.samples) == ("0.06", True, 128)
    never = dataclasses.replace(again, until="1e-09", met=False, widest=0.0664)
    assert describe_stopping(never) == (
        "128 of 260 samples were measured, not enough for ±1e-09: the widest interval is ±0.066, 2 looks."
    )
    assert open_evaluation(tmp_path / "run", results="mine").outdated is None
    more = run(NEVER, tmp_path / "run")
    asked = open_evaluation(tmp_path / "run", results="mine")
    assert asked.notes == (
        "The query mine is outdated: the run has 260 samples now, and not 128. Ask again to include them.",
    )
    assert asked.curve("good", "completeness").area() == first.results.area("good", "completeness")
    problems = {finding.file: finding.problem for finding in verify_run(read_run(tmp_path / "run")) if finding.problem}
    assert problems == {"results/mine.json": f"older than the run: {asked.outdated}. Ask again"}
    assert main(["ask", str(more.path), "--name", "mine", "--quiet"]) == 0
    assert open_evaluation(more.path, results="mine").results.data.samples == 260
    assert [finding for finding in verify_run(read_run(tmp_path / "run")) if finding.problem] == []


@pytest.mark.slow
def test_a_method_joins_in_the_round_that_the_run_is_in(tmp_path):
    run(0.06, tmp_path / "run", methods={"good": good})
    before = open_evaluation(tmp_path / "run").results
    both = run(0.06, tmp_path / "run")
    assert both.results.stopping.samples >= before.stopping.samples
    assert list(both.results.methods) == list(METHODS)
    assert contents(tmp_path / "run")["results.json"] == contents(run(0.06, tmp_path / "fresh").path)["results.json"]


def test_a_method_that_fails_is_left_out_of_later_rounds(tmp_path):
    calls = []

    def broken(model, inputs, targets):
        calls.append(len(inputs))
        raise ValueError("nothing to see")

    with pytest.warns(UserWarning, match="broken fails and is left out"):
        found = run(0.06, tmp_path / "run", methods={"good": good, "broken": broken})
    assert list(found.failures) == ["broken"]
    assert calls == [64]
    assert found.results.stopping.met
    with pytest.warns(UserWarning, match="fails"), pytest.raises(RunError, match="nothing to see"):
        run(0.06, methods={"broken": broken})
    assert calls == [64, 64]


def test_a_sample_to_be_shown_may_not_have_been_drawn(stopped, tmp_path):
    ids = set(stopped.ids())
    missing = next(f"{k:05d}" for k in range(SAMPLES) if f"{k:05d}" not in ids)
    found = run(0.06, tmp_path / "run", show=[missing, stopped.ids()[5]])
    shown = [sample.id for sample in read_selection(found.run).samples if sample.reason == "Asked for by name"]
    assert shown == [stopped.ids()[5]]


def test_a_run_in_rounds_and_one_at_once_are_not_mixed(stopped, tmp_path):
    with pytest.raises(RunError, match=r"holds a run that draws its samples in rounds, until 0.06. Pass `until` again"):
        run(None, stopped.path)
    run(None, tmp_path / "run", limit=20)
    with pytest.raises(RunError, match="measured all its samples at once, and `until` draws them in rounds"):
        run(0.06, tmp_path / "run", limit=20)
    with pytest.raises(RunError, match=r"holds another run: .*rounds"):
        run(0.06, stopped.path, limit=200)


@pytest.mark.parametrize("until", [0, 1, -0.1, "dcided", "decided:", "decided:2", "0.02 ", "nan", True, "inf"])
def test_what_is_no_margin_is_refused(until):
    if until == "0.02 ":
        assert Until.read(until) == Until(0.02, decided=False)
        return
    with pytest.raises((ValueError, TypeError), match="`until` must be a"):
        tl.Options(until=until)


def test_what_cannot_be_combined_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`until` looks at the results of each round .*Leave one of them out"):
        tl.Options(until=0.02, part="1/2", out=str(tmp_path))
    with pytest.raises(ValueError, match=r"`until` needs a metric with an interval.*Add soundness_rank"):
        tl.Options(until=0.02, metrics="soundness")
    with pytest.raises(ValueError, match=r"`until` needs a metric with an interval"):
        tl.Options(until="decided", metrics=())
    with pytest.raises(ValueError, match="`resamples` must be at least 500 with `until`"):
        tl.Options(until=0.02, resamples=100)
    tl.Options(until=0.02, metrics=[tl.Soundness(performance="probability")])


@pytest.mark.parametrize(
    ("text", "until"), [("0.02", "0.02"), ("decided", "decided:0.02"), ("decided:0.1", "decided:0.1")]
)
def test_the_command_line_takes_the_same(text, until):
    given = parser_of("evaluate").parse_args(["--until", text])
    assert tl.Options(**read_arguments(given)).until == until


def test_run_json_says_which_round_it_is_in(stopped):
    manifest = stopped.run.manifest
    assert manifest.rounds.sizes == SIZES
    assert [manifest.shard_row(k) for k in (0, 63, 64, 127)] == [(0, 0), (0, 63), (1, 0), (1, 63)]
    assert [manifest.positions(shard) for shard in range(manifest.shards)] == [range(64), range(64, 128)]
    assert (stopped.path / "run.json").read_text().count('"samples": 128') == 1


class Patient(Quiet):
    """Does not mind that workers take their time."""

    def warn(self, message):
        if not message.startswith("No worker has started yet"):
            super().warn(message)


@pytest.mark.ray
def test_a_cluster_gives_the_same_bytes(stopped, tmp_path):
    run(0.06, tmp_path / "run", engine="ray", progress=Patient())
    one, other = contents(stopped.path), contents(tmp_path / "run")
    assert one["results.json"] == other["results.json"]
    assert one.keys() == other.keys()


def test_rounds_are_drawn_from_where_the_run_is(stopped):
    """Of a run that has stopped, nothing is left to draw but what comes after it."""

    class Drawn:
        def __init__(self, size):
            self.samples, self.data = size, None

        @staticmethod
        def first(size):
            return Drawn(size)

    assert next(draw_rounds(stopped.run, Drawn(260))).samples == 128
