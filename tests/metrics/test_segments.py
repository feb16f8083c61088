"""Segments: several places of a map that make one feature."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.data.segments import equal_parts, superpixels
from twinlens.probing.ranking import Schedule, count_removed, keep_features, kept_mass, rank_features

ZERO = tl.ConstantImputer(0.0)
ASKED = [
    *(metric for metric in tl.METRICS.values() if metric.needs_performance),
    tl.Soundness(estimator="rank", steps=3),
]


def curves(model, inputs, labels, maps, **how):
    found = []
    for metric in ASKED:
        own = dataclasses.replace(metric, imputer=ZERO, performance="probability")
        found.append(tl.metrics.measure_metric(own, model, inputs, labels, maps, **how))
    return found


@pytest.fixture(scope="module")
def rows() -> tuple[torch.Tensor, torch.Tensor, nn.Module]:
    torch.manual_seed(3)
    inputs = torch.randn(7, 6)
    return inputs, torch.rand(7, 6), nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)).eval()


def test_one_segment_per_place_changes_nothing(rows):
    inputs, maps, model = rows
    places = torch.arange(6).expand(7, -1)
    for plain, segmented in zip(
        curves(model, inputs, [0] * 7, maps), curves(model, inputs, [0] * 7, maps, segments=places), strict=True
    ):
        assert np.array_equal(plain.values, segmented.values)
        assert np.array_equal(plain.table.removed, segmented.table.removed)
        assert (segmented.table.counts == 6).all()


def test_places_of_a_segment_are_removed_together(rows):
    inputs, maps, model = rows
    double = lambda x: x.repeat_interleave(2, dim=1)  # noqa: E731
    pairs = torch.arange(6).repeat_interleave(2).expand(7, -1)
    first_of_each = lambda x: model(x[:, ::2])  # noqa: E731
    noise = torch.tensor([0.01, -0.01]).repeat(6)  # which the mean of a segment does not see
    expected = curves(model, inputs, [0] * 7, maps)
    found = curves(first_of_each, double(inputs), [0] * 7, double(maps + 0.02) + noise, segments=pairs * 5 + 3)
    shifted = curves(model, inputs, [0] * 7, maps + 0.02)
    for small, large, plain in zip(shifted, found, expected, strict=True):
        assert np.allclose(small.values, large.values, atol=1e-6), small
        assert np.array_equal(small.table.removed, large.table.removed)
        assert len(plain.values) == len(small.values)


def test_samples_with_other_numbers_of_features(rows):
    inputs, maps, model = rows
    wide = torch.cat([inputs, 9 * torch.ones(7, 3)], dim=1)
    segments = torch.cat([torch.arange(6).expand(7, -1), torch.full((7, 3), -1)], dim=1)
    some = torch.tensor([[0, 1, 2, 3, 4, 5]] * 3 + [[0, 0, 1, 1, 2, 2]] * 4)
    segments[:, :6] = some

    def padded(x):
        assert (x[:, 6:] == 9).all()  # what is no feature stays
        return model(x[:, :6])

    whole = curves(padded, wide, [0] * 7, torch.cat([maps, torch.full((7, 3), 5.0)], dim=1), segments=segments)
    alone = [curves(model, inputs[part], [0] * len(some[part]), maps[part], segments=some[part], ids=range(7)[part])
             for part in (slice(3), slice(3, 7))]  # fmt: skip
    for joined, first, second in zip(whole, *alone, strict=True):
        assert joined.table.counts.tolist() == [6, 6, 6, 3, 3, 3, 3]
        for column in ("removed", "kept_mass", "probability"):
            apart = np.concatenate([getattr(first.table, column), getattr(second.table, column)])
            assert np.allclose(getattr(joined.table, column), apart, atol=1e-6), column
        areas = [curve.area_per_sample() for curve in (first, second)]
        assert np.allclose(joined.area_per_sample(), np.concatenate(areas), atol=1e-6)


def test_ranks_of_segments():
    maps = torch.tensor([[4.0, 2.0, 9.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 8.0]])
    segments = torch.tensor([[0, 0, -1, 1, 2], [0, 0, 0, 0, 1]])
    ranking = rank_features(maps, ids=["a", "b"], seed=0, segments=segments)
    assert ranking.features[:, 0].tolist() == [3, 2]
    assert ranking.rank[1].tolist() == [0, 0, 0, 0, 1]
    assert ranking.rank[0, :3].tolist() == [2, 2, -1]
    assert sorted(ranking.rank[0, 3:].tolist()) == [0, 1]
    for order in ("lerf", "morf"):
        schedule = Schedule(by="area", order=order, levels=(0.0, 0.5, 1.0))
        removed = count_removed(ranking, schedule)
        assert removed.tolist() == [[0, 2, 3], [0, 1, 2]]
        mass = kept_mass(ranking, removed, order)
        assert mass[:, 0] == pytest.approx([5 / 3, 1.125])
        assert mass[:, 1] == pytest.approx([1.0, 1.0] if order == "lerf" else [1 / 3, 0.125])
        assert mass[:, 2].tolist() == [0, 0]
        keep = keep_features(ranking.rank, removed[:, 2], order, ranking.features[:, 0])
        assert keep.tolist() == [[False, False, True, False, False], [False] * 5]
    by_value = Schedule(by="value", order="morf", levels=(1.0, 0.5, 0.1))
    assert count_removed(ranking, by_value).tolist() == [[0, 1, 3], [0, 1, 2]]


def test_false_features_of_segments(rows):
    inputs, maps, model = rows
    segments = torch.tensor([[0, 0, 1, 1, 2, -1]] * 7)
    curve = tl.soundness(model, inputs, [0] * 7, maps, imputer=ZERO, performance="probability", segments=segments)
    false = curve.false_features(maps, segments=segments)
    assert not false[:, 5].any()
    assert (false[:, 0] == false[:, 1]).all()
    assert (false[:, 2] == false[:, 3]).all()
    assert torch.equal(curve.false_features(maps), false)  # the table holds its segments in memory


def test_tables_of_segments_are_stored(rows, tmp_path):
    inputs, maps, model = rows
    segments = torch.tensor([[0, 0, 1, 1, 2, -1]] * 7)
    table = tl.completeness(model, inputs, [0] * 7, maps, imputer=ZERO, segments=segments).table
    table.save(tmp_path / "table.parquet")
    again = tl.ProbeTable.load(tmp_path / "table.parquet")
    assert again == table
    assert again.counts.tolist() == [3] * 7
    assert tl.ProbeTable.concatenate([again.take([0, 1]), again.take([4])]).counts.tolist() == [3] * 3


@pytest.mark.parametrize(
    ("segments", "error", "message"),
    [
        (torch.zeros(7, 6), TypeError, "`segments` must hold integers"),
        (torch.zeros(7, 5, dtype=torch.int64), ValueError, r"must have the shape \(7, 6\)"),
        (-torch.ones(7, 6, dtype=torch.int64), ValueError, "at least one position from 0 on; sample '0' has none"),
    ],
)
def test_segments_that_cannot_be_used_are_refused(rows, segments, error, message):
    inputs, maps, model = rows
    with pytest.raises(error, match=message):
        tl.completeness(model, inputs, [0] * 7, maps, imputer=ZERO, segments=segments)


def test_superpixels_follow_edges():
    image = torch.zeros(1, 3, 16, 16)
    image[..., 8:] = 1
    numbers = superpixels(image, 4)[0]
    assert not set(numbers[:, :8].unique().tolist()) & set(numbers[:, 8:].unique().tolist())


# In runs


def test_superpixels_in_a_run(tmp_path):
    torch.manual_seed(0)
    images, labels = torch.rand(6, 3, 16, 16), torch.arange(6) % 3
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 144, 3)).eval()
    quick = {"resamples": 30, "threads": 1, "batch_size": 64, "metrics": ["soundness_rank", "completeness"]}
    by_name = tl.evaluate(model, (images, labels), ["saliency"], segments="slic:20", out=tmp_path / "a", **quick)
    given = superpixels(images, 20)
    by_array = tl.evaluate(
        model, (images, labels), ["saliency"], segments=given, out=tmp_path / "b", shard_size=4, **quick
    )
    assert by_name.summary().equals(by_array.summary())
    assert by_name.results.data.segments == "slic:20"
    direct = tl.completeness(model, images, labels, by_name.maps("saliency"), segments=given, ids=by_name.ids())
    assert np.allclose(by_name.curve("saliency", "completeness").values, direct.values)
    assert (by_name.curve("saliency", "completeness").table.counts == given.flatten(1).amax(dim=1).numpy() + 1).all()
    assert (tmp_path / "a" / "report.html").exists()
    with pytest.raises(tl.RunError, match=r"holds another run: data\.segments"):
        tl.evaluate(model, (images, labels), ["saliency"], out=tmp_path / "a", **quick)


@pytest.mark.parametrize(
    ("segments", "error", "message"),
    [
        ("slick", ValueError, "`segments` must be 'slic', 'slic:K'"),
        ("slic:0", ValueError, "`segments` must be 'slic', 'slic:K'"),
        (np.zeros((5, 6), int), tl.DataError, "one array for each of the 7 samples of the data; got shape"),
        ("slic", ValueError, "`segments` 'slic' needs images"),
    ],
)
def test_segments_of_a_run_that_cannot_be_used_are_refused(rows, segments, error, message):
    inputs, _, model = rows
    with pytest.raises(error, match=message):
        tl.evaluate(model, (inputs, torch.zeros(7, dtype=torch.int64)), ["saliency"], segments=segments, resamples=20)


def test_parts_of_equal_size_are_named_by_their_number(tmp_path):
    images, labels = torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(0)), [0, 1, 2, 0]
    quick = {"metrics": ["deletion"], "resamples": 20, "batch_size": 16, "memory_format": "contiguous"}
    found = tl.evaluate(tiny_model(), (images, labels), ["saliency"], segments="grid:9", out=tmp_path / "a", **quick)
    thirds = torch.arange(9) // 3
    squares = (thirds[:, None] * 3 + thirds).expand(4, 9, 9)
    same = tl.evaluate(tiny_model(), (images, labels), ["saliency"], segments=squares, out=tmp_path / "b", **quick)
    assert found.results.data.segments == "grid:9"
    assert found.results.area("saliency", "deletion") == same.results.area("saliency", "deletion")
    for spatial, count in (((224, 224), 49), ((100,), 7), ((12, 30), 10), ((6, 6, 6), 8)):
        parts = equal_parts(spatial, count)
        sizes = torch.bincount(parts.flatten())
        assert abs(len(sizes) - count) <= 0.3 * count
        assert sizes.max() <= 2 * sizes.min()


@pytest.mark.parametrize("name", ["soundness_rank", "completeness_share"])
def test_metrics_by_steps_do_not_depend_on_how_features_are_named(rows, name):
    """Segments of one position each give other levels, with empty steps, and the same areas."""
    inputs, maps, model = rows
    metric = dataclasses.replace(tl.METRICS[name], imputer=ZERO)
    arguments = (metric, model, inputs, [0] * 7, maps)
    plain = tl.metrics.measure_metric(*arguments)
    segmented = tl.metrics.measure_metric(*arguments, segments=torch.arange(6).expand(7, -1))
    assert (len(plain.levels), len(segmented.levels)) == (6, 20)
    assert segmented.area_per_sample() == pytest.approx(plain.area_per_sample(), abs=1e-6)
