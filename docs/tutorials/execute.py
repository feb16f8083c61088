"""Execute the tutorials and store what they print and draw, in place.

python docs/tutorials/execute.py                      # all of them
python docs/tutorials/execute.py images --out FOLDER  # one of them, stored elsewhere

What is stored is what a reader sees: no timings, no versions, and no plain text beside HTML or a picture that says the
same. Cells keep their ids. A cell that raises an error ends the program with it.
"""

import argparse
import os
import resource
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS = 600  # that a cell may take on a busy machine


def execute(notebook: nbformat.NotebookNode) -> None:
    """Execute a notebook in a folder of its own, by a kernel of this interpreter, and keep its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        # What a user set up for Jupyter must not change what is stored, and runs go where they are removed again.
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_DATA_DIR": folder, "JUPYTER_PREFER_ENV_PATH": "1"}
        os.environ |= {"TMPDIR": folder, "PYTHONWARNINGS": "ignore:IProgress not found"}
        os.environ["OMP_NUM_THREADS"] = "1"  # the number of threads changes last bits
        where = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, kernel_name=KERNEL["name"], timeout=SECONDS, record_timing=False, resources=where
        ).execute()


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Leave out what depends on the machine, and plain text where a picture or HTML says the same."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        if {"text/html", "image/png"} & set(data):
            data.pop("text/plain", None)


def main() -> None:
    """Execute the tutorials that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=sorted(path.stem for path in TUTORIALS.glob("*.ipynb")))
    parser.add_argument("--out", type=Path, default=TUTORIALS, help="folder to store them in; their own by default")
    given = parser.parse_args()
    for name in given.names:
        notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        execute(notebook)
        tidy(notebook)
        nbformat.write(notebook, given.out / f"{name}.ipynb")
        print(f"{name}: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
