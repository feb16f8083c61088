import csv
import errno
import io
import json
import os
import resource
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import twinlens as tl
from tests.small_runs import OPTIONS, PARTS, contents, flipped, make_run, samples, unseen
from tests.tiny import tiny_model
from twinlens.cli.main import main
from twinlens.errors import DamagedError, RunError
from twinlens.evaluation import evaluate
from twinlens.outcome import open_evaluation
from twinlens.probing.probe_table import ProbeTable
from twinlens.report import write_report
from twinlens.run.directory import RunDirectory, read_run
from twinlens.run.pairs_table import pairs_digest
from twinlens.support.files import written_whole
from twinlens.support.tensor_files import load_tensors


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_is_not_opened_through_a_link(tmp_path, dangling):
    precious = tmp_path / "precious.txt"
    if not dangling:
        precious.write_text("years of work")
    make_run(tmp_path / "run")
    lock = tmp_path / "run" / ".lock"
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(RunError, match=r"\.lock' cannot be used as a lock: it is a symbolic link\. Remove it"):
        make_run(tmp_path / "run")
    assert precious.exists() != dangling
    assert dangling or precious.read_text() == "years of work"
    lock.unlink()
    lock.write_text("kept as it is")
    make_run(tmp_path / "run")
    assert lock.read_text() == "kept as it is"
    lock.unlink()
    os.mkfifo(lock)
    make_run(tmp_path / "run")  # and does not wait for somebody who writes to the pipe


def test_a_full_disk_ends_the_run_and_is_no_failing_method(tmp_path):
    data = samples(size=64)  # whose maps are larger than any other file of the run
    asked = {"methods": ["random", "centre"], "metrics": ["deletion"], **OPTIONS}
    evaluate(tiny_model(), data, out=tmp_path / "whole", **asked)
    largest = max(
        path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.suffix not in (".safetensors", ".html")
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 1000, before[1]))  # longer files cannot be written
    try:
        with pytest.raises(OSError, match=r"maps/random/00000\.safetensors' cannot be written: .*too large"):
            evaluate(tiny_model(), data, out=tmp_path / "run", **asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "run" / "results.json").exists()
    assert not list((tmp_path / "run").rglob("*.unfinished"))
    evaluate(tiny_model(), data, out=tmp_path / "run", **asked)
    same = [(tmp_path / name / "results.json").read_bytes() for name in ("whole", "run")]
    assert same[0] == same[1]


def late(model, inputs, targets, *, ids=None, seed=0):
    if "00007" in ids:
        raise RuntimeError("out of ideas")
    return inputs[:, 0].abs()


def test_incomplete_results_say_so_everywhere(tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.warns(UserWarning, match="late fails"):
        partly = make_run(out, {"late": late, "random": "random"}, ["deletion", "road_morf"])
    assert "It failed: `method` raised RuntimeError: out of ideas" in partly.notes[0]
    assert "It failed: `method` raised RuntimeError" in (out / "report.html").read_text()
    assert json.loads((out / "results.json").read_text())["incomplete"] == {"late": ["deletion", "road_morf"]}
    evaluation = open_evaluation(out)
    note = "late is incomplete: deletion, road_morf are missing. Evaluate it again in the same directory"
    assert note in evaluation.notes[0]
    summary = evaluation.summary().set_index(["method", "metric"]).value
    assert np.isnan(summary["late", "deletion"])
    assert np.isnan(summary["late", "road_morf"])
    assert np.isfinite(summary["random", "deletion"])
    assert evaluation.overview()["incomplete"] == {"late": ["deletion", "road_morf"]}
    assert note in evaluation._repr_html_()
    assert note in write_report([evaluation], tmp_path / "page.html").read_text()
    for kind, mark in (("latex", "% "), ("markdown", "\n")):
        assert main(["report", str(out), "--table", kind]) == 0
        shown = capsys.readouterr()
        assert f"{mark}{out}: {note}" in shown.out
        assert note in shown.err
    assert main(["report", str(out), "--table", "csv"]) == 0
    shown = capsys.readouterr()
    assert note not in shown.out
    assert note in shown.err
    assert main(["compare", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert note in " ".join(capsys.readouterr().out.split())


def test_results_of_before_say_what_a_killed_run_was_to_add(tmp_path):
    class Killed(BaseException):
        pass

    def kill(*_, **__):
        raise Killed

    make_run(tmp_path / "run")
    with pytest.raises(Killed):
        make_run(tmp_path / "run", {"random": "random", "mine": kill})
    assert open_evaluation(tmp_path / "run").incomplete == {"mine": ("deletion",)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, and every file of it that a later one must give again."""
    out = tmp_path_factory.mktemp("whole") / "run"
    make_run(out, ["random", "centre"])
    names = [path.relative_to(out) for path in out.rglob("*") if path.suffix in (".parquet", ".safetensors", ".csv")]
    return out, {name: (out / name).read_bytes() for name in (*names, "results.json")}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("change", ["bit", "end", "nothing", "noise"])
def test_a_damaged_part_is_named_and_made_anew(tmp_path, whole, part, change):
    out, before = tmp_path / "run", whole[1]
    shutil.copytree(whole[0], out)
    content = before[Path(part)]
    damaged = {
        "bit": unseen(content, part),
        "end": content[:-9],
        "nothing": b"",
        "noise": np.random.default_rng(0).bytes(len(content)),
    }[change]
    (out / part).write_bytes(damaged)
    evaluation = open_evaluation(out)
    with pytest.raises(DamagedError, match=rf"{part}' is damaged: .* Remove it and run the same command"):
        (evaluation.maps("centre"), evaluation.curve("centre", "deletion"), evaluation.ids())
    with pytest.warns(UserWarning, match=rf"{part}' is damaged .* and is made anew"):
        make_run(out, ["random", "centre"])
    for name, bytes_before in before.items():
        assert (out / name).read_bytes() == bytes_before, name


def test_a_damaged_part_of_a_method_that_is_not_asked_for_is_named(tmp_path, whole):
    out, part = tmp_path / "run", PARTS[2]
    shutil.copytree(whole[0], out)
    (out / part).write_bytes(b"PAR1")
    with pytest.raises(DamagedError, match=part):
        make_run(out, ["random"])
    assert (out / part).read_bytes() == b"PAR1"


def test_a_damaged_part_is_made_anew_where_a_sweep_is_added(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    for part in (PARTS[1], PARTS[3]):  # which a worker reads before it asks the model
        (out / part).write_bytes((out / part).read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"is damaged .* and is made anew"):
        make_run(out, ["random", "centre"], ["deletion", "completeness"])
    assert open_evaluation(out).incomplete == {}
    assert (out / PARTS[1]).read_bytes() == whole[1][Path(PARTS[1])]


def test_no_bit_flip_changes_what_is_read(tmp_path, whole):
    """Whatever bit of a part changes, it is refused, or what is read is what was written."""
    rng = np.random.default_rng(0)
    for part in PARTS[1:]:
        path = tmp_path / Path(part).name
        load = ProbeTable.load if part.endswith("parquet") else load_tensors
        path.write_bytes(whole[1][Path(part)])
        expected, refused = load(path), 0
        for _ in range(200):
            path.write_bytes(flipped(whole[1][Path(part)], rng))
            try:
                found = load(path)
            except DamagedError:
                refused += 1
                continue
            if part.endswith("parquet"):
                assert found == expected
            else:
                assert found[1] == expected[1]
                assert torch.equal(found[0]["maps"], expected[0]["maps"])
        assert refused > 20


@pytest.mark.parametrize("text", ["{", "[]", '{"random/maps": "long"}', "\x00"])
def test_damaged_timings_are_counted_anew(tmp_path, whole, text):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    (out / "timings.json").write_text(text)
    with pytest.warns(UserWarning, match=r"timings\.json' is damaged: timing starts again from zero"):
        assert open_evaluation(out).seconds() == {}
    with pytest.warns(UserWarning, match=r"timings\.json' is damaged"):
        make_run(out, ["random", "centre"])
    assert isinstance(json.loads((out / "timings.json").read_text()), dict)


def test_damaged_samples_of_the_report_are_named_and_written_anew(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    selected = out / "selected.safetensors"
    selected.write_bytes(selected.read_bytes()[:-3])
    with pytest.raises(DamagedError, match=r"selected\.safetensors' is damaged"):
        write_report([open_evaluation(out)], tmp_path / "page.html")
    make_run(out, ["random", "centre"])
    write_report([open_evaluation(out)], tmp_path / "page.html")


def test_pairs_have_a_file_of_their_own(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    compared = open_evaluation(out).comparison()
    [pair] = {(pair.first, pair.second) for pair in compared.pairs}
    assert sorted(pair) == ["centre", "random"]
    assert compared.ranking == open_evaluation(out).results.ranking
    for content in (compared.to_frame().to_csv().encode(), b"", (out / "pairs.csv").read_bytes()[:-2], b"\xff" * 9):
        (out / "pairs.csv").write_bytes(content)
        with pytest.raises(RunError, match=r"pairs\.csv' is missing or damaged.*Start the run again"):
            open_evaluation(out).comparison()
    make_run(out, ["random", "centre"])
    before = open_evaluation(out)
    assert before.comparison() == compared
    make_run(out, ["random", "centre"], metrics=tl.Deletion(performance="probability"))  # as another process might
    with pytest.raises(RunError, match="or belongs to later results: open the run again"):
        before.comparison()


def test_results_grow_with_the_methods_and_not_with_their_pairs(tmp_path):
    sizes = []
    for count in (4, 16):
        methods = {f"m{k}": {"method": "random"} for k in range(count)}
        make_run(tmp_path / str(count), methods)
        sizes.append((tmp_path / str(count) / "results.json").stat().st_size)
    assert sizes[1] < 4.2 * sizes[0]


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_names_from_files_do_not_steer_the_terminal(tmp_path, whole, capsys):
    out = tmp_path / f"run{EVIL}"
    shutil.copytree(whole[0], out)
    pairs = (out / "pairs.csv").read_text().replace(",centre,", f",centre{EVIL},")
    assert EVIL in pairs
    (out / "pairs.csv").write_text(pairs)
    for name in ("run.json", "results.json"):
        text = (out / name).read_text().replace('"centre"', json.dumps(f"centre{EVIL}"))
        stored = json.loads(text)
        stored["pairs_digest"] = pairs_digest(pairs) if name == "results.json" else None
        stored["model"]["name"] = stored["data"]["name"] = EVIL
        stored["warnings"] = [EVIL] if name == "results.json" else None
        (out / name).write_text(json.dumps({key: value for key, value in stored.items() if value is not None}))
    page = str(tmp_path / "page.html")
    commands = [["report", str(out), "--table", kind] for kind in ("latex", "markdown", "csv")]
    commands += [["compare", str(out), str(out), "--out", page, "--verdicts"], ["compare", str(tmp_path / EVIL)]]
    commands += [["ask", str(out), "--metrics", EVIL], ["selftest", str(out), "--methods", EVIL], [EVIL]]
    for command in commands:
        main(command)
        shown = capsys.readouterr()
        assert shown.out + shown.err
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown.out + shown.err), command


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path, capsys):
    out = tmp_path / "=run"
    make_run(out, metrics={"=1+1": "deletion", "@x": "road_morf"})
    assert main(["report", str(out), "--table", "csv"]) == 0
    for text in (capsys.readouterr().out, (out / "results.csv").read_text()):
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert "'=1+1" in cells
        assert [cell for cell in cells if cell[:1] in "=@" and cell] == []


def test_what_killed_processes_left_is_removed_at_the_next_start(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    left = [out / ".run.json.77-abcdef01.unfinished", out / "maps" / "random" / ".00000.safetensors.7-0.unfinished"]
    for path in left:
        path.write_text("half")
    make_run(out, ["random", "centre"])
    assert not [path for path in left if path.exists()]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".run.json.77-abcdef01.unfinished").write_text("half")  # killed before anything was whole
    make_run(tmp_path / "new")


@pytest.mark.parametrize("command", [["report"], ["ask", "--performance", "probability", "--quiet"]])
def test_what_a_killed_command_left_is_removed_by_the_same_command(tmp_path, whole, command):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    left = out / ".report.html.7-0.unfinished"
    left.write_text("half")
    assert main([command[0], str(out), *command[1:]]) == 0
    assert not left.exists()


def test_what_is_being_written_is_not_taken_for_what_a_killed_process_left(tmp_path, whole):
    """A figure is written when its run has ended, and another process may start there at that moment."""
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    with written_whole(out / "figure.svg") as unfinished:
        unfinished.write_text("a figure")
        make_run(out, ["random", "centre"])
        assert unfinished.exists()
    assert (out / "figure.svg").read_text() == "a figure"
    left = out / ".figure.svg.7-0.unfinished"
    left.symlink_to(out / "figure.svg")
    make_run(out, ["random", "centre"])
    assert not left.is_symlink()
    assert (out / "figure.svg").read_text() == "a figure"


def test_a_question_waits_for_no_run_and_loses_nothing_of_it(tmp_path, whole):
    out = tmp_path / "run"
    make_run(out)
    evaluation = open_evaluation(out)
    with RunDirectory(out):
        assert evaluation.ask(["deletion"]).results == evaluation.results
        with pytest.raises(RunError, match="in use by another twinlens"):
            evaluation.ask(["deletion"], name="mine")
    make_run(out, ["random", "centre"])  # which another process might do meanwhile
    asked = evaluation.ask(["deletion"])
    assert asked.methods == ["random", "centre"]
    assert asked.results == open_evaluation(out).results
    assert (out / "results.json").read_bytes() == whole[1]["results.json"]
    assert list(read_run(out).manifest.methods) == ["random", "centre"]
    (out / "run.json").unlink()
    with pytest.raises(OSError, match="was removed"):
        asked.ask(["deletion"])


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_directory_that_is_deleted_in_mid_run_blocks_nothing(tmp_path, when):
    out, calls = tmp_path / "run", []

    def deleting(model, inputs, targets, *, ids=None, seed=0):
        if len(calls) == when:
            shutil.rmtree(out)
        calls.append(1)
        return inputs[:, 0].abs()

    with pytest.raises(OSError, match=r"was removed during the run: run\.json is missing\. Start it again"):
        make_run(out, {"mine": deleting})
    make_run(out, {"mine": deleting})


def test_a_directory_in_use_or_of_another_kind_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    asked = {"methods": ["random"], "metrics": ["deletion"], **OPTIONS}
    with pytest.raises(RunError, match="is not empty and holds no run"):
        evaluate(tiny_model(), samples(4), out=tmp_path / "full", **asked)
    with pytest.raises(RunError, match=r"must be a directory; .*letter.txt' is a file"):
        evaluate(tiny_model(), samples(4), out=tmp_path / "full" / "letter.txt", **asked)
    run = evaluate(tiny_model(), samples(4), out=tmp_path / "run", **asked).run
    with RunDirectory(run.path), pytest.raises(RunError, match="in use by another twinlens"):
        evaluate(tiny_model(), samples(4), out=run.path, **asked)
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run.json' is damaged"):
        evaluate(tiny_model(), samples(4), out=run.path, **asked)
    (run.path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="a run of format 99, and this twinlens reads 6"):
        read_run(run.path)
    with pytest.raises(RunError, match="holds no run"):
        open_evaluation(tmp_path / "full")


def test_an_object_store_that_cannot_be_reached(monkeypatch):
    def answer(*_, **__):
        raise RuntimeError("Unable to locate credentials")

    monkeypatch.setattr(MemoryFileSystem, "info", answer)
    monkeypatch.setattr(MemoryFileSystem, "exists", answer)
    with pytest.raises(tl.RunError, match="`out` 'memory://a/b' cannot be used: Unable to locate credentials"):
        tl.evaluate(tiny_model(), samples(), "random", out="memory://a/b")


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/b", "..", "", "a\\b"])
@pytest.mark.parametrize("kind", ["sweeps", "methods"])
def test_names_in_run_json_cannot_leave_the_directory(tmp_path, kind, name):
    out = tmp_path / "run"
    make_run(out)
    content = json.loads((out / "run.json").read_text())
    if kind == "sweeps":
        content["sweeps"][0]["name"] = name
    else:
        content["methods"] = {name: content["methods"]["random"]}
    (out / "run.json").write_text(json.dumps(content))
    for use in (read_run, make_run):
        with pytest.raises(RunError, match=r"'methods and sweeps'|`methods and sweeps` must be named with letters"):
            use(out)


def test_names_in_results_json_cannot_leave_the_directory(tmp_path):
    out = tmp_path / "run"
    make_run(out)
    content = json.loads((out / "results.json").read_text())
    content["methods"] = {"../../outside": content["methods"]["random"]}
    (out / "results.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="must be named with letters"):
        open_evaluation(out)


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError, partial(OSError, errno.ENOMEM)])
@pytest.mark.parametrize("reader", ["support.tensor_files.load", "probing.probe_table.pq.ParquetFile"])
def test_short_memory_is_no_damage(tmp_path, monkeypatch, reader, error):
    out = tmp_path / "run"
    make_run(out, ["centre"])
    before, warned = contents(out), []

    def short(*_, **__):
        raise error("malloc of size 1 failed")

    with monkeypatch.context() as patched:
        patched.setattr(f"twinlens.{reader}", short)
        patched.setattr("warnings.warn", lambda message, **_: warned.append(str(message)))
        with pytest.raises((MemoryError, OSError, RunError), match="malloc of size 1 failed"):
            make_run(out, ["centre"], metrics=["deletion", "insertion"])
    after = contents(out)
    assert not any("damaged" in message for message in warned)
    assert {name: after.get(name) for name in before if name != "run.json"} == {
        name: content for name, content in before.items() if name != "run.json"
    }


def test_a_damaged_file_stays_until_it_is_replaced(tmp_path, monkeypatch):
    out = tmp_path / "run"
    make_run(out, ["centre"])
    whole, path = contents(out), out / PARTS[1]
    path.write_bytes(damaged := unseen(path.read_bytes(), PARTS[1]))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("twinlens.run.directory.save_tensors", full)
        with pytest.raises(OSError, match="No space left"), pytest.warns(UserWarning, match="is made anew"):
            make_run(out, ["centre"], metrics=["deletion", "insertion"])
    assert path.read_bytes() == damaged
    with pytest.warns(UserWarning, match="is made anew"):
        make_run(out, ["centre"], metrics=["deletion", "insertion"])
    assert path.read_bytes() == whole[PARTS[1]]
