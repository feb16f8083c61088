"""docs/concepts/theory.md: it is complete, and every name on it exists."""

import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.conftest import SHARED
from twinlens.checks.check_catalogue import CHECKS
from twinlens.metrics.catalogue import METRICS
from twinlens.options import Options
from twinlens.reproduction import EXPERIMENTS
from twinlens.support.fields import fields_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "concepts" / "theory.md").read_text(encoding="utf-8")
ROWS = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]


def resolve(name):
    """Import the longest part of a dotted name that is a module, and return what the rest names in it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[end:], found)
    raise AssertionError(name)


def test_names_of_the_code_exist():
    links = re.findall(r"\[`(\w+)`\]\([^)#]+#([\w.]+)\)((?:`\.\w+`(?:, )?)*)", PAGE)
    assert len(links) >= 30
    for text, target, members in links:
        assert target.endswith(f".{text}")
        named = resolve(target)
        fields = {field.name for field in fields_of(named)} if inspect.isclass(named) else set()
        for member in re.findall(r"\.(\w+)", members):
            assert member in fields or hasattr(named, member), f"{target}.{member}"
    for name in re.findall(r"`(twinlens\.[\w.]+)`", PAGE):
        assert resolve(name) is not None


def test_options_exist():
    names = {field.name for field in fields_of(Options)} | {"model", "data", "methods"}
    for *_, option in ROWS:
        for code in re.findall(r"`([^`]+)`", option):
            word, *rest = code.split()
            metric, _, own = word.partition(".")
            if word in ("check", "report", "reproduce"):
                assert rest[0].startswith("--") or rest[0] in (*CHECKS, *EXPERIMENTS)
            elif own:
                assert own in {field.name for field in fields_of(type(METRICS[metric]))}, code
            else:
                assert word.partition("=")[0] in names or word in EXPERIMENTS, code


def test_files_and_numbers_exist():
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists()


def test_every_numbered_statement_and_symbol_of_the_paper_is_there():
    paper = SHARED / "paper" / "dual-perspective.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not on this machine")
    source = paper.read_text(encoding="utf-8")
    method = source.partition(r"\section{Method}")[2]
    kinds = re.findall(r"\\begin\{(definition|assumption|theorem)\}", method)
    assert len(kinds) == 12
    first = [re.sub(r"<[^>]+>", "", row[0]).strip() for row in ROWS]
    for number, kind in enumerate(kinds, start=1):
        title = f"4.{number}" if kind == "definition" else f"{kind.capitalize()} 4.{number}"
        assert any(re.search(rf"(?:^|[ ,]){re.escape(title)}(?:$|[ ,])", text) for text in first), title
    for number in range(1, source.count(r"\begin{algorithm") // 2 + 1):
        assert any(text.startswith(f"Algorithm {number}") for text in first)
    table = source.partition(r"\caption{Table of notations.}")[2].partition(r"\end{tabular}")[0]
    assert table.count(r"\\") == 18
    for symbol in (
        "v",
        "f",
        "ρ(f(S))",
        "𝔻, N",
        "F (set)",
        "A",
        "I",
        r"\|S\|g",
        "F",
        "φ(F)",
        "η(F)",
        "Ainc",
        "Sv(Ainc)",
    ):
        assert symbol in first, symbol
    assert any(text.startswith(r"A\*") for text in first)
    assert any(text.startswith("𝔻P, 𝔻S") for text in first)
