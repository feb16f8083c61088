"""Every sentence about a run is printed by some test: its words are among those that tests expect."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import twinlens

TESTS, PACKAGE = Path(__file__).resolve().parent, Path(twinlens.__file__).resolve().parent
SAYING = [
    PACKAGE / "run" / "wording.py",
    *(PACKAGE / "statistics" / f"{name}.py" for name in ("margin", "verdicts", "contrasts", "diagnostics")),
    *(PACKAGE / "report" / f"{name}.py" for name in ("results_table", "run_summary")),
    PACKAGE / "cli" / "printing.py",
    PACKAGE / "laboratory" / "mixing.py",
]
"""Modules that write sentences about a run."""
WORDS = 3  # in a row that a test has to expect


def texts(tree: ast.AST) -> Iterator[str]:
    """The constant texts of a module, without docstrings; of an f-string, the parts between its values."""
    statements = [each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)]
    silent = {id(value) for value in statements if isinstance(value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield " ".join(node.value.split())


def examples(tree: ast.AST) -> Iterator[str]:
    """The examples in docstrings, which are tests, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            yield " ".join((ast.get_docstring(node) or "").partition(">>>")[2].split())


def script_texts(source: str) -> Iterator[str]:
    """The texts of a script of the page; of a template, the parts between its values."""
    source = re.sub(r"'\s*\+\s*'", "", re.sub(r"(?<!:)//.*|/\*.*?\*/", "", source, flags=re.S | re.M))
    for quoted in re.findall(r"'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`", source):
        yield from (" ".join(part.split()) for part in re.split(r"\$\{[^}]*\}", "".join(quoted)))


def unsaid(texts: Iterable[str], expected: str) -> list[str]:
    """The texts of which no three words in a row are expected."""
    found = []
    for text in texts:
        words = text.split()
        rows = [" ".join(words[k : k + WORDS]) for k in range(len(words) - WORDS + 1)]
        if sum(bool(re.search("[A-Za-z]{2}", word)) for word in words) >= WORDS and not any(
            row in expected for row in rows
        ):
            found.append(text)
    return found


@pytest.fixture(scope="module")
def expected():
    """Everything that tests and examples expect."""
    tests = [ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("*.py")]
    package = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    said = [text for tree in tests for text in texts(tree)] + [text for tree in package for text in examples(tree)]
    return "\n".join(said)


@pytest.mark.parametrize("path", SAYING, ids=lambda path: path.stem)
def test_every_sentence_is_expected_by_a_test(path, expected):
    assert unsaid(texts(ast.parse(path.read_text(encoding="utf-8"))), expected) == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "report").glob("*.js")), ids=lambda path: path.stem)
def test_every_sentence_of_the_page_is_expected_by_a_test(path, expected):
    found = unsaid(script_texts(path.read_text(encoding="utf-8")), expected)
    assert [text for text in found if not re.search(r"[#=<>{}:]|^\W|\d [\d-]|M\d", text)] == []  # selectors and shapes


def test_a_sentence_that_nobody_expects_is_found():
    tree = ast.parse(
        'def f(n):\n    """Documented, not printed."""\n    return f"With {n} samples nobody knows this yet."'
    )
    assert unsaid(texts(tree), "") == ["samples nobody knows this yet."]
    assert unsaid(texts(tree), "20 samples nobody knows") == []
    script = "element('p', {}, `${count} samples, ` +\n 'which nobody ' + 'has expected'); // nor this comment here"
    assert unsaid(script_texts(script), "") == ["which nobody has expected"]
