"""The pages of docs/experiments: tables between marks, made from directories of `reproduce`."""

import importlib.util
from pathlib import Path

import pytest

from tests.reproduction.watching import Watch
from twinlens import reproduction
from twinlens.reproduction import EXPERIMENTS, ExperimentOptions

PAGES = Path(__file__).resolve().parents[2] / "docs" / "experiments"


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
    assert "| Water & wine | Fig. 0a | 0.5 |  | **does not hold**: so & so |" in text
    assert text.index("the paper's claim") < text.index("our own claim") < text.index("by construction")
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
    assert "1 do not" in written
    assert generate.update_counts(page, "elsewhere", {}) == page


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_page_has_a_table_of_its_claims(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    table = page.partition("<!-- claims smoke -->")[2].partition("<!-- end of claims -->")[0]
    assert "| verdict |" in table
    assert "95% intervals over" in table
