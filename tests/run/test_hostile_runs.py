"""Run directories that were changed by hand or made to do harm: each command ends, in one line, with bounded memory."""

import json
import os
import shutil
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import image_folder, model_file
from twinlens.cli.main import main
from twinlens.errors import DamagedError
from twinlens.outcome import open_evaluation
from twinlens.probing.probe_table import ProbeTable

FILES = (
    "run.json",
    "results.json",
    "pairs.csv",
    "timings.json",
    "selected.safetensors",
    "fingerprints.safetensors",
    "maps/random/00000.safetensors",
    "probes/_original/00000.parquet",
    "probes/random/area-morf-constant/00000.parquet",
)


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    """A run, and the flags that made it."""
    folder = tmp_path_factory.mktemp("hostile")
    model, data = model_file(folder), image_folder(folder / "images")
    flags = ["--model", model, "--data", data, "--methods", "random,centre", "--metrics", "deletion", "--quiet"]
    flags += ["--batch-size", "16", "--memory-format", "contiguous", "--resamples", "20", "--imputer", "constant"]
    assert main(["evaluate", *flags, "--out", str(folder / "run")]) == 0
    return folder, flags, model


@pytest.fixture
def run(subject, tmp_path):
    shutil.copytree(subject[0] / "run", tmp_path / "run")
    return tmp_path / "run"


def commands(run, subject):
    _, flags, model = subject
    return {
        "report": ["report", str(run)],
        "table": ["report", str(run), "--table", "markdown"],
        "verify": ["verify", str(run)],
        "ask": ["ask", str(run), "--quiet"],
        "compare": ["compare", str(run), "--out", str(run.parent / "page.html")],
        "selftest": ["selftest", str(run), "--model", model, "--limit", "4", "--methods", "random"],
        "check": ["check", "sensitivity-n", str(run), "--model", model, "--limit", "4", "--quiet"],
        "evaluate": ["evaluate", *flags, "--out", str(run)],
    }


def end_clearly(run, subject, capsys, names=None):
    """Run commands in a copy of the run each, and return what those that were refused said."""
    refused = {}
    for name in names or commands(run, subject):
        copy = run.parent / f"copy-{name}"
        shutil.copytree(run, copy, symlinks=True, copy_function=_copy)
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code = main(commands(copy, subject)[name])
        said = [line for line in capsys.readouterr().err.splitlines() if ": warning: " not in line]
        assert (code, said) == (0, []) or (code in (1, 2) and len(said) <= 1), (name, code, said)
        if code == 2:
            assert said[0].startswith("twinlens: error: "), (name, said)
            refused[name] = said[0]
    return refused


def _copy(source, target):
    if os.path.islink(source) or os.path.isfile(source):
        return shutil.copy(source, target, follow_symlinks=False)
    os.mkfifo(target)
    return target


CASES = [(name, kind) for name in FILES for kind in ("pipe", "endless", "folder")]
QUICK = ("verify", "ask", "report", "evaluate", "ask")  # 5 of them and 3 kinds: each file meets several


@pytest.mark.parametrize(("name", "kind", "command"), [(*case, QUICK[k % len(QUICK)]) for k, case in enumerate(CASES)])
def test_what_is_no_file_is_named(run, subject, capsys, name, kind, command):
    path = run / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    for said in end_clearly(run, subject, capsys, [command]).values():
        assert os.path.basename(name) in said or "regular file" in said or "directory" in said, said


def changed(run, file, path, value):
    """Set a value of a JSON file, by the keys on the way to it."""
    content = json.loads((run / file).read_text())
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (run / file).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("execution", "shard_size"), 0),
        (("execution", "shard_size"), -3),
        (("execution", "batch_size"), 0),
        (("data", "samples"), 10**12),
        (("data", "samples"), 0),
        (("data", "samples"), -1),
        (("data", "shape"), [3, 10**6, 10**6]),
        (("data", "shape"), [3, -10, -10]),
        (("data", "shape"), []),
        (("rounds",), {"sizes": [0, 5, 3], "digest": "x"}),
        (("rounds",), {"sizes": [-(10**9)], "digest": "x"}),
        (("settings", "imputer"), {}),
        (("settings", "metrics"), {"deletion": {}}),
        (("settings", "metrics", "deletion", "imputer"), {}),
    ],
)
def test_values_that_no_run_has_are_refused_by_name(run, subject, capsys, path, value):
    changed(run, "run.json", path, value)
    refused = end_clearly(run, subject, capsys, ["report", "evaluate"])
    assert refused.keys() == {"report", "evaluate"}
    for said in refused.values():
        assert path[-1] in said


def test_a_method_that_run_json_lacks_is_named(run, subject, capsys):
    content = json.loads((run / "results.json").read_text())
    content["methods"]["other"] = content["methods"]["random"]
    (run / "results.json").write_text(json.dumps(content))
    refused = end_clearly(run, subject, capsys, ["report", "ask", "evaluate"])
    assert refused.keys() == {"report", "ask"}
    for said in refused.values():
        assert "`methods` must be one of random, centre, as in run.json; got 'other'" in said


def test_json_of_many_megabytes_is_not_read(run, subject, capsys):
    with open(run / "results.json", "r+b") as file:
        file.truncate(2**27)
    for said in end_clearly(run, subject, capsys, ["report", "ask"]).values():
        assert "it has 134217728 bytes, and such files have at most" in said


def test_a_small_table_of_many_rows_is_not_unpacked(run, subject, capsys):
    rows = 15_000_000
    path = run / "probes" / "_original" / "00000.parquet"
    columns = pq.read_table(path).schema.names
    zeros = pa.array(np.zeros(rows, dtype=np.int8))
    metadata = pq.read_schema(path).metadata
    table = pa.table(dict.fromkeys(columns, zeros)).replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 2**20
    with pytest.raises(DamagedError, match=r"it has \d+ bytes and would unpack to \d+"):
        ProbeTable.load(path)
    end_clearly(run, subject, capsys, ["ask"])


def test_samples_are_not_taken_for_the_same_without_fingerprints(run, subject, capsys):
    (run / "fingerprints.safetensors").unlink()
    refused = end_clearly(run, subject, capsys, ["selftest", "check", "evaluate"])
    assert refused.keys() == {"selftest", "check"}
    assert "lacks the fingerprints of its samples" in refused["check"]
    assert main(commands(run, subject)["evaluate"]) == 0
    assert (run / "fingerprints.safetensors").exists()


def test_a_check_says_first_that_it_cannot_write(run, subject, capsys, monkeypatch):
    (run / "checks").write_text("where the folder should be")
    monkeypatch.setattr("twinlens.checks.checked_run.reopen", lambda *_, **__: pytest.fail("it computes"))
    refused = end_clearly(run, subject, capsys, ["check"])
    assert "cannot be written" in refused["check"]


def test_the_whole_run_is_accepted(run, subject, capsys):
    assert end_clearly(run, subject, capsys) == {}
    assert open_evaluation(run).methods == ["random", "centre"]
