"""The command suite: every action, and what is refused."""

import json
import shutil

import pytest
from jsonschema import Draft202012Validator

from tests.distribution import ROOT
from tests.suites.suites import suite_file
from twinlens.suites.definition import built_in_suites


def test_list_and_show(run, tmp_path):
    code, output, error = run("suite", "list")
    assert (code, error) == (0, "")
    assert all(name in output for name in built_in_suites())
    code, output, error = run("suite", "show", "digits@1")
    assert (code, error) == (0, "")
    assert "Handwritten digits" in output
    assert f"Digest: {built_in_suites()['digits@1'].digest()}" in output
    assert run("suite", "show", suite_file(tmp_path))[0] == 0


def test_from_a_suite_file_to_a_page(run, tmp_path):
    path, out = suite_file(tmp_path), tmp_path / "run"
    code, output, error = run("suite", "run", path, "--out", out, "--methods", "saliency,random")
    assert (code, error) == (0, "")
    assert "saliency" in output
    assert f"All files are in {out}" in output
    code, output, error = run("suite", "export", out, "-o", tmp_path / "submission.json")
    assert (code, output, error) == (0, f"{tmp_path}/submission.json\n", "")
    code, output, _ = run("suite", "verify", tmp_path / "submission.json")
    assert code == 0
    assert output.startswith("tiny@1: 2 methods on images.")
    code, output, _ = run("suite", "table", out, tmp_path / "submission.json", "-o", tmp_path / "board")
    assert (code, output) == (0, f"Page: {tmp_path}/board/index.html\n")
    assert (tmp_path / "board" / "leaderboard.md").read_text().count("| Saliency |") == 1
    for name, file in (("suite-1", out / "suite.json"), ("submission-1", tmp_path / "submission.json")):
        schema = json.loads((ROOT / "docs" / "reference" / "schema" / f"{name}.json").read_text())
        assert [*Draft202012Validator(schema).iter_errors(json.loads(file.read_text()))] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["exprot"],
            "`action` must be one of list, show, run, export, verify, table; got 'exprot'. Did you mean 'export'?",
        ),
        (["run"], "suite run takes one name; got 0."),
        (["list", "digits"], "suite list takes no name; got 1."),
        (["table"], "suite table takes at least one directory or submission; got 0."),
        (["show", "digits", "--methods", "random"], "`methods` belongs to suite run. Leave out --methods."),
        (["verify", "x.json", "-o", "y"], "`out` belongs to suite run or suite export or suite table."),
        (["run", "digits", "--data", "mnist"], "`data` belongs to digits@1, which names its own."),
        (["run", "imagenet@1"], "`data` is missing: imagenet@1 needs --data."),
        (["run", "digits", "--methods", "gradcm", "--out", "never"], "Did you mean 'gradcam'?"),
        (["run", "nothing@1"], "`name` must be one of cifar10@1"),
        (["export", "nowhere"], "holds no run of a suite: suite.json is missing."),
        (["verify", "nowhere.json"], "nowhere.json"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, output, error = run("suite", *arguments)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert message in error


def test_a_changed_submission_is_refused_with_every_problem(run, tiny_copy, tmp_path):
    assert run("suite", "export", tiny_copy, "-o", tmp_path / "own.json")[0] == 0
    stored = json.loads((tmp_path / "own.json").read_text())
    stored["tasks"]["images"]["methods"]["random"]["scores"]["soundness_rank"]["value"] = 2.0
    (tmp_path / "own.json").write_text(json.dumps(stored))
    for command in (("verify", tmp_path / "own.json"), ("table", tmp_path / "own.json", "-o", tmp_path / "board")):
        code, output, error = run("suite", *command)
        assert code == 2
        assert "the file was changed after it was exported" in output
        assert "cannot be trusted" in error
        assert not (tmp_path / "board").exists()


def test_a_changed_run_is_not_exported(run, tiny_copy, tmp_path):
    text = (tiny_copy / "suite.json").read_text()
    (tiny_copy / "suite.json").write_text(text.replace('"resamples": 100', '"resamples": 101'))
    code, _, error = run("suite", "export", tiny_copy, "-o", tmp_path / "own.json")
    assert code == 2
    assert "settings.resamples is 101 in suite.json and 100 in the run" in error
    assert not (tmp_path / "own.json").exists()


@pytest.fixture
def tiny_copy(run, tmp_path):
    """The directory of a run of the tiny suite."""
    assert run("suite", "run", suite_file(tmp_path), "--out", tmp_path / "first")[0] == 0
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    return tmp_path / "copy"
