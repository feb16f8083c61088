"""Volumes against a sparse direct solution, on the systems that are hard for the solver."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from tests.reference import impute_linear
from twinlens.imputation import multigrid, multigrid_compiled
from twinlens.imputation.linear_system import neighbours, solve_direct
from twinlens.imputation.multigrid import solve

TOLERANCE = 1e-3
METHODS = ["multigrid", "torch"]


def by_map(values, share):
    """Remove the share of voxels with the smallest values."""
    keep = np.ones(values.size, dtype=bool)
    keep[np.argsort(values, axis=None, kind="stable")[: round(share * values.size)]] = False
    return keep.reshape(values.shape)


def smooth(rng, shape):
    coarse = torch.from_numpy(rng.random((1, 1, 4, 4, 4)) ** 2)
    return by_map(interpolate(coarse, size=shape, mode="trilinear")[0, 0].numpy(), rng.choice([0.1, 0.5, 0.9, 0.99]))


def heavy_tailed(rng, shape):
    return by_map(np.abs(rng.standard_t(1.5, shape)), rng.choice([0.02, 0.3, 0.8, 0.98]))


def pair(rng, shape):
    keep = np.zeros(shape, dtype=bool)
    for _ in range(2):
        keep[tuple(rng.integers(side) for side in shape)] = True
    return keep


def corner(rng, shape):
    keep = np.zeros(shape, dtype=bool)
    keep[: rng.integers(1, 4), : rng.integers(1, 4), : rng.integers(1, 4)] = True
    return keep


def checkerboard(rng, shape):
    return (np.indices(shape) // int(rng.integers(1, 4))).sum(axis=0) % 2 == 0


def slabs(rng, shape):
    """Whole slabs are removed, and others kept."""
    return np.indices(shape)[rng.integers(3)] % int(rng.integers(2, 9)) == 0


def one_slab_removed(rng, shape):
    axis = int(rng.integers(3))
    first, along = int(rng.integers(shape[axis])), np.indices(shape)[axis]
    return (along < first) | (along > first + int(rng.integers(3)))


def rods(rng, shape):
    period, (z, y, _) = int(rng.integers(2, 7)), np.indices(shape)
    return (z % period == 0) & (y % period == 0)


def corridors(rng, shape):
    """Channels one voxel wide, connected at their ends, in walls with a few holes."""
    keep = np.ones(shape, dtype=bool)
    keep[1::2, 1::2] = False
    keep[::2, 1::4, -1:] = False
    keep[1::2, ::2, :1] = False
    return keep & (rng.random(shape) < 0.97)


def all_kept(rng, shape):
    return np.ones(shape, dtype=bool)


FAMILIES = [smooth, heavy_tailed, pair, corner, checkerboard, slabs, one_slab_removed, rods, corridors, all_kept]


def draw_volume(seed, family, shape, *, channels=2):
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    keep = family(rng, shape)
    if not keep.any():
        keep[tuple(rng.integers(side) for side in shape)] = True
    return (5 * rng.random((channels, *shape)) - 2.5).astype(np.float32), keep


def solve_one(volume, keep, **how):
    return solve(torch.from_numpy(volume)[None], torch.from_numpy(keep)[None], **how)


def largest_difference(solution, exact):
    return np.abs(solution.values[0].double().numpy() - exact).max()


def test_weights_of_volumes_are_those_of_three_binomial_kernels():
    weights = dict(neighbours(3))
    assert (weights[0, 0, 1], weights[0, 1, 1], weights[1, 1, 1]) == (4, 2, 1)
    assert (len(weights), sum(weights.values())) == (26, 56)


@pytest.mark.parametrize("method", METHODS)
@given(
    shape=st.tuples(*[st.integers(1, 11)] * 3),
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40)
def test_small_volumes_are_solved_like_a_sparse_direct_solve(method, shape, family, seed):
    volume, keep = draw_volume(seed, family, shape)
    solution = solve_one(volume, keep, method=method)
    assert largest_difference(solution, solve_direct(volume, keep)) <= TOLERANCE
    assert sum(side > 1 for side in shape) < 2 or not solution.fallback.any()
    assert np.array_equal(solution.values[0].numpy()[:, keep], volume[:, keep])


@pytest.mark.parametrize("family", FAMILIES)
def test_true_error_is_within_the_tolerance_on_hard_volumes(family):
    for seed, shape in enumerate([(17, 18, 16), (2, 31, 20), (25, 3, 24), (40, 9, 2), (19, 19, 19)]):
        volume, keep = draw_volume(seed, family, shape)
        solution = solve_one(volume, keep, method="multigrid")
        assert largest_difference(solution, solve_direct(volume, keep)) <= TOLERANCE, (seed, shape)
        assert not solution.fallback.any()
        assert solution.cycles.item() <= 5


@pytest.mark.parametrize("method", METHODS)
def test_volumes_are_solved_as_the_definition_reads(method):
    rng = np.random.default_rng(0)
    volume, keep = rng.normal(size=(2, 4, 5, 3)).astype(np.float32), rng.random((4, 5, 3)) < 0.3
    expected = impute_linear(volume.astype(float), set(np.flatnonzero(keep)))
    assert largest_difference(solve_one(volume, keep, method=method), expected) <= TOLERANCE


@pytest.mark.parametrize("method", METHODS)
def test_float64_reaches_tight_tolerances_on_volumes(method):
    volume, keep = draw_volume(1, smooth, (13, 12, 15))
    solution = solve_one(volume.astype(np.float64), keep, tolerance=1e-9, method=method)
    assert largest_difference(solution, solve_direct(volume, keep)) <= 1e-9
    assert not solution.fallback.any()


@pytest.mark.parametrize("method", METHODS)
def test_a_wide_range_of_values_is_solved_in_float64_in_volumes_too(method):
    volume, keep = draw_volume(0, pair, (12, 13, 14))
    volume *= 1000
    solution = solve_one(volume, keep, method=method)
    assert largest_difference(solution, solve_direct(volume, keep)) <= 1.2e-3  # with the rounding of the result
    assert not solution.fallback.any()


@pytest.mark.parametrize("shape", [(1, 20, 30), (20, 1, 30), (20, 30, 1)])
@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_a_volume_of_one_slice_is_an_image(shape, method):
    volume, keep = draw_volume(2, heavy_tailed, shape)
    image = solve_one(volume.reshape(2, 20, 30), keep.reshape(20, 30), method=method)
    sliced = solve_one(volume, keep, method=method)
    assert sliced.values.shape == (1, 2, *shape)
    assert torch.equal(sliced.values.flatten(), image.values.flatten())
    assert torch.equal(sliced.cycles, image.cycles)


def test_auto_uses_multigrid_for_volumes_and_not_for_tiny_ones():
    volume, keep = draw_volume(0, smooth, (8, 8, 8))
    assert solve_one(volume, keep).cycles.item() > 1
    assert solve_one(volume[:, :4], keep[:4] & (np.arange(8) % 2 == 0)).cycles.item() == 0


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_volumes_of_which_nothing_is_kept(method):
    volume, keep = draw_volume(0, smooth, (9, 8, 7))
    volumes, kept = torch.from_numpy(np.stack([volume, volume])), torch.from_numpy(np.stack([keep, keep & False]))
    with pytest.raises(ValueError, match="image 1 keeps nothing"):
        solve(volumes, kept, method=method)
    filled = solve(volumes, kept, method=method, empty=0.25).values
    assert (filled[1] == 0.25).all()
    assert torch.equal(filled[0], solve(volumes[:1], kept[:1], method=method).values[0])


@pytest.mark.parametrize("method", METHODS)
def test_a_volume_does_not_depend_on_its_batch(method):
    cases = [draw_volume(seed, family, (11, 14, 9)) for seed, family in enumerate(FAMILIES)]
    volumes, keep = (torch.from_numpy(np.stack(each)) for each in zip(*cases, strict=True))
    together = solve(volumes, keep, method=method)
    order = [4, 0, 9, 3]
    permuted = solve(volumes[order], keep[order], method=method)
    assert torch.equal(permuted.values, together.values[order])
    assert torch.equal(permuted.estimate, together.estimate[order])
    assert torch.equal(solve(volumes[5:6], keep[5:6], method=method).values[0], together.values[5])


def test_both_paths_take_the_same_cycles():
    cases = [draw_volume(seed, family, (20, 15, 18)) for seed, family in enumerate(FAMILIES)]
    volumes, keep = (torch.from_numpy(np.stack(each)) for each in zip(*cases, strict=True))
    compiled, batched = solve(volumes, keep, method="multigrid"), solve(volumes, keep, method="torch")
    assert (compiled.values - batched.values).abs().max() <= TOLERANCE
    assert (compiled.cycles - batched.cycles).abs().max() <= 1


def test_a_workspace_serves_one_volume_after_the_other(monkeypatch):
    monkeypatch.setattr(multigrid_compiled, "_VALUES_PER_TASK", 2**30)  # all in one task
    cases = [draw_volume(seed, family, (9, 10, 11)) for seed, family in enumerate(FAMILIES)]
    cases[3][0][0, 0, 0, 0] = np.nan  # kept by `corner`: what it leaves behind must not reach the next one
    volumes, keep = (torch.from_numpy(np.stack(each)) for each in zip(*cases, strict=True))
    with pytest.raises(ValueError, match="image 3 holds NaN"):
        solve(volumes, keep, method="multigrid")
    rest = [i for i in range(len(cases)) if i != 3]
    together = solve(volumes[rest], keep[rest], method="multigrid").values
    alone = [solve(volumes[i : i + 1], keep[i : i + 1], method="multigrid").values[0] for i in rest]
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("method", METHODS)
def test_what_misses_the_tolerance_is_solved_directly_in_volumes_too(method, monkeypatch):
    monkeypatch.setattr(multigrid, "_MOST_CYCLES", 1)
    volume, keep = draw_volume(0, smooth, (7, 8, 9))
    solution = solve_one(volume, keep, method=method)
    assert solution.fallback.tolist() == [True]
    assert torch.equal(solution.values, solve_one(volume, keep, method="direct").values)


@pytest.mark.slow
@pytest.mark.parametrize("family", [smooth, heavy_tailed, pair, corner, slabs])
def test_large_volumes_solve_the_system(family):
    """Every removed voxel is the weighted mean of its neighbours, up to what the tolerance leaves."""
    volume, keep = draw_volume(3, family, (48, 50, 47), channels=1)
    solution = solve_one(volume, keep, tolerance=1e-3)
    finer = solve_one(volume.astype(np.float64), keep, tolerance=1e-8)
    assert not solution.fallback.any()
    assert not finer.fallback.any()
    assert largest_difference(solution, finer.values[0].numpy()) <= TOLERANCE
    x = finer.values
    total = torch.nn.functional.conv3d(x, _kernel(), padding=1)
    weights = torch.nn.functional.conv3d(torch.ones_like(x), _kernel(), padding=1)
    assert (total / weights - x)[0, 0][torch.from_numpy(~keep)].abs().max() <= 1e-7


def _kernel():
    line = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    kernel = line[:, None, None] * line[None, :, None] * line
    kernel[1, 1, 1] = 0
    return kernel[None, None]
