import os
from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.small_runs import CHECKED, COMPARED, OPTIONS, QUICK, CountingModel, samples, script
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.data.images import read_image
from twinlens.data.samples import cached
from twinlens.evaluation import evaluate
from twinlens.metrics.catalogue import GROUPS, METRICS
from twinlens.outcome import open_evaluation
from twinlens.probing.exchange import draw_controlled


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_control_is_that_of_the_library(tmp_path, share):
    """Exchanged maps of other shards, probed in shards, give what the plain functions do on the whole data."""
    model, (inputs, labels) = tiny_model(), samples()
    evaluation = evaluate(
        model, (inputs, labels), ["saliency"], control="all", control_share=share, out=tmp_path / "run", seed=3,
        **QUICK,
    )  # fmt: skip
    ids = evaluation.ids()
    exchanged = tl.probing.exchange_maps(evaluation.maps("saliency"), labels, ids=ids, seed=3)
    chosen = draw_controlled(ids, labels, share, seed=3)
    for name in GROUPS["default"]:
        metric = METRICS[name].bound(tl.ConstantImputer(0.1), neighbours=True)
        curves = [
            tl.metrics.measure_metric(
                metric,
                model,
                torch.from_numpy(inputs)[chosen],
                labels[chosen],
                maps[chosen],
                ids=[ids[k] for k in chosen],
                seed=3,
                batch_size=16,
            )
            for maps in (evaluation.maps("saliency"), exchanged)
        ]
        found = evaluation.results.skill("saliency", name)
        high = evaluation.results.soundness_up_to.get(name)
        groups = tl.probing.exchange_groups(ids, labels, seed=3)
        expected = tl.skill(*curves, high=high, resamples=100, groups=groups)
        assert found.value == pytest.approx(expected.value, abs=1e-6, nan_ok=True)
        if name == "soundness":  # judged by accuracy, for all samples at once
            assert (found.low, found.high, found.p) == (None, None, None)
        else:
            ends = (expected.low, expected.high, expected.p)
            assert (found.low, found.high, found.p) == pytest.approx(ends, abs=1e-5)
        assert found.samples == len(chosen) == round(10 * share)
        sign = 1 if curves[0].higher_is_better else -1
        control = evaluation.results.methods["saliency"].metrics[name].control
        assert evaluation.results.area("saliency", name) - sign * found.value == pytest.approx(control.value)


@pytest.mark.slow
def test_shards_change_nothing_about_the_control(tmp_path):
    runs = [
        evaluate(
            tiny_model(), samples(), ["saliency", "random"], out=tmp_path / str(size), **{**QUICK, "shard_size": size}
        )
        for size in (1, 3, 10)
    ]
    for method in ("saliency", "random"):
        for metric in ("soundness_rank", "completeness", "road_gain"):
            skills = [run.results.skill(method, metric).value for run in runs]
            assert skills == pytest.approx([skills[0]] * 3, abs=1e-6)


def test_what_the_control_costs(tmp_path):
    """Calls of the model per sample and method, with exchanged maps for half of the samples, and without.

    Odd numbers of features need a level of ROAD, at one half, beside those of the pair.
    """
    data = samples()
    for metrics, with_control, without in (("default", 75, 50), ("headline", 60, 40), ("paper", 113, 109)):
        for control, most in (("shuffled", with_control), ("none", without)):
            model = CountingModel()
            out = tmp_path / f"{metrics} {control}"
            evaluate(model, data, ["random"], metrics=metrics, control=control, control_share=0.5, out=out, **QUICK)
            assert most - 3 < (model.inputs - CHECKED) / len(data[1]) <= most


def test_the_control_can_be_added_widened_and_left_out(tmp_path):
    model, data, out = CountingModel(), samples(), tmp_path / "run"
    asked = {"metrics": ["deletion"], "out": out, **QUICK}
    without = evaluate(model, data, ["random"], control="none", **asked)
    assert without.results.skill("random", "deletion") is None
    before = model.inputs
    half = evaluate(model, data, ["random"], control_share=0.5, **asked)
    assert model.inputs - before == CHECKED + COMPARED + 5 * 9
    assert half.results.skill("random", "deletion").samples == 5
    assert half.results.area("random", "deletion") == without.results.area("random", "deletion")
    whole = evaluate(model, data, ["random"], **asked)  # a small run takes all samples
    assert whole.results.skill("random", "deletion").samples == 10
    again = half.ask(tl.Deletion(performance="probability"))
    assert again.results.skill("random", "deletion").samples == 5
    asked_before = model.inputs
    assert evaluate(model, data, ["random"], control="none", **asked).results.skill("random", "deletion") is None
    assert model.inputs == asked_before + CHECKED + COMPARED


def test_one_sample_has_nothing_to_be_exchanged_with(tmp_path):
    inputs, labels = samples(1)
    found = evaluate(tiny_model(), (inputs, labels), ["random"], metrics=["deletion"], out=tmp_path / "run", **OPTIONS)
    assert found.results.skill("random", "deletion") is None


def test_probes_are_shared_and_nothing_is_asked_again(tmp_path):
    model, data, out = CountingModel(), samples(), tmp_path / "run"
    how = {**QUICK, "control": "none"}
    evaluate(model, data, ["random"], metrics=["soundness"], out=out, **how)
    before = model.inputs
    evaluate(model, data, ["random"], metrics=["soundness", "road_lerf"], out=out, **how)
    # ROAD's levels are those of soundness, and its first level is the untouched input.
    assert model.inputs == before + CHECKED + COMPARED
    first = (out / "results.json").read_bytes()
    evaluate(model, data, ["random"], metrics=["soundness", "road_lerf"], out=out, **how)
    assert model.inputs == before + 2 * (CHECKED + COMPARED)
    assert (out / "results.json").read_bytes() == first
    before = model.inputs
    added = evaluate(model, data, ["random", "centre"], metrics=["deletion"], out=out, **how)
    assert added.methods == ["random", "centre"]
    assert added.metrics == ["soundness", "road_lerf", "deletion"]
    assert model.inputs - before == CHECKED + COMPARED + 10 * 9 + 10 * (98 + 9)
    before = model.inputs
    evaluate(model, data, ["random", "centre"], metrics=["deletion"], out=out, **QUICK)
    assert model.inputs - before == CHECKED + COMPARED + 2 * 10 * (9 + 9)  # ROAD and deletion


@pytest.mark.slow
def test_batch_size_and_workers_change_nothing_that_counts(tmp_path):
    runs = [
        evaluate(tiny_model(), samples(), ["integrated_gradients"], out=tmp_path / str(i), **{**OPTIONS, **change})
        for i, change in enumerate(({"batch_size": 1}, {"batch_size": 33, "workers": 3}, {"shard_size": 10}))
    ]
    for metric in GROUPS["default"]:
        tables = [run.curve("integrated_gradients", metric).table for run in runs]
        for table in tables[1:]:
            np.testing.assert_array_equal(table.predicted, tables[0].predicted)
            np.testing.assert_allclose(table.probability, tables[0].probability, atol=1e-4)


def test_iba_does_not_depend_on_shards(tmp_path):
    asked = {"methods": {"iba": {"method": "iba", "steps": 2, "noise": 2, "layer": "1"}}, "metrics": ["road_morf"]}
    maps = [
        evaluate(tiny_model(), samples(), out=tmp_path / str(size), **asked, **{**OPTIONS, "shard_size": size}).maps(
            "iba"
        )
        for size in (3, 10)
    ]
    torch.testing.assert_close(maps[0], maps[1], rtol=1e-3, atol=1e-5)


def test_ensembles_of_the_same_noisy_copies_cost_one(tmp_path):
    """They are explained once, and their maps are those of each alone, also where some are there already."""
    noise = {"samples": 3, "variance": 0.2}
    methods = {
        **{name: {"method": name, "steps": 4, **noise} for name in ("ig_sg", "ig_sq", "ig_var")},
        "other": {"method": "ig_sg", "steps": 5, **noise},
        **{f"shap_{kind}": {"method": "deepshap", "ensemble": kind, **noise} for kind in ("sg", "var")},
    }
    model, data = CountingModel(), samples()
    together = evaluate(model, data, methods, metrics=[], out=tmp_path / "together", **QUICK)
    copies, baselines = 10 * 3, 3 * 3  # of DeepSHAP, once for the samples of each part
    # The checks before the work, the untouched inputs, and what is explained.
    assert model.inputs == CHECKED + 10 + copies * (4 + 5 + 1) + baselines
    for name, method in methods.items():
        alone = evaluate(model, data, {name: method}, metrics=[], **QUICK)
        assert torch.equal(together.maps(name), alone.maps(name))
    assert methods.keys() < together.seconds().keys()
    (tmp_path / "together" / "maps" / "ig_var" / "00001.safetensors").unlink()
    model.inputs = 0
    evaluate(model, data, methods, metrics=[], out=tmp_path / "together", **QUICK)
    assert model.inputs == CHECKED + COMPARED + 4 * 3 * 4
    assert torch.equal(open_evaluation(tmp_path / "together").maps("ig_var"), together.maps("ig_var"))


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch):
    asked = {"methods": ["random", "centre"], "metrics": ["deletion", "road_morf"], **OPTIONS}
    evaluate(tiny_model(), samples(), out=tmp_path / "whole", **asked)
    left, sync = [6], os.fsync

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        evaluate(tiny_model(), samples(), out=tmp_path / "run", **asked)
    parts = {path for path in (tmp_path / "run").rglob("*") if path.suffix in (".parquet", ".safetensors")}
    assert parts
    assert not list((tmp_path / "run").rglob("*.unfinished"))
    monkeypatch.undo()
    times = {path: path.stat().st_mtime_ns for path in parts}
    evaluate(tiny_model(), samples(), out=tmp_path / "run", **asked)
    assert {path: path.stat().st_mtime_ns for path in parts} == times
    same = [(tmp_path / name / "results.json").read_bytes() for name in ("whole", "run")]
    assert same[0] == same[1]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path):
    """All inputs of the larger run alone would take 98 MB."""
    printed = script(
        """
        import resource, sys
        import numpy as np
        from tests.tiny import tiny_model
        import twinlens as tl
        from twinlens.data.samples import Samples
        from twinlens.evaluation import evaluate

        def read(position):
            return np.random.default_rng(position).normal(size=(3, 64, 64)).astype(np.float32)

        def peak(n):
            samples = Samples(
                name="made up", ids=tuple(map(str, range(n))), labels=np.arange(n) % 3, classes=None,
                positions=np.arange(n), reader=read, fingerprint=lambda i: str(i).encode(),
            )
            evaluate(
                tiny_model(), samples, ["centre"], metrics=[tl.Deletion(levels=(0.5,))],
                imputer=tl.ConstantImputer(0.0),
                control="none", out=f"{sys.argv[1]}/{n}", batch_size=16, memory_format="contiguous", shard_size=50,
            )
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        print(peak(200), peak(2000))
        """,
        tmp_path,
    )
    small, large = map(int, printed.split())
    assert large < 1.1 * small


@pytest.mark.parametrize(
    ("budget", "control", "times"), [(2**30, "all", 1), (2**30, "none", 1), (0, "none", 2), (0, "all", 3)]
)
def test_how_often_an_image_is_decoded(tmp_path, monkeypatch, budget, control, times):
    """Once; beyond the memory for decoded images by the check, for the methods, and for the control."""
    decoded = Counter()

    def read(path, name):
        decoded[name] += 1
        return read_image(path, name)

    monkeypatch.setattr("twinlens.data.samples.read_image", read)
    monkeypatch.setattr("twinlens.run.setup.cached", partial(cached, budget=budget))
    if budget == 0:  # a few samples are read again for the report
        monkeypatch.setattr("twinlens.evaluation.write_selection", lambda *_: None)
    evaluate(
        model_file(tmp_path), image_folder(tmp_path / "images"), ["saliency", "random", "centre"],
        metrics=["soundness_rank", "deletion"], control=control, out=tmp_path / "run", **QUICK,
    )  # fmt: skip
    assert len(decoded) == 12
    assert sorted(decoded.values())[-5] == times  # four images are also those of the first calls


@pytest.mark.parametrize("size", [12, 200])
def test_the_control_runs_while_its_shard_is_loaded(tmp_path, monkeypatch, size):
    """Units come shard by shard, and each unit of the control after the maps that it reads."""
    orders = []
    monkeypatch.setattr(
        "twinlens.run.distribution.run_in_order", lambda work, units, *_: orders.append((work, list(units))) or {}
    )
    with pytest.raises(FileNotFoundError):  # nothing was made
        evaluate(tiny_model(), samples(size), ["random"], metrics=["deletion"], out=tmp_path / "run", **QUICK)
    [(work, units)] = orders
    made, first = set(), [unit.shard for unit in units if unit.stage == 0 and unit.method]
    assert first == sorted(first)
    for unit in units:
        if unit.stage == 0 and unit.method:
            made.add(work.run.maps_shard(unit.method, unit.shard))
        elif unit.method:
            assert work.maps_read(unit) <= made
    assert Counter(unit.stage for unit in units if unit.method) == {
        0: work.run.manifest.shards,
        1: work.run.manifest.shards,
    }
