import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from twinlens.linear_system import assemble, neighbours, solve_direct


def random_case(shape, share, seed=0, channels=2):
    rng = np.random.default_rng(seed)
    keep = rng.random(shape) >= share
    keep.flat[rng.integers(keep.size)] = True
    return rng.normal(size=(channels, *shape)), keep


def dense_solution(values, keep):
    """Solves the definition as it reads: each removed feature is the weighted mean of the neighbours it has."""
    kept, features = keep.ravel(), keep.size
    matrix, right = np.eye(features), values.reshape(len(values), -1).T.copy()
    positions = list(np.ndindex(keep.shape))
    for f in np.flatnonzero(~kept):
        near = {}
        for g, other in enumerate(positions):
            offset = np.abs(np.subtract(positions[f], other))
            if g != f and offset.max() <= 1:
                near[g] = 1 / 2 ** offset.sum()
        matrix[f, list(near)] = -np.array(list(near.values())) / sum(near.values())
        right[f] = 0
    return np.linalg.solve(matrix, right).T.reshape(values.shape)


def test_weights_are_those_of_the_paper():
    plane = dict(neighbours(2))
    assert sum(plane.values()) == 12
    assert plane[0, 1] / 12 == pytest.approx(1 / 6)
    assert plane[1, 1] / 12 == pytest.approx(1 / 12)
    assert sum(dict(neighbours(3)).values()) == 56
    matrix = assemble((3, 4)).toarray()
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix.sum(axis=1), np.zeros(12))


@pytest.mark.parametrize("shape", [(1,), (2,), (17,), (1, 1), (1, 9), (6, 7), (2, 3, 4)])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_the_direct_solution_is_that_of_the_definition(shape, share):
    values, keep = random_case(shape, share)
    assert np.allclose(solve_direct(values, keep), dense_solution(values, keep), atol=1e-10)


def test_golden_solutions(golden):
    stored = np.load(golden / "imputation.npz")
    cases = sorted({key.split("/")[0] for key in stored.files})
    assert len(cases) == 10
    for case in cases:
        image, keep = stored[f"{case}/image"], stored[f"{case}/mask"].astype(bool)
        filled = tl.impute_linear(torch.from_numpy(image)[None], torch.from_numpy(keep)[None])
        assert np.abs(filled[0].numpy() - stored[f"{case}/imputed"]).max() < 1e-3
        if keep.size < 5000:
            assert np.allclose(solve_direct(image, keep), stored[f"{case}/imputed"], atol=1e-9)


def test_an_image_of_which_nothing_is_kept_is_refused():
    keep = torch.tensor([[[True, False]], [[False, False]]])
    with pytest.raises(ValueError, match=r"at least one"):
        tl.impute_linear(torch.rand(2, 1, 1, 2), keep)


def test_kept_features_are_untouched_and_noise_is_on_the_rest():
    images, keep = torch.rand(2, 3, 9, 9), torch.rand(2, 9, 9) > 0.5
    plain = tl.LinearImputer(noise=0.0)(images, keep, [5, 6])
    noisy = tl.LinearImputer(noise=0.1)(images, keep, [5, 6])
    wide = keep[:, None].expand_as(images)
    assert torch.equal(noisy[wide], images[wide])
    noise = (noisy - plain)[~wide]
    assert 0.05 < noise.std() < 0.2
    assert noise.ne(0).all()
    swapped = tl.LinearImputer(noise=0.1)(images.flip(0), keep.flip(0), [6, 5])
    assert torch.equal(swapped.flip(0), noisy)


def test_a_batch_of_which_nothing_at_all_is_kept_is_empty():
    images, keep = torch.ones(2, 3, 16, 16), torch.zeros(2, 16, 16, dtype=torch.bool)
    assert (tl.LinearImputer(noise=0.0, empty=0.25)(images, keep, [0, 1]) == 0.25).all()


def test_where_nothing_is_kept_in_a_sweep_the_empty_value_stands():
    images, keep = torch.rand(2, 1, 4, 4), torch.zeros(2, 4, 4, dtype=torch.bool)
    keep[1, 0, 0] = True
    filled = tl.LinearImputer(noise=0.0, empty=0.25)(images, keep, [0, 1])
    assert filled[0].tolist() == torch.full((1, 4, 4), 0.25).tolist()
    assert torch.allclose(filled[1], images[1, 0, 0, 0], atol=1e-6)


def test_a_constant_map_loses_the_whole_image_under_completeness():
    seen = []

    def model(x):
        seen.append(x.clone())
        return torch.stack([x.mean(dim=(1, 2, 3)), -x.mean(dim=(1, 2, 3))], dim=1)

    images = torch.ones(1, 1, 4, 4)
    curve = tl.completeness(
        model, images, [0], torch.ones(1, 4, 4), thresholds=(0.9, 0.5), imputer=tl.LinearImputer(noise=0)
    )
    assert curve.degenerate == {"constant": 1, "zero": 0}
    rows = torch.cat(seen)
    assert torch.equal(rows[0], images[0])
    assert (rows[1:] == 0).all()


def test_constant_and_mean():
    images, keep = torch.rand(2, 3, 2, 2), torch.tensor([[[True, False], [False, False]]] * 2)
    wide = keep[:, None].expand_as(images)
    constant = tl.ConstantImputer(0.5)(images, keep, [])
    assert torch.equal(constant[wide], images[wide])
    assert (constant[~wide] == 0.5).all()
    by_channel = tl.MeanImputer([1.0, 2.0, 3.0])(images, keep, [])
    assert by_channel[0, :, 1, 1].tolist() == [1, 2, 3]
    everywhere = np.arange(12.0).reshape(3, 2, 2)
    assert tl.MeanImputer(everywhere)(images, keep, [])[1, :, 0, 1].tolist() == [1, 5, 9]
    assert tl.MeanImputer(7.0)(images, keep, [])[0, 0, 1, 1] == 7
    rows = tl.MeanImputer([10.0, 20.0])(torch.rand(1, 2), torch.tensor([[False, True]]), [])
    assert rows[0, 0] == 10
    with pytest.raises(ValueError, match=r"shaped like one input \(3, 2, 2\); got shape \(4,\)"):
        tl.MeanImputer(np.ones(4))(images, keep, [])


def test_mean_imputers_print_what_they_hold():
    """Probe tables of different means must not pass for the same settings."""
    assert repr(tl.MeanImputer([1.0, 2.0])) == "MeanImputer([1.0, 2.0])"
    long = [repr(tl.MeanImputer(np.arange(5000.0) + shift * (np.arange(5000) == 2500))) for shift in (0, 0, 1)]
    assert long[0] == long[1] != long[2]


@given(st.integers(1, 12), st.integers(1, 12))
def test_blur_keeps_constants_and_the_range(height, width):
    images = torch.rand(
        1, 2, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(height * width)
    )
    nothing = torch.zeros(1, height, width, dtype=torch.bool)
    blurred = tl.BlurImputer(sigma=2.0)(images, nothing, [])
    assert (blurred >= images.amin() - 1e-12).all()
    assert (blurred <= images.amax() + 1e-12).all()
    constant = torch.full_like(images, 3.0)
    assert torch.allclose(tl.BlurImputer()(constant, nothing, []), constant)


def test_blur_is_that_of_scipy():
    from scipy.ndimage import gaussian_filter

    image = np.random.default_rng(0).random((20, 31))
    blurred = tl.BlurImputer(sigma=2.0)(
        torch.from_numpy(image)[None, None], torch.zeros(1, 20, 31, dtype=torch.bool), []
    )
    assert np.allclose(blurred[0, 0], gaussian_filter(image, 2.0, mode="nearest", truncate=3.0), atol=1e-12)


@pytest.mark.parametrize("imputer", [tl.LinearImputer(), tl.BlurImputer()])
def test_tabular_rows_have_no_neighbours(imputer):
    with pytest.raises(ValueError, match=r"needs neighbours.*tl.MeanImputer"):
        imputer(torch.rand(2, 5), torch.ones(2, 5, dtype=torch.bool), [0, 1])


def test_options_are_checked():
    with pytest.raises(ValueError, match="`noise` must be >= 0"):
        tl.LinearImputer(noise=-1)
    with pytest.raises(ValueError, match="`tolerance` > 0"):
        tl.LinearImputer(tolerance=0)
    with pytest.raises(ValueError, match="`sigma` must be > 0"):
        tl.BlurImputer(sigma=0)
