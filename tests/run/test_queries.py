"""Queries: results with other settings, beside those of the run."""

import dataclasses
import json
import shutil

import pytest

import twinlens as tl
from tests.report.runs import content_of
from tests.small_runs import contents, make_run, samples
from tests.tiny import tiny_model
from twinlens.cli.main import main
from twinlens.errors import RunError
from twinlens.run.manifest import Settings
from twinlens.run.queries import query_digest, query_name
from twinlens.run.verification import verify_run

IMPUTER = {"name": "constant"}
BY_PROBABILITY = tl.Deletion(performance="probability")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("queries") / "run"
    make_run(out, ["random", "centre"])
    return out


@pytest.fixture
def run(tmp_path, whole):
    return tl.open_evaluation(shutil.copytree(whole, tmp_path / "run"))


def settings(resamples=100, **metrics):
    common = {"epsilon": 0.01, "performance": "accuracy", "imputer": IMPUTER}
    described = {name: {"metric": name, **common, **own} for name, own in metrics.items()}
    return Settings(metrics=described, imputer=IMPUTER, control="none", control_share=0.5, resamples=resamples)


OWN = settings(soundness={}, completeness={})


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (OWN, None),
        (dataclasses.replace(OWN, show=("a",), until="0.1"), None),
        (settings(soundness={"epsilon": 0.05}, completeness={}), "soundness-epsilon-0.05"),
        (settings(soundness={"epsilon": 0.05}), "soundness-epsilon-0.05"),
        (settings(soundness={"performance": "logit"}, completeness={"performance": "logit"}), "performance-logit"),
        (settings(completeness={}), "completeness"),
        (settings(completeness={}, deletion={}), "completeness+deletion"),
        (settings(soundness={}, completeness={}, resamples=7), "resamples-7"),
        (settings(soundness={"levels": [0.9, 0.5]}, completeness={}), "soundness-levels-0.9-0.5"),
        (settings(soundness={"imputer": {"name": "mean", "x": -1}}, completeness={}), "soundness-imputer-mean-1"),
        (settings(**{"../ä": {}}), "query"),
        (settings(completeness={}, soundness={}), "query"),
    ],
)  # fmt: skip
def test_names_tell_what_differs(asked, name):
    derived = query_name(asked, OWN)
    assert derived == (f"query-{query_digest(asked)}" if name == "query" else name)


def test_long_names_are_cut_and_stay_apart():
    one, other = (settings(soundness={"levels": [k / 100 for k in range(end)]}, completeness={}) for end in (90, 91))
    names = {query_name(each, OWN) for each in (one, other)}
    assert len(names) == 2
    assert all(len(name) < 80 for name in names)


def test_an_answer_in_python_is_a_value(run):
    before = contents(run.path)
    answer = run.ask(BY_PROBABILITY)
    assert (answer.query, answer.file) == ("deletion-performance-probability", None)
    assert "query 'deletion-performance-probability'" in repr(answer)
    assert answer.title.endswith("; query deletion-performance-probability")
    assert answer.overview()["query"] == answer.query
    assert contents(run.path) == before
    assert run.ask(run.metric_values).query is None


def test_a_stored_query_changes_nothing_else(run):
    before = contents(run.path)
    answer = run.ask(BY_PROBABILITY, name="mine")
    file = run.path / "results" / "mine.json"
    assert answer.file == file
    after = contents(run.path)
    first = after.pop("results/mine.json")
    assert after == before
    stored = tl.open_evaluation(run.path, results="mine")
    assert (stored.query, stored.file, stored.notes) == ("mine", file, ())
    assert stored.results == answer.results
    assert stored.comparison() == answer.comparison()
    assert stored.curve("random", "deletion").measure == "probability"
    assert stored.queries() == ["mine"]
    assert tl.open_evaluation(run.path).results == run.results
    run.ask(BY_PROBABILITY, name="mine")
    assert file.read_bytes() == first
    assert tl.open_evaluation(run.path, results=file).results == answer.results


def test_queries_of_queries(run):
    answer = run.ask(BY_PROBABILITY, resamples=50)
    assert answer.query == "deletion-performance-probability+resamples-50"
    again = answer.ask(answer.metric_values, resamples=100)
    assert again.query == "deletion-performance-probability"
    assert answer.ask(["deletion"], resamples=100).query is None


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "ä", "x" * 101, 3])
def test_names_that_are_no_file_names(run, name):
    with pytest.raises(ValueError, match="`name` must be named with letters, digits"):
        run.ask(BY_PROBABILITY, name=name)
    assert not (run.path / "results").exists()


def test_no_query_replaces_another(run, capsys):
    run.ask(BY_PROBABILITY, name="deletion-performance-logit")
    before = contents(run.path)
    with pytest.raises(RunError, match=r"is taken by a query with other settings: metrics\.deletion\.performance is"):
        run.ask(tl.Deletion(performance="logit"), name="deletion-performance-logit")
    assert contents(run.path) == before
    run.ask({"a": BY_PROBABILITY, "b": tl.Deletion()}, name="two")
    with pytest.raises(RunError, match="is taken by a query with other settings: the metrics have another order"):
        run.ask({"b": tl.Deletion(), "a": BY_PROBABILITY}, name="two")
    (run.path / "results" / "two.json").unlink()
    assert main(["ask", str(run.path), "--performance", "logit", "--quiet"]) == 0  # whose own name is taken
    names = tl.open_evaluation(run.path).queries()
    assert len(names) == 2
    assert names[0].startswith("deletion-performance-logit-")
    assert main(["ask", str(run.path), "--performance", "logit", "--quiet"]) == 0
    assert tl.open_evaluation(run.path).queries() == names
    assert {name: content for name, content in contents(run.path).items() if name in before} == before


def test_a_method_that_is_added_later_makes_queries_outdated(run):
    run.ask(BY_PROBABILITY, name="mine")
    before = (run.path / "results" / "mine.json").read_bytes()
    grown = make_run(run.path, ["random", "centre", "saliency"])
    asked = tl.open_evaluation(run.path, results="mine")
    assert asked.methods == ["random", "centre"]
    assert asked.notes == (
        "The query mine is outdated: the run has new measurements of saliency. Ask again to include them.",
    )
    assert asked.summary().attrs["warnings"][0] == asked.notes[0]
    assert asked.incomplete == {}
    assert (run.path / "results" / "mine.json").read_bytes() == before
    [query] = content_of(run.path / "report.html")["runs"][0]["queries"]
    assert asked.notes[0] in str(query["warnings"])
    problems = {finding.file: finding.problem for finding in verify_run(grown.run) if finding.problem}
    assert problems == {"results/mine.json": "older than the run: the run has new measurements of saliency. Ask again"}
    assert main(["ask", str(run.path), "--name", "mine", "--quiet"]) == 0
    asked = tl.open_evaluation(run.path, results="mine")
    assert (asked.methods, asked.notes) == (["random", "centre", "saliency"], ())
    assert [finding for finding in verify_run(grown.run) if finding.problem] == []


def test_only_what_a_query_reads_makes_it_outdated(tmp_path):
    run = make_run(tmp_path / "run", ["random"], control="none")
    run.ask(BY_PROBABILITY, name="mine")
    make_run(run.path, ["random"], metrics=["deletion", "insertion"], control="none")
    assert tl.open_evaluation(run.path, results="mine").outdated is None
    make_run(run.path, ["random"], metrics=["deletion", "insertion"])  # the control, which the query leaves out
    assert tl.open_evaluation(run.path, results="mine").outdated is None
    new = tl.open_evaluation(run.path).ask({"one": BY_PROBABILITY, "two": tl.Insertion()}, name="controlled")
    assert new.results.skill("random", "one") is not None


def test_probes_that_come_later_make_a_query_outdated(tmp_path):
    run = make_run(tmp_path / "run", ["random", "centre"], metrics="deletion")
    late = run.path / "probes" / "centre" / "area-morf-constant"
    late.rename(tmp_path / "late")
    half = tl.open_evaluation(run.path).ask(BY_PROBABILITY, name="mine")
    assert half.incomplete == {"centre": ("deletion",)}
    assert tl.open_evaluation(run.path, results="mine").outdated is None
    (tmp_path / "late").rename(late)
    assert tl.open_evaluation(run.path, results="mine").outdated == "the run has new measurements of centre"
    tl.open_evaluation(run.path).ask(BY_PROBABILITY, name="mine")
    [control] = [path for path in (run.path / "probes" / "random").iterdir() if path.name.endswith("exchanged")]
    control.rename(tmp_path / "control")
    tl.open_evaluation(run.path).ask(BY_PROBABILITY, name="bare")
    (tmp_path / "control").rename(control)
    assert tl.open_evaluation(run.path, results="mine").outdated is None
    assert tl.open_evaluation(run.path, results="bare").outdated == "the run has new measurements of random"


def test_a_query_with_a_function(run):
    def margin(table):
        return table.probability

    asked = run.ask({"mine": tl.Deletion(performance=margin)}, name="mine")
    stored = tl.open_evaluation(run.path, results="mine")
    assert (stored.results, stored.outdated) == (asked.results, None)
    with pytest.raises(RunError, match=r"Pass it to evaluation\.ask"):
        stored.curve("random", "mine")
    assert [finding for finding in verify_run(run.run) if finding.problem] == []


def test_damaged_queries(run, tmp_path, capsys):
    run.ask(BY_PROBABILITY, name="mine")
    file = run.path / "results" / "mine.json"
    text = file.read_text()
    for damaged in (
        "",
        "{",
        "null",
        "[]",
        text.replace('"seed": 0', '"seed": "x"'),
        text.replace('"pairs"', '"unknown"'),
    ):
        file.write_text(damaged)
        with pytest.raises(RunError, match=r"mine\.json' is damaged: .* Remove it, and ask again"):
            tl.open_evaluation(run.path, results="mine")
        with pytest.warns(UserWarning, match="The query mine is left out of the page: "):
            tl.write_report([tl.open_evaluation(run.path)], tmp_path / "page.html")
        with pytest.raises(RunError, match=r"`name` 'mine' is taken|mine\.json' is damaged"):
            run.ask(tl.Deletion(performance="logit"), name="mine")
        assert "results/mine.json" in {finding.file for finding in verify_run(run.run) if finding.problem}
    stored = json.loads(text)
    stored["pairs"][1] = stored["pairs"][1].replace(",0.", ",1.")
    file.write_text(json.dumps(stored))
    with pytest.raises(RunError, match=r"mine\.json' is missing or damaged\. Remove it, and ask again"):
        tl.open_evaluation(run.path, results="mine").comparison()
    stored = json.loads(text)
    stored["methods"]["random"]["metrics"]["deletion"]["area"]["value"] += 0.25
    file.write_text(json.dumps(stored))
    problems = {finding.file: finding.problem for finding in verify_run(run.run) if finding.problem}
    assert problems == {"results/mine.json": "not what its probes give"}


def test_queries_of_another_run_are_refused(run, tmp_path):
    other = make_run(tmp_path / "other", ["random"], seed=5)
    other.ask(BY_PROBABILITY, name="mine")
    shutil.copytree(other.path / "results", run.path / "results")
    with pytest.raises(RunError, match=r"mine\.json' holds no query of .*run'\): its model, data, seed or name"):
        tl.open_evaluation(run.path, results="mine")
    with pytest.raises(RunError, match="holds no query of"):
        tl.open_evaluation(run.path, results=other.path / "results" / "mine.json")


def test_files_that_are_no_queries_are_left_alone(run):
    run.ask(BY_PROBABILITY, name="mine")
    for name in (".mine.json.1-2.unfinished", "a b.json", "notes.txt", ".x.json"):
        (run.path / "results" / name).write_text("x")
    assert run.queries() == ["mine"]


def test_a_page_has_room_for_few_queries(run, tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        run.ask(BY_PROBABILITY, name=name)
    [own] = content_of(tl.write_report([run], tmp_path / "page.html"))["runs"]
    assert [query["name"] for query in own["queries"]] == ["a", "b", "c"]
    assert all(query["query"] == query["name"] for query in own["queries"])
    assert not any("model" in query or "data" in query for query in own["queries"])  # as in the run
    size = len(json.dumps(own["queries"][0]))
    monkeypatch.setattr("twinlens.report.page._QUERIES", 2.5 * size)
    [own] = content_of(tl.write_report([run], tmp_path / "page.html"))["runs"]
    assert own["queries"][2] == {"name": "c"}
    page = content_of(tl.write_report([run, tl.open_evaluation(run.path, results="a")], tmp_path / "two.html"))
    assert [shown["name"] for shown in page["runs"]] == ["run", "run (a)"]
    assert page["runs"][0]["queries"] == []


def test_the_model_is_not_called(tmp_path):
    model, calls = tiny_model(), []
    run = tl.evaluate(model, samples(), ["random"], metrics="deletion", out=tmp_path / "run", batch_size=16)
    model.register_forward_hook(lambda *_: calls.append(1))
    run.ask(BY_PROBABILITY, name="mine")
    assert calls == []
