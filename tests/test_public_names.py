"""What `import twinlens` offers: names that resolve, listed once, and nothing heavy before it is needed."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from inspect import ismodule
from operator import attrgetter
from pathlib import Path

import pytest

import twinlens as tl

STUB = Path(tl.__file__).with_suffix(".pyi")
HEAVY = ("torch", "pandas", "matplotlib", "ray", "rich")
PROMISED = """
    soundness completeness road deletion insertion probe soundness_from_probes completeness_from_probes
    removal_from_probes Metric Soundness Completeness Calibration Road RoadGain Deletion Insertion METRICS
    LinearImputer ConstantImputer MeanImputer BlurImputer TokenImputer impute_linear attribute METHODS evaluate
    open_evaluation Evaluation compare
    ProbeTable SoundnessCurve CompletenessCurve RemovalCurve StepCurve
    DataError ModelError RunError Estimate bootstrap skill
    load_model open_data format_table write_report write_figures Options NewResult
    attribution checks data imputation laboratory metrics models probing report run statistics
"""


def in_stub():
    """From each name that the stub imports to the module that it comes from."""
    found = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"twinlens.{node.module}" if node.module else "twinlens"
    return found


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", tl.__all__)
def test_every_public_name_resolves(name):
    assert getattr(tl, name) is not None


def test_the_top_level_has_the_names_of_the_contract_and_no_more():
    assert {*PROMISED.split(), "__version__"} == set(tl.__all__)


@pytest.mark.parametrize("name", sorted(tl._MOVED))
def test_a_name_that_moved_is_refused_with_its_new_path(name):
    with pytest.raises(AttributeError, match=rf"twinlens\.{name} is now twinlens\.{re.escape(tl._MOVED[name])}$"):
        getattr(tl, name)
    assert attrgetter(tl._MOVED[name])(tl) is not None
    assert name not in dir(tl)


@pytest.mark.parametrize("room", [name for name in tl.__all__ if name.islower() and ismodule(getattr(tl, name))])
def test_every_name_of_a_namespace_resolves(room):
    namespace = getattr(tl, room)
    names = getattr(namespace, "__all__", ["BASELINES", "METHODS"])
    assert [name for name in names if getattr(namespace, name) is None] == []


def test_names_that_do_not_exist_are_refused_as_python_does():
    with pytest.raises(AttributeError, match="soundnes"):
        _ = tl.soundnes
    assert set(tl.__all__) - {"__version__"} <= set(dir(tl))


def test_the_stub_and_the_package_agree():
    tree = ast.parse(STUB.read_text())
    [listed] = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    stubbed = in_stub()
    assert sorted(listed) == sorted([*stubbed, "__version__"])
    assert len(set(listed)) == len(listed)
    assert sorted(tl.__all__) == sorted(listed)
    for name, module in stubbed.items():
        there = importlib.import_module(f"{module}.{name}" if module == "twinlens" else module)
        assert getattr(tl, name) is (there if module == "twinlens" else getattr(there, name)), name


def test_public_functions_and_classes_have_a_docstring():
    undocumented = [
        name
        for name in tl.__all__
        if (inspect.isroutine(getattr(tl, name)) or inspect.isclass(getattr(tl, name)))
        and not inspect.getdoc(getattr(tl, name))
    ]
    assert undocumented == []


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert tl.__version__ == version("twinlens")


@pytest.mark.parametrize("program", ["import twinlens", "import twinlens; twinlens.__version__; dir(twinlens)"])
def test_importing_the_package_loads_nothing_heavy(program):
    loaded = run(f"{program}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded == ""


@pytest.mark.slow
def test_what_is_not_needed_is_not_loaded_with_the_first_name():
    unneeded = ("matplotlib", "ray", "rich")
    loaded = run(f"from twinlens import Soundness\nimport sys\nprint(*[n for n in {unneeded!r} if n in sys.modules])")
    assert loaded == ""
