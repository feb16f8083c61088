"""The report in a real browser: opened from a file, switched, slid, read back, narrow and wide, light and dark."""

import base64
import dataclasses
import re
import shutil
import time
from functools import partial

import pytest

import twinlens as tl
from tests.report.browser import PATIENCE, needs_browser
from tests.report.runs import (
    EVIL,
    METHODS,
    SIGNS,
    SKILLS,
    changed,
    direction,
    image_samples,
    loaded,
    make_run,
    with_skills,
    without_control,
)
from twinlens.metrics.catalogue import GROUPS
from twinlens.report import write_report
from twinlens.report.page import _SCRIPTS, build_page, read_part
from twinlens.report.run_summary import describe_run
from twinlens.report.styles import method_styles
from twinlens.run.check_records import Check, CheckColumn, MethodCheck, store_check
from twinlens.run.wording import describe_power, split_headlines
from twinlens.statistics.advice import Advice
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = needs_browser


@pytest.fixture(scope="module")
def skilled(judged, tmp_path_factory):
    """The page of a run whose skills are known."""
    return write_report([judged], tmp_path_factory.mktemp("skilled") / "report.html")


def test_a_page_opens_from_a_file_without_network_and_without_complaints(browser, page):
    browser.open(page)
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.driver.title == "twinlens: tiny on arrays"
    assert browser.one("h1").text == "tiny on arrays"
    kinds = [kind for kind, _ in browser.series()]
    assert kinds == ["plane", "tradeoff", *GROUPS["all"], "course"]
    assert [title.text for title in browser.all(".metric h3")][:2] == ["Soundness against completeness", "Soundness"]
    captions = browser.run(
        "return [...document.querySelectorAll('#curves figcaption > :last-child')].map(e => e.innerText)"
    )
    assert captions[:2] == ["Both with 20 steps", "soundness, 20 steps"]
    assert "soundness (paper), ε = 0.01, 12 levels" in captions
    axes = browser.run("return charts[2].getOption().xAxis[0].name + '; ' + charts[2].getOption().yAxis[0].name")
    assert axes == "share of features kept; soundness of what is included"


def test_numbers_read_back_from_the_browser_are_those_of_the_results(browser, run, page):
    browser.open(page)
    cells = browser.run(
        "return [...document.querySelectorAll('.standings td[data-metric]')].map(td => [td.parentNode.dataset.method, "
        "td.dataset.metric, td.title, td.querySelector('span').textContent, td.querySelector('small').textContent])"
    )
    assert len(cells) == len(METHODS) * len(run.metrics)
    for method, metric, title, area, interval in cells:
        curve = run.results.methods[method].metrics[metric]
        assert float(title.split(",")[0]) == curve.area.value
        assert area == f"{curve.area.value:z.3f}".replace("-", "−")
        assert interval == "\u2009–\u2009".join(f"{end:z.3f}".replace("-", "−") for end in curve.area.interval)
    drawn = dict(
        browser.run(
            "return charts.map(c => [c.getDom().dataset.chart, "
            "c.getOption().series.filter(s => s.name).map(s => [s.name, s.data])])"
        )
    )
    for method, found in run.results.methods.items():
        for metric, curve in found.metrics.items():
            points = dict(drawn[metric])[method]
            if metric == "soundness":
                assert [value for _, value in points[1::2]] == [
                    value
                    for k, value in enumerate(curve.values)
                    if curve.performance[k] > max([-1, *curve.performance[:k]])
                ]
            else:
                assert points == [list(point) for point in zip(curve.levels, curve.values, strict=True)]
        areas = [found.metrics[metric].area.value for metric in ("soundness_rank", "completeness_share")]
        assert dict(drawn["plane"])[method] == [areas]


def shown(number, sign=""):
    return f"{number:{sign}z.3f}".replace("-", "−")


def test_skill_stands_beside_both_sides_with_a_sign_a_colour_and_words(browser, skilled):
    browser.open(skilled)
    heads = browser.run("return [...document.querySelectorAll('.standings thead th')].map(th => th.textContent)")
    heads = [head.replace("\u00a0", " ") for head in heads]
    pair = ["soundness ↑20 stepschance 0.5", "skill ↑", "completeness ↑20 stepschance 0.5", "skill ↑"]
    assert heads[:7] == ["method", *pair, "calibration ↓20 steps", "soundness (paper) ↑ε = 0.01, 12 levels"]
    cells = browser.run(
        "return [...document.querySelectorAll('.standings td[data-skill]')].map(td => [td.parentNode.dataset.method, "
        "td.dataset.skill, ...[...td.children].map(part => part.textContent), getComputedStyle(td.firstChild).color])"
    )
    assert len(cells) == 2 * len(METHODS)
    words_of = {
        "better": "better than maps from other inputs",
        "undecided": "neither clearly better nor clearly worse than maps from other inputs",
        "worse": "worse than maps from other inputs",
    }
    colours = {}
    for method, metric, text, interval, words, colour in cells:
        skill, reach = SKILLS[method][metric]
        found = direction(skill, reach)
        assert text == f"{SIGNS[found]} {shown(skill, '+')}"
        assert interval == "\u2009–\u2009".join(shown(end, "+") for end in (skill - reach, skill + reach))
        assert words == words_of[found]
        colours.setdefault(found, set()).add(colour)
    assert [len(found) for found in colours.values()] == [1, 1, 1]
    assert len(set.union(*colours.values())) == len(SIGNS)
    note = browser.one(".table-notes").text
    assert "Bold, in soundness and completeness only: clearly better than the baselines and all other" in note
    assert all(f"{SIGNS[found]} {words}" in note for found, words in words_of.items())
    title = browser.one(".standings tr[data-method='sobel'] td[data-skill='completeness_share']").get_attribute("title")
    assert title.startswith("skill −0.030")
    assert title.endswith("p = 0.250, 5 samples")
    browser.all(".standings thead button")[2].click()
    rows = [row.get_attribute("data-method") for row in browser.all(".standings tbody tr")]
    assert rows == ["saliency", "sobel", "random"]  # controls after all methods, by their skill
    assert browser.complaints() == []


def test_controls_come_last_marked_and_quieter_and_bold_is_what_the_results_say(browser, run, tmp_path):
    advice = {"completeness_share": Advice(outcome="clear", methods=("saliency",))}
    odd = changed(with_skills(run), advice=advice, front={"saliency": 1.0})
    first, other = odd.results.methods["random"], odd.results.methods["saliency"]
    odd = changed(odd, methods={"random": first, **odd.results.methods, "other": other})
    described = describe_run(odd, odd.path.name)
    described["explorer"] = {"note": "", "samples": []}
    page = tmp_path / "r.html"
    page.write_text(build_page("odd", to_json(method_styles([odd])), [described]), encoding="utf-8")
    browser.open(page)
    best = browser.run(
        "return [...document.querySelectorAll('.standings .best')].map(e => [e.parentNode.dataset.method, "
        "e.dataset.metric, getComputedStyle(e.firstChild).fontWeight])"
    )
    assert best == [["saliency", "completeness_share", "700"]]
    rows = browser.run(
        "return [...document.querySelectorAll('.standings tbody tr')].map(tr => [tr.dataset.method, "
        "tr.querySelector('.badges').textContent, getComputedStyle(tr).color])"
    )
    assert {name for name, *_ in rows[:2]} == {"saliency", "other"}
    assert all(text.endswith("baseline") for _, text, _ in rows[2:]), rows
    assert not any("front" in text for _, text, _ in rows[2:])
    assert {colour for *_, colour in rows[:2]}.isdisjoint({colour for *_, colour in rows[2:]})


def test_every_method_on_the_plane_is_an_arrow_from_its_exchanged_maps(browser, judged, skilled):
    browser.open(skilled)
    results = judged.results
    option = browser.run(
        "const { series, xAxis, yAxis } = charts[0].getOption(); return { "
        "arrows: Object.fromEntries(series.filter(s => s.id?.startsWith('exchanged ')).map(s => [s.id, s.data[0]])), "
        "fills: Object.fromEntries(series.filter(s => s.type === 'scatter').map(s => [s.name, s.itemStyle.color])), "
        "labels: series.filter(s => s.type === 'scatter').map(s => s.label.show), "
        "ends: [xAxis[0].min, xAxis[0].max, yAxis[0].min, yAxis[0].max] }"
    )
    left, right, bottom, top = option["ends"]
    for method in METHODS:
        x, y = option["arrows"][f"exchanged {method}"]
        own = [results.area(method, metric) for metric in results.plane]
        assert [own[0] - x, own[1] - y] == pytest.approx([skill for skill, _ in SKILLS[method].values()])
        assert left <= x <= right
        assert bottom <= y <= top
    card = browser.run("return theme().card")
    assert option["fills"]["saliency"] not in (card, None)
    stops = option["fills"]["sobel"]
    assert [stops[end] for end in ("x", "y", "x2", "y2")] == [0, 1, 0, 0]  # full below, empty above: not complete
    assert [stop["color"] == card for stop in stops["colorStops"]] == [False, False, True, True]
    assert option["fills"]["random"] == card
    assert option["labels"] == [True] * len(METHODS)
    caption = browser.run("return document.querySelector('figcaption').textContent")
    assert "Each arrow starts at the values of the same maps exchanged" in caption
    assert browser.complaints() == []


def test_the_plane_has_no_arrows_without_a_control(browser, run, tmp_path):
    browser.open(write_report([without_control(run)], tmp_path / "r.html"))
    assert browser.run("return charts[0].getOption().series.every(s => !s.id?.startsWith('exchanged'))")
    assert "arrow" not in browser.run("return document.querySelector('figcaption').textContent")
    assert browser.all(".standings td[data-skill]") == []
    assert "✗" not in browser.run("return document.querySelector('.standings').textContent")


def test_headlines_are_a_list_on_top_and_warnings_are_a_line_each(browser, judged, tmp_path):
    warnings = ("sobel: 3 maps are odd at 0.5. Use others.", "random: 4 maps are odd at 0.5. Use others.", "One. Two.")
    advice = {"soundness_rank": Advice(outcome="clear", methods=("saliency",))}
    judged = changed(judged, warnings=warnings, advice=advice)
    browser.open(write_report([judged], tmp_path / "r.html"))
    read = "return [...document.querySelectorAll('{}')].map(e => e.innerText)"
    advised, others = split_headlines(judged.results)
    assert browser.run(read.format(".headlines li")) == advised
    remarks = browser.run(read.format(".remark"))
    assert remarks[: len(others)] == [text.replace("`", "") for text in others]
    assert browser.run(read.format(".remark code")) == re.findall("`(.+?)`", " ".join(others)) != []
    tops = browser.run(
        "return ['.headlines', '.warnings', '.standings', '.verdicts'].map("
        "e => document.querySelector(e).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)
    said = browser.run("return [...document.querySelectorAll('.warnings > ul > li')].map(li => li.innerText)")
    assert said == ["sobel: 3 maps are odd at 0.5 (and 1 similar)", "One"]
    for folded in browser.all(".warnings summary"):
        folded.click()
    said = browser.one(".warnings").text
    assert "Use others." in said
    assert "random: 4 maps are odd at 0.5." in said
    assert "Two." in said


def test_a_method_is_switched_off_once_for_all_charts(browser, page):
    browser.open(page)
    assert all("sobel" in names for _, names in browser.series())
    button = browser.one(".legend button[data-method='sobel']")
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "false"
    assert not any("sobel" in names for _, names in browser.series())
    assert all("random" in names for _, names in browser.series())
    assert "off" in browser.one(".standings tr[data-method='sobel']").get_attribute("class")
    assert not browser.one(".card[data-method='sobel']").is_displayed()
    browser.one(".legend .plain").click()
    assert all("sobel" in names for _, names in browser.series())
    assert browser.complaints() == []


def test_the_slider_changes_picture_text_and_chart(browser, page):
    browser.open(page)

    def state():
        card = browser.one(".card[data-method='random']")
        return (
            browser.one(".level output").text,
            card.find_element(By.CSS_SELECTOR, ".triple figure:last-child img").get_attribute("src"),
            card.find_element(By.CSS_SELECTOR, ".answer b").text,
            browser.run("return charts.at(-1).getOption().series[0].markLine.data[0].xAxis"),
        )

    slider = browser.one(".slider")
    shown = browser.run("return content.runs[0].explorer")
    answers = shown["samples"][0]["methods"]["random"]
    seen = []
    for key in (Keys.HOME, Keys.ARROW_RIGHT, Keys.END):
        slider.send_keys(key)
        k = int(slider.get_attribute("value"))
        text, source, probability, marker = state()
        assert source == answers["view"]["frames"][k]
        assert text.startswith(f"{100 * shown['levels'][k]:.0f}% of the features")
        assert marker == shown["levels"][k]
        percent = 100 * answers["probability"][k]
        assert float(probability.removesuffix("%")) == pytest.approx(percent, abs=0.51)
        seen.append((text, source, marker))
    assert len(set(seen)) == 3
    thumb = browser.all(".thumb")[1]
    thumb.send_keys(Keys.ENTER)
    browser.wait("return document.querySelectorAll('.thumb')[1].ariaCurrent === 'true'")
    assert state()[1] == shown["samples"][1]["methods"]["random"]["view"]["frames"][-1]
    assert browser.complaints() == []


def hovered(browser, chart, x, y):
    """Points at coordinates of a chart's axes, until its values are shown: a chart that is drawn anew hides them."""
    script = (
        "const chart = charts.find(c => c.getDom().dataset.chart === arguments[0]);"
        "const [x, y] = chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, [arguments[1], arguments[2]]);"
        "chart.dispatchAction({ type: 'showTip', x, y });"
        "return chart.getDom().querySelector('.hover')?.innerText"
    )
    deadline = time.monotonic() + PATIENCE
    while not (said := browser.run(script, chart, x, y)):
        assert time.monotonic() < deadline, f"nothing is shown at {x}, {y} of {chart}"
        time.sleep(0.02)
    return said


@pytest.mark.parametrize("width", [1400, 420])
def test_pointing_at_the_plane_tells_own_exchanged_and_skill(browser, judged, skilled, width):
    browser.open(skilled, width=width)
    own = {metric: judged.results.area("sobel", metric) for metric in judged.results.plane}
    said = hovered(browser, "plane", *own.values())
    for metric, area in own.items():
        skill, reach = SKILLS["sobel"][metric]
        sign = SIGNS[direction(skill, reach)]
        numbers = [area, area - skill, f"{sign} {shown(skill, '+')}", shown(skill - reach, "+")]
        for number in numbers:
            assert (number if isinstance(number, str) else shown(number)) in said
    assert "completeness: neither clearly better nor clearly worse than maps from other inputs" in said
    assert "soundness 2-sided: " not in said
    assert "a baseline method, which ignores the model" in said
    table, tip = browser.run(
        "const tip = document.querySelector('.hover');"
        "return [tip.querySelector('table'), tip.parentNode].map(e => e.getBoundingClientRect().right)"
    )
    assert table <= tip <= width


def test_hovering_shows_values(browser, run, page):
    browser.open(page)
    hover = partial(hovered, browser)
    said = hover("road_morf", 0.3, 0.5)
    assert "share of features removed 0.30" in said
    for method in METHODS:
        value = run.results.methods[method].metrics["road_morf"].values[2]
        assert re.search(rf"{method}\s+{f'{value:z.3f}'.replace('-', '−')}", said)
    curve = run.curve("sobel", "soundness")
    said = hover("soundness", 0.3, 0.5)
    assert "predictive level 0.30" in said
    assert re.search(rf"sobel\s+{curve.at(0.3):.3f}", said)
    assert re.search(r"sobel\s+not reached", hover("soundness", 0.99, 0.5))
    assert browser.complaints() == []


def test_sorting_by_a_metric(browser, run, page):
    browser.open(page)
    orders = set()
    heads = [head for head in browser.all(".standings thead th")[1:] if not head.text.startswith("skill")]
    last = heads.pop()
    assert len(heads) == len(run.metrics), [head.text for head in heads]
    for head, metric in zip(heads, run.metrics, strict=True):
        head.find_element(By.TAG_NAME, "button").click()
        direction = "ascending" if metric in ("calibration", "road_lerf", "insertion") else "descending"
        assert head.get_attribute("aria-sort") == direction
        cells = browser.all(f".standings td[data-metric='{metric}']")
        areas = [float(cell.get_attribute("title").split(",")[0]) for cell in cells]
        assert areas[1:] == sorted(areas[1:], reverse=direction == "descending")  # the controls; the method is before
        orders.add(tuple(row.get_attribute("data-method") for row in browser.all(".standings tbody tr")))
    assert len(orders) > 1
    assert last.text == "sparseness"
    last.find_element(By.TAG_NAME, "button").click()
    shown = [cell.text.split("\n")[0] for cell in browser.all(".standings td[data-side='sparseness']")]
    known = {name: run.results.methods[name].properties["sparseness"].value for name in run.methods}
    baselines = sorted((known[name] for name in run.results.baselines), reverse=True)
    assert shown == [f"{value:.3f}" for value in (known["saliency"], *baselines)]
    browser.one(".glossary summary").click()
    [note] = [row.text for row in browser.all(".glossary dl div") if row.text.startswith("sparseness\n")]
    assert note.endswith("few features have it all.")


def test_columns_beside_the_headline_come_on_request_and_stay(browser, run, page):
    browser.open(page, folded=True)
    shown = "return [...document.querySelectorAll('.standings thead th')].filter(e => e.checkVisibility()).length"
    switch = browser.one(".standings .more-columns")
    more = len(run.metrics) - 2 + 1  # and sparseness
    assert switch.text == f"More columns ({more})"
    assert (browser.run(shown), switch.get_attribute("aria-expanded")) == (5, "false")
    switch.send_keys(Keys.ENTER)
    assert (browser.run(shown), switch.get_attribute("aria-expanded")) == (5 + more, "true")
    assert switch.text == "Fewer columns"
    browser.all(".standings thead button")[-1].click()  # sorted anew, and still there
    assert browser.run(shown) == 5 + more
    cells = (
        "return [...document.querySelectorAll('.standings tbody tr')]"
        ".map(tr => [...tr.cells].filter(e => e.checkVisibility()).length)"
    )
    assert browser.run(cells) == [5 + more] * len(METHODS)
    switch.click()
    assert browser.run(cells) == [5] * len(METHODS)
    assert browser.complaints() == []


def test_the_headline_columns_fit_a_narrow_page(browser, page):
    browser.open(page, width=420, folded=True)
    boxes = browser.run(
        "return [...document.querySelectorAll('.standings td')].filter(e => e.checkVisibility())"
        ".map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right, e.scrollWidth - e.clientWidth])"
    )
    assert len(boxes) == 4 * len(METHODS)
    assert all(0 <= left < right <= 420 and beyond <= 0 for left, right, beyond in boxes)
    box, table = browser.run("const s = document.querySelector('.scroll'); return [s.clientWidth, s.scrollWidth]")
    assert table <= box


def test_charts_beside_the_headline_are_folded_until_their_anchor_is_followed(browser, page):
    browser.open(page, folded=True)
    first = ["plane", "tradeoff", "soundness_rank", "completeness_share", "calibration", "course"]
    assert [kind for kind, _ in browser.series()] == first
    assert "More metrics (7)" in browser.one(".more-metrics > summary").text
    assert not browser.one("#curve-deletion").is_displayed()
    browser.run("location.hash = '#curve-deletion'")
    browser.wait("return document.querySelector('#curve-deletion svg')")
    browser.wait("return document.getElementById('curve-deletion').getBoundingClientRect().top < 900")
    assert {kind for kind, _ in browser.series()} == {*first, *GROUPS["all"]}
    browser.open(page, folded=True, fragment="curve-insertion")
    browser.wait("return document.querySelector('#curve-insertion svg')")
    assert 0 <= browser.run("return document.getElementById('curve-insertion').getBoundingClientRect().top") < 900
    browser.open(page, folded=True)
    browser.one(".legend button[data-method='sobel']").click()
    browser.one(".more-metrics > summary").click()
    browser.wait("return document.querySelector('#curve-insertion svg')")
    assert not any("sobel" in names for _, names in browser.series())  # which was switched off before they were drawn
    assert browser.complaints() == []


def test_methods_are_told_with_their_options(browser, tmp_path):
    methods = {"mine": {"method": "integrated_gradients", "steps": 3}, "random": "random"}
    run = make_run(tmp_path / "run", samples=image_samples(4), methods=methods, metrics=["soundness_rank"])
    browser.open(write_report([run], tmp_path / "r.html"))
    row = browser.run("return document.querySelector('.standings tbody tr').cells[0].textContent")
    assert row.endswith("steps\u00a03")
    browser.one(".methods summary").click()
    [own, baseline] = browser.all(".methods dl div")
    assert own.get_attribute("data-method") == "mine"
    assert "Options: steps\u00a03; by default baseline\u00a00.0." in own.get_attribute("textContent")
    assert own.find_element(By.TAG_NAME, "b").text == "steps 3"
    assert "Negative values: dropped, " in own.text
    assert "Options" not in baseline.text
    assert browser.complaints() == []


def test_the_page_says_how_sure_it_can_be(browser, run, page):
    browser.open(page)
    assert browser.all(".remark")[-1].text == describe_power(run.results, run.comparison())


def test_everything_can_be_reached_by_keyboard_with_a_visible_focus(browser, page):
    browser.open(page, folded=True)
    reached = []
    for _ in range(100):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(
            browser.run(
                "const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.dataset.method ?? e.className, e.className, s.outlineStyle, parseFloat(s.outlineWidth)]"
            )
        )
        if reached[-1][0] == "slider":
            break
    assert {name for name, *_ in reached} >= {*METHODS, "slider"}
    assert any("thumb" in kind for _, kind, *_ in reached)
    assert all(style == "solid" and width >= 2 for _, _, style, width in reached)


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_nothing_is_cut_off_wide_or_narrow_light_or_dark(browser, page, width, scheme):
    browser.open(page, width=width, scheme=scheme)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    box, table = browser.run("const s = document.querySelector('.scroll'); return [s.clientWidth, s.scrollWidth]")
    assert table <= 1.08 * box or width == 420  # all metrics at once
    browser.run("document.querySelector('.scroll').scrollLeft = 1000")
    left, edge = browser.run(
        "return [document.querySelector('.standings tbody th'), document.querySelector('.scroll')]"
        ".map(e => e.getBoundingClientRect().left)"
    )
    assert left == pytest.approx(edge, abs=1)  # the first column stays
    for chart in browser.all(".chart"):
        assert chart.size["width"] > 0.35 * min(width, 700)
        svg = chart.find_element(By.TAG_NAME, "svg")
        assert abs(svg.size["width"] - chart.size["width"]) <= 1
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, background.removeprefix("rgb(").removesuffix(")").split(","))) < 200
    assert dark == (scheme == "dark")
    axis = browser.run("return charts[0].getOption().xAxis[0].axisLabel.color")
    assert axis == {"light": "#66666b", "dark": "#a2a4aa"}[scheme]
    assert browser.complaints() == []


def test_on_paper_it_is_light_and_narrow_and_then_as_before(browser, page):
    browser.open(page, scheme="dark")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("return getComputedStyle(document.querySelector('.legend')).position") == "static"
    assert browser.run("return charts[0].getOption().xAxis[0].axisLabel.color") == "#444"
    assert set(browser.run("return charts.map(chart => chart.getWidth())")) == {680, 330}
    assert browser.run("const s = document.querySelector('.scroll'); return s.scrollWidth - s.clientWidth") <= 0
    assert browser.run("return document.querySelector('.glossary details').open")
    assert not browser.one(".downloads").is_displayed()
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert not browser.run("return document.querySelector('.glossary details').open")
    assert browser.run("return document.querySelector('.scroll > table').style.zoom") == ""
    assert browser.run("return charts[0].getOption().xAxis[0].axisLabel.color") == "#a2a4aa"
    document = base64.b64decode(browser.command("Page.printToPDF", printBackground=True)["data"])
    assert document.startswith(b"%PDF")
    assert len(document) > 20_000
    assert browser.run("return document.documentElement.hasAttribute('data-print')") is False
    assert browser.complaints() == []


def test_names_with_markup_marks_and_emoji_show_as_text(browser, tmp_path):
    samples = dataclasses.replace(
        image_samples(4), name=EVIL, ids=tuple(f"{EVIL}{i}" for i in range(4)), classes=(EVIL, EVIL, EVIL)
    )
    run = make_run(
        tmp_path / "run", samples=samples, model=loaded(EVIL), methods=["random", "sobel"], metrics={EVIL: "soundness"}
    )
    browser.open(write_report([changed(run, warnings=(EVIL,))], tmp_path / "r.html"))
    assert browser.complaints() == []
    assert browser.run("return document.scripts.length") == len(_SCRIPTS) + 1  # and the data
    assert browser.run("return document.querySelector('h1').textContent") == f"{EVIL} on {EVIL}"
    assert EVIL in browser.run("return [...document.querySelectorAll('.warnings li')].map(li => li.textContent)")
    assert EVIL in browser.run("return document.querySelector('.verdicts').textContent")
    assert browser.run("return document.querySelector('.subject h3').textContent") == EVIL
    assert browser.run("return document.querySelector('.subject .quiet').textContent").startswith(EVIL)
    assert browser.run("return document.querySelector('.said').textContent").endswith(EVIL)
    assert browser.run("return document.documentElement.scrollWidth") <= 1400
    injected = browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s);"
        "return typeof window.evil"
    )
    assert injected == "undefined"
    assert any("Content Security Policy" in text for text in browser.complaints())


def test_pages_of_runs_with_gaps_say_so(browser, tmp_path):
    alone = make_run(tmp_path / "alone", samples=image_samples(1), methods=["saliency"], metrics=["completeness"])
    browser.open(write_report([alone], tmp_path / "r.html"))
    text = browser.run("return document.body.innerText")
    assert "One sample only" in text
    assert "One method only" in text
    assert "this run did not measure soundness" in text
    assert browser.complaints() == []
    shutil.rmtree(alone.path / "maps")
    browser.open(write_report([alone], tmp_path / "r.html"))
    text = browser.run("return document.body.innerText")
    assert "Its map is not stored." in text
    assert "No maps are stored for saliency" in text
    assert browser.complaints() == []


def test_several_runs_stand_side_by_side_under_one_switch(browser, run, tmp_path):
    other = make_run(tmp_path / "other", methods=["sobel", "random"], metrics=["soundness", "completeness"])
    browser.open(write_report([run, other], tmp_path / "r.html"))
    assert [kind for kind, _ in browser.series()].count("plane") == 2
    left, right = (article.rect for article in browser.all("article.run"))
    assert left["y"] == right["y"]
    assert right["x"] >= left["x"] + left["width"]
    assert "This run did not measure it." in browser.run("return document.body.innerText")
    browser.one(".legend button[data-method='sobel']").click()
    assert not any("sobel" in names for _, names in browser.series())
    assert len(browser.all(".card")) == 3
    drawn = browser.run("return charts.length")
    for choice, cards in ((1, 2), (0, 3), (1, 2), (0, 3)):
        browser.all(".choice")[choice].click()
        # The page follows its address in a later event, and draws a new chart in a later frame: neither waits for us.
        browser.wait(f"return document.querySelectorAll('.card').length === {cards}")
        browser.wait("return [...document.querySelectorAll('.chart')].every(chart => chart.querySelector('svg'))")
        assert not browser.one(".card[data-method='sobel']").is_displayed()
    assert browser.run("return charts.length") == drawn + 1
    assert browser.run("return document.documentElement.scrollWidth") <= 1400
    assert browser.complaints() == []


def test_differences_between_runs_are_shown_as_text(browser, run, tmp_path):
    other = make_run(tmp_path / "other", samples=image_samples(n=14, seed=1), performance="probability")
    found = tl.compare({"one": run, EVIL: other}, resamples=30)
    browser.open(write_report([run, other], tmp_path / "r.html", comparison=found))
    section = browser.one("#between")
    assert "12 and 14 independent samples" in section.text
    assert len(browser.all("#between tbody tr")) == 3
    areas = len({pair.metric for pair in found.pairs})
    assert len(browser.all("#between thead th")) == 1 + areas + 2  # skill beside both headline metrics
    assert browser.all("#between .warnings li")[0].text.startswith("one and <script>")
    assert browser.run("return document.querySelectorAll('#between script').length") == 0
    bold = [cell.text for cell in browser.all("#between td.best > span")]
    sides = run.results.sides
    shown = [pair for pair in found.pairs if pair.decided and (pair.quantity == "area" or pair.metric in sides)]
    assert len(bold) == len(shown)
    for width in (1400, 420):
        browser.resize(width)  # charts follow in a later frame
        browser.wait(f"return document.documentElement.scrollWidth <= {width}")
    assert browser.complaints() == []


def test_metrics_with_names_of_ones_own_are_drawn_by_what_they_are(browser, tmp_path):
    levels = (0.9, 0.5, 0.1)
    metrics = {
        EVIL: tl.Soundness(levels=levels, performance="probability"),
        "lost": tl.Completeness(relative=False),
        "strict": tl.Soundness(epsilon=0.05, levels=levels),
    }
    run = make_run(tmp_path / "run", samples=image_samples(4), metrics=metrics)
    browser.open(write_report([run], tmp_path / "r.html"))
    assert browser.complaints() == []
    assert [kind for kind, _ in browser.series()][:4] == ["plane", *metrics]
    axes = browser.run("return charts[0].getOption().xAxis[0].name + charts[0].getOption().yAxis[0].name")
    assert axes == f"{EVIL} →lost →"
    inverse = browser.run("return charts.slice(1, 4).map(c => c.getOption().xAxis[0].inverse)")
    assert inverse == [False, True, False]
    points = browser.run("return charts[0].getOption().series.filter(s => s.type === 'scatter').map(s => s.data[0])")
    results = run.results
    assert points == [[results.area(name, metric) for metric in (EVIL, "lost")] for name in results.best_first()]
    performance = results.methods["sobel"].metrics[EVIL].performance
    drawn = browser.run("return charts[1].getOption().series.find(s => s.name === 'sobel').data.map(p => p[0])")
    assert drawn[1::2] == [p for k, p in enumerate(performance) if p > max([-1, *performance[:k]])]
    titles = browser.run("return [...document.querySelectorAll('.metric h3')].map(h => h.textContent)")
    assert titles == list(metrics)
    assert len(browser.all(".key")) == 1  # what blue and vermilion stand for
    assert browser.run("return document.documentElement.scrollWidth") <= 1400


def test_absolute_thresholds_are_told_as_such(browser, tmp_path):
    metrics = [tl.Completeness(relative=False, thresholds=(0.8, 0.2))]
    run = make_run(tmp_path / "run", samples=image_samples(4), methods=["random"], metrics=metrics)
    browser.open(write_report([run], tmp_path / "r.html"))
    assert browser.one(".level output").text == "what exceeds 0.20"
    assert browser.complaints() == []


def a_check(**entries):
    """A check of two steps, of which one method has no value at the second, with a title from a stranger."""
    numbers = [
        Estimate(value=v, low=None if v is None else v - 0.1, high=None if v is None else v + 0.1, samples=4)
        for v in (0.7, 0.2, None)
    ]
    return Check(
        **{
            "name": "cascade",
            "title": EVIL,
            "question": "Is it so?",
            "source": "Somebody 2020",
            "reading": "Less is better.",
            "columns": (CheckColumn(title="in the end", better="lower"),),
            "step_title": "layer",
            "course_title": "similarity",
            "steps": ("head", EVIL),
            "samples": 5,
            "methods": {
                "saliency": MethodCheck(values=(numbers[1],), course=(numbers[0], numbers[1])),
                "random": MethodCheck(values=(numbers[2],), course=(numbers[0], numbers[2])),
            },
            "notes": (EVIL,),
            "versions": {},
        }
        | entries
    )


def test_checks_are_shown_with_their_steps(browser, tmp_path):
    run = make_run(tmp_path / "run", samples=image_samples(4))
    store_check(run.run, a_check())
    store_check(
        run.run,
        a_check(name="plain", steps=(), methods={"sobel": MethodCheck(values=a_check().methods["random"].values)}),
    )
    browser.open(write_report([run], tmp_path / "r.html"))
    assert browser.complaints() == []
    assert [panel.get_attribute("data-check") for panel in browser.all("#checks .check")] == ["cascade", "plain"]
    titles = browser.run("return [...document.querySelectorAll('#checks h3')].map(h => h.textContent)")
    assert titles == [EVIL, EVIL]
    cells = browser.run("return [...document.querySelectorAll('#checks td')].map(cell => cell.innerText)")
    expected = {"saliency": "0.200\n0.100\u2009–\u20090.300\n4 of 5", "random": "–\n4 of 5"}
    best = [name for name in run.results.best_first() if name in expected]
    assert cells == [*(expected[name] for name in best), "–\n4 of 5"]
    [[_, names]] = [each for each in browser.series() if each[0] == "check cascade"]
    assert {"saliency", "random"} <= set(names)
    script = "const [c] = charts.filter(c => c.getDom().dataset.chart === 'check cascade').map(c => c.getOption());"
    drawn = browser.run(f"{script} return c.series.find(s => s.name === 'saliency').data")
    assert drawn == [[0, 0.7], [1, 0.2]]
    assert browser.run(f"{script} return [c.xAxis[0].data, c.xAxis[0].name, c.yAxis[0].name]") == [
        ["head", EVIL],
        "layer",
        "similarity",
    ]
    browser.one(".legend button[data-method='saliency']").click()
    [[_, names]] = [each for each in browser.series() if each[0] == "check cascade"]
    assert "saliency" not in names
    assert "off" in browser.one("#checks tr[data-method='saliency']").get_attribute("class")


def test_no_two_scripts_share_a_name():
    """All scripts of the page have one scope, in which a second function of a name silently replaces the first."""
    names = [
        name
        for script in _SCRIPTS[1:]  # the first is of others
        for name in re.findall(r"^(?:function|const|let) (\w+)", read_part(script), re.MULTILINE)
    ]
    assert sorted(names) == sorted(set(names))


def test_a_check_of_the_whole_run_is_one_line(browser, tmp_path):
    run = make_run(tmp_path / "run", samples=image_samples(4))
    methods = {"sobel": MethodCheck(values=a_check().methods["saliency"].values)}
    store_check(run.run, a_check(line=f"All is well with {EVIL}.", steps=(), methods=methods))
    browser.open(write_report([run], tmp_path / "r.html"))
    assert browser.complaints() == []
    panel = browser.one("#checks .check")
    assert panel.find_element(By.CSS_SELECTOR, "h3 + p").get_property("textContent") == f"All is well with {EVIL}."
    table = panel.find_element(By.CSS_SELECTOR, "details table")
    assert not table.is_displayed()
    panel.find_element(By.CSS_SELECTOR, "summary").click()
    assert table.is_displayed()


def test_a_check_of_the_measurement_has_rows_that_are_no_methods(browser, tmp_path):
    """Rows that are drawn have a style of their own; steps that are names are a table and not a chart."""
    run = make_run(tmp_path / "run", samples=image_samples(4))
    numbers = a_check().methods["saliency"]
    store_check(run.run, a_check(name="lines", rows="answer", methods={EVIL: numbers}))
    named = a_check(name="names", rows="imputer", ordered=False, steps=("one", "<b>two"), methods={"blur": numbers})
    store_check(run.run, named)
    browser.open(write_report([run], tmp_path / "r.html"))
    assert browser.complaints() == []
    assert [names for kind, names in browser.series() if kind.startswith("check ")] == [
        [None, EVIL]
    ]  # a band and a line
    heads = "return [...document.querySelectorAll('[data-check=names] tr')].map(row => row.cells[0].innerText)"
    assert browser.run(heads) == ["imputer", "blur", "layer", "one", "<b>two"]
    values = (
        "return [...document.querySelectorAll('[data-check=names] td')].map(cell => cell.innerText.split('\\n')[0])"
    )
    assert browser.run(values) == ["0.200", "0.700", "0.200"]
    assert len(browser.all("[data-check=lines] .swatch")) == 1
    switches = browser.run("return [...document.querySelectorAll('.legend .method')].map(one => one.dataset.method)")
    assert sorted(switches) == sorted(run.methods)
    assert not browser.all("[data-check=names] .swatch")
