"""The command ask."""

import errno
import json
import os

import pytest

import twinlens as tl
from tests.report.runs import content_of
from tests.small_runs import make_run
from tests.tiny import read_results


@pytest.mark.slow
def test_ask_another_question(tmp_path, run, monkeypatch, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "soundness,completeness", "--out", out)
    assert run(*command)[0] == 0
    first, before = read_results(out), {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr("twinlens.models.loading.load_model", lambda *_, **__: pytest.fail("the model is loaded"))
    code, output, error = run("ask", out, "--option", "soundness.epsilon=1.0", "--resamples", "50")
    assert (code, error) == (0, "")
    assert "centre" in output
    file = out / "results" / "soundness-epsilon-1.0+resamples-50.json"
    assert output.splitlines()[-1] == (
        f"Stored in {file}; `twinlens report {out}` shows it. The run's own results are unchanged."
    )
    second = json.loads(file.read_text())
    assert second["settings"]["metrics"]["soundness"]["epsilon"] == 1.0
    assert second["settings"]["resamples"] == 50
    assert second["methods"]["random"]["metrics"]["soundness"] != first["methods"]["random"]["metrics"]["soundness"]
    code, output, _ = run("ask", out, "--metrics", "completeness", "--performance", "probability", "--json")
    assert code == 0
    overview = json.loads(output)
    assert list(overview["areas"]["random"]) == ["completeness"]
    assert overview["query"] == "completeness-performance-probability"
    assert overview["file"] == str(out / "results" / "completeness-performance-probability.json")
    assert {path: path.read_bytes() for path in before} == before
    for arguments, message in (
        (["--metrics", "deletion"], "has no probes for deletion"),
        (["--metrics", "completeness", "--option", "soundness.epsilon=0.1"], "`option` must be one of completeness"),
        (["--epsilon", "x"], "`epsilon` must be a number; got 'x'"),
        (
            ["--option", "soundness.epsilon=5"],
            "`epsilon` must lie within [0, 1], such as 0.01, because it is a gain in",
        ),
        (["--epsilon", "5"], "`epsilon` must lie within [0, 1], such as 0.01, because it is a gain in accuracy; got 5"),
        (["--name", "../x"], "`name` must be named with letters"),
        (["--name", ""], "`name` must be named with letters"),
        (["--out", str(out)], f"`out` {str(out)!r} holds a run. Without `out`, its queries are stored in results/."),
    ):
        code, _, error = run("ask", out, *arguments)
        assert (code, error.count("\n")) == (2, 1)
        assert message in error


@pytest.fixture
def made(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "deletion", "--out", out, "--quiet")
    assert run(*command)[0] == 0
    return out


def test_the_settings_of_the_run_are_stored_only_under_a_name(made, run):
    code, output, _ = run("ask", made)
    assert (code, output.splitlines()[-1]) == (0, "The settings are the run's own: nothing was stored.")
    assert not (made / "results").exists()
    assert run("ask", made, "--name", "same", "--quiet") == (0, "", "")
    stored = json.loads((made / "results" / "same.json").read_text())
    assert stored.pop("pairs")
    assert stored == read_results(made)


def test_a_name_is_answered_again_and_never_changes_its_settings(made, run):
    assert run("ask", made, "--performance", "probability", "--name", "mine", "--quiet")[0] == 0
    first = (made / "results" / "mine.json").read_bytes()
    assert run("ask", made, "--name", "mine", "--quiet") == (0, "", "")
    assert (made / "results" / "mine.json").read_bytes() == first
    code, _, error = run("ask", made, "--name", "mine", "--performance", "logit")
    assert code == 2
    assert "`name` 'mine' is taken by a query with other settings: metrics.deletion.performance is 'probab" in error
    assert (made / "results" / "mine.json").read_bytes() == first


def test_ask_stores_elsewhere(made, run, tmp_path):
    there = tmp_path / "answers"
    code, output, _ = run("ask", made, "--performance", "probability", "--name", "mine", "--out", there)
    file = there / "mine.json"
    assert code == 0
    assert f"Stored in {file}; `twinlens report {made} --results {file}` shows it." in output
    assert not (made / "results").exists()
    code, output, _ = run("report", made, "--results", file, "--table", "csv")
    assert (code, output.splitlines()[1].split(",")[0]) == (0, "run (mine)")
    (there / "notes.json").write_text('{"mine": 1}')
    code, _, error = run("ask", made, "--performance", "probability", "--name", "notes", "--out", there)
    assert code == 2
    assert f"`name` 'notes' is taken: {str(there / 'notes.json')!r} holds something else." in error
    assert (there / "notes.json").read_text() == '{"mine": 1}'
    before = file.read_bytes()
    assert run("ask", made, "--performance", "probability", "--name", "mine", "--out", there, "--quiet")[0] == 0
    other = make_run(tmp_path / "other", ["random"]).path  # which is asked the same
    code, _, error = run("ask", other, "--performance", "probability", "--name", "mine", "--out", there, "--quiet")
    assert (code, "`name` 'mine' is taken" in error) == (2, True)
    assert file.read_bytes() == before


def test_a_read_only_run_is_answered_and_not_stored(made, run, monkeypatch):
    opened = os.open

    def read_only(path, flags, *rest, **named):
        if str(path).startswith(str(made)) and flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr("os.open", read_only)
    code, output, error = run("ask", made, "--performance", "probability")
    assert (code, error) == (0, "")
    assert "centre" in output
    assert output.splitlines()[-1] == (
        f"The answer was not stored: {made} is read-only. Pass --out DIR to store it elsewhere."
    )
    code, output, _ = run("ask", made, "--performance", "probability", "--json")
    assert (code, json.loads(output)["file"]) == (0, None)
    code, _, error = run("ask", made, "--performance", "probability", "--quiet")  # which would have no effect
    assert (code, error.count("\n")) == (2, 1)
    assert "cannot be used as a lock: Read-only file system" in error


def test_pages_and_tables_of_a_query(made, run):
    assert run("ask", made, "--performance", "probability", "--name", "mine", "--quiet")[0] == 0
    page = made / "report-mine.html"
    assert run("report", made, "--results", "mine") == (0, f"{page}\n", "")
    assert [shown["query"] for shown in content_of(page)["runs"]] == ["mine"]
    assert run("report", made) == (0, f"{made / 'report.html'}\n", "")
    [own] = content_of(made / "report.html")["runs"]
    assert (own["query"], [query["name"] for query in own["queries"]]) == (None, ["mine"])
    code, output, _ = run("compare", made, made, "--results", "mine", "--out", made / "both.html", "--json")
    assert (code, json.loads(output)[str(made)]["query"]) == (0, "mine")
    code, _, error = run("report", made, "--results", "mien")
    assert (code, "`results` must be one of mine; got 'mien'. Did you mean 'mine'?" in error) == (2, True)


def test_a_run_without_queries(made, run):
    for wanted in ("mine", "../run", "\0", "s3://", "x" * 5000, str(made)):
        code, _, error = run("report", made, "--results", wanted)
        assert (code, error.count("\n")) == (2, 1)
        assert "has no queries: `ask` stores them" in error


def test_ask_with_a_start_level(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random", "--metrics", "soundness", "--levels", "0.9,0.5,0.1")
    assert run(*command, "--out", out, "--quiet")[0] == 0
    options = ["--option", "soundness.start_level=0.9", "--option", "soundness.epsilon=1", "--name", "late"]
    code, _, error = run("ask", out, *options)
    assert (code, error) == (0, "")
    asked = tl.open_evaluation(out, results="late")
    assert asked.results.settings.metrics["soundness"]["start_level"] == 0.9
    curve = asked.curve("random", "soundness")
    assert (curve.performance <= 0.9).all()
    assert (curve.values == 1).all()  # although no step gains 1
    assert run("report", out)[0] == 0
    assert "judged above 0.9" in (out / "report.html").read_text()
    # `evaluate` takes it, too, and the probes serve both.
    code, _, error = run(*command, "--out", out, "--option", "soundness.start_level=0.04", "--quiet")
    assert (code, error) == (0, "")
    assert read_results(out)["settings"]["metrics"]["soundness"]["start_level"] == 0.04


def test_ask_with_another_imputer(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random", "--metrics", "road_morf,deletion", "--out", out, "--quiet")
    for value in ("0.5", "0.25"):
        assert run(*command, "--imputer", "constant", "--option", f"imputer.value={value}")[0] == 0
    code, _, error = run("ask", out, "--imputer", "constant", "--option", "imputer.value=0.5", "--quiet")
    assert (code, error) == (0, "")
    [name] = tl.open_evaluation(out).queries()
    metrics = tl.open_evaluation(out, results=name).results.settings.metrics
    assert metrics["road_morf"]["imputer"] == {"name": "constant", "value": 0.5}
    assert metrics["deletion"]["imputer"] == {"name": "constant", "value": 0.0}  # which has its own
    code, _, error = run("ask", out, "--imputer", "blur")
    assert code == 2
    assert "has no probes for road_morf: it needs levels or an imputer that were not measured" in error
