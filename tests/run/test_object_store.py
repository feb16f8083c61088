"""Runs in an object store: a server that speaks the protocol of S3, reached through s3fs as a provider's would be."""

import json
from pathlib import Path

import pytest
import s3fs

from tests.object_store import object_store
from tests.small_runs import PARTS, make_run, script, unseen
from tests.tiny import image_folder, model_file
from twinlens.cli.main import main
from twinlens.errors import DamagedError, RunError
from twinlens.outcome import open_evaluation
from twinlens.run.directory import RunDirectory

METHODS = ["random", "centre"]
pytestmark = pytest.mark.slow
UNCOMPARED = (".lock", "timings.json", "report.html")


@pytest.fixture(scope="module")
def store():
    with object_store() as address:
        yield address


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run on this machine, and the bytes of its files."""
    out = tmp_path_factory.mktemp("whole") / "run"
    make_run(out, METHODS)
    return contents(out)


def contents(out):
    """The bytes of every file of a run that must be the same wherever it is."""
    path = out if isinstance(out, Path) else open_evaluation(out).path
    files = (each for each in path.rglob("*") if each.is_file() and each.name not in UNCOMPARED)
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def test_a_run_has_the_bytes_of_one_on_this_machine(store, whole, capsys):
    out = "s3://bucket/runs/one"
    make_run(out, ["random"])
    make_run(out, METHODS)
    assert contents(out) == whole
    evaluation = open_evaluation(out)
    assert evaluation.methods == METHODS
    assert evaluation.maps("centre").shape == (10, 9, 9)
    assert main(["verify", out]) == 0
    assert capsys.readouterr().out == "25 of 25 files are intact.\n"
    assert main(["report", out]) == 0
    assert capsys.readouterr().out == f"{out}/report.html\n"
    assert b"centre" in (evaluation.path / "report.html").read_bytes()
    assert main(["report", out, "--table", "csv"]) == 0
    assert main(["ask", out, "--metrics", "road_morf", "--quiet"]) == 2  # which needs another imputer's probes
    assert "has no probes for road_morf" in capsys.readouterr().err
    assert main(["ask", out, "--performance", "probability", "--quiet"]) == 0
    [name] = open_evaluation(out).queries()
    asked = open_evaluation(out, results=name).results.settings.metrics
    assert asked["deletion"]["performance"] == "probability"
    assert {file: content for file, content in contents(out).items() if file != f"results/{name}.json"} == whole
    capsys.readouterr()
    assert main(["verify", out]) == 0
    assert capsys.readouterr().out == "26 of 26 files are intact.\n"
    assert main(["report", out, "--results", name]) == 0
    assert capsys.readouterr().out == f"{out}/report-{name}.html\n"


def test_from_the_command_line(store, tmp_path, capsys):
    asked = ["evaluate", "--model", model_file(tmp_path), "--data", image_folder(tmp_path / "images"), "--quiet"]
    asked += ["--methods", "random", "--metrics", "deletion", "--batch-size", "16", "--memory-format", "contiguous"]
    asked += ["--threads", "1", "--resamples", "50"]
    for out in (str(tmp_path / "run"), "s3://bucket/command"):
        assert main([*asked, "--out", out]) == 0
    assert contents("s3://bucket/command") == contents(tmp_path / "run")
    assert main(["compare", "s3://bucket/command", str(tmp_path / "run"), "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["s3://bucket/command", str(tmp_path / "run")]


def test_a_bucket_that_is_not_there_is_named_and_not_created(store):
    with pytest.raises(FileNotFoundError, match=r"'s3://typo/run/run\.json' cannot be written: .* Create the bucket"):
        make_run("s3://typo/run")
    assert s3fs.S3FileSystem(use_listings_cache=False).ls("") == ["bucket"]


def test_a_place_with_something_else_is_refused(store):
    s3fs.S3FileSystem().pipe_file("bucket/letters/dear.txt", b"dear")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        make_run("s3://bucket/letters")
    with pytest.raises(RunError, match=r"`out` must be a directory; .*dear\.txt' is a file"):
        make_run("s3://bucket/letters/dear.txt")
    with pytest.raises(RunError, match=r"letters' holds no run: run\.json is missing"):
        open_evaluation("s3://bucket/letters")


@pytest.mark.parametrize("part", PARTS[1:3])
def test_a_damaged_part_is_named_and_made_anew(store, whole, part, capsys):
    out = "s3://bucket/runs/damaged"
    make_run(out, METHODS)
    files = s3fs.S3FileSystem()
    files.pipe_file(f"{out}/{part}", unseen(whole[part], part))
    assert main(["verify", out]) == 2
    assert f"{part}: damaged: " in capsys.readouterr().out
    evaluation = open_evaluation(out)
    with pytest.raises(DamagedError, match=rf"s3://.*{part}' is damaged: .* Remove it and run the same command"):
        (evaluation.maps("centre"), evaluation.curve("centre", "deletion"))
    with pytest.warns(UserWarning, match=rf"{part}' is damaged .* and is made anew"):
        make_run(out, METHODS)
    assert contents(out) == whole
    files.rm(f"{out}/{part}")
    assert main(["verify", out]) == 2
    assert f"{part}: missing" in capsys.readouterr().out


def test_a_reader_meets_one_version_of_what_is_written_anew(store, whole, monkeypatch):
    """A file that is opened first and read afterwards is refused where another takes its place in between."""
    out, opening = "s3://bucket/runs/read", s3fs.S3FileSystem.open
    make_run(out, METHODS)

    def opened_and_replaced(self, path, *given, **options):
        file = opening(self, path, *given, **options)
        self.pipe_file(path, self.cat_file(path) + b" ")
        return file

    monkeypatch.setattr(s3fs.S3FileSystem, "open", opened_and_replaced)
    evaluation = open_evaluation(out)
    assert evaluation.methods == METHODS
    assert evaluation.maps("centre").shape == (10, 9, 9)


def test_two_processes_at_once(store, whole):
    out = "s3://bucket/runs/twice"
    ended = script(
        """
        import os, sys
        from tests.small_runs import make_run

        def child():
            pid = os.fork()
            if pid == 0:
                make_run(sys.argv[1], ["random", "centre"])
                os._exit(0)
            return pid

        print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in [child(), child()]))
        """,
        out,
    )
    assert ended.split() == ["0", "0"]
    assert contents(out) == whole


def test_the_first_of_two_processes_creates_run_json(store, monkeypatch):
    """Another process creates the run after this one has looked for it, and this one resumes it."""
    looks, seen = RunDirectory._holds_other_files, []

    def look(directory):
        monkeypatch.setattr(RunDirectory, "_holds_other_files", looks)
        make_run("s3://bucket/runs/first", batch_size=8)
        seen.append(directory.manifest)
        return looks(directory)

    monkeypatch.setattr(RunDirectory, "_holds_other_files", look)
    make_run("s3://bucket/runs/first", METHODS, batch_size=None)
    assert seen == [None]
    run = open_evaluation("s3://bucket/runs/first")
    assert (run.methods, run.manifest.execution.batch_size) == (METHODS, 8)


@pytest.mark.kills
def test_kills_change_nothing(store, whole):
    """Killed at random moments and started again, a run in a bucket ends with the bytes of one on this machine."""
    killed = script(
        """
        import os, random, signal, time
        import torch
        from tests.small_runs import make_run
        from twinlens.support import files

        torch.set_num_threads(1)

        def die_at(number):
            # This process is killed before it puts the object of this number.
            put, left = files._put, [number]

            def counted(*arguments, **options):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return put(*arguments, **options)

            files._put = counted

        def child(name, seconds=None, number=None):
            pid = os.fork()  # before this process has a connection, which no two may share
            if pid == 0:
                if number is not None:
                    die_at(number)
                make_run(f"s3://bucket/runs/{name}", ["random", "centre"])
                os._exit(0)
            if seconds is not None:
                time.sleep(seconds)
                os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1]

        start = time.perf_counter()
        assert child("alone") == 0
        alone = time.perf_counter() - start
        random.seed(0)
        killed = 0
        for _ in range(3):
            killed += child("killed", number=random.choice((1, 2))) == signal.SIGKILL
            child("killed", random.uniform(0.02, 0.5) * alone)  # if it lasts that long
        print(killed)
        assert child("killed") == 0
        """
    )
    assert int(killed) >= 1  # the first; how far the run comes between the others depends on the clock
    assert contents("s3://bucket/runs/killed") == whole
