"""Fuzzing: bad inputs of every kind, made from a seed; whatever happens must be clear to a person.

    python -m tests.fuzz.fuzzing --minutes 10 --seed 3       (make fuzz)

Each case is refused clearly (exit code 2 and one line, or ValueError, TypeError or OSError of one line), or accepted. A
traceback, a hang, a rise of memory, NaN without a word, and a file touched outside of the run directory are failures.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import twinlens as tl
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.core.fields import fields_of
from twinlens.options import Options

SECONDS, MEMORY = 60, 1500  # that one case may take, and the megabytes by which it may raise the peak of memory
NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e400", "1" + 40 * "0", "0.5", "1", "x", "", "\x00", "٣", "1,2,3", "true")
TEXTS = (*NUMBERS, "../../etc/passwd", "a" * 5000, "\x1b[2J", "🐈", "linear", "random", "{}", "[", "C:\\x", "-")
VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    10**40,
    float("nan"),
    float("inf"),
    "",
    "x",
    b"x",
    [],
    [[]],
    {},
    {"a": 1},
    object(),
    len,
)


class CaseError(Exception):
    """A case that did not end as it should."""


class Fuzzer:
    """Cases around one small subject in a directory of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng, self.folder = np.random.default_rng(seed), folder
        self.data, self.spec = image_folder(folder / "images"), model_file(folder)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.base = ["--model", self.spec, "--data", self.data, "--batch-size", "16", "--memory-format", "contiguous"]
        self.base += ["--methods", "random", "--metrics", "deletion", "--resamples", "20", "--threads", "1", "--quiet"]
        assert self.command(["evaluate", *self.base, "--out", str(folder / "run")]) == 0
        self.outside = {path: self.state(path) for path in self.fixed()}

    def fixed(self) -> list[Path]:
        """Files that no case may touch."""
        return [Path(self.spec.rpartition(":")[0]), *Path(self.data).rglob("*.png")]

    @staticmethod
    def state(path: Path) -> tuple[int, int]:
        return path.stat().st_size, path.stat().st_mtime_ns

    def pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def bent(self, content: bytes) -> bytes:
        """Return content with bits flipped, cut short, doubled, or with noise inside."""
        kind, place = int(self.rng.integers(5)), int(self.rng.integers(max(1, len(content))))
        if kind == 0 and content:
            return content[:place] + bytes([content[place] ^ 1 << int(self.rng.integers(8))]) + content[place + 1 :]
        if kind == 1:
            return content[:place]
        if kind == 2:
            return content[:place] + self.rng.bytes(int(self.rng.integers(1, 40))) + content[place:]
        if kind == 3:
            return content[:place] + self.rng.bytes(8) + content[place + 8 :]
        return self.pick([b"", content * 2, self.rng.bytes(len(content)), b"\x00" * len(content)])

    def command(self, arguments: list[str]) -> int:
        """Run a command, and return its exit code if it ended as it should."""
        shown, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
            try:
                code = main(arguments)
            except SystemExit as error:  # of the parser of flags, which prints the usage first
                code = 2 if error.code == 2 and ": error: " in said.getvalue() else -1
        lines = [line for line in said.getvalue().splitlines() if ": error: " in line]
        if code not in (0, 2) or (code == 2 and len(lines) != 1):
            raise CaseError(f"exit code {code}: {said.getvalue()[-300:]}")
        if "\x1b[2J" in shown.getvalue() + said.getvalue():
            raise CaseError("an escape reached the terminal")
        return code

    def flags(self) -> str:
        """One flag of evaluate with a value that makes no sense, or little."""
        names = [field.name for field in fields_of(Options) if field.type is not bool and field.name != "progress"]
        name = self.pick([each for each in names if each not in ("out", "address", "engine", "preprocessing")])
        text = self.pick(TEXTS)
        arguments = ["evaluate", *self.base, f"--{name.replace('_', '-')}={text}", "--out", str(self.folder / "new")]
        return self.outcome(f"--{name}={text!r}", lambda: self.command(arguments))

    def config(self) -> str:
        """A file of options with values of wrong types, or bent bytes."""
        name = self.pick(
            [*(field.name for field in fields_of(Options)), "model", "data", "methods", "[methods.random]"]
        )
        value = self.pick(["3", "-1", "nan", '"x"', "[]", "[[1]]", "{a = 1}", "true", "1979-05-27", "inf", '"\\u0000"'])
        text = f"{name}\nx = {value}\n" if name.startswith("[") else f"{name} = {value}\n"
        content = text.encode() if self.rng.random() < 0.8 else self.bent(text.encode())
        (self.folder / "run.toml").write_bytes(content)
        rest = [word for word in self.base if word not in ("--methods", "random")] if "methods" in name else self.base
        arguments = ["evaluate", str(self.folder / "run.toml"), *rest, "--out", str(self.folder / "new")]
        return self.outcome(f"run.toml {content!r}", lambda: self.command(arguments))

    def image(self) -> str:
        """A bent image among good ones."""
        kind, data = self.pick(["png", "jpg", "gif", "bmp", "tif", "webp", "ppm"]), self.folder / "bent"
        shutil.copytree(self.data, data)
        picture, buffer = Image.fromarray(self.rng.integers(0, 255, (10, 10, 3), dtype=np.uint8)), io.BytesIO()
        picture.save(buffer, {"jpg": "jpeg", "tif": "tiff"}.get(kind, kind))
        (data / "ant" / f"bent.{kind}").write_bytes(self.bent(buffer.getvalue()))
        return self.outcome(f"image {kind}", lambda: self.evaluate("--data", str(data), *self.maybe("--skip-bad")))

    def maybe(self, flag: str) -> list[str]:
        return [flag] if self.rng.random() < 0.5 else []

    def evaluate(self, flag: str, value: str, *more: str) -> int:
        rest = list(self.base)
        if flag in rest:
            rest[rest.index(flag) + 1] = value
        else:
            rest += [flag, value]
        return self.command(["evaluate", *rest, *more, "--out", str(self.folder / "new")])

    def file(self) -> str:
        """A bent file of data, maps, classes or weights."""
        inputs = self.rng.normal(size=(6, 3, 8, 8)).astype(np.float32)
        kind = self.pick(["npz", "csv", "classes", "weights.pt", "weights.safetensors", "maps.npy", "maps.npz"])
        path = self.folder / f"bent.{kind}"
        flag, value = "--data", str(path)
        if kind == "npz":
            np.savez(path, inputs=inputs, labels=np.arange(6) % 3)
        elif kind == "csv":
            path.write_text("path,label\n" + "".join(f"images/ant/{i}.png,{i % 3}\n" for i in range(4)))
        elif kind == "classes":
            path = self.folder / f"bent.{self.pick(['json', 'txt', 'csv'])}"
            names = {".json": '["ant", "bee", "cow"]', ".txt": "ant\nbee\ncow\n", ".csv": "name,index\nant,0\nbee,1\n"}
            path.write_text(names[path.suffix])
            flag, value = "--classes", str(path)
        elif kind.startswith("weights"):
            state = tiny_model().state_dict()
            (torch.save if kind.endswith("pt") else save_file)(state, path)
            flag = "--weights"
        else:
            maps = self.rng.random((12, 10, 10)).astype(np.float32)
            np.save(path, maps) if kind.endswith("npy") else np.savez(path, maps=maps)
            flag, value = "--maps", f"mine={path}"
        path.write_bytes(self.bent(path.read_bytes()))
        return self.outcome(f"file {kind}", lambda: self.evaluate(flag, value))

    def run_directory(self) -> str:
        """A run with a bent, missing or misplaced file, shown, asked, verified and continued."""
        run = self.folder / "new"
        shutil.copytree(self.folder / "run", run)
        files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "report.html")
        path, what = self.pick(files), self.pick(["bent", "bent", "missing", "folder", "link"])
        content = path.read_bytes()
        path.unlink()
        if what == "bent":
            path.write_bytes(self.bent(content))
        elif what == "folder":
            path.mkdir()
        elif what == "link":
            path.symlink_to(self.folder / "images" / "ant" / "0.png")
        command = self.pick(["report", "ask", "verify", "selftest", "table", "compare", "evaluate"])
        arguments = {
            "evaluate": ["evaluate", *self.base, "--out", str(run)],
            "table": ["report", str(run), "--table", self.pick(["latex", "markdown", "csv"])],
            "compare": ["compare", str(run), "--out", str(self.folder / "page.html")],
        }.get(command, [command, str(run)])
        return self.outcome(f"{command} with {path.name} {what}", lambda: self.command(arguments))

    def function(self) -> str:
        """A public function with one argument that makes no sense."""
        function = self.pick([tl.soundness, tl.completeness, tl.road, tl.deletion, tl.insertion, tl.attribute])
        inputs = torch.randn(4, 3, 8, 8)
        given = {"model": tiny_model(), "inputs": inputs, "labels": [0, 1, 2, 0], "maps": inputs[:, 0].abs()}
        tensors = (inputs.to_sparse(), inputs.to("meta"), inputs * torch.nan, inputs[:0], inputs.half(), inputs.int())
        name = self.pick([*given, "seed", "ids", "batch_size", "imputer", "device", "levels", "output", "sign"])
        value = self.pick([*VALUES, *tensors])
        if name in given:
            given[name] = value
            options = {}
        else:
            options = {name: value}
        plain = list(given.values()) if function is not tl.attribute else [*list(given.values())[:3], "saliency"]

        def call() -> int:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = function(*plain, **options)
            values = result.values if hasattr(result, "levels") else result.numpy()
            if np.isnan(values).all() and not caught:
                raise CaseError("NaN without a word")
            return 0

        shown = f"{type(value).__name__} {str(value)[:40]}"
        return self.outcome(f"{function.__name__}({name}={shown})", call)

    def outcome(self, label: str, case) -> str:
        """Do a case under limits of time and memory, and count how it ended."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ended = "accepted" if case() == 0 else "refused"
        except (ValueError, TypeError, OSError) as error:
            ended = "refused" if len(str(error).splitlines()) == 1 else f"a message of many lines: {error}"
        except BaseException as error:
            ended = f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        risen = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        if risen > MEMORY:
            ended = f"memory rose by {risen} MB"
        if changed := [path for path in self.fixed() if self.state(path) != self.outside[path]]:
            ended = f"touched {changed[0]}"
        for name in ("new", "bent"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        clear = ended in ("accepted", "refused")
        self.counts[ended if clear else "failed"] += 1
        self.failures += [] if clear else [f"{label}: {ended[:300]}"]
        return ended

    def case(self) -> None:
        """Do one case of a kind drawn at random."""
        kinds = [self.flags, self.config, self.image, self.file, self.run_directory, self.function]
        self.pick(kinds)()


def _too_long(*_: object) -> None:
    raise CaseError(f"it took longer than {SECONDS} seconds")


def fuzz(seed: int, *, cases: int | None = None, minutes: float | None = None) -> Fuzzer:
    """Do cases until their number or the time is reached."""
    torch.manual_seed(seed)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="twinlens-fuzz-") as folder:
        here = os.getcwd()
        os.chdir(folder)
        try:
            fuzzer = Fuzzer(Path(folder), seed)
            while (cases is None or sum(fuzzer.counts.values()) < cases) and (end is None or time.monotonic() < end):
                fuzzer.case()
        finally:
            os.chdir(here)
    return fuzzer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    done = fuzz(chosen.seed, minutes=chosen.minutes)
    print(json.dumps({"tried": sum(done.counts.values()), **done.counts}))
    print("\n".join(done.failures))
    sys.exit(bool(done.failures))
