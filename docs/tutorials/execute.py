"""Execute the tutorials and store what they print and draw, in place.

python docs/tutorials/execute.py                      # all of them
python docs/tutorials/execute.py images --out FOLDER  # one of them, stored elsewhere

Only what a reader sees is stored: no timings, no versions, and no plain text if there is HTML or a picture.
Cells keep their ids. An error in a cell ends the program.
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
SECONDS = 600  # limit of a cell, on a busy machine


def execute(notebook: nbformat.NotebookNode) -> None:
    """Execute a notebook in a temporary folder, with a kernel of this interpreter, and keep its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        # The user's Jupyter configuration must not affect the output, and runs go to a temporary folder.
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_DATA_DIR": folder, "JUPYTER_PREFER_ENV_PATH": "1"}
        os.environ |= {"TMPDIR": folder, "PYTHONWARNINGS": "ignore:IProgress not found"}
        os.environ["OMP_NUM_THREADS"] = "1"  # the number of threads changes last bits
        where = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, kernel_name=KERNEL["name"], timeout=SECONDS, record_timing=False, resources=where
        ).execute()


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Remove what depends on the machine, and plain text if there is a picture or HTML."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        data = output.get("data", {})
        if {"text/html", "image/png"} & set(data):
            data.pop("text/plain", None)


def main() -> None:
    """Execute the named tutorials, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=sorted(path.stem for path in TUTORIALS.glob("*.ipynb")))
    parser.add_argument("--out", type=Path, default=TUTORIALS, help="output folder; docs/tutorials by default")
    arguments = parser.parse_args()
    for name in arguments.names:
        notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        execute(notebook)
        tidy(notebook)
        nbformat.write(notebook, arguments.out / f"{name}.ipynb")
        print(f"{name}: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
