"""Habits of the tests themselves: each can fail, a skip says why, and what several need is no test module."""

import ast
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
RAISING = {"pytest.raises", "pytest.warns", "pytest.fail"}
SKIPPING = {"pytest.skip": 0, "pytest.mark.skip": None, "pytest.mark.skipif": None, "pytest.mark.xfail": None}
"""What leaves a test out, and the position of its reason where that need not be named."""


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call below a node, by what is called: "pytest.raises", "np.testing.assert_allclose", "check_batches"."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            yield ast.unparse(each.func), each


def can_fail(function: ast.FunctionDef) -> bool:
    """Whether a function asserts something itself, or leaves it to `check_…` or to a library's `assert_…`."""
    return any(isinstance(each, ast.Assert) for each in ast.walk(function)) or any(
        name in RAISING or name.rpartition(".")[2].startswith(("assert_", "check_")) for name, _ in calls(function)
    )


def without_an_assertion(tree: ast.Module) -> list[str]:
    """Tests, and the checks that they rely on, that nothing can make fail."""
    return [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name.startswith(("test_", "check_")) and not can_fail(each)
    ]


def without_a_reason(tree: ast.Module) -> list[int]:
    """Lines that leave out a test, and do not say why; a bare mark is none of the calls, and no better."""
    called = {id(call.func): (SKIPPING[name], call) for name, call in calls(tree) if name in SKIPPING}
    found = []
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and ast.unparse(each) in SKIPPING:
            position, call = called.get(id(each), (None, None))
            reasons = [] if call is None else [word.value for word in call.keywords if word.arg == "reason"]
            if call is not None and position is not None:
                reasons += call.args[position : position + 1]
            if not any(not isinstance(reason, ast.Constant) or reason.value for reason in reasons):
                found.append(each.lineno)
    return found


def imported_tests(tree: ast.Module) -> list[str]:
    modules = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    modules += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    return [name for name in modules if name.startswith("tests") and name.rpartition(".")[2].startswith("test_")]


@pytest.fixture(scope="module")
def trees():
    return {str(path.relative_to(TESTS)): ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}


@pytest.mark.parametrize("find", [without_an_assertion, without_a_reason, imported_tests])
def test_habits(trees, find):
    assert {name: found for name, tree in trees.items() if (found := find(tree))} == {}


def skipped_without(tree):
    """Modules without which tests are skipped."""
    names = [call.args[0] for name, call in calls(tree) if name == "pytest.importorskip"]
    return {name.value for name in names if isinstance(name, ast.Constant)}


def test_no_skip_hides_a_package_that_is_installed_and_broken(trees):
    names = set().union(*map(skipped_without, trees.values()))
    assert {"timm", "torchvision", "captum.attr"} <= names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages
        for name in sorted(names):
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                assert importlib.import_module(name)


def test_what_a_module_is_called_says_what_is_in_it(trees):
    assert not {Path(name).stem for name in trees} & {"helpers", "utils", "common", "misc"}


BROKEN = """
from tests.support.test_maps import one
import pytest

@pytest.mark.skip
def test_one():
    same = 1 == 2

@pytest.mark.skipif(True, reason="")
def test_two():
    check_nothing(1)

def check_nothing(value):
    value == 2

def test_three():
    pytest.skip()

def test_four():
    pytest.skip("for a reason")
    with pytest.raises(ValueError):
        int("x")

@pytest.mark.skipif(True, reason="for a reason")
def test_five():
    np.testing.assert_allclose(1, 1)
"""


def test_what_breaks_a_habit_is_found():
    tree = ast.parse(BROKEN)
    assert without_an_assertion(tree) == ["test_one", "check_nothing", "test_three"]
    assert without_a_reason(tree) == [5, 9, 17]
    assert imported_tests(tree) == ["tests.support.test_maps"]
