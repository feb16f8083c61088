"""What people do with the page: read it on any width, link to a part of it, take charts and tables along, print it."""

import csv
import io
import itertools
import re
import time

import pytest
from PIL import Image

import twinlens as tl
from tests.report.browser import PATIENCE, needs_browser
from tests.report.page_checks import CLIPPED, CONTRAST
from tests.report.runs import image_samples, make_run
from twinlens.metrics.catalogue import GROUPS
from twinlens.report import format_table, write_report
from twinlens.run.check_records import Check, CheckColumn, MethodCheck, store_check
from twinlens.support.estimate import Estimate

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

pytestmark = needs_browser

# Charts whose text stands outside of their picture.
OUTSIDE = """
return [...document.querySelectorAll('.chart svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  }).map(text => text.textContent);
})
"""


@pytest.fixture(scope="module")
def pair(run, tmp_path_factory):
    """The page of two runs with other methods, other samples and a check of both."""
    folder = tmp_path_factory.mktemp("pair")
    samples = image_samples(6, seed=3)
    other = make_run(folder / "other", samples=samples, methods=["sobel", "random"], performance="probability")
    first = make_run(folder / "first", samples=samples, methods=["saliency", "random"], performance="probability")
    for each, top in ((first, 0.9), (other, 2.6)):
        store_check(each.run, a_course(top))
    return write_report([first, other], folder / "r.html", comparison=tl.compare([first, other], resamples=30))


def a_course(top):
    values = [Estimate(value=v, low=None, high=None, samples=4) for v in (0.1, top)]
    return Check(
        name="cascade",
        title="Cascade",
        question="Is it so?",
        source="Somebody 2020",
        reading="Less is better.",
        columns=(CheckColumn(title="in the end", better="lower"),),
        step_title="layer",
        course_title="similarity",
        steps=("head", "body"),
        samples=4,
        methods={"random": MethodCheck(values=(values[1],), course=tuple(values))},
        notes=(),
        versions={},
    )


@pytest.mark.parametrize("runs", [1, 2])
def test_nothing_is_cut_at_any_width(browser, page, pair, runs):
    browser.open(page if runs == 1 else pair, width=1400)
    for width in (1400, 1024, 768, 420):
        browser.resize(width)
        browser.wait("return charts.every(chart => chart.getWidth() === chart.getDom().clientWidth)")
        assert browser.run("return [innerWidth, document.documentElement.scrollWidth <= innerWidth]") == [width, True]
        assert browser.run(CLIPPED) == [], width
        assert browser.run(OUTSIDE) == [], width
    # What is wider than the page scrolls in a box of its own, in which the names of methods stay.
    browser.run("for (const box of document.querySelectorAll('.scroll')) box.scrollLeft = 10_000")
    edges = browser.run(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.getBoundingClientRect().left, "
        "box.querySelector('tbody th').getBoundingClientRect().left])"
    )
    assert len(edges) >= (1 if runs == 1 else 5)
    for box, first in edges:
        assert first == pytest.approx(box, abs=1)


def test_text_can_be_told_from_its_background(browser, pair):
    browser.open(pair)
    browser.one(".legend button").click()
    for scheme in ("light", "dark"):
        browser.set_scheme(scheme)
        assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        assert browser.run(CONTRAST) == [], scheme


def test_headings_are_in_order_and_tables_and_pictures_are_labelled(browser, pair):
    browser.open(pair)
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert browser.run("return [...document.querySelectorAll('.ranking th:not([scope])')].length") == 0
    assert browser.run("return [...document.querySelectorAll('img:not([alt]), .thumb:not(:has(span))')].length") == 0
    unnamed = "return [...document.querySelectorAll('button, a')].filter(e => !e.textContent && !e.ariaLabel).length"
    assert browser.run(unnamed) == 0


def test_the_same_metric_has_the_same_ranges_in_both_runs(browser, pair):
    browser.open(pair)
    axes = browser.run(
        "return charts.map(chart => [chart.getDom().dataset.chart, ...['xAxis', 'yAxis'].map(axis => "
        "chart.getOption()[axis][0]).map(({ min, max, interval }) => [min, max, interval])])"
    )
    kinds = {}
    for kind, *ranges in axes:
        kinds.setdefault(kind, []).append(ranges)
    del kinds["course"]
    assert {"plane", "tradeoff", "check cascade", *GROUPS["all"]} == set(kinds)
    for kind, (first, second) in kinds.items():
        assert first == second, kind
    assert kinds["check cascade"][0][1][1] >= 2.6


def state(browser):
    return browser.run(
        "const of = (selector, read) => [...document.querySelectorAll(selector)].filter(e => e.ariaCurrent).map(read);"
        "return { thumb: of('.thumb', e => e.title), run: of('.choice', e => e.textContent), "
        "card: of('.card', e => e.dataset.method), subject: document.querySelector('.subject .quiet').textContent }"
    )


def test_a_link_leads_to_a_sample_and_the_back_button_back(browser, page):
    browser.open(page)
    ids = browser.run("return content.runs[0].explorer.samples.map(sample => sample.id)")
    assert state(browser)["thumb"] == [ids[0]]
    browser.all(".thumb")[2].click()
    drawn = f"return document.querySelector('.subject .quiet').textContent === '{ids[2]}'"
    browser.wait(drawn)  # the cards are those of the new sample
    browser.run("document.querySelector(\".card[data-method='sobel'] .anchor\").click()")
    browser.wait("return document.querySelector('.card[aria-current]')")
    assert browser.run("return location.hash") == f"#sample={ids[2]}&method=sobel"
    assert state(browser) == {"thumb": [ids[2]], "run": [], "card": ["sobel"], "subject": ids[2]}
    browser.all(".thumb")[1].click()
    browser.wait("return !document.querySelector('.card[aria-current]')")
    assert state(browser)["subject"] == ids[1]
    for expected in ([ids[2]], [ids[2]], [ids[0]]):
        browser.driver.back()
        deadline = time.monotonic() + PATIENCE
        while state(browser)["thumb"] != expected:
            assert time.monotonic() < deadline
    assert browser.run("return location.hash") == ""
    browser.open(page, fragment=f"sample={ids[3]}&method=random")
    assert state(browser) == {"thumb": [ids[3]], "run": [], "card": ["random"], "subject": ids[3]}
    top, bottom = browser.run(
        "const { top, bottom } = document.querySelector('.card[aria-current]').getBoundingClientRect();"
        "return [top, bottom]"
    )
    assert 0 <= top < bottom <= 1001
    browser.open(page, fragment="sample=nobody&method=nothing")
    assert state(browser)["thumb"] == [ids[0]]
    assert browser.complaints() == []


def test_links_lead_to_a_run_and_to_every_part(browser, pair):
    browser.open(pair)
    other = browser.run("return content.runs[1]")
    sample = other["explorer"]["samples"][1]["id"]
    browser.all(".choice")[1].click()
    browser.wait("return document.querySelectorAll('.choice')[1].ariaCurrent === 'true'")
    browser.all(".thumb")[1].click()
    browser.wait("return document.querySelectorAll('.thumb')[1].ariaCurrent === 'true'")
    assert state(browser) == {"thumb": [sample], "run": [other["name"]], "card": [], "subject": sample}
    browser.open(pair, fragment=browser.run("return location.hash.slice(1)"))
    assert state(browser) == {"thumb": [sample], "run": [other["name"]], "card": [], "subject": sample}
    links = browser.run("return [...document.querySelectorAll(':is(h2, .metric h3) .anchor')].map(a => a.hash)")
    assert {"#run-1", "#run-2", "#between", "#curves", "#checks", "#explorer", "#curve-completeness"} <= set(links)
    browser.open(pair, fragment="curve-deletion")
    browser.wait("return scrollY > 0")
    assert 0 <= browser.run("return document.getElementById('curve-deletion').getBoundingClientRect().top") < 900
    assert state(browser)["run"] == [browser.run("return content.runs[0].name")]


def downloaded(browser, folder, button):
    """Presses a button and waits for its file."""
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    before = set(folder.iterdir())
    browser.run("arguments[0].click()", button)
    deadline = time.monotonic() + PATIENCE
    while not (new := [f for f in set(folder.iterdir()) - before if not f.name.endswith(".crdownload")]):
        assert time.monotonic() < deadline, "no file came"
        time.sleep(0.02)
    return new[0]


def test_charts_come_as_svg_and_png_with_their_legend(browser, page, tmp_path):
    browser.open(page)
    browser.one(".legend button[data-method='sobel']").click()
    buttons = browser.all(".chart + figcaption .download")
    assert len(buttons) == 2 * len(browser.all(".chart"))
    vector, picture = (downloaded(browser, tmp_path, button) for button in buttons[12:14])
    assert (vector.name, picture.name) == ("twinlens-completeness.svg", "twinlens-completeness.png")
    text = vector.read_text(encoding="utf-8")
    assert re.match(r'<svg xmlns="http://www.w3.org/2000/svg" width="\d+" height="\d+"', text)
    assert ">saliency</text>" in text
    assert ">random</text>" in text
    assert "sobel" not in text  # which is switched off
    assert "attribution threshold" in text
    width, height = (int(re.search(rf' {side}="(\d+)"', text)[1]) for side in ("width", "height"))
    image = Image.open(picture)
    assert image.size == (2 * width, 2 * height)
    assert len(image.convert("RGB").getcolors(10**6)) > 50
    assert browser.complaints() == []


def test_tables_come_as_csv_with_all_digits_and_no_formulas(browser, run, page, tmp_path):
    browser.open(page)
    button = browser.all(".table .download")[0]
    text = downloaded(browser, tmp_path, button).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    expected = {row["method"]: row for row in csv.DictReader(io.StringIO(format_table([run], "csv")))}
    assert [row["method"] for row in rows] == run.results.best_first()
    assert {"completeness_share_high", "completeness_share_skill_low", "sparseness"} <= set(rows[0])
    for row in rows:
        for column in set(row) - {"method"}:
            known = expected[row["method"]][column]
            assert (float(row[column]) == float(known)) if known else row[column] == "", column
    evil = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", 'a,"b"\n', "plain", -1.5, None]
    cells = browser.run("return arguments[0].map(csvText)", evil)
    assert cells == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", '"\'\rx"', '"a,""b""\n"', "plain", "-1.5", ""]
    assert browser.complaints() == []


def test_every_number_says_what_it_is_on_one_click(browser, run, page):
    browser.open(page)
    browser.one(".glossary summary").click()
    said = dict(row.text.split("\n", 1) for row in browser.all(".glossary dl div"))
    assert [*said][: len(run.metrics)] == [run.results.about(metric).short for metric in run.metrics]
    for metric in run.metrics:
        assert tl.METRICS[metric].about.scale.format(measure="probability") in said[run.results.about(metric).short]
    high = run.results.soundness_up_to["soundness"]
    assert f"Here they go up to {high:.3f}, nine tenths of the probability with nothing" in said["soundness (paper) ↑"]
    assert said["skill"].startswith("How much better the method's own maps are than the same maps exchanged")
    assert {"exchanged control", "sparseness"} <= set(said)


def test_the_page_switches_between_the_results_of_a_run(browser, tmp_path):
    run = make_run(tmp_path / "run", metrics=["deletion", "completeness_share"])
    strict = run.ask({"deletion": tl.Deletion(performance="probability")}, name="by-probability")
    page = write_report([run], tmp_path / "r.html")

    def shown():
        current = [link.text for link in browser.all("nav[aria-label=Results] [aria-current]")]
        return current, browser.one("table tbody tr td").text.split()[:1]

    def values(evaluation):
        results = evaluation.results
        metric = (*results.sides, *evaluation.metrics)[0]  # headline columns come first
        return [f"{results.area(results.best_first()[0], metric):.3f}"]

    def facts():
        return browser.run("return document.querySelector('.facts').textContent")

    browser.open(page)
    own = shown()
    assert own == (["The run's own results"], values(run))
    assert "Query" not in facts()
    browser.all("nav[aria-label=Results] a")[1].click()
    browser.wait("return document.readyState === 'complete' && content.runs[0].query === 'by-probability'")
    assert shown() == (["Query by-probability"], values(strict))
    assert browser.run("return content.runs[0].metrics.map(metric => metric.key)") == ["deletion"]
    assert "by-probability" in facts()
    assert "Samples are shown with the run's own results" in browser.one("#explorer").text
    assert "this query leaves out" in browser.one("#glance .empty").text
    assert browser.run(CONTRAST) == []
    browser.all("nav[aria-label=Results] a")[0].click()
    browser.wait("return document.readyState === 'complete' && content.runs[0].query === null")
    assert shown() == own
    browser.open(write_report([strict], tmp_path / "alone.html"))
    assert "Results of the query by-probability" in browser.one("header").text
    assert browser.all("#explorer .cards")
    assert browser.complaints() == []
