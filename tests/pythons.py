"""Check what can be checked of every supported Python without torch for it: `make pythons` runs it.

Types as each version sees them; and where its interpreter is there, that it compiles every module without a warning and
builds a wheel that imports. The tests themselves need torch: make test PYTHON=python3.12 VENV=.venv-3.12
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.distribution import ROOT, expected, faults_of_wheel

VERSIONS = ("3.11", "3.12", "3.13")
COPIED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


def copy_tree(folder):
    """Copy what a build reads, so that it leaves nothing behind in the repository."""
    for name in COPIED:
        shutil.copy(ROOT / name, folder)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "*.pyd")
    shutil.copytree(ROOT / "src", folder / "src", ignore=left_out)
    return folder


def runs(*command):
    """Whether a command succeeds; what it prints is shown if it does not."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode == 0


def find_interpreter(version):
    """The path of an interpreter that works; a shim of pyenv's may lead nowhere."""
    found = shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0
    return found if works else None


def check(version, folder):
    """What was checked of one version, and whether it went well."""
    yield "types", runs(sys.executable, "-m", "mypy", "--python-version", version)
    python = find_interpreter(version)
    if python is None:
        print(f"Python {version}: no interpreter here, so that nothing else was checked")
        return
    tree = copy_tree(folder)
    yield "compiles", runs(python, "-W", "error", "-m", "compileall", "-q", "-f", tree / "src")
    built = runs(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "wheel", tree)
    yield "builds", built
    if built:
        [wheel] = (folder / "wheel").glob("*.whl")
        yield "wheel is whole", faults_of_wheel(wheel, expected()) == []
        home = folder / "venv"
        yield (
            "imports",
            runs(python, "-m", "venv", home)
            and runs(home / "bin" / "pip", "install", "--quiet", "lazy_loader")
            and runs(home / "bin" / "pip", "install", "--quiet", "--no-deps", wheel)
            and runs(
                home / "bin" / "python", "-I", "-c", "import twinlens; print(twinlens.__version__, dir(twinlens))"
            ),
        )


def main():
    went_well = True
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as name:
            for what, well in check(version, Path(name)):
                print(f"Python {version}: {what}: {'yes' if well else 'NO'}", flush=True)
                went_well = went_well and well
    sys.exit(not went_well)


if __name__ == "__main__":
    main()
