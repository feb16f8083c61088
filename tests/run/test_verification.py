import json
import shutil

import pytest

from tests.small_runs import PARTS, make_run
from twinlens.cli.main import main
from twinlens.probing.probe_table import ProbeTable


@pytest.fixture
def run(tmp_path):
    make_run(tmp_path / "run", ["random", "centre"])
    return tmp_path / "run"


def problems(capsys, run):
    code = main(["verify", str(run), "--json"])
    captured = capsys.readouterr()
    found = {entry["file"]: entry["problem"] for entry in json.loads(captured.out)}
    wrong = {file: problem for file, problem in found.items() if problem is not None}
    assert (code, captured.err.count("\n")) == ((2, 1) if wrong else (0, 0))
    return wrong


def test_a_whole_run(capsys, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert problems(capsys, run) == {}
    assert main(["verify", str(run)]) == 0
    # Three shards of untouched inputs, maps and probes of two methods and of their control, the samples of the report,
    # the fingerprints of all samples, the results and their pairs.
    assert capsys.readouterr().out == "25 of 25 files are intact.\n"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_is_damaged_missing_or_in_the_wrong_place(capsys, run):
    maps, swapped, probes, untouched = PARTS
    content = bytearray((run / maps).read_bytes())
    content[-1] ^= 1
    (run / maps).write_bytes(content)
    (run / probes).unlink()
    shutil.copy(run / "maps/random/00000.safetensors", run / swapped)
    shutil.copy(run / "probes/random/area-morf-constant/00000.parquet", run / untouched.replace("00000", "00002"))
    (run / ".run.json.1-2.unfinished").write_text("x")
    found = problems(capsys, run)
    assert found[maps] == "damaged: its content does not match its checksum"
    assert found[probes] == "missing"
    assert found[swapped] == "of other samples than those of its shard"
    assert found[".run.json.1-2.unfinished"] == "left by a killed process"
    assert "probes/random/area-morf-constant/00002.parquet" in found  # whose samples are not those of its shard now
    assert main(["verify", str(run)]) == 2
    assert f"{maps}: damaged" in capsys.readouterr().out


def test_probes_of_another_seed_or_schedule(capsys, run):
    part = run / "probes/random/area-morf-constant/00000.parquet"
    table = ProbeTable.load(part)
    make_run(run.parent / "other", ["random"], seed=5)
    shutil.copy(run.parent / "other/probes/random/area-morf-constant/00000.parquet", part)
    assert problems(capsys, run)[str(part.relative_to(run))].startswith("of another run: its seed")
    table.join_levels(levels=table.settings.schedule.levels[:3]).save(part)
    assert problems(capsys, run)[str(part.relative_to(run))].startswith("of another schedule")


def test_results_that_are_not_what_the_probes_give(capsys, run):
    stored = json.loads((run / "results.json").read_text())
    stored["methods"]["random"]["metrics"]["deletion"]["area"]["value"] += 0.25
    (run / "results.json").write_text(json.dumps(stored))
    assert problems(capsys, run) == {"results.json": "not what its probes give"}
    (run / "results.json").write_text("{")
    assert problems(capsys, run)["results.json"].startswith("damaged: ")


def test_results_of_before_what_a_killed_command_was_to_add(capsys, run):
    before = (run / "results.json").read_bytes()
    make_run(run, ["random", "centre", "saliency"])
    after = (run / "results.json").read_bytes()
    (run / "results.json").write_bytes(before)
    assert problems(capsys, run) == {"results.json": "older than the last command, which has not ended"}
    (run / "results.json").write_bytes(after)
    assert problems(capsys, run) == {}
    make_run(run, ["random", "centre", "saliency"], performance="probability")
    assert problems(capsys, run) == {}
    (run / "results.json").write_bytes(after)
    assert problems(capsys, run) == {"results.json": "older than the last command, which has not ended"}
