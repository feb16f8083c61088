"""Samples of every kind in a real browser: words, columns, lines and slices, at each level, wide and narrow."""

import numpy as np
import pytest
import torch

from tests.report.browser import needs_browser
from tests.report.kinds import COLUMNS, signal_run, table_run, text_run, unpacked, volume_run
from tests.report.page_checks import CLIPPED, CONTRAST
from twinlens.data.word_pieces import JOINED
from twinlens.report import write_report

pytest.importorskip("selenium", reason="selenium is not installed: pip install '.[dev]'")

from selenium.webdriver.common.keys import Keys

pytestmark = needs_browser


def opened(browser, run, folder):
    """The first sample of a run on its page, after a look at the page in both schemes and narrow."""
    page = write_report([run], folder / "r.html")
    browser.open(page, width=420)
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(CLIPPED) == []
    for scheme in ("dark", "light"):
        browser.set_scheme(scheme)
        assert browser.run(CONTRAST) == [], scheme
    browser.open(page)
    assert browser.run(CLIPPED) == []
    assert browser.complaints() == []
    return browser.run("return content.runs[0].explorer.samples[0]")


def at_each_end(browser, read):
    """What a script reads at the first and at the last level of the slider."""
    found = []
    for key in (Keys.HOME, Keys.END):
        browser.one(".slider").send_keys(key)
        found.append(browser.run(read))
    return found


def test_text_is_words_joined_struck_out_and_special_apart(browser, tmp_path):
    shown = opened(browser, text_run(tmp_path / "run"), tmp_path)
    seen = browser.run("return document.querySelector('.subject .words').textContent")
    words = zip(shown["input"]["texts"], unpacked(shown["input"]["flags"]), strict=True)
    assert seen == "".join(("" if flag & JOINED else " ") + word for word, flag in words).strip()
    assert seen.startswith("[CLS] ")
    assert "##" not in seen
    assert browser.run("return [...document.querySelectorAll('.subject .special')].map(e => e.textContent)") == [
        "[CLS]",
        "[SEP]",
    ]
    pieces = 'document.querySelectorAll(\'.card[data-method="saliency"] .piece'
    first, last = at_each_end(browser, f"return [...{pieces}.gone')].map(e => e.textContent)")
    removed = shown["methods"]["saliency"]["removed"]
    assert (len(first), len(last)) == (removed[0], removed[-1])
    assert not {"[CLS]", "[SEP]"} & {*first, *last}
    marks = shown["methods"]["saliency"]["view"]
    strength = unpacked(marks["strength"])
    painted = browser.run(f"return [...{pieces}')].map(e => parseInt(e.style.getPropertyValue('--strength')))")
    assert painted == pytest.approx((45 * np.sqrt(strength / 100)).tolist(), abs=0.51)
    wrong = browser.run(f"return [...{pieces}')].map(e => e.classList.contains('false'))")
    assert wrong == unpacked(marks["false"]).astype(bool).tolist()
    titles = browser.run(f"return [...{pieces}')].map(e => e.title)")
    assert titles[0].startswith("token 0, ")
    assert titles[0].endswith("always kept")


def test_a_text_of_80000_tokens_is_a_page(browser, tmp_path):
    ids = torch.randint(4, 12, (2, 80_000), generator=torch.manual_seed(0))
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [0, 1]

    def far(model, inputs, targets):
        maps = torch.full((len(inputs), 80_000), 0.1)
        maps[:, 50_500], maps[:, 51_000:51_900] = 1.0, 0.2
        return maps

    page = write_report([text_run(tmp_path / "run", data, {"far": far})], tmp_path / "r.html")
    assert page.stat().st_size < 8_000_000
    browser.open(page)
    assert browser.complaints() == []
    assert len(browser.all(".subject .piece")) == 2000
    assert "2000 of 80000 tokens, from token " in browser.one(".subject").text
    assert "of its attribution is on tokens not shown" in browser.one(".card").text
    browser.wait(  # the strongest word is in view
        "const words = document.querySelector('.card .words'), box = words.getBoundingClientRect();"
        "return [...words.children].some(e => { const { top } = e.getBoundingClientRect();"
        "return parseInt(e.style.getPropertyValue('--strength')) === 45 && top >= box.top && top <= box.bottom; })"
    )


def test_columns_have_values_bars_and_replacements(browser, tmp_path):
    shown = opened(browser, table_run(tmp_path / "run"), tmp_path)
    view, marks = shown["input"], shown["methods"]["saliency"]["view"]
    card = ".card[data-method='saliency']"
    rows = browser.run(
        f"return [...document.querySelectorAll(\"{card} tr.cell\")].map(row => [row.querySelector('th').textContent, "
        "row.querySelector('.value span').textContent, parseFloat(row.querySelector('i').style.width), "
        "row.classList.contains('false'), row.closest('details') !== null])"
    )
    strength, false = unpacked(marks["strength"]), unpacked(marks["false"])
    for place, (column, (name, value, width, wrong, folded)) in enumerate(zip(marks["order"], rows, strict=True)):
        assert name == COLUMNS[column]
        assert float(value.replace("−", "-")) == pytest.approx(view["values"][column], rel=1e-3)
        assert width == pytest.approx(strength[column] / 2.5, abs=0.01)
        assert wrong == bool(false[column])
        assert folded == (place >= 20)
    assert browser.one(f"{card} summary").text == "6 more columns"
    script = (
        f'return [...document.querySelectorAll("{card} tr.gone")].map(row => '
        "[Number(row.dataset.column), row.querySelector('small').textContent])"
    )
    stays = unpacked(marks["stays"])
    for k, gone in zip(
        (0, len(shown["methods"]["saliency"]["removed"]) - 1), at_each_end(browser, script), strict=True
    ):
        assert {column for column, _ in gone} == set(np.flatnonzero(stays <= k).tolist())
        for column, text in gone:
            assert float(text.removeprefix(" → ").replace("−", "-")) == pytest.approx(marks["filled"][column], rel=1e-3)
    listed = browser.run("return [...document.querySelectorAll('.subject dt')].map(e => e.textContent)")
    assert listed == list(COLUMNS)


def test_signals_are_lines_with_stretches_that_were_removed(browser, tmp_path):
    run = signal_run(tmp_path / "run", feature_names=["left", "right"], sampling_rate=20.0)
    shown = opened(browser, run, tmp_path)
    card = ".card[data-method='random']"
    assert [caption.text.split("\n")[0] for caption in browser.all(f"{card} figcaption")] == [
        "left",
        "right",
        "attribution",
    ]
    assert browser.one(f"{card} .axis").text.split() == ["0", "s", "2", "s"]
    view, marks = shown["input"], shown["methods"]["random"]["view"]

    def points(path):
        return [255 - float(point.split()[1]) for point in path[1:].split("L")]

    whole = browser.run(f"return [...document.querySelectorAll(\"{card} .whole\")].map(e => e.getAttribute('d'))")
    assert [points(path) for path in whole] == [unpacked(line).tolist() for line in view["lines"]]
    script = (
        f"return [...document.querySelectorAll(\"{card} .channel\")].map(svg => ['.seen', '.removed'].map("
        "part => svg.querySelector(part).getAttribute('d')))"
    )
    levels = (0, len(marks["frames"]) - 1)
    for k, drawn in zip(levels, at_each_end(browser, script), strict=True):
        for line, (seen, removed) in zip(marks["frames"][k], drawn, strict=True):
            assert points(seen) == unpacked(line).tolist()
            assert removed.count("M") == shown["methods"]["random"]["removed"][k]
    bars = browser.run(
        f"return ['stands', 'false'].map(kind => document.querySelector(`{card} .attribution .${{kind}}`)"
        ".getAttribute('d'))"
    )
    (own,) = marks["marks"]
    strength, false = unpacked(own["strength"]), unpacked(own["false"]).astype(bool)
    assert [bar.count("M") for bar in bars] == [
        int(((strength > 0) & ~false).sum()),
        int(((strength > 0) & false).sum()),
    ]
    sizes = browser.run("return [...document.querySelectorAll('.swatch')].map(e => e.getBoundingClientRect().width)")
    assert set(sizes) == {28}


def test_single_channels_have_their_attribution_below_them(browser, tmp_path):
    shown = opened(browser, signal_run(tmp_path / "run", features="channels"), tmp_path)
    card = ".card[data-method='random']"
    drawn = browser.run(
        f'return [...document.querySelectorAll("{card} .channel")].map(svg => '
        "[svg.nextSibling.getAttribute('class'), svg.querySelector('.removed').getAttribute('d')])"
    )
    assert [kind for kind, _ in drawn] == ["attribution", "attribution"]
    level = int(browser.one(".level input").get_attribute("value"))
    for (_, removed), marks in zip(drawn, shown["methods"]["random"]["view"]["marks"], strict=True):
        assert removed.count("M") == (unpacked(marks["stays"]) <= level).sum()


def test_volumes_are_slices_that_a_slider_turns(browser, tmp_path):
    shown = opened(browser, volume_run(tmp_path / "run"), tmp_path)
    view = shown["input"]
    height, width = view["shape"]

    def box(place):
        left, top = place % view["across"] * (width + 2) + 1, place // view["across"] * (height + 2) + 1
        return f"{left} {top} {width} {height}"

    boxes = "return [...document.querySelectorAll(':is(.subject, .card) .slice')].map(e => e.getAttribute('viewBox'))"
    assert set(browser.run(boxes)) == {box(view["start"])}
    assert browser.run("return document.querySelector('.thumb .slice').getAttribute('viewBox')") == box(view["start"])
    said = browser.one(".level div output").text
    assert said == f"{view['numbers'][view['start']] + 1} of 6"
    slices = browser.one(".slices")
    slices.send_keys(Keys.END)
    assert set(browser.run(boxes)) == {box(5)}
    assert browser.one(".level div output").text == "6 of 6"
    assert slices.get_attribute("aria-valuetext") == "6 of 6"
    images = (
        "return [...document.querySelectorAll('.card[data-method=\"random\"] image')].map(e => e.getAttribute('href'))"
    )
    frames = shown["methods"]["random"]["view"]["frames"]
    for k, sources in zip((0, len(frames) - 1), at_each_end(browser, images), strict=True):
        assert sources == [view["sheet"], shown["methods"]["random"]["view"]["map"], frames[k]]
    assert set(browser.run(boxes)) == {box(5)}  # the level leaves the slice as it is
    browser.all(".thumb")[1].click()
    browser.wait("return document.querySelectorAll('.thumb')[1].ariaCurrent === 'true'")
    start = browser.run("return content.runs[0].explorer.samples[1].input.start")
    browser.wait(f"return document.querySelector('.subject .slice').getAttribute('viewBox') === '{box(start)}'")
    assert browser.complaints() == []
