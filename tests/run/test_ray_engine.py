"""The Ray engine on a real cluster: two nodes of one CPU each, which are processes of this machine."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.object_store import object_store
from tests.run.ray_nodes import ROOT, started_cluster
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.errors import RunError
from twinlens.evaluation import evaluate
from twinlens.outcome import open_evaluation
from twinlens.run import analysis
from twinlens.run.ray_engine import connected, map_ray, run_ray
from twinlens.run.units import Cluster, Unit
from twinlens.support.progress import Quiet

OPTIONS = {
    "batch_size": 16,
    "memory_format": "contiguous",
    "threads": 1,
    "shard_size": 4,
    "metrics": ["soundness", "deletion"],
    "levels": (0.9, 0.5, 0.1),
    "resamples": 50,
}
pytestmark = pytest.mark.ray


def samples(n=24, size=9):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3, size, size)).astype(np.float32), rng.integers(0, 3, n)


def bright(model, inputs, targets, *, ids=None, seed=0, seconds=0.0, poison="none", gate="none"):
    """Lasts long enough for something to happen in between, and cannot bear one sample while a file is there.

    After the first samples it waits until there is a gate.
    """
    time.sleep(seconds)
    while gate != "none" and "00000" not in ids and not Path(gate).exists():
        time.sleep(0.05)
    if "00009" in ids and Path(poison).exists():
        raise ValueError("sample 00009 is poisoned")
    return inputs.abs().sum(dim=1)


def methods(**options):
    return {"bright": {"method": bright, **options}, "saliency": "saliency"}


class Watcher(Quiet):
    """Counts rows by task and by node, and does something when the first rows of a method are done."""

    def __init__(self, then=None):
        self.rows, self.nodes, self.then = Counter(), Counter(), then

    def begin(self, rows, note=""):
        self.wanted = rows

    def advance(self, task, rows, stage=""):
        self.rows[task] += rows
        if task == "bright" and rows and self.then is not None:
            then, self.then = self.then, None
            then()

    def finished_on(self, node, rows):
        self.nodes[node] += rows


@pytest.fixture(scope="module")
def cluster():
    """Two nodes that do the work, and a third one that may not die; all of them reach an object store."""
    with object_store():
        yield from started_cluster()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the local engine gives."""
    out = tmp_path_factory.mktemp("local") / "run"
    evaluate(tiny_model(), samples(), methods(), out=out, **OPTIONS)
    return (out / "results.json").read_bytes()


def test_equal_to_the_local_engine(tmp_path, cluster, expected):
    """Both nodes work, all rows are counted, and whatever the engine was the bytes are the same."""
    watcher = Watcher()
    evaluation = evaluate(
        tiny_model(), samples(), methods(seconds=0.3), out=tmp_path / "run", engine="ray", progress=watcher, **OPTIONS
    )
    assert (tmp_path / "run" / "results.json").read_bytes() == expected
    assert len(watcher.nodes) == 2
    assert sum(watcher.nodes.values()) == sum(watcher.rows.values())
    assert watcher.rows == watcher.wanted
    assert evaluation.seconds()["bright"] >= 6 * 0.3
    # Maps alone are units, too.
    evaluate(tiny_model(), samples(), methods(), out=tmp_path / "maps", engine="ray", **{**OPTIONS, "metrics": []})
    for name in ("bright", "saliency"):
        [one, other] = (tmp_path / run / "maps" / name / "00005.safetensors" for run in ("run", "maps"))
        assert one.read_bytes() == other.read_bytes()
    # The run goes on with the other engine.
    evaluate(tiny_model(), samples(), ["random"], out=tmp_path / "run", **OPTIONS)
    assert open_evaluation(tmp_path / "run").methods == ["bright", "saliency", "random"]


def test_methods_are_analysed_on_the_cluster(tmp_path, cluster, expected, monkeypatch):
    """The driver only puts together what workers have computed; what they cannot compute it does itself."""

    def refuse(*_):
        raise AssertionError("computed by the driver")

    monkeypatch.setattr(analysis, "analyse_method", refuse)
    evaluate(tiny_model(), samples(), methods(), out=tmp_path / "run", engine="ray", **OPTIONS)
    assert (tmp_path / "run" / "results.json").read_bytes() == expected
    monkeypatch.undo()
    monkeypatch.setattr("twinlens.run.distribution.map_ray", lambda *_: {})
    evaluate(tiny_model(), samples(), methods(), out=tmp_path / "again", engine="ray", **OPTIONS)
    assert (tmp_path / "again" / "results.json").read_bytes() == expected


def test_what_fails_on_the_cluster_is_left_out(cluster):
    with connected(Cluster()):
        assert map_ray(lambda k: 6 // k, [0, 1, 2], Cluster()) == {1: 6, 2: 3}
        lock = threading.Lock()
        assert map_ray(lambda k: (lock, k), [0, 1], Cluster()) == {}


def test_a_node_that_dies_changes_nothing(tmp_path, cluster, expected):
    watcher = Watcher(cluster.replace_first)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker or its node died")  # if a unit was running there
        evaluate(tiny_model(), samples(), methods(seconds=1.0), out=tmp_path, engine="ray", progress=watcher, **OPTIONS)
    assert watcher.then is None
    assert (tmp_path / "results.json").read_bytes() == expected


def test_a_driver_that_is_killed_changes_nothing(tmp_path, cluster, expected):
    script = """
    import sys
    from tests.run.test_ray_engine import OPTIONS, evaluate, methods, samples, tiny_model
    evaluate(tiny_model(), samples(), methods(gate=sys.argv[2]), out=sys.argv[1], engine="ray", **OPTIONS)
    """
    gate = tmp_path / "gate"
    driver = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script), tmp_path / "run", gate], cwd=ROOT)
    try:
        wait_for(lambda: any((tmp_path / "run" / "maps" / "bright").glob("*.safetensors")))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert not (tmp_path / "run" / "results.json").exists()
    gate.touch()
    evaluate(tiny_model(), samples(), methods(gate=str(gate)), out=tmp_path / "run", engine="ray", **OPTIONS)
    assert (tmp_path / "run" / "results.json").read_bytes() == expected


def wait_for(condition, seconds=900):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_poisoned_sample_is_reported(tmp_path, cluster, expected):
    """The rest is done, and what is missing is made when the sample is mended."""
    poison = tmp_path / "poison"
    poison.touch()
    asked = {"methods": methods(poison=str(poison)), "out": tmp_path / "run", **OPTIONS}
    reason = r"shard 2 \(samples '00008', '00009', '00010', '00011'\) failed 3 times: .*: sample 00009 is poisoned\."
    with (
        pytest.warns(UserWarning, match=f"bright: {reason}"),
        pytest.raises(RunError, match=rf"is incomplete\. bright: {reason} What is done is kept"),
    ):
        evaluate(tiny_model(), samples(), engine="ray", strict=True, **asked)
    assert open_evaluation(tmp_path / "run").methods == ["saliency"]
    there = sorted(path.stem for path in (tmp_path / "run" / "maps" / "bright").iterdir())
    assert there == ["00000", "00001", "00003", "00004", "00005"]
    poison.unlink()
    evaluate(tiny_model(), samples(), **asked)
    assert (tmp_path / "run" / "results.json").read_bytes() == expected


def test_a_damaged_file_is_made_again(tmp_path, cluster, expected):
    out = tmp_path / "run"
    evaluate(tiny_model(), samples(), methods(), out=out, engine="ray", **OPTIONS)
    name = next(iter(methods()))
    damaged = out / "maps" / name / "00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    for sweep in (out / "probes" / name).iterdir():
        (sweep / "00001.parquet").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match=r"00001\.safetensors' is damaged .* and is made anew"):
        evaluate(tiny_model(), samples(), methods(), out=out, engine="ray", **OPTIONS)
    assert (out / "results.json").read_bytes() == expected


def test_a_model_by_its_spec_and_a_bucket_from_the_command_line(tmp_path, cluster, capsys):
    """Relative paths mean the same on every node; results are put into the bucket, and read from there."""
    model, data = model_file(tmp_path), image_folder(tmp_path / "images")
    asked = ["evaluate", "--model", model, "--data", data, "--methods", "saliency,random", "--metrics", "deletion"]
    asked += ["--batch-size", "16", "--memory-format", "contiguous", "--threads", "1", "--resamples", "50"]
    assert main([*asked, "--out", str(tmp_path / "local")]) == 0
    assert main([*asked, "--engine", "ray", "--cpus-per-unit", "0.5", "--out", "s3://bucket/runs/one"]) == 0
    shown = capsys.readouterr().out
    assert "Page: s3://bucket/runs/one/report.html" in shown
    stored = open_evaluation("s3://bucket/runs/one").path
    for name in ("results.json", "selected.safetensors", "maps/random/00000.safetensors"):
        assert (stored / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert (stored / "report.html").exists()
    assert main(["compare", "s3://bucket/runs/one", str(tmp_path / "local"), "--json"]) == 0


class Errands:
    """A job of another kind: its units write down that they were done, or fail in their own ways."""

    def __init__(self, folder):
        self.folder = folder
        self.seconds = {}

    def describe(self, unit):
        return f"errand {unit.shard}"

    def worker(self, progress):
        return self

    def do(self, unit):
        with (self.folder / f"{unit.shard}-{unit.method}").open("a") as file:
            file.write("x")
        if unit in (Unit(1), Unit(0, "bad"), Unit(2, "bad"), Unit(3, "bad"), Unit(4, "bad"), Unit(5, "bad")):
            raise RuntimeError("no way")
        if unit == Unit(2, "deadly"):
            os._exit(1)
        if unit == Unit(3, "late") and (self.folder / "3-late").stat().st_size < 3:
            raise FileNotFoundError("not visible yet")

    def tries(self, unit):
        path = self.folder / f"{unit.shard}-{unit.method}"
        return path.stat().st_size if path.exists() else 0


def test_any_job_and_every_kind_of_failure(tmp_path, cluster):
    job = Errands(tmp_path)
    names = ["good", "bad", "deadly", "late"]
    units = [*(Unit(k) for k in range(6)), *(Unit(k, name) for name in names for k in range(6))]
    with pytest.warns(UserWarning, match="errand|left out|died") as caught:
        failures, _ = run_ray(job, units, Quiet(), Cluster())
    said = [str(warning.message) for warning in caught]
    assert {name: str(error) for name, error in failures.items()} == {
        "original inputs": "errand 1 failed 3 times: no way",
        "bad": f"{failures['bad']}",
        "deadly": "errand 2 failed 3 times: the process that did it died, perhaps for want of memory",
    }
    assert "bad fails and is left out: no way" in said
    assert "A worker or its node died, and its units run elsewhere." in said
    assert str(failures["bad"]).endswith("failed 3 times: no way 2 more units failed.")
    # What relies on a unit that failed is not tried, what passes by itself is; the rest is done.
    assert [job.tries(Unit(1, name)) for name in names] == [0, 0, 0, 0]
    assert job.tries(Unit(1)) >= 3
    assert job.tries(Unit(2, "deadly")) == 3
    assert all(job.tries(Unit(k, name)) >= 1 for k in (0, 2, 3, 4, 5) for name in ("good", "deadly", "late"))


def test_what_cannot_be_sent(tmp_path, cluster):
    lock = threading.Lock()

    def locked(model, inputs, targets, *, ids=None, seed=0):
        with lock:
            return inputs.abs().sum(dim=1)

    with pytest.raises(TypeError, match=r"cannot be sent: .*lock.* Give the model by its spec"):
        evaluate(tiny_model(), samples(), {"locked": locked}, out=tmp_path / "run", engine="ray", **OPTIONS)


def test_without_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    data = image_folder(tmp_path / "images")
    asked = ["evaluate", "--model", model_file(tmp_path), "--data", data, "--out", str(tmp_path / "run")]
    assert main([*asked, "--engine", "ray"]) == 2
    said = 'twinlens: error: The engine "ray" needs Ray: pip install ".[ray]" in a clone of twinlens\n'
    assert capsys.readouterr().err == said
    monkeypatch.setitem(sys.modules, "upath", None)
    assert main([*asked[:-1], "s3://bucket/run"]) == 2
    assert capsys.readouterr().err == (
        "twinlens: error: 's3://bucket/run' needs universal_pathlib: pip install \".[ray]\" in a clone of twinlens\n"
    )


def test_an_address_at_which_nobody_answers(tmp_path):
    with pytest.raises(ConnectionError, match=r"nothing answers at '127\.0\.0\.1:9'"):
        evaluate(tiny_model(), samples(), out=tmp_path / "run", engine="ray", address="127.0.0.1:9", **OPTIONS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": "local", "address": "auto"}, "`address` belongs to engine 'ray', and `engine` is 'local'"),
        ({"engine": "local", "gpus_per_unit": 1}, "`gpus_per_unit` belongs to engine 'ray'"),
        ({"cpus_per_unit": 0}, "`cpus_per_unit` must be greater than 0; got 0"),
        ({"gpus_per_unit": 1.5}, "`gpus_per_unit` must be a share of one GPU or a whole number of them; got 1.5"),
        ({"device": "cuda"}, "`device` must be 'cpu' with 0 GPUs per unit; got 'cuda'"),
        ({"device": "cpu", "gpus_per_unit": 0.25}, "`device` must be 'cuda' with 0.25 GPUs per unit; got 'cpu'"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        evaluate(tiny_model(), samples(), out=tmp_path / "run", **{"engine": "ray", **OPTIONS, **change})
    assert not (tmp_path / "run").exists()
