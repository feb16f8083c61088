"""Submissions: what they hold, and what is noticed of a file that was changed or was never one."""

import copy
import json

import pytest
from jsonschema import Draft202012Validator

from tests.distribution import ROOT
from twinlens.errors import RunError
from twinlens.suites.submission import problems, read_submission

SCHEMA = json.loads((ROOT / "docs/reference/schema/submission-1.json").read_text(encoding="utf-8"))


def read(tmp_path, content):
    path = tmp_path / "submission.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_submission(path)


def set_in(content, path, value):
    """A copy with another value at a path such as "tasks images samples"."""
    changed = copy.deepcopy(content)
    *way, last = path.split()
    inner = changed
    for key in way:
        inner = inner[key]
    inner[last] = value
    return changed


def test_a_submission_has_every_number_of_the_run(tiny, stored, tmp_path):
    import twinlens as tl

    frame = tl.open_evaluation(tiny[1] / "images").summary().set_index(["method", "metric"])
    assert problems(read(tmp_path, stored)) == []
    for method, entry in stored["tasks"]["images"]["methods"].items():
        for metric, score in entry["scores"].items():
            row = frame.loc[method, metric]
            for name in ("value", "low", "high", "control", "skill", "skill_low", "skill_high", "p"):
                assert score[name] == pytest.approx(row[name], nan_ok=True)
    assert len(json.dumps(stored)) < 20_000
    text = json.dumps(stored)
    assert '"levels"' not in text.replace('"levels": null', "")


SCORE = "tasks images methods saliency scores soundness_rank"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("tasks images samples", 11, "the file was changed after it was exported"),
        ("suite options resamples", 99, "measures something else: `digest` is not that of `suite`"),
        (f"{SCORE} value", 1.5, "images: saliency, soundness_rank: `value` must lie within 0 and 1; it is 1.5"),
        (f"{SCORE} value", 0.999, "`value` 0.999 lies outside its interval"),
        (f"{SCORE} skill", 0.0123, "`skill` 0.0123 is not the difference of `value` and `control`"),
        (f"{SCORE} p", -1, "`p` must lie within 0 and 1"),
        (f"{SCORE} samples", 10**30, "`samples` must lie within 0 and 12"),
        (f"{SCORE} low", None, "the interval of `value` is incomplete"),
        ("tasks images accuracy", 2.0, "`accuracy` must lie within 0 and 1"),
        ("tasks images methods saliency seconds", -1.0, "`seconds` must not be negative"),
        ("tasks images refused", {"saliency": "no"}, "it has numbers, and refuses the task"),
        ("tasks images metrics soundness_rank", {"metric": []}, "soundness_rank: its settings cannot be read"),
        ("tasks images methods saliency scores", {}, "is not among its scores and the task's metrics alike"),
    ],
)
def test_a_changed_number_is_noticed_and_named(stored, tmp_path, path, value, problem):
    assert problem in "\n".join(problems(read(tmp_path, set_in(stored, path, value))))


def test_calibration_is_better_if_less(stored, tmp_path):
    score = stored["tasks"]["images"]["methods"]["saliency"]["scores"]["calibration"]
    assert score["skill"] == pytest.approx(score["control"] - score["value"])
    changed = set_in(stored, "tasks images methods saliency scores calibration skill", -score["skill"])
    assert "is not the difference" in "\n".join(problems(read(tmp_path, changed)))


def test_a_missing_and_a_foreign_task_are_named(stored, tmp_path):
    changed = set_in(stored, "tasks", {"others": stored["tasks"]["images"]})
    found = "\n".join(problems(read(tmp_path, changed)))
    assert "images: the task is missing" in found
    assert "others: tiny@1 has no such task" in found


def test_samples_and_model_must_be_those_that_the_suite_expects(stored, tmp_path):
    expected = {"samples": "ab" * 32, "confidence": 0.9}
    found = "\n".join(problems(read(tmp_path, set_in(stored, "suite tasks images expected", expected))))
    assert "images: the samples are not those of tiny@1" in found
    assert "images: the model is not that of tiny@1: its mean probability of the labels is" in found


def test_a_suite_that_pretends_to_be_built_in_is_noticed(stored, tmp_path):
    changed = set_in(set_in(stored, "suite name", "digits"), "suite version", 1)
    found = "\n".join(problems(read(tmp_path, changed)))
    assert "digits@1 is not the one of this twinlens: " in found
    assert "in the submission and" in found


HOSTILE = {
    "NaN": ("tasks images accuracy", float("nan")),
    "infinity": (f"{SCORE} value", float("inf")),
    "text for a number": (f"{SCORE} value", "0.9"),
    "true for a number": (f"{SCORE} samples", True),
    "a list for a table": ("tasks", []),
    "null for text": ("digest", None),
    "an unknown field": ("extra", 1),
    "a number as a version": ("versions", {"torch": 2}),
    "a path as a task": ("tasks", {"../../up": 1}),
    "another format": ("format", 2),
    "a suite of another kind": ("suite tasks images kind", "<script>"),
    "a name with markup": ("suite name", "<b>tiny</b>"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_submission_is_refused_in_one_line(stored, tmp_path, case):
    with pytest.raises(RunError, match=r"is no submission: .*`twinlens suite export` makes one\.") as error:
        read(tmp_path, set_in(stored, *HOSTILE[case]))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{", "[" * 100_000, '{"format": 1}', '{"format": 1e999}', "\x00"]
)
def test_files_that_hold_no_submission_are_refused(tmp_path, content):
    with pytest.raises(RunError, match="is no submission"):
        read(tmp_path, content)


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(RunError, match="is no submission"):
        read_submission(path)


def test_names_of_methods_hold_no_markup(stored, tmp_path):
    methods = {"<img src=x>": stored["tasks"]["images"]["methods"]["random"]}
    with pytest.raises(RunError, match="is no name of a task or method"):
        read(tmp_path, set_in(stored, "tasks images methods", methods))


def test_the_schema_and_the_reader_agree_on_what_a_submission_is(stored, tmp_path):
    validator = Draft202012Validator(SCHEMA)
    assert [*validator.iter_errors(stored)] == []
    known = {"NaN", "infinity", "another format", "a name with markup"}  # which a schema of types does not refuse
    for case in HOSTILE.keys() - known:
        assert [*validator.iter_errors(set_in(stored, *HOSTILE[case]))], case


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/leaderboard/submissions").glob("*.json")), ids=lambda path: path.stem
)
def test_published_submissions_hold_what_their_suites_expect(path):
    submission = read_submission(path)
    assert problems(submission) == []
    assert path.stem == f"{submission.suite.name}-{submission.suite.version}"
