import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.children import Ended
from tests.torture.sandbox import PHASES, UNFINISHED, Sandbox
from tests.torture.torturing import LIMITS, SHARES

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.kills
def test_kills_change_nothing():
    """The short part of `make torture`, with a fixed seed; in a process of its own, which has no threads to copy."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.torture.torturing", "--kills", "20", "--fills", "1", "--seed", "3"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src"))), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ended.stdout.splitlines() if "|" in line]
    rows = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[2:]}
    assert set(rows) == {*SHARES, *LIMITS, "all kills"}
    assert int(rows["all kills"]["kills"]) >= 20
    assert int(rows["all kills"][UNFINISHED]) > 0
    for kind, row in rows.items():
        assert int(row["rounds"]) == int(row["byte-equal"]) > 0, kind
        assert sum(int(row[phase]) for phase in PHASES) == int(row["kills"].split()[0]), kind


@pytest.fixture
def box(tmp_path):
    box = Sandbox(tmp_path)
    after = {"run.json": b"{}", "maps/a/0": b"map", "results.json": b"new", "report.html": b"page"}
    box.prepare(None, {"results.json": b"old"}, after)
    for name, content in after.items():
        (box.run / name).parent.mkdir(parents=True, exist_ok=True)
        (box.run / name).write_bytes(content)
    return box


def faults(box):
    """Faults but for the directory that does not open, because these files are no run."""
    return [fault for fault in box.faults(box.contents()) if "does not open" not in fault]


def test_what_counts_as_a_fault(box):
    assert (faults(box), box.differences(), box.phase(box.contents())) == ([], [], ("end", False))
    assert any("does not open" in fault for fault in box.faults(box.contents()))
    (box.run / "results.json").write_bytes(b"old")
    assert (faults(box), box.differences(), box.phase(box.contents())[0]) == ([], ["results.json differs"], "results")
    (box.run / "results.json").write_bytes(b"ne")
    assert faults(box) == ["results.json is neither what it was nor what it should become (2 bytes)"]
    (box.run / "results.json").unlink()
    (box.run / "maps/a/0").unlink()
    (box.run / "maps/a/.0.1-2.unfinished").write_bytes(b"m")
    assert (faults(box), box.phase(box.contents())) == ([], ("maps and probes", True))
    assert f"{box.run}/maps/a/.0.1-2.unfinished is left" in box.differences()
    (box.folder / "tmp" / "left").touch()
    (box.folder / "images" / "ant" / "0.png").write_bytes(b"")
    assert [fault.rpartition("/")[2] for fault in faults(box)] == ["0.png was touched", "left was touched"]


def test_what_is_said_clearly():
    assert Ended(code=0, said="").clear
    assert Ended(code=2, said="twinlens: error: no\n").clear
    assert not Ended(code=2, said="Traceback …\ntwinlens: error: no\n").clear
    assert not Ended(code=2, said="").clear
    assert not Ended(code=1, said="twinlens: error: no\n").clear
