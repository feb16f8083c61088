"""The tutorials: what is stored is what a reader should see, and every cell still runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
MACHINE = re.compile(r"/(?:home|root|tmp|usr|Users|work|private|var)/\w|[A-Z]:\\\\|ipykernel_\d")
LARGEST = 400_000


def outputs(path: Path) -> list[dict]:
    return [output for cell in json.loads(path.read_text())["cells"] for output in cell.get("outputs", [])]


def problems(path: Path) -> list[str]:
    """Return errors, and what cells wrote to their error stream."""
    errors = [output for output in outputs(path) if output["output_type"] == "error" or output.get("name") == "stderr"]
    return [json.dumps(output) for output in errors]


def test_there_are_tutorials():
    assert len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored(name):
    path = FOLDER / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert path.stat().st_size < LARGEST
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.source.strip() for cell in code)
    assert not problems(path)
    pictures = [output["data"].pop("image/png", None) for output in outputs(path) if "data" in output]
    assert any(pictures) or any("text/html" in output.get("data", {}) for output in outputs(path))
    text = re.sub(r'"image/png": "[^"]*"', "", path.read_text())
    assert not MACHINE.findall(text)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name, tmp_path):
    # In a process of its own, because warnings of Jupyter are no errors of ours; one that a cell shows to readers is.
    command = [sys.executable, str(FOLDER / "execute.py"), name, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    executed = tmp_path / f"{name}.ipynb"
    assert not problems(executed)
    stored = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert [cell.id for cell in nbformat.read(executed, as_version=4).cells] == [cell.id for cell in stored.cells]
