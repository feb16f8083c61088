"""A folder with a small subject, in which commands run, are killed, and leave what is then looked at."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.tiny import image_folder, model_file
from twinlens.errors import RunError
from twinlens.outcome import open_evaluation

UNCOMPARED = (".lock", "timings.json")
_VARYING = re.compile(rb'"seconds":(?:null|[0-9.e+-]+)|\["Date","[^"]*"\]')
PHASES = ("imports", "start", "original inputs", "maps and probes", "control", "results", "page", "end")
UNFINISHED = "in the midst of writing"
_NOT_READY = re.compile(r"holds no run: run\.json is missing|has no results yet")

Contents = dict[str, bytes]


class Sandbox:
    """One small subject, commands about it, and the bytes that undisturbed runs leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        data, model = image_folder(folder / "images", per_class=2, size=8), model_file(folder)
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        self.environment = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "OMP_NUM_THREADS": "1"}
        fixed = ["--batch-size", "16", "--memory-format", "contiguous", "--threads", "1", "--shard-size", "3"]
        self.subject = [
            "--model",
            model,
            "--data",
            data,
            *fixed,
            "--imputer",
            "constant",
            "--resamples",
            "20",
            "--quiet",
        ]
        self.before: Contents = {}
        """Bytes of the run before the command under test."""
        self.after: Contents = {}
        """Bytes that the command must leave."""
        self.outside: dict[Path, tuple[int, int]] = {}

    def evaluate(self, methods: str = "random,saliency", metrics: str = "completeness,deletion") -> list[str]:
        asked = ["--methods", methods, "--metrics", metrics, "--levels", "0.9,0.5,0.1"]
        return ["evaluate", *self.subject, *asked, "--out", str(self.run)]

    def contents(self) -> Contents:
        """Return the bytes of all files of the run that are whole by their name; seconds and dates left out."""
        files = [path for path in self.run.rglob("*") if path.is_file() and path.name not in UNCOMPARED]
        return {
            str(path.relative_to(self.run)): _VARYING.sub(b"", path.read_bytes())
            if path.suffix == ".html"
            else path.read_bytes()
            for path in files
            if path.suffix != ".unfinished"
        }

    def prepare(self, start: Path | None, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
        """Begin a round: with a run that is there, or none."""
        shutil.rmtree(self.run, ignore_errors=True)
        if start is not None:
            shutil.copytree(start, self.run)
        self.before, self.after = dict(before), dict(after)
        self.outside = self._outside()

    def _outside(self) -> dict[Path, tuple[int, int]]:
        """Describe every file and folder of the sandbox but the run."""
        found: dict[Path, tuple[int, int]] = {}
        for folder, names, files in os.walk(self.folder):
            here = Path(folder)
            names[:] = [name for name in names if here / name != self.run]
            for path in (here / name for name in (*names, *files)):
                about = path.lstat()
                found[path] = (about.st_size if path.is_file() else 0, about.st_mtime_ns if path.is_file() else 0)
        return found

    def missing(self) -> float:
        """Return the share of the files that are not there yet."""
        return sum(not (self.run / name).exists() for name in self.after) / len(self.after)

    def phase(self, there: Contents) -> tuple[str, bool]:
        """Return which stage of the command was not done yet, and whether a file was being written."""
        missing = {name for name, content in self.after.items() if there.get(name) != content}
        stages = {
            "start": lambda name: name == "run.json",
            "original inputs": lambda name: name.startswith("probes/_original/"),
            "maps and probes": lambda name: name.startswith(("maps/", "probes/")) and "-exchanged/" not in name,
            "control": lambda name: "-exchanged/" in name,
            "results": lambda name: name.startswith(("results.", "results/", "selected.")),
            "page": lambda name: name == "report.html",
        }
        phase = next((stage for stage, belongs in stages.items() if any(map(belongs, missing))), "end")
        return phase, any(self.run.rglob(".*.unfinished"))

    def faults(self, there: Contents) -> list[str]:
        """List what a killed process must not leave behind."""
        found = [f"{path} was touched" for path in _changed(self.outside, self._outside())]
        for name, content in there.items():
            if content not in (self.before.get(name), self.after.get(name)):
                found.append(f"{name} is neither what it was nor what it should become ({len(content)} bytes)")
        try:
            open_evaluation(self.run)
        except RunError as error:
            if not _NOT_READY.search(str(error)) or len(str(error).splitlines()) != 1:
                found.append(f"the directory does not open: {error}")
        return found

    def differences(self) -> list[str]:
        """List in what a completed run differs from an undisturbed one."""
        there = self.contents()
        found = [f"{path} was touched" for path in _changed(self.outside, self._outside())]
        found += [f"{name} differs" for name in {*there, *self.after} if there.get(name) != self.after.get(name)]
        return found + [f"{path} is left" for path in self.run.rglob("*.unfinished")]


def _changed(before: Mapping[Path, object], after: Mapping[Path, object]) -> list[Path]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
