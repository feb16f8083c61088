"""How often the file system is asked whether parts of a run are there: in an object store each answer takes time."""

from collections import Counter
from pathlib import PurePosixPath

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.run.table_reader import TableReader

METRICS = ["soundness_rank", "completeness", "deletion", "insertion"]


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(9, 3, 8, 8)).astype(np.float32), np.arange(9) % 3
    options = {"metrics": METRICS, "levels": (0.9, 0.5, 0.1), "control": "all", "resamples": 20, "shard_size": 2}
    out = "memory://table-reader/run"
    tl.evaluate(tiny_model(), data, ["random", "centre"], out=out, batch_size=16, memory_format="contiguous", **options)
    return tl.open_evaluation(out)


@pytest.fixture
def requests(monkeypatch):
    """Counts what the file system is asked, by the question and the path."""
    asked = Counter()
    for name in ("exists", "ls"):
        answer = getattr(MemoryFileSystem, name)

        def count(self, path, *args, name=name, answer=answer, **how):
            asked[name, PurePosixPath(self._strip_protocol(path))] += 1
            return answer(self, path, *args, **how)

        monkeypatch.setattr(MemoryFileSystem, name, count)
    return asked


def test_each_folder_is_listed_once_however_many_parts_it_has(evaluation, requests):
    answered = evaluation.ask(evaluation.metric_values)
    assert answered.incomplete == {}
    assert [path for name, path in requests if name == "exists" and path.suffix in (".parquet", ".safetensors")] == []
    listed = {path: count for (name, path), count in requests.items() if name == "ls"}
    sweeps = len(evaluation.run.manifest.sweeps)
    assert sweeps > 5
    assert len(listed) == 2 * (1 + sweeps)  # of each method the maps and every sweep
    assert set(listed.values()) == {1}


def test_parts_that_come_later_are_seen(evaluation):
    reader = TableReader(evaluation.run)
    part = evaluation.run.probes_shard("random", evaluation.run.manifest.sweeps[0].name, 1)
    content = part.read_bytes()
    metrics = evaluation.metric_values
    part.unlink()
    try:
        assert list(reader.incomplete(metrics)) == ["random"]
    finally:
        part.write_bytes(content)
    assert reader.incomplete(metrics) == {}


def test_folders_that_are_not_there(evaluation):
    reader = TableReader(evaluation.run)
    assert reader.complete("random")
    assert not reader.complete("unknown")
