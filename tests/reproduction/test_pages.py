"""The pages of docs/experiments: tables between marks, made from directories of `reproduce`."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reproduction.watching import Watch
from twinlens import reproduction
from twinlens.reproduction import EXPERIMENTS, ExperimentOptions

PAGES = Path(__file__).resolve().parents[2] / "docs" / "experiments"
INDEX = (PAGES / "figures.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate():
    location = importlib.util.spec_from_file_location("generate_experiments", PAGES / "generate.py")
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


def test_claims_become_a_table(generate, calls, tmp_path):
    reproduction.reproduce("one", ExperimentOptions(out=tmp_path / "one"), Watch())
    assert generate.find(tmp_path, "three") is None
    stored = generate.find(tmp_path, "one")
    assert generate.find(tmp_path / "one", "one") == stored
    text = generate.table(stored)
    assert "| Water & wine 1 | Fig. 0a | 0.5 |  | **does not hold**: so & so |" in text
    assert text.index("the paper's statement") < text.index("our own claim") < text.index("by construction")
    page = "before\n<!-- claims smoke -->\nold\n<!-- end of claims -->\nafter"
    written = generate.between(page, "<!-- claims smoke -->", "<!-- end of claims -->", "new")
    assert written == page.replace("old", "new")


def test_counts_are_written_and_others_stay(generate, calls, tmp_path, monkeypatch):
    reproduction.reproduce("one", ExperimentOptions(out=tmp_path / "one"), Watch())
    monkeypatch.setattr(generate, "EXPERIMENTS", ["one", "two"])
    rows = "| [one](one.md) | earlier |\n| [two](two.md) | stays |"
    page = f"<!-- experiments here -->\n{rows}\n<!-- end of experiments -->\nend"
    written = generate.update_counts(page, "here", {"one": generate.find(tmp_path, "one")})
    assert "| [two](two.md) | stays |" in written
    assert "earlier" not in written
    assert "1 does not" in written
    assert generate.update_counts(page, "elsewhere", {}) == page


STATEMENTS = {
    "synthetic": 5,  # section 5.1: the exact map is sound, removing leaves that, introducing does not; completeness
    "retraining": 4,  # section 3.1: the original, retrained once, retrained twice, and their difference
    "spurious-edge": 2,  # appendix C: the caption of Fig. 10
    "semi-natural": 2,  # section 3.2: each method excels on its own set
    "semi-natural-road": 7,  # section 3.2: Rect on both sets; appendix D.1: three rankings, similarity, accuracies
    "order-vs-value": 4,  # section 5.2: completeness and soundness differ, ROAD and deletion overlap, slight changes
    "ensembles": 5,  # section 5.3: soundness, completeness, order; appendix B: DeepSHAP, and a marginal gain
    "benchmark": 4,  # section 5.3: none is best, three are named; appendix B: extremal perturbation
}
"""The paper's statements by experiment, counted in its text: one that the paper repeats counts once."""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_page_has_the_papers_statements(generate, name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for table in re.findall(r"<!-- claims \S+ -->\n(.*?)<!-- end of claims -->", page, flags=re.DOTALL):
        assert "| verdict |" in table
        assert "95% intervals over" in table
    assert max(len(claims) for claims in generate.read_claims(page).values()) == STATEMENTS[name]


def test_every_experiment_is_in_the_index(generate):
    assert {experiment for _, experiment, _ in generate.FIGURES.values()} - {None} == set(EXPERIMENTS)


def test_the_index_is_that_of_the_pages(generate):
    """After a change of a page: python docs/experiments/generate.py."""
    for name in generate.FIGURES:
        assert f"| {' | '.join(map(generate.cell, generate.index_row(name)))} |" in INDEX
    for file in re.findall(r"\]\(([\w-]+\.(?:png|md))\)", INDEX):
        assert (PAGES / file).exists()


def test_claims_are_read_from_a_page(generate):
    page = """<!-- claims smoke -->
| the paper's statement | in the paper | measured | margin | verdict |
|---|---|---|---|---|
| One. | Section 1, Fig. 1 | 0.5 | +0.1 [+0.0, +0.2] | holds |
| Two. | Fig. 12 | 0.5 |  | **does not hold**: so: it is |
| Three. | Appendix B | 0.5 |  | by construction: it is |
| Five. | Fig. 2 |  |  | depends on the reading |
| – a reading |  | 0.5 |  | holds |
| – another |  | 0.5 |  | open |

| our own claim | in the paper | measured | margin | verdict |
|---|---|---|---|---|
| Four. | Fig. 1 | 0.5 |  | open |

Margins.
<!-- end of claims -->"""
    [claims] = generate.read_claims(page).values()
    assert [claim.source for claim in claims] == ["Section 1, Fig. 1", "Fig. 12", "Appendix B", "Fig. 2"]
    assert [claim.verdict for claim in claims] == [
        "holds", "does not hold", "by construction", "depends on the reading",
    ]  # fmt: skip


def test_readings_are_rows_below_their_statement(generate, calls, tmp_path):
    stored = reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
    [first, second, *_] = stored.claims
    both = [replace(first, reading="a"), replace(second, text=first.text, reading="b")]
    lines = generate.table(replace(stored, claims=tuple(both))).splitlines()
    assert lines[2:5] == [
        "| Water & wine 0 | Fig. 0a |  |  | depends on the reading |",
        "| – a |  | 0.5 |  | holds |",
        "| – b |  | 0.5 |  | **does not hold**: so & so |",
    ]


SETTINGS = {"0.01", "0.04", "0.05", "0.001", "0.0001", "0.005"}
"""Settings that prose may name: epsilon, start levels, limits and learning rates."""


def unsupported(page):
    """Numbers of two digits and more after the point that the prose of a page has and none of its tables."""
    lines = [line for line in page.split("\n") if not line.startswith("    ")]
    table, prose = ("\n".join(line for line in lines if line.startswith("|") is inside) for inside in (True, False))
    return set(re.findall(r"(?<![\w.])\d*\.\d\d+(?![\w.])", prose)) - SETTINGS - set(re.findall(r"\d*\.\d+", table))


def test_numbers_without_a_table_are_noticed():
    page = "IG has 0.81, and 1.5 of it.\n\n    --limit 0.33\n\n| a | 0.810 |\nThe limit is 0.01."
    assert unsupported(page) == {"0.81"}
    assert not unsupported(page.replace("0.810", "0.81 [0.7, 0.9]"))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_prose_repeats_no_number_that_no_table_has(page):
    assert not unsupported(page.read_text(encoding="utf-8"))
