"""Several jobs in one directory end with the bytes of a single process."""

import errno
import fcntl
import json
import os
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.small_runs import contents, samples, script
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.options import Job
from twinlens.outcome import open_evaluation
from twinlens.probing.execution import Execution
from twinlens.run import execution_choice, job_array
from twinlens.run.directory import RunDirectory
from twinlens.run.job_array import deal, describe_missing, share_of
from twinlens.run.units import Unit
from twinlens.support.files import create_json

METHODS = ["saliency", "random", "centre"]
OPTIONS = {
    "batch_size": 16,
    "memory_format": "contiguous",
    "threads": 1,
    "shard_size": 4,
    "resamples": 50,
    "metrics": ["deletion", "completeness"],
    "imputer": {"name": "constant", "value": 0.1},
}


def run(out, part=None, methods=METHODS, **options):
    return evaluate(tiny_model(), samples(24), methods, out=out, part=part, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What one process alone leaves behind."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(out)
    return contents(out)


@pytest.fixture
def impatient(monkeypatch):
    """No job waits for another."""
    monkeypatch.setattr(job_array, "_PATIENCE", 0.0)
    monkeypatch.setattr(job_array, "_UNITS_OF_PATIENCE", 0.0)
    monkeypatch.setattr(job_array, "_EVERY", 0.001)


UNITS = [Unit(k) for k in range(7)] + [Unit(k, m, stage) for stage in (0, 1) for k in range(7) for m in "abcd"]


@given(st.integers(1, 80))
def test_units_are_dealt_evenly(of):
    """Each unit is in one job; jobs differ by at most one unit, in all and of each method in each stage."""
    shares = [share_of(UNITS, Job(number, of)) for number in range(1, of + 1)]
    assert sorted(map(str, (unit for share in shares for unit in share))) == sorted(map(str, UNITS))
    for kind in (None, *{(unit.method, unit.stage) for unit in UNITS}):
        counts = [sum(kind in (None, (unit.method, unit.stage)) for unit in share) for share in shares]
        assert max(counts) - min(counts) <= 1
    assert deal(UNITS[::-1], of) == deal(UNITS, of)


def test_what_is_missing_is_counted():
    missing = [Unit(1, "a", stage=1), Unit(2, "a")]
    numbers = deal(UNITS, 4)
    assert [numbers[unit] for unit in missing] == [1, 2]
    assert describe_missing(Job(1, 4), UNITS, missing).startswith(
        "Job 1/4 is done but for 1 of its units, which need maps of job 2: start it again later. Of the 63 units of "
        "the run 2 are missing, of jobs 1 and 2. "
    )
    assert "Job 3/4 is done. Of the 63 units of the run 1 is missing, of job 1. " in describe_missing(
        Job(3, 4), UNITS, missing[:1]
    )
    assert "is done but for 1 of its units: start it again later. " in describe_missing(Job(1, 4), UNITS, missing[:1])
    assert "of jobs 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 47 more." in describe_missing(
        Job(80, 80), UNITS, UNITS
    )


@pytest.mark.slow
def test_four_processes_at_once(tmp_path):
    """None is told how to call the model: one of them finds out, and all others do as it did."""
    arguments = [
        "evaluate", "--model", model_file(tmp_path), "--data", image_folder(tmp_path / "images", per_class=8),
        "--methods", "saliency,random,centre", "--metrics", "soundness_rank,completeness", "--imputer", "constant",
        "--shard-size", "3", "--resamples", "50",
    ]  # fmt: skip
    printed = script(
        """
        import os, sys
        from twinlens.cli.main import main

        arguments = sys.argv[2:]
        children = []
        for k in (1, 2, 3, 4):
            pid = os.fork()
            if pid == 0:
                os._exit(main([*arguments, "--out", f"{sys.argv[1]}/parts/run", "--part", f"{k}/4"]))
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
        """,
        tmp_path,
        *arguments,
    )
    together, alone = tmp_path / "parts" / "run", tmp_path / "alone" / "run"
    how = json.loads((together / "run.json").read_text())["execution"]
    fixed = [f for n in ("batch_size", "memory_format", "threads") for f in (f"--{n.replace('_', '-')}", str(how[n]))]
    assert main([*arguments, *fixed, "--out", str(alone)]) == 0
    assert len([name for name in contents(alone) if "exchanged" in name]) > 12
    assert contents(together) == contents(alone)
    assert (together / "report.html").exists()
    tables = printed.count("Page: ")
    assert tables >= 1  # two that finish at once both make the results
    assert printed.count("is done. Of the") == 4 - tables
    assert main(["verify", str(together)]) == 0
    seconds = open_evaluation(together).seconds()
    each = [json.loads((together / f"timings-{k}-of-4.json").read_text()) for k in (1, 2, 3, 4)]
    own = sum(v for found in each for name, v in found.items() if name.startswith("saliency/"))
    assert seconds["saliency"] == pytest.approx(own)


@pytest.mark.kills
def test_a_killed_job_is_started_again_while_others_wait(tmp_path, whole):
    script(
        """
        import os, signal, sys
        import torch
        from tests.run.test_job_array import run

        torch.set_num_threads(1)
        sync = os.fsync

        def child(part, files=None):
            # killed when it has written so many files, before the last of them has its name
            pid = os.fork()
            if pid > 0:
                return pid
            left = files

            def count(descriptor):
                nonlocal left
                sync(descriptor)
                left = None if left is None else left - 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            os.fsync = count
            run(f"{sys.argv[1]}/run", part)
            os._exit(0)

        others = [child(f"{k}/4") for k in (1, 3, 4)]
        for files in (1, 2, 1, 3):
            assert os.waitpid(child("2/4", files), 0)[1] == signal.SIGKILL
        others.append(child("2/4"))
        assert [os.waitpid(pid, 0)[1] for pid in others] == [0] * 4
        """,
        tmp_path,
    )
    assert contents(tmp_path / "run") == whole


def test_jobs_one_after_the_other_and_one_more_command(tmp_path, whole, impatient):
    """No order is needed: a job leaves what it cannot do yet, and reports it."""
    first = run(tmp_path / "run", "3/4")  # which also probes original inputs of other jobs
    assert (first.methods, set(first.incomplete)) == ([], set(METHODS))
    assert first.results.warnings[0].startswith("Job 3/4 is done but for ")
    assert "need maps of jobs 1, 2 and 4" in first.results.warnings[0]
    assert not (tmp_path / "run" / "results.json").exists()
    run(tmp_path / "run", "4/4")
    run(tmp_path / "run", "1/4")
    last = run(tmp_path / "run", "2/4").results.warnings[0]  # all maps are there, but not the control of the others
    assert last.startswith("Job 2/4 is done. Of the ")
    assert "missing, of jobs 3 and 4." in last
    before = contents(tmp_path / "run")
    assert run(tmp_path / "run").methods == METHODS
    assert contents(tmp_path / "run") == whole
    assert before.items() <= whole.items()


def test_jobs_started_again_finish_the_run(tmp_path, whole, impatient):
    for part in ("1/2", "2/2"):
        assert run(tmp_path / "run", part).incomplete
    assert not run(tmp_path / "run", "1/2").incomplete
    assert contents(tmp_path / "run") == whole


def test_a_job_that_never_ran(tmp_path, whole, impatient):
    assert "which need maps of jobs 2 and 3: start it again later" in run(tmp_path / "run", "1/3").results.warnings[0]
    run(tmp_path / "run", "2/3")
    run(tmp_path / "run")
    assert contents(tmp_path / "run") == whole


def test_more_jobs_than_units(tmp_path, whole, impatient):
    assert run(tmp_path / "run", "90/99").incomplete
    run(tmp_path / "run")
    assert not run(tmp_path / "run", "99/99").incomplete
    assert contents(tmp_path / "run") == whole


def test_a_job_waits_for_maps_of_others(tmp_path, whole, monkeypatch):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            monkeypatch.setattr(job_array.time, "sleep", lambda seconds: pytest.fail("waits for what is there"))
            assert run(tmp_path / "run", "2/2").incomplete  # its control is done, that of the other is not

    monkeypatch.setattr(job_array.time, "sleep", sleep)
    assert not run(tmp_path / "run", "1/2").incomplete
    assert len(slept) == 3
    assert contents(tmp_path / "run") == whole


def test_waiting_ends_and_is_told(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(job_array.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(job_array.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.warns(UserWarning, match=r"Job 1/2 waits for maps of other jobs, 5 minutes for each new one\."):
        assert run(tmp_path / "run", "1/2").incomplete
    assert 300 < now[0] < 310


@pytest.mark.filterwarnings("ignore:Job 1/2 waits for maps of other jobs")
def test_a_job_waits_as_long_as_maps_keep_coming(tmp_path, whole, monkeypatch):
    now, made = [0.0], []
    to_come = iter(sorted(name for name in whole if name.startswith("maps")))

    def sleep(seconds):
        now[0] += 100
        name = next(to_come, None)
        while name is not None and (tmp_path / "run" / name).exists():
            name = next(to_come, None)
        if name is not None:
            made.append(name)
            (tmp_path / "run" / name).write_bytes(whole[name])

    monkeypatch.setattr(job_array.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(job_array.time, "sleep", sleep)
    assert run(tmp_path / "run", "1/2").results.warnings[0].startswith("Job 1/2 is done. Of the")
    assert len(made) > 6


def test_what_is_done_waits_for_nothing(tmp_path, monkeypatch):
    run(tmp_path / "run")
    (tmp_path / "run" / "maps" / "random" / "00001.safetensors").unlink()
    monkeypatch.setattr(job_array.time, "sleep", lambda seconds: pytest.fail("waits"))
    assert "1 is missing, of job 2." in run(tmp_path / "run", "1/2").results.warnings[0]


def test_nobody_waits_for_a_method_that_fails(tmp_path, monkeypatch):
    def broken(model, inputs, targets, *, ids=None, seed=0):
        raise RuntimeError("out of ideas")

    monkeypatch.setattr(job_array.time, "sleep", lambda seconds: pytest.fail("waits"))
    with pytest.warns(UserWarning, match="broken fails"), pytest.raises(RunError, match=r"broken: .*: out of"):
        run(tmp_path / "run", "1/2", {"broken": broken})


@pytest.mark.parametrize("locks", [True, False])
def test_the_first_part_decides_how_the_model_is_called(tmp_path, monkeypatch, impatient, locks):
    """Two start at once, and the second writes run.json while the first is still trying."""
    if not locks:

        def flock(*_):
            raise OSError(errno.ENOSYS, "no locks here")

        monkeypatch.setattr(fcntl, "flock", flock)
    asked = {"batch_size": None, "memory_format": None, "threads": None}
    out, sizes = tmp_path / "run", []

    def choose(*_, **__):
        sizes.append(8 * (len(sizes) + 1))
        size = sizes[-1]
        if size == 8:
            run(out, "2/2", **asked)
        return Execution(batch_size=size, threads=1), ()

    monkeypatch.setattr(execution_choice, "choose_execution", choose)
    run(out, "1/2", **asked)
    assert sizes == [8, 16]
    assert json.loads((out / "run.json").read_text())["execution"]["batch_size"] == 16
    run(out)
    monkeypatch.undo()
    run(tmp_path / "alone", batch_size=16)
    assert contents(out) == contents(tmp_path / "alone")


def test_without_locks_the_first_decides_at_the_last_moment(tmp_path, monkeypatch, impatient):
    """Another job starts, and has made maps, just before a job writes its own run.json."""

    def flock(*_):
        raise OSError(errno.ENOSYS, "no locks here")

    looks = RunDirectory._holds_other_files

    def late(directory):
        monkeypatch.setattr(RunDirectory, "_holds_other_files", looks)
        run(tmp_path / "run", "2/2", batch_size=8)
        return looks(directory)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(RunDirectory, "_holds_other_files", late)
    with pytest.raises(RunError, match=r"holds another run: execution\.batch_size is 8 there and 16 here"):
        run(tmp_path / "run", "1/2")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["execution"]["batch_size"] == 8


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_creates_a_file(tmp_path, monkeypatch, links):
    if not links:

        def link(*_):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", link)
    assert [create_json(tmp_path / "run.json", k) for k in range(3)] == [True, False, False]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("run.json", "0\n")]


def test_jobs_and_other_runs_keep_out_of_each_others_way(tmp_path, impatient):
    run(tmp_path / "run", "1/2")
    with RunDirectory(tmp_path / "run"), pytest.raises(RunError, match="in use by another twinlens"):
        evaluate(tiny_model(), "not even opened", METHODS, out=tmp_path / "run", part="2/2", **OPTIONS)
    left = tmp_path / "run" / "maps" / "random" / ".00000.safetensors.7-0.unfinished"
    left.write_text("half")
    with RunDirectory(tmp_path / "run", shared=True) as other:
        other.start(lambda stored: stored)
        with pytest.raises(RunError, match=r"in use by another twinlens\. Wait for it to end"):
            run(tmp_path / "run")
        for changed in ({"resamples": 60}, {"methods": ["sobel"]}, {"metrics": "road_morf"}):
            with pytest.raises(RunError, match=r"in use by jobs with other options\. Give all jobs the same options"):
                run(tmp_path / "run", "2/2", **changed)
        run(tmp_path / "run", "2/2")
        assert left.exists()  # it may be what another job is writing
    run(tmp_path / "run")
    assert not left.exists()


@pytest.mark.slow
def test_jobs_can_add_to_a_run(tmp_path, impatient):
    run(tmp_path / "parts", methods=["random"])
    for part in ("1/2", "2/2"):
        assert run(tmp_path / "parts", part).incomplete
    assert not run(tmp_path / "parts", "1/2").incomplete
    run(tmp_path / "alone", methods=["random"])
    run(tmp_path / "alone")
    assert contents(tmp_path / "parts") == contents(tmp_path / "alone")


def test_jobs_that_add_to_a_run_at_once_lose_nothing(tmp_path, monkeypatch, impatient):
    """One has read run.json, another adds to it and ends, and then the first does."""
    run(tmp_path / "run", methods=["random"])
    opened = RunDirectory.start

    def late(directory, *planned):
        monkeypatch.setattr(RunDirectory, "start", opened)
        run(tmp_path / "run", "1/1", methods=["sobel"])
        return opened(directory, *planned)

    monkeypatch.setattr(RunDirectory, "start", late)
    assert run(tmp_path / "run", "1/1", methods=["centre"]).methods == ["random", "sobel", "centre"]


def test_every_node_may_have_the_data_in_a_place_of_its_own(tmp_path, impatient):
    model, folders = model_file(tmp_path), [tmp_path / name / "images" for name in ("one", "two")]
    for folder in folders:
        image_folder(folder)
    evaluate(model, str(folders[0]), METHODS, out=tmp_path / "run", part="1/2", **OPTIONS)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with RunDirectory(tmp_path / "run", shared=True) as other:
        other.start(lambda stored: stored)
        evaluate(model, str(folders[1]), METHODS, out=tmp_path / "run", part="2/2", **OPTIONS)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_directory_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        run(tmp_path, "1/2")


def test_an_object_store_is_refused():
    with pytest.raises(RunError, match=r"`part` needs a file system .*; 'memory://runs/parts' is in an object store"):
        run("memory://runs/parts", "1/2")


def test_an_unfinished_evaluation_says_so(tmp_path, impatient):
    unfinished = run(tmp_path / "run", "1/2")
    reason = unfinished.results.warnings[0]
    frame = unfinished.summary()
    assert Counter(frame.method) == dict.fromkeys(METHODS, 2)
    assert frame.value.isna().all()
    assert reason in frame.attrs["warnings"]
    assert unfinished.title.endswith(": no results yet")
    assert "saliency is incomplete" in unfinished._repr_html_()
    assert json.loads(json.dumps(unfinished.overview(), allow_nan=False))["warnings"] == [reason]
    assert np.isnan(unfinished.results.accuracy)
    with pytest.raises(RunError, match="has no results yet"):
        open_evaluation(tmp_path / "run")


def test_the_command_line(tmp_path, capsys, impatient):
    arguments = ["evaluate", "--model", model_file(tmp_path), "--data", image_folder(tmp_path / "images")]
    arguments += [
        "--methods",
        "random,centre",
        "--metrics",
        "deletion",
        "--shard-size",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    config = tmp_path / "run.toml"
    config.write_text('part = "1/2"\n')
    assert main([*arguments[:1], str(config), *arguments[1:]]) == 0
    shown = capsys.readouterr()
    assert (shown.err, shown.out.count("\n")) == ("", 1)
    assert shown.out.startswith("Job 1/2 is done but for ")
    assert shown.out.endswith("the same command without `part` completes the run, too.\n")
    assert main([*arguments, "--part", "2/2", "--quiet"]) == 0
    assert main([*arguments, "--part", "2/2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] is None
    assert not (tmp_path / "run" / "report.html").exists()
    assert main(arguments) == 0
    assert "Page: " in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()
    assert main([*arguments, "--part", "3/2"]) == 2
    assert capsys.readouterr().err == "twinlens: error: `part` must be K/N with 1 <= K <= N, such as 3/16; got '3/2'.\n"


def test_damaged_maps_of_another_job_are_made_again(tmp_path, whole, monkeypatch):
    """The control reads maps that other jobs have made; a damaged one is made by the job that finds it."""
    run(tmp_path / "run")
    damaged = tmp_path / "run" / "maps" / "random" / "00001.safetensors"
    for left in ("results.json", "probes/random/area-morf-constant-exchanged"):
        path = tmp_path / "run" / left
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-3])
    monkeypatch.setattr(job_array.time, "sleep", lambda seconds: pytest.fail("waits"))
    with pytest.warns(UserWarning, match=r"random/00001\.safetensors' is damaged .* and is made anew"):
        run(tmp_path / "run", "1/2")  # whose maps are those of even shards
    run(tmp_path / "run", "2/2")
    assert contents(tmp_path / "run") == whole
