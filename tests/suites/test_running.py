"""Running a suite: equal bytes the second time, resumed runs, refused methods, and changes that are noticed."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.suites.suites import run_tiny, suite_file
from twinlens.errors import DataError, RunError
from twinlens.suites.definition import find_suite, requested_methods
from twinlens.suites.running import deviations, open_suite_run, read_record, run_suite
from twinlens.support.progress import Quiet


def measured(out):
    """What two runs must agree on, byte for byte."""
    return {name: (out / name).read_bytes() for name in ("suite.json", "images/results.json", "images/run.json")}


def test_a_second_run_writes_the_same_bytes(tiny, tmp_path):
    path, first = tiny
    run_tiny(path, tmp_path / "again")
    assert measured(tmp_path / "again") == measured(first)
    before = measured(tmp_path / "again")
    run_tiny(path, tmp_path / "again")
    assert measured(tmp_path / "again") == before


def test_calls_are_counted(tiny):
    record = read_record(tiny[1])
    assert record.tasks["images"].calls == {"random": 0.0, "saliency": 1.0}


def test_calls_of_other_methods(tmp_path):
    path = suite_file(tmp_path)
    run = run_tiny(path, tmp_path / "run", ["integrated_gradients", "rise"])
    calls = run.record.tasks["images"].calls
    assert calls["integrated_gradients"] == 32
    assert calls["rise"] == 4001
    more = run_tiny(path, tmp_path / "run", ["random", "rise"]).record.tasks["images"]
    assert more.calls == {**calls, "random": 0.0}


def test_calls_of_ensembles_of_the_same_noisy_copies(tmp_path):
    names = ["ig_sg", "ig_sq", "integrated_gradients"]
    calls = run_tiny(suite_file(tmp_path), tmp_path / "run", names).record.tasks["images"].calls
    assert calls == {"ig_sg": 640, "ig_sq": 640, "integrated_gradients": 32}


def test_an_interrupted_run_counts_the_same_calls(tmp_path):
    path, out = suite_file(tmp_path, "batch_size = 16", "batch_size = 16, shard_size = 4"), tmp_path / "run"

    class Stopping(Quiet):
        def advance(self, task, rows, stage=""):
            if task == "saliency" and stage == "maps" and (out / "images" / "maps" / "saliency").exists():
                raise KeyboardInterrupt

    suite = find_suite(path)
    with pytest.raises(KeyboardInterrupt):
        run_suite(suite, suite.tasks, requested_methods(suite, None), str(out), Stopping())
    assert run_tiny(path, out).record == run_tiny(path, tmp_path / "whole").record


def test_refused_methods_are_recorded_with_the_reason(tiny, tmp_path):
    shutil.copytree(tiny[1], tmp_path / "run")
    with pytest.warns(UserWarning, match="attention_rollout fails and is left out"):
        run = run_tiny(tiny[0], tmp_path / "run", ["attention_rollout", "random"])
    reason = run.record.tasks["images"].refused["attention_rollout"]
    assert "must have attention between all patches" in reason
    assert set(run.evaluations["images"].methods) == {"saliency", "random"}
    assert read_record(tmp_path / "run") == run.record


@pytest.fixture
def copied(tiny, tmp_path):
    shutil.copytree(tiny[1], tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_resumed_only_by_the_same_suite(tiny, copied, tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(Path(tiny[0]).read_text().replace("resamples = 100", "resamples = 200"))
    with pytest.raises(RunError, match=r"holds another suite: options.resamples is 100 there and 200 here"):
        run_tiny(str(path), copied)


def test_another_model_or_seed_in_the_run_is_noticed_and_named(copied):
    stored = json.loads((copied / "suite.json").read_text())
    for field, value, named in (
        ("data_digest", "0" * 64, "tasks.images.data_digest is '0000"),
        ("model_digest", "1" * 32, "tasks.images.model_digest is '1111"),
        ("seed", 7, "tasks.images.seed is 7 in suite.json and 0 in the run"),
        ("confidence", 0.5, "tasks.images.confidence is 0.5 in suite.json"),
    ):
        changed = json.loads(json.dumps(stored))
        changed["tasks"]["images"][field] = value
        (copied / "suite.json").write_text(json.dumps(changed))
        with pytest.raises(RunError, match=named):
            open_suite_run(str(copied))


def test_a_setting_that_was_changed_in_the_run_is_named(tiny, copied):
    import twinlens as tl

    suite = find_suite(tiny[0])
    task = suite.tasks["images"]
    options = {**suite.options, "resamples": 150, "precision": "float32"}
    tl.evaluate(task.model, task.data, ["random"], metrics=list(suite.metrics), out=copied / "images", **options)
    with pytest.raises(RunError, match=r"tasks.images.settings.resamples is 100 in suite.json and 150 in the run"):
        open_suite_run(str(copied))


def test_what_is_no_suite_run_is_refused(tmp_path, copied):
    with pytest.raises(RunError, match=r"holds no run of a suite: suite.json is missing"):
        open_suite_run(str(tmp_path))
    (copied / "suite.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        open_suite_run(str(copied))
    (copied / "suite.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="its format is not 1"):
        open_suite_run(str(copied))


def test_an_unfinished_run_is_refused(copied):
    stored = json.loads((copied / "suite.json").read_text())
    stored["tasks"] = {}
    (copied / "suite.json").write_text(json.dumps(stored))
    with pytest.raises(RunError, match=r"is unfinished: images has no results. Run the suite again to resume it"):
        open_suite_run(str(copied))


def test_samples_by_their_ids_and_from_the_beginning(tmp_path):
    path = suite_file(tmp_path, 'kind = "images"', 'kind = "images"\nids = ["bee/1.png", "ant/0.png"]')
    assert run_tiny(path, tmp_path / "ids").evaluations["images"].ids() == ("bee/1.png", "ant/0.png")
    path = suite_file(tmp_path, 'kind = "images"', 'kind = "images"\nfirst = 3')
    assert run_tiny(path, tmp_path / "first").evaluations["images"].ids() == ("ant/0.png", "ant/1.png", "ant/2.png")
    path = suite_file(tmp_path, 'kind = "images"', 'kind = "images"\nids = ["bee/1.png", "none.png"]')
    with pytest.raises(DataError, match=r"tiny@1 needs sample 'none.png', which folder:images lacks. Check --data"):
        run_tiny(path, tmp_path / "none")
    path = suite_file(tmp_path, 'kind = "images"', 'kind = "images"\nfirst = 300')
    with pytest.raises(DataError, match=r"needs the first 300 samples; folder:images has 12"):
        run_tiny(path, tmp_path / "many")


METHOD = '''
def ones_first(model, inputs, targets):
    """Put all attribution on the first row of an image."""
    maps = inputs.new_zeros(len(inputs), *inputs.shape[2:])
    maps[:, 0] = 1.0
    return maps
'''


def test_a_method_of_another_package_enters_by_its_name(tmp_path, monkeypatch):
    from twinlens.suites.leaderboard import board_tasks
    from twinlens.suites.submission import make_submission, problems

    records = tmp_path / "site" / "theirs-1.0.dist-info"
    records.mkdir(parents=True)
    (tmp_path / "site" / "theirs.py").write_text(METHOD)
    (records / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (records / "entry_points.txt").write_text("[twinlens.methods]\nones_first = theirs:ones_first\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    run = run_tiny(suite_file(tmp_path), tmp_path / "run", ["ones_first", "random"])
    sys.modules.pop("theirs", None)
    submission = make_submission(run)
    assert problems(submission) == []
    entry = submission.tasks["images"].methods["ones_first"]
    assert entry.method is None
    assert len(entry.source) == 32
    [task] = board_tasks([submission])
    assert "ones_first" in [row.method for row in task.table.rows]


def test_the_laboratory_has_the_truth_beside_what_was_measured(tmp_path):
    suite = find_suite("laboratory@1")
    only = {"sparse-linear": suite.tasks["sparse-linear"]}
    short = dataclasses.replace(suite, tasks=only)
    run = run_suite(short, only, {"input_x_gradient": "input_x_gradient", "random": "random"}, str(tmp_path), Quiet())
    truth, table = run.record.tasks["sparse-linear"].truth, run.evaluations["sparse-linear"].summary()
    values = table.set_index(["method", "metric"])["value"]
    assert set(truth["random"]) == {"soundness_rank", "completeness_share"}
    assert truth["input_x_gradient"]["soundness_rank"] > 0.8
    for method, own in truth.items():
        assert abs(values[method, "soundness_rank"] - own["soundness_rank"]) < 0.15
    assert np.isclose(truth["random"]["soundness_rank"], 0.5, atol=0.03)


@pytest.mark.parametrize(("name", "task"), [("tables@1", "wine-forest"), ("text@1", "sentences")])
def test_built_in_suites_find_what_they_expect(tmp_path, name, task):
    suite = find_suite(name)
    only = {task: dataclasses.replace(suite.tasks[task], limit=None)}
    run = run_suite(suite, only, {"random": "random"}, str(tmp_path / "run"), Quiet())
    record = run.record.tasks[task]
    assert suite.tasks[task].expected.samples == record.data_digest
    assert deviations(suite, task, record.data_digest, record.confidence) == []
    assert deviations(suite, task, "0" * 64, record.confidence + 0.01) == [
        f"{task}: the samples are not those of {name}: their digest is 000000000000…",
        f"{task}: the model is not that of {name}: its mean probability of the labels is {record.confidence + 0.01}, "
        f"and not {suite.tasks[task].expected.confidence}",
    ]
