"""Hostile run directories, and code, weights and data that change between two commands of one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch

from tests.fuzz.values import TEXTS
from tests.tiny import image_folder, model_file, tiny_model

NUMBERS = (0, -1, 1, 2, 10**12, 2**63, -(10**400), 0.5, -0.0, 1e308, 1e-320)
NAMES = ("../../x", "/tmp/x", "..", ".", "", "a/b", "con", "x" * 5000, "\x00", "__proto__", "random", "centre")
HOSTILE = (*NUMBERS, *NAMES, *TEXTS, None, True, [], {}, [[]], {"name": "x"}, [0] * 1000, ["x"])


def _places(value, path=()):
    """List the way to every value of a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def hostile_case(fuzzer) -> str:
    """A run with another value, another key or one key less in run.json, results.json or the record of a check."""
    run = fuzzer.subject.fresh_run()
    file = fuzzer.pick(
        [path for path in (run / "run.json", run / "results.json", *run.glob("checks/*.json")) if path.exists()]
    )
    content = json.loads(file.read_text())
    *way, last = place = fuzzer.pick(list(_places(content)))
    inner = content
    for key in way:
        inner = inner[key]
    how, value = fuzzer.pick(["value", "value", "value", "key", "missing"]), fuzzer.pick(HOSTILE)
    if how == "value" or not isinstance(inner, dict):
        inner[last] = value
    elif how == "key":
        inner[str(fuzzer.pick(NAMES))] = inner.pop(last)
    else:
        del inner[last]
    file.write_text(json.dumps(content), errors="replace")
    command = fuzzer.pick(["report", "ask", "verify", "table", "compare", "evaluate", "selftest"])
    arguments = {
        "evaluate": ["evaluate", *fuzzer.base, "--out", str(run)],
        "table": ["report", str(run), "--table", "markdown"],
        "compare": ["compare", str(run), "--out", str(run / "page.html")],
        "selftest": ["selftest", str(run), "--model", fuzzer.spec, "--limit", "4"],
    }.get(command, [command, str(run)])
    label = f"{command} with {file.name} {'.'.join(map(str, place))} {how} {str(value)[:40]!r}"
    return fuzzer.outcome("hostile runs", label, lambda: fuzzer.command(arguments))


CHANGES = (
    ("code", "nn.ReLU()", "nn.GELU()"),
    ("code", "manual_seed(3)", "manual_seed(4)"),
    ("code", "0.25, 0.25, 0.25", "0.25, 0.25, 0.5"),
    ("code", "return model\n", "model.register_forward_hook(lambda _, __, answer: -answer)\n    return model\n"),
    ("code", "return model\n", "model[0].bias.data += 0.5\n    return model\n"),
    ("changing_neighbour", "FACTOR = 1.0", "FACTOR = 2.0"),
    ("image", "", ""),
    ("weights", "", ""),
    ("nothing", "", ""),
)
USING = """import changing_neighbour
from torch import nn

class Scaled(nn.ReLU):
    def forward(self, x):
        return super().forward(x * changing_neighbour.FACTOR)
"""


def changed_case(fuzzer) -> str:
    """A run that is resumed or checked after its model, weights or data changed, which must be refused."""
    folder = fuzzer.folder / "changing"
    if not folder.exists():
        _begin(fuzzer, folder)
    shutil.rmtree(folder)
    shutil.copytree(fuzzer.folder / "kept", folder)
    what, old, new = fuzzer.pick(CHANGES)
    if what in ("code", "changing_neighbour"):
        path = folder / ("tiny_model.py" if what == "code" else "changing_neighbour.py")
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    elif what == "image":
        images = sorted((folder / "images").rglob("*.png"))
        one, other = fuzzer.rng.choice(len(images), 2, replace=False)
        images[one].write_bytes(images[other].read_bytes())
    elif what == "weights":
        state = torch.load(folder / "weights.pt", weights_only=True)
        name = fuzzer.pick(list(state))
        state[name] = state[name] + 0.1
        torch.save(state, folder / "weights.pt")
    command = fuzzer.pick(["evaluate", "evaluate", "selftest", "check"])

    def attempt() -> int:
        code = fuzzer.command(_command(fuzzer, folder, command))
        if (code == 0) != (what == "nothing"):
            raise AssertionError(f"exit code {code} after a change of {what}")
        return code

    return fuzzer.outcome("changed between", f"{command} after a change of {what}: {new!r}", attempt)


def _command(fuzzer, folder: Path, command: str) -> list[str]:
    model, run = f"{folder / 'tiny_model.py'}:build", str(folder / "run")
    if command == "evaluate":
        flags = ["--model", model, "--data", str(folder / "images"), "--weights", str(folder / "weights.pt")]
        return ["evaluate", *flags, *fuzzer.base[4:], "--out", run]
    if command == "selftest":
        return ["selftest", run, "--model", model, "--methods", "random"]
    return ["check", "sensitivity-n", run, "--model", model, "--quiet"]


def _begin(fuzzer, folder: Path) -> None:
    """Make a run whose model, weights and data may change, and keep a copy of all of it."""
    folder.mkdir()
    image_folder(folder / "images")
    path = Path(model_file(folder).rpartition(":")[0])
    path.write_text(USING + path.read_text().replace("nn.ReLU()", "nn.ReLU(), Scaled()"))
    (folder / "changing_neighbour.py").write_text("FACTOR = 1.0\n")
    state = tiny_model().state_dict()
    torch.save({name.replace("4.", "5."): value for name, value in state.items()}, folder / "weights.pt")
    assert fuzzer.command(_command(fuzzer, folder, "evaluate")) == 0
    shutil.copytree(folder, fuzzer.folder / "kept")
