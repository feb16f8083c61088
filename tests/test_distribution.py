"""What is shipped: the files of the wheel, its metadata, and its one version."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser

import pytest

import twinlens as tl
from tests.distribution import (
    LICENCES,
    NEEDED,
    ROOT,
    SOLVER,
    build_wheel,
    differences,
    expected,
    faults_of_wheel,
)
from tests.pythons import copy_tree

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPILER = any(shutil.which(name) for name in ("cc", "gcc", "clang"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, built offline in a copy, so that nothing here changes under other tests."""
    tree = copy_tree(tmp_path_factory.mktemp("tree"))
    return build_wheel(tree, tmp_path_factory.mktemp("wheel"), "--no-isolation")


@pytest.mark.slow
def test_the_wheel_holds_what_it_must_and_nothing_else(wheel):
    assert faults_of_wheel(wheel, expected(), compiled=COMPILER) == []
    assert differences(wheel, wheel) == []


@pytest.mark.slow
def test_the_metadata_of_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Author"] == "The twinlens developers"
    assert metadata["Description-Content-Type"] == "text/markdown"
    labels = {each.split(",")[0] for each in metadata.get_all("Project-URL")}
    assert labels == {"Documentation", "Source", "Issues", "Changelog", "Paper"}
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in metadata.get_all("Classifier")
    assert {path.rpartition("/")[2] for path in metadata.get_all("License-File")} == {"LICENSE", *LICENCES}


def test_a_bad_wheel_is_found_out(tmp_path):
    path = tmp_path / "bad.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in {*NEEDED, "tests/test_it.py", "twinlens-1.dist-info/METADATA"} - {"twinlens/py.typed"}:
            archive.writestr(name, "")
    faults = faults_of_wheel(path, set(NEEDED) | {"twinlens/new.svg"})
    assert {"lacks twinlens/py.typed", "lacks twinlens/new.svg", "lacks the licence LICENSE"} <= set(faults)
    assert {"lacks the compiled solver", "holds tests/test_it.py", "lacks the record WHEEL"} <= set(faults)
    with zipfile.ZipFile(other := tmp_path / "other.whl", "w") as archive:
        archive.writestr(f"{SOLVER}so", "")
    assert "lacks the compiled solver" not in faults_of_wheel(other, set())
    assert f"{SOLVER}so" in differences(path, other)


def test_there_is_one_version():
    """In pyproject.toml: `tl.__version__`, the command line and run.json read it from the metadata."""
    from twinlens.support.versions import environment

    assert PROJECT["version"] == tl.__version__ == environment()["twinlens"]
    said = subprocess.run([sys.executable, "-m", "twinlens", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"twinlens {PROJECT['version']} (Python 3.")
    written = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf"\b{re.escape(PROJECT['version'])}\b|__version__ *= *[\"']", path.read_text(encoding="utf-8"))
    ]
    assert written == []
