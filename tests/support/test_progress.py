import re

import pytest

from twinlens.support.progress import Bars


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # bars are for terminals
    with Bars() as bars:
        yield bars


def state(bars):
    return [(bar.description, bar.completed, bar.total, bar.visible, bar.started) for bar in bars._bars.tasks]


def test_a_bar_starts_with_its_first_rows(bars):
    """The time of what waits for others is not counted, so that rates are those of the work."""
    bars.begin({"one": 4, "other": 2})
    bars.advance("one", 3)
    assert state(bars) == [("one", 3, 4, True, True), ("other", 0, 2, True, False)]


def test_work_that_goes_on_has_its_bar_again(bars):
    bars.begin({"one": 4, "other": 2})
    bars.advance("one", 4)
    bars.begin({"more": 1})
    assert [visible for *_, visible, _ in state(bars)] == [False, True, True]
    bars.begin({"one": 6})
    bars.advance("one", 1)
    assert state(bars)[0] == ("one", 1, 6, True, True)


def test_nodes_and_tasks_that_nobody_announced_have_bars(bars):
    bars.finished_on("here", 5)
    assert state(bars) == [("on here", 5, None, True, True)]


def test_texts_of_others_are_no_markup(bars, capsys):
    bars.begin({"[bold]mine": 1}, note="about [red]this")
    bars.warn("half of [b]it[/b]\nis missing")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)  # colours
    assert "about [red]this" in shown
    assert "twinlens: warning: half of [b]it[/b] is missing" in shown
    assert state(bars)[0][0] == r"\[bold]mine"
