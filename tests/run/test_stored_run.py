"""Damaged descriptions of a run are refused in one line."""

import json

import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.cli.main import main

INPUTS, LABELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
MAPS = INPUTS[:, 0].abs()


@pytest.mark.slow
def test_damaged_descriptions_of_a_run(tmp_path, capsys):
    """Whatever field of run.json or results.json is missing or of another type, the file and the field are named."""
    out = tmp_path / "run"
    tl.evaluate(tiny_model(), (INPUTS.numpy(), LABELS.numpy()), ["random"], metrics=["deletion"], out=out, resamples=20)
    for name in ("run.json", "results.json"):
        text = (out / name).read_text()
        others = (None, [], {}, "x", 3, -1, True)
        for number, path in enumerate(paths(json.loads(text))):
            for value in (REMOVED, others[number % 7], others[(number + 3) % 7]):
                stored = json.loads(text)
                put(stored, path, value)
                (out / name).write_text(json.dumps(stored))
                for command in (["report", str(out), "--table", "csv"], ["ask", str(out), "--quiet"]):
                    code = main(command)
                    said = capsys.readouterr().err
                    assert code in (0, 2), (path, value, command)
                    assert (code == 0) or said.count("\n") == 1, (path, value, command, said)
                (out / name).write_text(text)
        for broken in ("", "{", 9999 * "[", "null", '"x"', "\x00"):
            (out / name).write_text(broken)
            assert main(["report", str(out), "--table", "csv"]) == 2
            assert capsys.readouterr().err.count("\n") == 1
        (out / name).write_text(text)


REMOVED = object()


def paths(value, above=()):
    """Yields the place of each value in a JSON document; of a list only the first."""
    if above:
        yield above
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*above, key))


def put(document, path, value):
    *above, last = path
    for key in above:
        document = document[key]
    if value is REMOVED:
        del document[last]
    else:
        document[last] = value
