"""Runs on large inputs say at their start what to expect, and rank each map once."""

import warnings

import numpy as np
import pytest
import torch

from tests.small_runs import QUICK, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.probing import probe, ranking
from twinlens.run import execution_choice, expectation
from twinlens.support.progress import Bars


def made(tmp_path, **change):
    return evaluate(
        tiny_model(), samples(), ["random"], metrics=["deletion", "insertion"], out=tmp_path / "run", **QUICK | change
    )


def test_a_long_run_on_large_inputs_is_announced(tmp_path, monkeypatch):
    monkeypatch.setattr(expectation, "_LARGE", 100)
    monkeypatch.setattr(expectation, "_LONG", 0.0)
    with pytest.warns(UserWarning, match=r"^\d+ model calls on inputs of 3 × 9 × 9 take about \d+ minutes here, \d"):
        made(tmp_path)
    with warnings.catch_warnings():  # nothing is left to do
        warnings.simplefilter("error")
        made(tmp_path)


def test_other_runs_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(expectation, "_LONG", 0.0)
    assert made(tmp_path / "small").methods == ["random"]  # without a warning, which would be an error here
    monkeypatch.setattr(expectation, "_LARGE", 100)
    monkeypatch.setattr(expectation, "_LONG", 1e9)
    assert made(tmp_path / "short").methods == ["random"]


def test_large_maps_are_ranked_one_by_one_and_once(monkeypatch, tmp_path):
    ranked = []

    def rank_features(maps, **options):
        ranked.append(len(maps))
        return ranking.rank_features(maps, **options)

    plain = made(tmp_path / "plain").summary()
    monkeypatch.setattr(probe, "rank_features", rank_features)
    monkeypatch.setattr(probe, "_CHUNK_FEATURES", 100)
    again = made(tmp_path / "large").summary()
    assert again.equals(plain)
    assert max(ranked) == 1
    assert len(ranked) == 20  # own maps, and those of the control


def test_shards_of_large_images_are_small():
    sizes = {side: execution_choice.choose_shard_size(100, 3 * side * side) for side in (224, 512, 1024, 2048, 4096)}
    assert sizes == {224: 16, 512: 8, 1024: 8, 2048: 2, 4096: 1}
    assert probe._KEPT_RANKS >= 2 * 4096**2


def test_slow_progress_has_a_rate(monkeypatch):
    class Bar:
        speed = 0.25

    bars = Bars()
    monkeypatch.setattr(type(bars._bars), "tasks", [Bar()])
    monkeypatch.setattr(type(bars._bars), "task_ids", [0])
    assert bars._rate(0) == "4.0 s each"
    Bar.speed = 1234.0
    assert bars._rate(0) == "1,234/s"


def test_batches_of_one_sample_leave_inputs_unchanged():
    inputs, labels = samples()
    tensor = torch.from_numpy(inputs)
    before = tensor.clone()
    maps = np.random.default_rng(0).random((len(inputs), 9, 9))
    schedule = ranking.Schedule(by="area", order="morf", levels=(0.2, 0.5))
    one, many = (
        probe.probe(tiny_model(), tensor, labels, maps, schedule=schedule, batch_size=size) for size in (1, 16)
    )
    assert torch.equal(tensor, before)
    np.testing.assert_allclose(one.logit, many.logit, rtol=1e-5)
