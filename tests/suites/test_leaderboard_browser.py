"""The table of submissions in a real browser: filtered, sorted, narrow and wide."""

import pytest

from tests.distribution import ROOT
from tests.report.browser import Browser, needs_browser
from twinlens.attribution import METHODS
from twinlens.attribution.method import declared
from twinlens.suites.leaderboard import write_leaderboard
from twinlens.suites.submission import read_submission

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

pytestmark = needs_browser
CHOOSE = """
const [label, value] = arguments;
const select = [...document.querySelectorAll('.filters label')].find(one => one.firstChild.data === label).lastChild;
select.value = value;
select.dispatchEvent(new Event('change'));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.fixture
def board(browser, tmp_path):
    folder = ROOT / "docs" / "leaderboard" / "submissions"
    submissions = [read_submission(folder / f"{name}-1.json") for name in ("text", "grammar")]
    page = write_leaderboard(submissions, str(tmp_path / "board")) / "index.html"
    browser.resize(1400)
    browser.requests()  # forgets earlier ones
    browser.driver.get(page.as_uri())
    return browser, submissions


def texts(browser, selector):
    return [each.text for each in browser.all(selector)]


def choose(browser, label, value):
    browser.driver.execute_script(CHOOSE, label, value)


def test_filters_by_suite_kind_and_metric(board):
    browser, [text, grammar] = board
    assert browser.complaints() == []
    assert browser.requests() == [browser.driver.current_url]
    assert len(browser.all(".board thead th")) == 1 + 3 * 2 + 2  # all of the first suite
    choose(browser, "Suite", "")
    choose(browser, "Metric", "soundness_rank")
    names = {*text.tasks["sentences"].methods, *grammar.tasks["grammar"].methods}
    methods = {declared(METHODS[name]).title for name in names}
    assert set(texts(browser, ".board tbody th bdi")) == methods
    assert len(browser.all(".board thead th")) == 1 + 2 * 2
    choose(browser, "Suite", "text@1")
    assert len(browser.all(".board thead th")) == 1 + 2
    choose(browser, "Metric", "cost")
    assert [name.split()[0] for name in texts(browser, ".board thead button")] == ["milliseconds", "model"]
    choose(browser, "Metric", "")
    assert len(browser.all(".board thead th")) == 1 + 3 * 2 + 2
    choose(browser, "Kind of method", "hidden layers")
    assert set(texts(browser, ".board tbody th bdi")) == {"Attention Rollout", "Gradient Attention"}


def test_a_click_on_a_column_sorts_with_baselines_last(board):
    browser, [text, _] = board
    choose(browser, "Suite", "text@1")
    browser.one(".board thead button").click()
    values = [float(one.text) for one in browser.all(".board tbody td:nth-child(2) span")]
    assert values[:-1] == sorted(values[:-1], reverse=True)
    assert texts(browser, ".board tbody th bdi")[-1] == "Random"
    best = max(text.tasks["sentences"].methods.items(), key=lambda item: item[1].scores["soundness_rank"].value)[0]
    assert texts(browser, ".board tbody th bdi")[0] == declared(METHODS[best]).title


@pytest.mark.parametrize("width", [420, 1400])
def test_the_page_never_scrolls_sideways(board, width):
    browser, _ = board
    browser.resize(width)
    choose(browser, "Metric", "")
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
