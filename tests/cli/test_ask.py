"""The command ask."""

import json

import pytest

from tests.tiny import read_results
from twinlens.outcome import open_evaluation


@pytest.mark.slow
def test_ask_another_question(tmp_path, run, monkeypatch, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "soundness,completeness", "--out", out)
    assert run(*command)[0] == 0
    first, page = read_results(out), (out / "report.html").stat().st_mtime_ns
    monkeypatch.setattr("twinlens.models.loading.load_model", lambda *_, **__: pytest.fail("the model is loaded"))
    code, output, error = run("ask", out, "--option", "soundness.epsilon=2", "--resamples", "50")
    assert (code, error) == (0, "")
    assert "centre" in output
    second = read_results(out)
    assert second["settings"]["metrics"]["soundness"]["epsilon"] == 2
    assert second["settings"]["resamples"] == 50
    assert (out / "report.html").stat().st_mtime_ns > page
    assert second["methods"]["random"]["metrics"]["soundness"] != first["methods"]["random"]["metrics"]["soundness"]
    code, output, _ = run("ask", out, "--metrics", "completeness", "--performance", "probability", "--json")
    assert code == 0
    assert list(json.loads(output)["areas"]["random"]) == ["completeness"]
    assert read_results(out)["settings"]["metrics"]["completeness"]["performance"] == "probability"
    for arguments, message in (
        (["--metrics", "deletion"], "has no probes for deletion"),
        (["--option", "soundness.epsilon=0.1"], "`option` must be one of completeness; got 'soundness'"),
        (["--epsilon", "x"], "`epsilon` must be a number; got 'x'"),
    ):
        code, _, error = run("ask", out, *arguments)
        assert code == 2
        assert message in error


def test_ask_with_a_start_level(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random", "--metrics", "soundness", "--levels", "0.9,0.5,0.1")
    assert run(*command, "--out", out, "--quiet")[0] == 0
    code, _, error = run("ask", out, "--option", "soundness.start_level=0.9", "--option", "soundness.epsilon=2")
    assert (code, error) == (0, "")
    assert read_results(out)["settings"]["metrics"]["soundness"]["start_level"] == 0.9
    curve = open_evaluation(out).curve("random", "soundness")
    assert (curve.performance <= 0.9).all()
    assert (curve.values == 1).all()  # although no step gains 2
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
    metrics = read_results(out)["settings"]["metrics"]
    assert metrics["road_morf"]["imputer"] == {"name": "constant", "value": 0.5}
    assert metrics["deletion"]["imputer"] == {"name": "constant", "value": 0.0}  # which has its own
    code, _, error = run("ask", out, "--imputer", "blur")
    assert code == 2
    assert "has no probes for road_morf: it needs levels or an imputer that were not measured" in error
