import json
import os
import resource

import numpy as np
import pytest

from tests.test_evaluation import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.cli.main import main
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.report import write_report
from twinlens.running.run_reader import open_evaluation


def make_run(path, methods=("random",), metrics="deletion", **options):
    return evaluate(tiny_model(), samples(), methods, out=path, metrics=metrics, **{**OPTIONS, **options})


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_is_not_opened_through_a_link(tmp_path, dangling):
    precious = tmp_path / "precious.txt"
    if not dangling:
        precious.write_text("years of work")
    make_run(tmp_path / "run")
    lock = tmp_path / "run" / ".lock"
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(RunError, match=r"\.lock' cannot be used to hold the run: it is a symbolic link\. Remove it"):
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
    largest = max(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.suffix != ".safetensors")
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
    with pytest.warns(UserWarning, match="late fails"), pytest.raises(RunError, match="is incomplete"):
        make_run(out, {"late": late, "random": "random"}, ["deletion", "road_morf"])
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
