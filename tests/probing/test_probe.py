import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import twinlens as tl
from twinlens.probing.probe import _CHUNK
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.progress import Quiet

SCHEDULE = tl.probing.Schedule(by="area", order="lerf", levels=(0.9, 0.7, 0.5, 0.2, 0.0))


class TinyNet(nn.Module):
    """A convolutional classifier in float64, so that batches of any size give the same sums."""

    def __init__(self, channels=2, classes=4):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.kernel = nn.Parameter(torch.randn(6, channels, 3, 3, generator=generator, dtype=torch.float64))
        self.head = nn.Parameter(torch.randn(6, classes, generator=generator, dtype=torch.float64))
        self.dropout = nn.Dropout(0.5)
        self.batches = []

    def forward(self, x):
        self.batches.append(len(x))
        hidden = torch.relu(nn.functional.conv2d(x, self.kernel)).mean(dim=(2, 3))
        return self.dropout(hidden) @ self.head


def images(n=20, seed=0, size=8, channels=2):
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.normal(size=(n, channels, size, size)))
    maps = torch.from_numpy(rng.integers(0, 5, size=(n, size, size)))  # ties in plenty
    return inputs, torch.from_numpy(rng.integers(0, 4, size=n)), maps


def close(one, other):
    return (
        one.ids == other.ids
        and np.array_equal(one.removed, other.removed)
        and np.array_equal(one.kept_mass, other.kept_mass)
        and np.allclose(one.logit, other.logit, atol=1e-10)
        and np.array_equal(one.predicted, other.predicted)
    )


@settings(max_examples=15)
@given(st.integers(1, 60), st.integers(1, 19), st.randoms(use_true_random=False))
def test_batch_size_shards_and_order_change_nothing(batch_size, cut, random):
    inputs, labels, maps = images()
    ids = [f"image-{i}" for i in range(20)]
    whole = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, ids=ids)
    order = list(range(20))
    random.shuffle(order)
    parts = [
        tl.probe(TinyNet(), inputs[p], labels[p], maps[p], schedule=SCHEDULE, ids=[ids[i] for i in p],
                 batch_size=batch_size)
        for p in (order[:cut], order[cut:])
    ]  # fmt: skip
    joined = ProbeTable.concatenate(parts)
    assert close(joined, whole.take(order))


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    inputs, labels, maps = images()
    files = []
    for run, seed in enumerate((0, 0, 1)):
        table = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, seed=seed)
        table.save(tmp_path / f"{run}.parquet")
        files.append((tmp_path / f"{run}.parquet").read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_noise_comes_from_seed_sample_and_level():
    inputs, labels, maps = images(3)
    seen = {}

    def model(x):
        seen.setdefault("rows", []).append(x.clone())
        return torch.stack([x.mean(dim=(1, 2, 3)), x.amax(dim=(1, 2, 3))], dim=1)

    labels = labels % 2
    tl.probe(model, inputs, labels, maps, schedule=SCHEDULE, batch_size=4)
    rows = torch.cat(seen.pop("rows")).reshape(3, 5, *inputs.shape[1:])
    one_level = dataclasses.replace(SCHEDULE, levels=(0.5,))
    tl.probe(model, inputs[1:2], labels[1:2], maps[1:2], schedule=one_level, ids=["1"])
    assert torch.equal(seen.pop("rows")[0][0], rows[1, 2])
    tl.probe(model, inputs[1:2], labels[1:2], maps[1:2], schedule=one_level, ids=["1"], seed=1)
    assert not torch.equal(seen["rows"][0][0], rows[1, 2])


def test_rows_hold_what_the_model_said():
    inputs, labels, maps = images()
    model = TinyNet().eval()
    table = tl.probe(model, inputs, labels, maps, schedule=dataclasses.replace(SCHEDULE, levels=(0.0,)))
    with torch.no_grad():
        logits = model(inputs)
    target = logits[torch.arange(20), labels]
    assert np.allclose(table.logit[:, 0], target)
    assert np.allclose(table.probability[:, 0], logits.softmax(dim=1)[torch.arange(20), labels])
    assert np.array_equal(table.predicted[:, 0], logits.argmax(dim=1))
    assert np.array_equal(table.target_rank[:, 0], (logits > target[:, None]).sum(dim=1))
    assert np.array_equal(table.correct[:, 0], logits.argmax(dim=1) == labels)


def test_equal_logits_leave_the_lower_class_first():
    table = tl.probe(lambda x: torch.zeros(len(x), 3), torch.rand(3, 2), [0, 1, 2], torch.rand(3, 2),
                     schedule=SCHEDULE, imputer=tl.ConstantImputer())  # fmt: skip
    assert table.target_rank[:, 0].tolist() == [0, 1, 2]
    assert table.predicted[:, 0].tolist() == [0, 0, 0]


def test_batches_span_samples_and_levels():
    inputs, labels, maps = images()
    model = TinyNet()
    tl.probe(model, inputs, labels, maps, schedule=SCHEDULE, batch_size=7)
    assert max(model.batches) == 7
    assert sum(model.batches) == 20 * 5
    assert len(model.batches) == sum(-(-n * 5 // 7) for n in (_CHUNK, 20 - _CHUNK))


def test_modes_are_restored_even_when_the_model_fails():
    inputs, labels, maps = images(4)
    model = TinyNet().train()
    model.frozen = nn.BatchNorm1d(3).eval()
    tl.probe(model, inputs, labels, maps, schedule=SCHEDULE)
    assert (model.training, model.dropout.training, model.frozen.training) == (True, True, False)

    def fail(*_):
        raise RuntimeError("the model is broken")

    model.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="`model` raised RuntimeError: the model is broken"):
        tl.probe(model, inputs, labels, maps, schedule=SCHEDULE)
    assert (model.training, model.dropout.training, model.frozen.training) == (True, True, False)


def test_the_model_runs_in_inference_mode_and_evaluation_mode():
    inputs, labels, maps = images(2)
    model, seen = TinyNet().train(), []
    model.register_forward_hook(lambda m, _, y: seen.append((m.training, torch.is_inference_mode_enabled())))
    tl.probe(model, inputs, labels, maps, schedule=SCHEDULE)
    assert set(seen) == {(False, True)}


@pytest.mark.parametrize(
    "message", ["CUDA out of memory. Tried to allocate", "DefaultCPUAllocator: can't allocate memory"]
)
def test_out_of_memory_halves_the_batch_and_goes_on(message):
    inputs, labels, maps = images()
    net = TinyNet()

    def model(x):
        if len(x) > 5:
            raise RuntimeError(message)
        return net(x)

    net.eval()
    table = tl.probe(model, inputs, labels, maps, schedule=SCHEDULE, batch_size=32)
    assert max(net.batches) == 4
    assert close(table, tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE))


def test_out_of_memory_for_a_single_input_is_said():
    def model(x):
        raise MemoryError

    with pytest.raises(MemoryError, match="One input does not fit into memory"):
        tl.probe(model, *images(2), schedule=SCHEDULE, batch_size=4)


def test_inputs_take_the_type_of_the_weights():
    inputs, labels, maps = images(4)
    expected = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE)
    table = tl.probe(TinyNet().float(), inputs.numpy(), labels, maps, schedule=SCHEDULE)
    assert np.allclose(table.logit, expected.logit, atol=1e-4)


def test_half_precision_and_non_contiguous_inputs():
    inputs, labels, maps = images(4, channels=3)
    swapped = inputs.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    model = TinyNet(channels=3)
    assert close(tl.probe(model, swapped, labels, maps, schedule=SCHEDULE),
                 tl.probe(model, inputs, labels, maps, schedule=SCHEDULE))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": [0, 1, 4, -1]}, ValueError, r"within 0 … 3, the model's classes; sample '2' has 4, and 2 of 4"),
        ({"labels": [0, 1]}, ValueError, r"one number for each of the 4 samples; got shape \(2,\)"),
        ({"labels": torch.eye(4)}, ValueError, r"They are one-hot: pass labels\.argmax"),
        ({"labels": [0.0, 1.0, 2.0, 3.0]}, ValueError, "one value per input, because `labels` are floating-point"),
        ({"labels": [0.0, 1.0, float("nan"), 3.0]}, ValueError, "that of sample '2' is not"),
        ({"inputs": torch.ones(4, 2, 8, 8, dtype=torch.uint8)}, TypeError, "floating-point.*got torch.uint8"),
        ({"inputs": torch.full((4, 2, 8, 8), torch.nan)}, ValueError, "sample '0' contains NaN"),
        ({"maps": torch.rand(3, 8, 8)}, ValueError, "one map for each of the 4 samples"),
        ({"maps": torch.rand(4, 7, 8)}, ValueError, r"must have shape \(4, 8, 8\)"),
        ({"model": lambda x: x.sum(dim=(1, 2, 3))}, ValueError, r"at least two logits per input.*shape \(4,\)"),
        ({"model": lambda x: "yes"}, TypeError, r"got str. Wrap it"),
        ({"model": lambda x: torch.full((len(x), 4), torch.nan)}, ValueError, "for sample '0' at level 0.9"),
        ({"output": "logit"}, ValueError, "`output` must be one of"),
        ({"output": "probabilities"}, ValueError, "If these are logits, pass output='logits'"),
        ({"batch_size": 0}, ValueError, "`batch_size` must be at least 1"),
        ({"device": "meta"}, ValueError, "`device` must be an available one"),
        ({"ids": ["a", "b", "c", "a"]}, ValueError, "'a' occurs twice"),
    ],
)  # fmt: skip
def test_bad_arguments_get_clear_errors(change, error, message):
    inputs, labels, maps = images(4)
    arguments = {"model": TinyNet(), "inputs": inputs, "labels": labels, "maps": maps, "batch_size": 4} | change
    with pytest.raises(error, match=message):
        tl.probe(**arguments, schedule=SCHEDULE)


def test_non_finite_logits_name_the_sample_and_the_level():
    inputs, labels, maps = images(20)
    target = inputs[18].clone()

    def model(x):
        logits = torch.zeros(len(x), 4)
        logits[(x == target).all(dim=(1, 2, 3)), 3 - int(labels[18])] = torch.inf  # any class, not the target's alone
        return logits

    with pytest.raises(ValueError, match=r"for sample 'i18' at level 0\. Check"):
        tl.probe(model, inputs, labels, maps, schedule=SCHEDULE, ids=[f"i{k}" for k in range(20)])


def test_a_callable_on_arrays_is_given_arrays():
    inputs, labels, maps = images(4)

    def predict_proba(x):
        assert isinstance(x, np.ndarray)
        return np.full((len(x), 4), 0.25)

    table = tl.probe(predict_proba, inputs.numpy(), labels.numpy(), maps.numpy(), schedule=SCHEDULE)
    assert np.allclose(table.probability, 0.25)
    assert np.allclose(table.logit, np.log(0.25))


def test_certain_probabilities_stay_finite():
    table = tl.probe(lambda x: np.tile([1.0, 0.0], (len(x), 1)), np.ones((2, 3)), [0, 1], np.ones((2, 3)),
                     schedule=SCHEDULE, imputer=tl.ConstantImputer())  # fmt: skip
    assert np.isfinite(table.logit).all()
    assert table.probability[:, 0].tolist() == [1.0, 0.0]


def test_parquet_round_trip(tmp_path):
    inputs, labels, maps = images()
    ids = ["ü <b>", *map(str, range(19))]
    table = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, ids=ids, sign="absolute")
    table.save(tmp_path / "t.parquet")
    again = ProbeTable.load(tmp_path / "t.parquet")
    assert again == table
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    frame = pq.read_table(tmp_path / "t.parquet").to_pandas()
    assert len(frame) == 100
    assert np.allclose(frame["added_mass"].to_numpy().reshape(20, 5).cumsum(axis=1), table.kept_mass)
    assert again != again.take(range(19))


def test_regression_tables_survive_parquet(tmp_path):
    rows = np.random.default_rng(0).normal(size=(6, 4))
    table = tl.probe(lambda x: x.sum(axis=1), rows, rows.sum(axis=1), np.abs(rows), schedule=SCHEDULE,
                     imputer=tl.ConstantImputer())  # fmt: skip
    table.save(tmp_path / "t.parquet")
    again = ProbeTable.load(tmp_path / "t.parquet")
    assert again == table
    assert again.task == "regression"


def test_foreign_parquet_files_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="it is not a probe table of twinlens"):
        ProbeTable.load(tmp_path / "other.parquet")
    pq.write_table(
        pa.table({"a": [1]}).replace_schema_metadata({"twinlens": '{"format": 99}'}), tmp_path / "new.parquet"
    )
    with pytest.raises(ValueError, match="has format 99"):
        ProbeTable.load(tmp_path / "new.parquet")


def test_shards_must_fit_together():
    inputs, labels, maps = images(4)
    one = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE)
    with pytest.raises(ValueError, match="'0' occurs more than once"):
        ProbeTable.concatenate([one, one])
    other = tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, seed=3, ids="abcd")
    with pytest.raises(ValueError, match="table 1 differs from the first: seed is 3 instead of 0"):
        ProbeTable.concatenate([one, other])
    with pytest.raises(ValueError, match="at least one probe table"):
        ProbeTable.concatenate([])
    with pytest.raises(ValueError, match="same samples"):
        one.join_levels(other)


class Recorder(Quiet):
    """Receives progress and keeps it."""

    def __init__(self):
        self.begun, self.advanced = [], []

    def begin(self, rows, note=""):
        self.begun.append(dict(rows))

    def advance(self, task, rows, stage=""):
        self.advanced.append((task, rows))


def test_progress_is_shown_on_request(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # bars are for terminals
    inputs, labels, maps = images(2)
    tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE)
    assert capsys.readouterr().err == ""
    tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, progress=True)
    assert "10/10" in capsys.readouterr().err


def test_progress_is_not_drawn_where_there_is_no_terminal(capsys, monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    inputs, labels, maps = images(2)
    tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, progress=True)
    assert capsys.readouterr().err == ""


def test_progress_may_be_received():
    inputs, labels, maps = images(3)
    progress = Recorder()
    tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, batch_size=2, progress=progress)
    rows = 3 * len(SCHEDULE.levels)
    assert progress.begun == [{"lerf by area": rows}]
    assert {task for task, _ in progress.advanced} == {"lerf by area"}
    assert sum(rows for _, rows in progress.advanced) == rows
    assert len(progress.advanced) > 3


def test_what_is_known_of_untouched_inputs_is_not_asked_again():
    inputs, labels, maps = images(4)
    maps[2] = 0  # by value, a map of zeros never removes anything
    schedule = tl.probing.Schedule(by="value", order="morf", levels=(1.0, 0.5, 0.1))
    model = TinyNet()
    nothing_removed = tl.probing.Schedule(by="area", order="morf", levels=(0.0,))
    untouched = tl.probe(model, inputs, labels, torch.zeros_like(maps), schedule=nothing_removed)
    assert sum(model.batches) == 4
    whole = tl.probe(model, inputs, labels, maps, schedule=schedule)
    model.batches.clear()
    progress = Recorder()
    table = tl.probe(model, inputs, labels, maps, schedule=schedule, original=untouched, progress=progress)
    assert sum(model.batches) == (whole.removed > 0).sum() == 6
    assert sum(rows for _, rows in progress.advanced) == 12
    for name in ("removed", "kept_mass", "predicted", "target_rank"):
        np.testing.assert_array_equal(getattr(table, name), getattr(whole, name))
    np.testing.assert_allclose(table.logit, whole.logit, atol=1e-6)
    with pytest.raises(ValueError, match="`original` must hold the same samples"):
        tl.probe(model, inputs, labels, maps, schedule=schedule, original=untouched.take([1, 0, 2, 3]))


def test_levels_are_gathered_from_several_tables():
    inputs, labels, maps = images(3)

    def probe(*levels):
        schedule = tl.probing.Schedule(by="area", order="lerf", levels=levels)
        return tl.probe(TinyNet(), inputs, labels, maps, schedule=schedule)

    joined = probe(0.8, 0.2).join_levels(probe(0.9, 0.5, 0.2), levels=(0.9, 0.8, 0.5, 0.2))
    assert joined == probe(0.9, 0.8, 0.5, 0.2)
    with pytest.raises(ValueError, match=r"level 0\.3 is in none of the tables"):
        joined.join_levels(levels=(0.9, 0.3))


def test_levels_of_other_samples_are_not_joined():
    inputs, labels, maps = images(3)
    one, other = (tl.probe(TinyNet(), inputs, labels, maps, schedule=SCHEDULE, ids=ids) for ids in ("abc", "abd"))
    assert one.settings == other.settings
    with pytest.raises(ValueError, match="`others` must hold the same samples"):
        one.join_levels(other)


def test_a_table_is_known_by_its_numbers_whatever_nan_looks_like_in_memory():
    inputs, _, maps = images(3)
    table = tl.probe(lambda x: x.sum(dim=(1, 2, 3)), inputs, [0.5, 1.0, 2.0], maps, schedule=SCHEDULE)
    assert np.isnan(table.logit).all()
    other = np.full_like(table.logit, -np.nan)
    assert other.tobytes() != table.logit.tobytes()
    assert dataclasses.replace(table, logit=other).digest() == table.digest()
    assert dataclasses.replace(table, logit=np.zeros_like(other)).digest() != table.digest()
