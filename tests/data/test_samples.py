"""Samples from arrays, subsets of them, and the check that reads each once."""

import dataclasses
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data.folders import rejected, save
from twinlens.data.samples import Skipped, check, from_arrays, subset
from twinlens.data.sources import open_data
from twinlens.errors import DataError


def test_take_and_positions(birds):
    samples = open_data(str(birds)).take([2, 0]).take([1])
    assert samples.ids == ("jay/c.bmp",)
    assert samples.positions.tolist() == [0]
    assert samples.read(0).mode == "L"


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 5, 4, 1), (2, 5, 4, 3)])
def test_images_from_arrays(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    image = from_arrays(pixels, [0, 1]).read(1)
    assert image.mode == ("RGB" if shape[3:] == (3,) else "L")
    assert image.size == (4, 5)
    assert np.array_equal(np.asarray(image).reshape(shape[1:]), pixels[1])


@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 7), (2, 3, 5, 4), (2, 1, 2, 3, 4)])
def test_inputs_from_arrays_and_tensors(shape):
    values = np.random.default_rng(0).normal(size=shape)
    for inputs in (values, values.astype(">f4"), torch.from_numpy(values)):
        read = from_arrays(inputs, torch.tensor([0, 1])).read(1)
        assert read.dtype == np.float32
        assert read.dtype.isnative
        assert np.array_equal(read, values[1].astype(np.float32))


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (np.zeros((2, 3, 4, 4), np.uint8), r"got uint8 of shape \(2, 3, 4, 4\)\. Of uint8 images move the channels"),
        (np.zeros((2, 4), np.uint8), r"got uint8 of shape \(2, 4\)"),
        (np.zeros((2, 4), bool), r"got bool of shape \(2, 4\).*convert other numbers to float32"),
        (np.zeros((2, 4, 4, 3), np.int64), r"got int64 of shape \(2, 4, 4, 3\).*convert other numbers to float32"),
        (np.zeros(2), r"got float64 of shape \(2,\)"),
        (np.zeros((0, 4)), r"got float64 of shape \(0, 4\)"),
        (np.zeros((2, 0, 4), np.uint8), r"got uint8 of shape \(2, 0, 4\)"),
    ],
)
def test_inputs_that_cannot_be_used(inputs, found):
    with pytest.raises(DataError, match=f"`inputs` must be images, uint8 .*{found}"):
        from_arrays(inputs, np.zeros(len(inputs), int))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, -1], r"class indices from 0; that of sample '00001' is -1"),
        (np.array([0, 2**63], np.uint64), "`labels` must hold numbers of 64 bits with a sign; got 9223372036854775808"),
        ([0.0, np.nan], r"`labels` must be finite; that of sample '00001' is nan"),
        ([[1, 0], [0, 1]], r"got int64 of shape \(2, 2\)\. They are one-hot: pass labels\.argmax"),
        ([0], r"one number for each of the 2 samples; got int64 of shape \(1,\)"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    with pytest.raises((DataError, TypeError), match=message):
        from_arrays(np.eye(2), labels)


def test_ids_and_classes_of_arrays():
    assert from_arrays(np.eye(2), [[3], [4]]).labels.tolist() == [3, 4]
    assert from_arrays(np.zeros((100_001, 1)), np.zeros(100_001, int)).ids[17::99_983] == ("00017", "100000")
    assert from_arrays(np.eye(2), [0, 1], ids=[7, "b"]).ids == ("7", "b")
    with pytest.raises(DataError, match=r"`ids` must differ.*'b' occurs twice"):
        from_arrays(np.eye(2), [0, 1], ids=["b", "b"])
    with pytest.raises(DataError, match="must name each of the 2 samples; got 1"):
        from_arrays(np.eye(2), [0, 1], ids=["b"])
    with pytest.raises(DataError, match=r"UTF-8 can encode; '\\udcff' is not"):
        from_arrays(np.eye(2), [0, 1], ids=["a", "\udcff"])
    with pytest.raises(DataError, match=r"from 0 to 0, since 1 classes are named; that of sample '00001' is 1"):
        from_arrays(np.eye(2), [0, 1], classes=["a"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_numbers_that_are_not_finite_name_the_sample(tmp_path, bad):
    np.savez(tmp_path / "d.npz", x=np.array([[1.0], [bad]]), y=[0, 1], ids=["first", "second"])
    message = rejected(tmp_path / "d.npz")
    assert "Sample 'second' must be finite in float32; it contains NaN or infinity. Repair" in message


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12), st.integers(0, 3))
def test_subsets_nest_keep_the_order_and_depend_on_names_alone(names, seed):
    ids = sorted(names)
    samples = from_arrays(np.zeros((len(ids), 1)), np.arange(len(ids)), ids=ids)
    drawn = [set(subset(samples, limit, seed).ids) for limit in range(1, len(ids) + 2)]
    assert [len(some) for some in drawn] == [*range(1, len(ids) + 1), len(ids)]
    assert all(small <= large for small, large in pairwise(drawn))
    half = subset(samples, max(1, len(ids) // 2), seed)
    assert list(half.ids) == sorted(half.ids)
    backwards = samples.take(np.arange(len(ids))[::-1])
    assert set(subset(backwards, len(half), seed).ids) == set(half.ids)
    assert half.positions.tolist() == [ids.index(name) for name in half.ids]


def test_subset_is_random():
    samples = from_arrays(np.zeros((1000, 1)), np.arange(1000) // 100)
    assert subset(from_arrays(np.eye(100), np.arange(100)), 3, seed=0).ids == ("00027", "00049", "00064")
    first, second = (subset(samples, 200, seed) for seed in (0, 1))
    assert np.bincount(first.labels, minlength=10).min() >= 8
    assert 15 <= len(set(first.ids) & set(second.ids)) <= 65
    with pytest.raises(ValueError, match="`limit` must be at least 1; got 0"):
        subset(samples, 0, 0)


def test_the_digest_tells_content_labels_and_ids_apart_but_not_workers():
    values = np.arange(12.0).reshape(4, 3)

    def digest(inputs, labels, ids, **options):
        return check(from_arrays(inputs, labels, ids=ids), skip_bad=False, **options)[2]

    same = {digest(values, [0, 1, 2, 3], "abcd", workers=workers) for workers in (1, 2, 7)}
    assert len(same) == 1
    other = values.copy()
    other[3, 2] += 1
    assert len(same | {digest(other, [0, 1, 2, 3], "abcd")}) == 2
    assert len(same | {digest(values, [0, 1, 2, 4], "abcd")}) == 2
    assert len(same | {digest(values, [0, 1, 2, 3], "abce")}) == 2
    assert len(same | {digest(values.astype(np.float32), [0, 1, 2, 3], "abcd")}) == 2
    assert len(same | {digest(values[::-1], [3, 2, 1, 0], "dcba")}) == 2
    assert len(same | {digest(values[:, None], [0, 1, 2, 3], "abcd")}) == 2
    assert digest(np.zeros((1, 2), np.float32), [0], "a") != digest(np.zeros((1, 1)), [0], "a")


def test_the_digest_sees_bytes_of_files(birds):
    _, _, before, _ = check(open_data(str(birds)), skip_bad=False)
    save(birds / "wren" / "b.png", color=(1, 2, 4))
    assert check(open_data(str(birds)), skip_bad=False)[2] != before


def test_check_reads_each_sample_once_and_holds_few_at_a_time(monkeypatch):
    monkeypatch.setattr("twinlens.data.samples._WINDOW", 8)
    lock, counts = threading.Lock(), {"open": 0, "most": 0, "read": []}

    meeting = threading.Barrier(2)

    def slow(position):
        if position < 2:  # two are read at once
            meeting.wait(timeout=900)
        with lock:
            counts["open"] += 1
            counts["most"] = max(counts["most"], counts["open"])
            counts["read"].append(position)
        if position < 2:
            meeting.wait(timeout=900)
        with lock:
            counts["open"] -= 1
        if position == 13:
            raise DataError("bad luck.")

    samples = from_arrays(np.arange(50.0)[:, None], np.arange(50))
    samples = dataclasses.replace(samples, reader=slow)
    good, skipped, *_ = check(samples, skip_bad=True, workers=3)
    assert sorted(counts["read"]) == list(range(50))
    assert 1 < counts["most"] <= 3
    assert good.positions.tolist() == [p for p in range(50) if p != 13]
    assert skipped == (Skipped(id="00013", reason="bad luck."),)
    counts["read"].clear()
    with pytest.raises(DataError, match=r"bad luck\. To leave out"):
        check(samples, skip_bad=False, workers=3)
    assert max(counts["read"]) < 16


def test_nothing_left_is_an_error(birds):
    samples = from_arrays([[np.nan], [np.nan]], [0, 1])
    with pytest.raises(DataError, match=r"None of the 2 samples of arrays can be read; the first: Sample '00000' must"):
        check(samples, skip_bad=True)
    with pytest.raises(DataError, match=r"None of the 0 samples of arrays can be read\.$"):
        check(samples.take([]), skip_bad=False)


def test_the_error_of_data_survives_being_sent_to_another_process():
    error = pickle.loads(pickle.dumps(DataError("a\nb")))
    assert str(error) == r"a\nb"
    assert isinstance(error, ValueError)
