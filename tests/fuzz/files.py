"""Bent files: images, data, maps, classes, weights, options and runs with flipped bits, cut short, or replaced."""

from __future__ import annotations

import io
import shutil

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.tiny import tiny_model
from twinlens.options import Options
from twinlens.support.fields import fields_of


def bent(fuzzer, content: bytes) -> bytes:
    """Return content with bits flipped, cut short, doubled, or with noise inside."""
    rng = fuzzer.rng
    kind, place = int(rng.integers(5)), int(rng.integers(max(1, len(content))))
    if kind == 0 and content:
        return content[:place] + bytes([content[place] ^ 1 << int(rng.integers(8))]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + rng.bytes(int(rng.integers(1, 40))) + content[place:]
    if kind == 3:
        return content[:place] + rng.bytes(8) + content[place + 8 :]
    return fuzzer.pick([b"", content * 2, rng.bytes(len(content)), b"\x00" * len(content)])


def evaluate(fuzzer, flag: str, value: str, *more: str) -> int:
    """Evaluate with one flag more, or another value of one."""
    rest = list(fuzzer.base)
    if flag in rest:
        rest[rest.index(flag) + 1] = value
    else:
        rest += [flag, value]
    return fuzzer.command(["evaluate", *rest, *more, "--out", str(fuzzer.folder / "new")])


def config_case(fuzzer) -> str:
    """A file of options with values of wrong types, or bent bytes."""
    name = fuzzer.pick([*(field.name for field in fields_of(Options)), "model", "data", "methods", "[methods.random]"])
    value = fuzzer.pick(["3", "-1", "nan", '"x"', "[]", "[[1]]", "{a = 1}", "true", "1979-05-27", "inf", '"\\u0000"'])
    text = f"{name}\nx = {value}\n" if name.startswith("[") else f"{name} = {value}\n"
    content = text.encode() if fuzzer.rng.random() < 0.8 else bent(fuzzer, text.encode())
    (fuzzer.folder / "run.toml").write_bytes(content)
    rest = [word for word in fuzzer.base if word not in ("--methods", "random")] if "methods" in name else fuzzer.base
    arguments = ["evaluate", str(fuzzer.folder / "run.toml"), *rest, "--out", str(fuzzer.folder / "new")]
    return fuzzer.outcome("run.toml", f"{content!r}", lambda: fuzzer.command(arguments))


def image_case(fuzzer) -> str:
    """A bent image among good ones."""
    kind, data = fuzzer.pick(["png", "jpg", "gif", "bmp", "tif", "webp", "ppm"]), fuzzer.folder / "bent"
    shutil.copytree(fuzzer.data, data)
    picture, buffer = Image.fromarray(fuzzer.rng.integers(0, 255, (10, 10, 3), dtype=np.uint8)), io.BytesIO()
    picture.save(buffer, {"jpg": "jpeg", "tif": "tiff"}.get(kind, kind))
    (data / "ant" / f"bent.{kind}").write_bytes(bent(fuzzer, buffer.getvalue()))
    skip = ["--skip-bad"] if fuzzer.rng.random() < 0.5 else []
    return fuzzer.outcome("images", kind, lambda: evaluate(fuzzer, "--data", str(data), *skip))


def file_case(fuzzer) -> str:
    """A bent file of data, maps, classes or weights."""
    inputs = fuzzer.rng.normal(size=(6, 3, 8, 8)).astype(np.float32)
    kind = fuzzer.pick(["npz", "csv", "classes", "weights.pt", "weights.safetensors", "maps.npy", "maps.npz"])
    path = fuzzer.folder / f"bent.{kind}"
    flag, value = "--data", str(path)
    if kind == "npz":
        np.savez(path, inputs=inputs, labels=np.arange(6) % 3)
    elif kind == "csv":
        path.write_text("path,label\n" + "".join(f"images/ant/{i}.png,{i % 3}\n" for i in range(4)))
    elif kind == "classes":
        path = fuzzer.folder / f"bent.{fuzzer.pick(['json', 'txt', 'csv'])}"
        names = {".json": '["ant", "bee", "cow"]', ".txt": "ant\nbee\ncow\n", ".csv": "name,index\nant,0\nbee,1\n"}
        path.write_text(names[path.suffix])
        flag, value = "--classes", str(path)
    elif kind.startswith("weights"):
        (torch.save if kind.endswith("pt") else save_file)(tiny_model().state_dict(), path)
        flag = "--weights"
    else:
        maps = fuzzer.rng.random((12, 10, 10)).astype(np.float32)
        np.save(path, maps) if kind.endswith("npy") else np.savez(path, maps=maps)
        flag, value = "--maps", f"mine={path}"
    path.write_bytes(bent(fuzzer, path.read_bytes()))
    return fuzzer.outcome("files of data", kind, lambda: evaluate(fuzzer, flag, value))


def run_case(fuzzer) -> str:
    """A run with a bent, missing or misplaced file, shown, asked, verified and continued."""
    run = fuzzer.subject.fresh_run()
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "report.html")
    path, what = fuzzer.pick(files), fuzzer.pick(["bent", "bent", "missing", "folder", "link"])
    content = path.read_bytes()
    path.unlink()
    if what == "bent":
        path.write_bytes(bent(fuzzer, content))
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(fuzzer.folder / "images" / "ant" / "0.png")
    command = fuzzer.pick(["report", "ask", "verify", "selftest", "table", "compare", "evaluate"])
    arguments = {
        "evaluate": ["evaluate", *fuzzer.base, "--out", str(run)],
        "table": ["report", str(run), "--table", fuzzer.pick(["latex", "markdown", "csv"])],
        "compare": ["compare", str(run), "--out", str(fuzzer.folder / "page.html")],
    }.get(command, [command, str(run)])
    return fuzzer.outcome("runs", f"{command} with {path.name} {what}", lambda: fuzzer.command(arguments))
