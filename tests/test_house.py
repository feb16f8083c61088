"""The house as it is drawn: layers of imports, modules and functions of a size to read, typed signatures, one voice."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "twinlens"
_DOCS = SOURCE.parents[1] / "docs"
sys.path.append(str(_DOCS))  # generate.py imports a module beside it
_LOCATION = importlib.util.spec_from_file_location("generate", _DOCS / "generate.py")
GENERATE = importlib.util.module_from_spec(_LOCATION)
_LOCATION.loader.exec_module(GENERATE)
LAYERS = (*GENERATE.LAYERS, "__main__")
"""From the foundation upwards: a module may import from layers before its own, and from its own."""

LONGEST_FUNCTION, LONGEST_MODULE, MOST_MODULES = 60, 450, 8
OLD_VOICE = ("Gives", "Says", "Tells", "Is told")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One import as it happens at run time, at the top of a module or inside a function."""

    importer: str
    imported: str
    line: int


def modules(root: Path) -> dict[str, Path]:
    """Every module by its dotted name below the root: "support.fields", and "support" for its `__init__`."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, but for what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for other in child.orelse:
                yield other
                yield from at_run_time(other)
        else:
            yield child
            yield from at_run_time(child)


def imports(root: Path) -> list[Import]:
    """Every import of one module of the package by another."""
    known = modules(root)
    found = []
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in at_run_time(ast.parse(path.read_text())):
            for target in targets(node, package):
                below = target.rpartition(".")[0]
                # `from twinlens.support import fields` names a module,
                # `from twinlens.support.fields import convert` does not.
                imported = target if target in known else below
                assert imported in known, f"{name} imports {target}, which does not exist"
                found.append(Import(name, imported, node.lineno))
    return found


def targets(node: ast.AST, package: str) -> Iterator[str]:
    """The dotted names below twinlens that a node imports."""
    match node:
        case ast.Import(names=names):
            wanted = [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            above = ["twinlens", *package.split(".")] if package else ["twinlens"]
            start = ".".join([*above[: len(above) - level + 1], *([module] if module else [])]) if level else module
            wanted = [f"{start}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module") | ast.Name(id="__import__"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            wanted = [name]
        case _:
            wanted = []
    for name in wanted:
        if name == "twinlens" or name.startswith("twinlens."):
            yield name.removeprefix("twinlens").removeprefix(".")


def layer(module: str) -> int:
    return LAYERS.index(module.split(".", maxsplit=1)[0]) if module else len(LAYERS)


def against_the_layers(root: Path) -> list[str]:
    return [
        f"{importer} imports {imported} (line {line})"
        for importer, imported, line in imports(root)
        if importer.split(".")[0] != imported.split(".")[0] and layer(imported) >= layer(importer)
    ]


def cycle(root: Path) -> list[str]:
    graph: dict[str, set[str]] = {}
    for importer, imported, _ in imports(root):
        if importer != imported:
            graph.setdefault(importer, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def body_length(function: Function) -> int:
    """Lines of a function below its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def annotations(function: Function) -> Iterator[str]:
    each = function.args
    for argument in (*each.posonlyargs, *each.args, *each.kwonlyargs, each.vararg, each.kwarg):
        if argument is not None and argument.annotation is not None:
            yield ast.unparse(argument.annotation)
    if function.returns is not None:
        yield ast.unparse(function.returns)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every docstring, of modules, classes, functions and fields."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip()


def test_imports_point_to_earlier_layers():
    assert against_the_layers(SOURCE) == []


@pytest.mark.parametrize(
    ("package", "importers"), [("checks", {"reproduction", "cli"}), ("reproduction", {"cli"}), ("suites", {"cli"})]
)
def test_outbuildings_are_imported_by_the_command_line_and_experiments_only(package, importers):
    rooms = {
        each.importer.split(".")[0]
        for each in imports(SOURCE)
        if each.imported.split(".")[0] == package and each.importer.split(".")[0] != package
    }
    assert rooms <= importers


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in modules(SOURCE) if name} <= set(LAYERS)


def test_no_modules_import_each_other_in_a_circle():
    assert cycle(SOURCE) == []


def test_few_modules_stand_beside_the_packages():
    assert len(list(SOURCE.glob("*.py"))) <= MOST_MODULES


def test_functions_fit_on_a_screen():
    long = [
        f"{path.relative_to(SOURCE)}: {function.name} has {body_length(function)} lines"
        for path in SOURCE.rglob("*.py")
        for function in functions(path)
        if body_length(function) > LONGEST_FUNCTION
    ]
    assert long == []


def test_modules_are_of_a_size_to_read():
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


@pytest.mark.parametrize("package", ["run", "report", "cli"])
def test_what_travels_between_modules_is_typed(package):
    untyped = [
        f"{path.relative_to(SOURCE)}: {function.name}"
        for path in (SOURCE / package).rglob("*.py")
        for function in functions(path)
        if any("dict[str, Any]" in annotation for annotation in annotations(function))
    ]
    assert untyped == []


def test_docstrings_speak_as_documentation_does():
    old = [
        f"{path.relative_to(SOURCE)}:{line}: {text.splitlines()[0]}"
        for path in SOURCE.rglob("*.py")
        for line, text in texts(path)
        if text.startswith(OLD_VOICE)
    ]
    assert len(old) <= 5, "\n".join(old)


BROKEN = {
    "support/__init__.py": "",
    "support/fields.py": "",
    "probing/maps.py": "def f():\n    from twinlens.metrics.curves import Curve\n",
    "metrics/__init__.py": "",
    "metrics/curves.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from twinlens.cli import main\n",
    "metrics/sweeps.py": "from twinlens.support import fields\nfrom . import curves\n",
    "cli/__init__.py": "",
    "cli/main.py": "import twinlens.support.fields\nfrom twinlens.metrics.curves import Curve\n",
    "run/__init__.py": "",
    "run/engines.py": "from importlib import import_module\nimport_module('twinlens.cli.main')\n",
}


@pytest.fixture
def broken(tmp_path):
    for name, text in BROKEN.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_an_upward_import_is_found_wherever_it_hides(broken):
    assert against_the_layers(broken) == [
        "probing.maps imports metrics.curves (line 2)",
        "run.engines imports cli.main (line 2)",
    ]
    assert Import("metrics.sweeps", "support.fields", 1) in imports(broken)
    assert Import("metrics.sweeps", "metrics.curves", 2) in imports(broken)
    assert not [each for each in imports(broken) if each.importer == "metrics.curves"]


def test_a_circle_is_found(broken):
    assert cycle(broken) == []
    (broken / "metrics/curves.py").write_text("def f():\n    from twinlens.metrics import sweeps\n")
    assert set(cycle(broken)) == {"metrics.curves", "metrics.sweeps"}


def test_bodies_and_signatures_are_read():
    [one, other] = ast.parse(
        'def f(a: list[dict[str, Any]], *, b: int = 1) -> None:\n    """Do.\n\n    Much.\n    """\n    a\n    b\n'
        "def g():\n    '''Nothing.'''\n"
    ).body
    assert body_length(one) == 2
    assert body_length(other) == 0
    assert list(annotations(one)) == ["list[dict[str, Any]]", "int", "None"]


def test_pages_made_from_the_code_are_up_to_date():
    """The drawing of the layers and the table of options: `make docs` writes them."""
    stale = [str(page) for page, text in GENERATE.pages().items() if page.read_text(encoding="utf-8") != text]
    assert stale == []
