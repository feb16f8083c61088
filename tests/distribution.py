"""Check a wheel and an sdist: that they hold what they must and nothing else, and that the wheel works by itself.

`make dist` runs it on dist/ after building: python -m tests.distribution dist
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
SOLVER = "twinlens/imputation/_multigrid."
NOT_IN_WHEELS = (".c", ".h", ".so", ".pyd", ".pyc")
RECORDS = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"}
LICENCES = ("LICENSE-d3.txt", "LICENSE-echarts.txt", "LICENSE-zrender.txt", "NOTICE-echarts.txt")
NEEDED = (
    "twinlens/py.typed",
    "twinlens/__init__.pyi",
    "twinlens/models/imagenet_classes.txt",
    "twinlens/report/page.html",
    "twinlens/report/page.js",
    "twinlens/report/style.css",
    "twinlens/report/assets/echarts.min.js",
    *(f"twinlens/report/assets/{name}" for name in LICENCES),
)
"""Files that the package cannot do without, so that an empty source tree is no excuse for an empty wheel."""

FINDS_SOLVER = "from twinlens.imputation.multigrid_compiled import load_library; assert load_library() is not None"


def expected(source=SOURCE):
    """Files of the package that belong into a wheel: all but the sources of the solver, and what was compiled."""
    files = (path for path in (source / "twinlens").rglob("*") if path.is_file())
    return {path.relative_to(source).as_posix() for path in files if path.suffix not in NOT_IN_WHEELS}


def faults_of_wheel(path, wanted, *, compiled=True):
    """What a wheel lacks and what it holds too much, one line each."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    records = {name for name in names if ".dist-info/" in name}
    own = names - records
    solver = {name for name in own if name.startswith(SOLVER)}
    licences = {PurePosixPath(name).name for name in records if "/licenses/" in name}
    said = {name.partition(".dist-info/")[2] for name in records if "/licenses/" not in name}
    return [
        *(f"lacks {name}" for name in sorted((wanted | set(NEEDED)) - own)),
        *(f"lacks the licence {name}" for name in ("LICENSE", *LICENCES) if name not in licences),
        *(f"lacks the record {name}" for name in sorted(RECORDS - said)),
        *([] if solver or not compiled else ["lacks the compiled solver"]),
        *(f"holds {name}" for name in sorted(own - wanted - solver)),
        *(f"holds the record {name}" for name in sorted(said - RECORDS)),
    ]


def faults_of_sdist(path, wanted):
    """What an sdist lacks and what it holds too much, one line each."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    headers = ("coarse", "coarse_volume", "finest", "finest_volume")
    sources = ("multigrid.c", *(f"multigrid_{name}.h" for name in headers), "noise.h")
    solver = {f"src/twinlens/imputation/{name}" for name in sources}
    needed = {f"src/{name}" for name in wanted} | solver | {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    beside = {name for name in names if name.split("/")[0] in ("tests", "docs", "benchmarks", "examples")}
    return [*(f"lacks {name}" for name in sorted(needed - names)), *(f"holds {name}" for name in sorted(beside))]


def contents(path):
    """Every file of a wheel with its bytes, but for the list of their digests."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def differences(one, other):
    """Names of the files that two wheels do not share byte by byte."""
    here, there = contents(one), contents(other)
    return sorted(name for name in here | there if here.get(name) != there.get(name))


def build_wheel(tree, out, *options):
    """Build a wheel of a tree into a folder, and return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", out, *options, tree]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = Path(out).glob("*.whl")
    return wheel


def try_wheel(wheel, folder):
    """Install a wheel with the tested versions into a fresh environment, and run the demonstration there."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(program, *arguments):
        subprocess.run([programs / program, *arguments], cwd=folder, env=clean, check=True)

    run("python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel.resolve()}[demo]")
    run("twinlens", "--version")
    run("python", "-c", FINDS_SOLVER)
    run("twinlens", "demo")
    assert (folder / "twinlens-demo-mnist" / "report.html").stat().st_size > 100_000


def main(folder):
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    wanted = expected()
    faults = [f"{wheel.name} {fault}" for fault in faults_of_wheel(wheel, wanted)]
    faults += [f"{sdist.name} {fault}" for fault in faults_of_sdist(sdist, wanted)]
    if faults:
        sys.exit("\n".join(faults))
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        # `python -m build` makes the wheel from the sdist; made from the tree, it has to be the same.
        if differ := differences(wheel, build_wheel(ROOT, place / "direct")):
            sys.exit("The wheels of the tree and of the sdist differ in " + ", ".join(differ))
        try_wheel(wheel, place)
    print(f"{wheel.name} and {sdist.name} hold what they must, and the wheel works in a fresh environment.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
