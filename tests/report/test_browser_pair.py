"""The page of a run whose plane has chance at its centre: the plane, the trade-off, the table."""

import dataclasses
import re
import time

import pytest

from tests.report.browser import PATIENCE, needs_browser
from tests.report.runs import EVIL, METHODS, changed, on_the_plane, with_curve
from twinlens.report import write_report
from twinlens.report.page import build_page
from twinlens.report.run_summary import describe_run
from twinlens.report.styles import method_styles
from twinlens.support.fields import to_json

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pair_page(paired, tmp_path_factory):
    return write_report([paired], tmp_path_factory.mktemp("pair") / "report.html")


CHART = "const chart = charts.find(c => c.getDom().dataset.chart === arguments[0]);"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_lines_cross_at_chance_on_the_plane(browser, paired, pair_page, width, scheme):
    browser.open(pair_page, width=width, scheme=scheme)
    lines, ends, texts = browser.run(
        f"{CHART} const {{ series, xAxis, yAxis }} = chart.getOption();"
        "return [series.filter(s => s.id?.startsWith('chance')).map(s => s.id), "
        "[xAxis[0].min, xAxis[0].max, yAxis[0].min, yAxis[0].max], "
        "[...chart.getDom().querySelectorAll('text')].map(text => text.textContent)]",
        "plane",
    )
    left, right, bottom, top = ends
    assert left <= 0.5 <= right
    assert bottom <= 0.5 <= top
    assert len(lines) == 2
    assert lines[0].startswith("chance 0.5,")
    assert texts.count("chance") == 1
    assert {"soundness", "completeness"} == {text.split()[0] for text in texts if text.endswith("→")}
    heads = browser.run("return [...document.querySelectorAll('.standings thead th')].map(th => th.textContent)")
    assert [head.endswith("chance 0.5") for head in heads[1:6]] == [True, False, True, False, False]
    assert "Dotted: the score of random maps." in browser.one("figcaption").text
    assert "This map: soundness" in browser.one(".card").text
    assert browser.complaints() == []


@pytest.fixture(scope="module")
def mixed(paired):
    """The same run with the paper's completeness, which has no chance level and other levels."""
    asked = paired.results.settings
    metrics = {name: asked.metrics[name] for name in ("soundness_rank", "completeness")}
    return changed(paired, settings=dataclasses.replace(asked, metrics=metrics), advice={})


def test_the_limits_of_the_plane_hold_chance(browser, paired, tmp_path):
    far = on_the_plane(paired, {"sobel": (0.8, 0.2), "random": (0.9, 0.3)})
    browser.open(write_report([far], tmp_path / "r.html"))
    ends = browser.run(f"{CHART} return ['xAxis', 'yAxis'].map(a => chart.getOption()[a][0])", "plane")
    assert [[end["min"], end["max"]] for end in ends] == [[0.5, 0.9], [0.2, 0.5]]


def test_a_metric_without_a_chance_level_has_no_line(browser, mixed, tmp_path):
    browser.open(write_report([mixed], tmp_path / "r.html"))
    ids = browser.run(f"{CHART} return chart.getOption().series.map(s => s.id ?? '')", "plane")
    assert len([each for each in ids if each.startswith("chance")]) == 1  # of soundness
    assert "tradeoff" not in dict(browser.series())


@pytest.mark.parametrize(("width", "named"), [(1400, True), (420, False)])
def test_soundness_is_drawn_against_completeness(browser, paired, pair_page, width, named):
    browser.open(pair_page, width=width)
    points, texts = browser.run(
        f"{CHART} const {{ series }} = chart.getOption(); return ["
        "Object.fromEntries(series.filter(s => s.name && s.data.length < 50).map(s => [s.name, s.data])), "
        "[...chart.getDom().querySelectorAll('text')].map(text => text.textContent)]",
        "tradeoff",
    )
    assert set(points) == set(METHODS)
    for method, data in points.items():
        sound, complete = (paired.results.methods[method].metrics[metric] for metric in paired.results.plane)
        assert [point["value"] for point in data] == [
            list(pair) for pair in zip(complete.values, sound.values, strict=True)
        ]
        marked = [sound.levels[k] for k, point in enumerate(data) if point["symbol"] != "none"]
        assert marked == pytest.approx([0.1, 0.25, 0.5, 1.0])
        assert max(data, key=lambda point: point["symbolSize"]) == data[-1]
    assert texts.count("chance") == 1
    assert [share for share in texts if share.endswith("%")] == ["10%", "25%", "50%"]
    assert all((method in texts) == named for method in METHODS)
    browser.one(".legend button[data-method='sobel']").click()
    assert "sobel" not in dict(browser.series())["tradeoff"]
    assert browser.complaints() == []


def test_the_trade_off_tells_its_values_and_has_a_table(browser, paired, pair_page):
    browser.open(pair_page)
    sound, complete = (paired.results.methods["sobel"].metrics[metric] for metric in paired.results.plane)
    k = next(k for k, value in enumerate(complete.values) if value >= 0.5)
    deadline = time.monotonic() + PATIENCE
    while not (
        said := browser.run(
            f"{CHART} const [x, y] = chart.convertToPixel({{ xAxisIndex: 0, yAxisIndex: 0 }}, [0.5, 0.5]);"
            "chart.dispatchAction({ type: 'showTip', x, y });"
            "return chart.getDom().querySelector('.hover')?.innerText",
            "tradeoff",
        )
    ):
        assert time.monotonic() < deadline
    assert re.search(rf"sobel\s+{sound.values[k]:.3f}\s+{100 * sound.levels[k]:.0f}% of the features", said)
    browser.one("#tradeoff summary").click()
    heads = browser.run("return [...document.querySelectorAll('#tradeoff th[scope=col]')].map(th => th.textContent)")
    assert [head.rsplit(" ", 1)[1] for head in heads[1:]] == [
        *("10%", "25%", "50%", "100%"),
        *("10%", "25%", "50%"),
    ]
    row = browser.run(
        "return [...document.querySelectorAll('#tradeoff tr[data-method=sobel] td > span')].map(e => e.textContent)"
    )
    positions = [sound.levels.index(level) for level in (0.1, 0.25, 0.5, 1.0)]
    expected = [sound.values[k] for k in positions] + [complete.values[k] for k in positions[:3]]
    assert row == [f"{value:.3f}" for value in expected]
    assert browser.complaints() == []


def test_runs_side_by_side_share_the_axes_of_the_trade_off(browser, mixed, paired, tmp_path):
    evil = {EVIL: paired.results.methods["saliency"], "chance": paired.results.methods["sobel"]}
    high = tuple(5 * value for value in evil["chance"].metrics["soundness_rank"].values)
    odd = with_curve(
        changed(paired, methods={**paired.results.methods, **evil}), "chance", "soundness_rank", values=high
    )
    described = [{**describe_run(each, label), "explorer": {"note": "", "samples": []}} for each, label in (
        (paired, "one"), (odd, "two"), (mixed, "three")
    )]  # fmt: skip
    page = tmp_path / "r.html"
    page.write_text(build_page("x", to_json(method_styles([paired, odd])), described), encoding="utf-8")
    browser.open(page)
    ranges = browser.run(
        "return charts.filter(c => c.getDom().dataset.chart === 'tradeoff')"
        ".map(c => [c.getOption().yAxis[0].min, c.getOption().yAxis[0].max])"
    )
    assert len(ranges) == 2
    assert ranges[0] == ranges[1]
    assert ranges[0][1] >= max(high) > 1
    texts = browser.run("return [...document.querySelectorAll('#tradeoff tr')].map(tr => tr.dataset.method)")
    assert EVIL in texts
    assert "This run did not measure both over the same steps." in browser.one("#tradeoff").text
    planes = browser.run(
        "return charts.filter(c => c.getDom().dataset.chart === 'plane').map(c => "
        "c.getOption().series.filter(s => s.id?.startsWith('chance ')).length)"
    )
    assert planes == [2, 2, 1]
    assert browser.complaints() == []
