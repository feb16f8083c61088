"""The table of submissions, as Markdown and as a page."""

import copy
import dataclasses
import json
import re

import pytest

from twinlens.errors import RunError
from twinlens.suites.leaderboard import board_markdown, board_tasks, method_label, write_leaderboard
from twinlens.suites.submission import Submission
from twinlens.support.fields import from_json

MARKUP = "</script><script>alert(1)</script>|`*<b>"


@pytest.fixture
def submission(stored):
    return from_json(Submission, stored, "submission")


def with_methods(stored, **changes):
    """A submission whose methods have other fields."""
    changed = copy.deepcopy(stored)
    for name, fields in changes.items():
        changed["tasks"]["images"]["methods"][name] |= fields
    return from_json(Submission, changed, "submission")


def test_methods_by_suite_with_intervals_skill_and_cost(submission):
    text = board_markdown(board_tasks([submission]))
    assert "### tiny@1: Tiny images\n" in text
    [row] = [line for line in text.splitlines() if line.startswith("| Saliency |")]
    score = submission.tasks["images"].methods["saliency"].scores["soundness_rank"]
    assert f"| {score.value:.3f} [{score.low:.3f}, {score.high:.3f}] | {score.skill:+.3f} [" in row
    assert row.endswith("| 1 |")
    assert "| Random (baseline) |" in text


def test_refused_methods_are_listed_with_their_reasons(stored):
    changed = copy.deepcopy(stored)
    changed["tasks"]["images"]["refused"] = {"cam": "cam needs pooling", "lrp": "lrp needs pooling", "rise": "no"}
    text = board_markdown(board_tasks([from_json(Submission, changed, "submission")]))
    assert "- Refused by CAM, LRP: it needs pooling" in text
    assert "- Refused by RISE: no" in text


def test_equal_submissions_are_one_row_and_others_are_numbered(stored, submission):
    [task] = board_tasks([submission, submission])
    assert [row.method for row in task.table.rows] == ["saliency", "random"]
    scores = copy.deepcopy(stored["tasks"]["images"]["methods"]["random"]["scores"])
    [task] = board_tasks([submission, with_methods(stored, saliency={"scores": scores})])
    assert sorted(row.method for row in task.table.rows) == ["random", "saliency", "saliency [2]"]
    [task] = board_tasks([submission, with_methods(stored, saliency={"options": {"steps": 8}, "scores": scores})])
    assert sorted(row.method for row in task.table.rows) == ["random", "saliency", "saliency (steps 8)"]


def test_a_method_under_another_name_is_told(submission):
    entry = submission.tasks["images"].methods["saliency"]
    assert method_label("mine", entry) == "mine (saliency)"
    assert method_label("mine", dataclasses.replace(entry, method=None)) == "mine"


def test_a_method_of_a_newer_version_has_a_row_by_its_own_name(stored, tmp_path):
    newer = with_methods(stored, saliency={"method": "newest("})
    text = board_markdown(board_tasks([newer]))
    assert "| saliency (newest() |" in text
    assert (write_leaderboard([newer], str(tmp_path / "board")) / "index.html").is_file()


def test_other_samples_have_a_column_of_their_own(stored, submission):
    changed = copy.deepcopy(stored)
    changed["tasks"]["images"]["data_digest"] = "f" * 64
    labels = [task.label for task in board_tasks([submission, from_json(Submission, changed, "submission")])]
    assert labels == [f"tiny@1 ({submission.tasks['images'].data_digest[:6]})", "tiny@1 (ffffff)"]


def test_suites_of_one_name_that_measure_different_things_are_refused(submission):
    other = dataclasses.replace(submission, digest="0" * 32)
    with pytest.raises(RunError, match=r"Submissions of tiny@1 measure different things.*another name or version"):
        board_tasks([submission, other])


def test_the_page_holds_no_markup_of_others_and_fetches_nothing(stored, tmp_path):
    changed = copy.deepcopy(stored)
    changed["suite"] |= {"note": MARKUP}
    task = changed["tasks"]["images"]
    task |= {"model": MARKUP, "data": MARKUP, "refused": {"cam": MARKUP}}
    task["methods"]["saliency"]["options"] = {MARKUP: MARKUP}
    changed["versions"] = {MARKUP: MARKUP}
    folder = write_leaderboard([from_json(Submission, changed, "submission")], str(tmp_path / "board"))
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "<b>" not in page.partition("<noscript>")[2].partition("</noscript>")[0]
    assert page.count("<script>") == 4
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", page)
    assert "default-src 'none'" in page
    markdown = (folder / "leaderboard.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown.replace("\\<", "")
    content = json.loads(re.search(r'id="content">(.*?)</script>', page, re.DOTALL)[1])
    assert content["tasks"][0]["note"] == MARKUP


def test_equal_submissions_make_equal_pages(submission, tmp_path):
    one, other = (write_leaderboard([submission], str(tmp_path / name)) for name in ("one", "other"))
    for name in ("index.html", "leaderboard.md"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
