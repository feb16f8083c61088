import base64
import dataclasses
import hashlib
import html
import json
import re
import shutil

from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from tests.report.runs import EVIL, METHODS, changed, content_of, image_samples, loaded, make_run
from twinlens.outcome import open_evaluation
from twinlens.report import write_report
from twinlens.report.page import _SCRIPTS, embed_json
from twinlens.run.wording import describe_power, group_warnings
from twinlens.support.fields import to_json


def test_numbers_of_the_page_are_those_of_the_results(run, page):
    [shown] = content_of(page)["runs"]
    assert [m["key"] for m in shown["metrics"]] == run.metrics
    assert {m["name"] for m in shown["methods"]} == set(METHODS)
    for method in shown["methods"]:
        for metric, stored in run.results.methods[method["name"]].metrics.items():
            for column in ("levels", "performance", "values", "low", "high"):
                assert method["metrics"][metric][column] == list(getattr(stored, column))
    columns = shown["table"]["columns"]
    for row in shown["table"]["rows"]:
        for column, cell in zip(columns, row["cells"], strict=True):
            if column["kind"] == "side":
                continue
            metric = column["key"].removesuffix("_skill")
            stored = run.results.methods[row["method"]].metrics[metric]
            skill = column["kind"] == "skill"
            assert cell["estimate"] == to_json(stored.skill if skill else stored.area)
            assert cell["direction"] == (stored.direction if skill else None)
            assert cell["bold"] == (not skill and run.results.best(metric) == row["method"])
    sides = ["soundness_rank", "completeness_share"]
    assert [column["key"] for column in columns if column["kind"] == "skill"] == [f"{side}_skill" for side in sides]
    assert shown["plane"]["metrics"] == sides
    for point in shown["plane"]["points"]:
        for metric, side in zip(shown["plane"]["metrics"], point["sides"], strict=True):
            stored = run.results.methods[point["method"]].metrics[metric]
            assert side == {
                "area": to_json(stored.area),
                "control": to_json(stored.control),
                "skill": to_json(stored.skill),
                "direction": stored.direction,
            }
    facts = dict(shown["facts"])
    assert facts["Samples"] == "12"
    assert facts["Accuracy"].startswith(f"{run.results.accuracy:.1%}")
    assert f"twinlens {tl.__version__}" in facts["Versions"]
    assert "paper, by probability, ε = 0.01" in facts["Protocol"]
    assert re.fullmatch(r"\d+ \w+ 20\d\d, \d\d:\d\d UTC", facts["Date"])


def test_the_policy_lets_exactly_our_scripts_and_style_run(page):
    text = page.read_text(encoding="utf-8")
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1])
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert rules["img-src"] == "data:"
    for kind, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        found = [
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(pattern, text, re.S)
        ]
        assert rules[kind].split() == found
    outside = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S)
    assert "http:" not in outside
    assert "src=" not in outside.replace("-src", "")
    assert "<link" not in outside


def test_the_same_run_gives_the_same_page(run, page, tmp_path):
    assert write_report([run], tmp_path / "again.html").read_bytes() == page.read_bytes()
    assert write_report([open_evaluation(run.path)], tmp_path / "read.html").read_bytes() == page.read_bytes()


def test_readers_without_scripts_see_the_table_of_a_notebook(run, page):
    text = page.read_text(encoding="utf-8")
    assert run._repr_html_() in text
    remarks = [
        describe_power(run.results, run.comparison()),
        *(t for g in group_warnings(run.results) for t in g.texts),
    ]
    assert all(f"<p>{html.escape(remark)}</p>" in text for remark in remarks)


def test_names_of_a_run_are_data_whatever_they_hold(tmp_path):
    samples = dataclasses.replace(
        image_samples(4), name=EVIL, ids=tuple(f"{EVIL}{i}" for i in range(4)), classes=(EVIL, "@STYLE@", "c")
    )
    evaluation = make_run(
        tmp_path / "run", samples=samples, model=loaded(EVIL), methods=["random", "sobel"], metrics={EVIL: "soundness"}
    )
    page = write_report([changed(evaluation, warnings=(EVIL,))], tmp_path / "r.html")
    text = page.read_text(encoding="utf-8")
    assert "alert('x')</script>" not in text
    assert text.count("<script") == 1 + len(_SCRIPTS)
    [shown] = content_of(page)["runs"]
    assert (shown["model"], shown["data"], EVIL in shown["verdicts"][0]) == (EVIL, EVIL, True)
    assert [metric["title"] for metric in shown["metrics"]] == [EVIL]
    assert shown["explorer"]["samples"][0]["id"].startswith(EVIL)
    assert {s["label"] for s in shown["explorer"]["samples"]} <= {EVIL, "@STYLE@", "c"}
    assert f"<title>{html.escape(f'twinlens: {EVIL} on {EVIL}')}</title>" in text


@given(st.text())
def test_any_text_can_be_embedded(text):
    embedded = embed_json([text])
    assert json.loads(embedded) == [text]
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_several_runs_stand_side_by_side(run, tmp_path):
    other = make_run(tmp_path / "other", methods=["saliency", "random"], metrics=["soundness"])
    content = content_of(write_report([run, other], tmp_path / "r.html"))
    assert [shown["name"] for shown in content["runs"]] == [run.path.name, "other"]
    assert list(content["styles"]) == sorted(METHODS)
    assert content["styles"]["random"]["baseline"]
    (tmp_path / "a").mkdir()
    shutil.copytree(other.path, tmp_path / "a" / "other")
    twins = write_report([other, open_evaluation(tmp_path / "a" / "other")], tmp_path / "twins.html")
    assert [shown["name"] for shown in content_of(twins)["runs"]] == [str(other.path), str(tmp_path / "a" / "other")]


def test_differences_between_runs_are_on_the_page(run, tmp_path):
    other = make_run(tmp_path / "other", samples=image_samples(n=12, seed=1), performance="probability")
    found = tl.compare({"one": run, EVIL: other}, resamples=30)
    page = write_report([run, other], tmp_path / "r.html", comparison=found)
    assert "<script>alert" not in page.read_text(encoding="utf-8")
    shown = content_of(page)["between"]
    [between] = shown["tables"]
    assert between["title"] == f"one − {EVIL}"
    columns = [column["key"] for column in between["table"]["columns"]]
    cells = {row["method"]: dict(zip(columns, row["cells"], strict=True)) for row in between["table"]["rows"]}
    for pair in found.pairs:
        key = pair.metric if pair.quantity == "area" else f"{pair.metric}_skill"
        if key in columns:
            assert cells[pair.method][key]["estimate"] == to_json(pair.difference)
            assert cells[pair.method][key]["bold"] == pair.decided
    assert len(found.pairs) >= len(columns) * len(cells) > 10
    assert shown["verdicts"] == list(found.verdicts)
    assert shown["notes"] == list(found.notes)
    assert "share no samples" in shown["notes"][0]
    assert content_of(write_report([run], tmp_path / "one.html"))["between"] is None
