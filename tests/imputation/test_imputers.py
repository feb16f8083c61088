import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from tests.authors import imputation_cases
from twinlens.imputation import imputers, multigrid
from twinlens.imputation.imputers import (
    IMPUTERS,
    UnavailableImputer,
    describe_imputer,
    find_imputer,
    restore_imputer,
)
from twinlens.imputation.linear_system import solve_direct


def test_images_are_imputed_as_by_the_authors_code():
    cases = imputation_cases()
    assert len(cases) == 8
    for case in cases.values():
        image, keep = case["image"], case["mask"].astype(bool)
        filled = tl.impute_linear(torch.from_numpy(image)[None], torch.from_numpy(keep)[None])
        assert np.abs(filled[0].numpy() - case["imputed"]).max() < 1e-3
        assert np.allclose(solve_direct(image, keep), case["imputed"], atol=1e-9)


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


@pytest.mark.parametrize(
    "shape", [(3, 224, 224), (1, 4, 4), (1, 17, 1), (3, 5, 3), (1, 7, 89), (1, 25, 25), (2, 40, 33), (3, 1300)]
)
def test_noise_is_that_of_torch(shape):
    inputs, keep = torch.zeros(2, *shape), torch.zeros(2, *shape[1:], dtype=torch.bool)
    streams = [5, 2**62 + 12345]
    expected = [torch.empty(shape).normal_(generator=torch.Generator().manual_seed(seed)) for seed in streams]
    noise = tl.LinearImputer(noise=1.0)(inputs, keep, streams)
    torch.testing.assert_close(noise, torch.stack(expected), atol=4e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_the_same_without_the_compiled_library(dtype, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 3, 20, 31, generator=generator, dtype=dtype)
    keep = torch.rand(3, 20, 31, generator=generator) > 0.6
    imputer = tl.LinearImputer(tolerance=1e-6)
    compiled = imputer(images, keep, [1, 2, 3])
    for module in (imputers, multigrid):
        monkeypatch.setattr(module, "load_library", lambda: None)
    torch.testing.assert_close(imputer(images, keep, [1, 2, 3]), compiled, atol=3e-6, rtol=0)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_channels_last_changes_the_memory_format_only(channels, noise):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, channels, 18, 23, generator=generator)
    keep = torch.rand(2, 18, 23, generator=generator) > 0.6
    imputer = tl.LinearImputer(noise=noise)
    last = imputer(images, keep, [1, 2], channels_last=True)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, imputer(images, keep, [1, 2]))


def test_noise_does_not_depend_on_threads():
    generator = torch.Generator().manual_seed(0)
    images, keep = torch.rand(5, 3, 224, 224, generator=generator), torch.rand(5, 224, 224, generator=generator) > 0.6
    found, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(tl.LinearImputer()(images, keep, range(5)))
    torch.set_num_threads(before)
    assert torch.equal(*found)


def test_a_signal_of_which_nothing_is_kept_is_empty():
    signals, keep = torch.rand(2, 2, 30), torch.rand(2, 30) > 0.5
    keep[0] = False
    filled = tl.LinearImputer(noise=0.0, empty=0.25)(signals, keep, [0, 1])
    assert (filled[0] == 0.25).all()
    assert torch.equal(filled[1:], tl.impute_linear(signals[1:], keep[1:]))


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


def upside_down(inputs, keep, streams):
    return torch.where(keep, inputs, -inputs)


def test_imputers_are_found_by_name_by_table_and_as_they_are():
    assert list(IMPUTERS) == ["linear", "constant", "mean", "blur", "token"]
    assert find_imputer("linear") == tl.LinearImputer()
    assert find_imputer("constant") == tl.ConstantImputer(0.0)
    assert find_imputer("blur") == tl.BlurImputer()
    assert find_imputer({"name": "linear", "noise": 0, "method": "direct"}) == tl.LinearImputer(
        noise=0.0, method="direct"
    )
    assert find_imputer({"name": "constant", "value": 1}) == tl.ConstantImputer(1.0)
    assert find_imputer({"name": "blur", "sigma": 2}) == tl.BlurImputer(sigma=2.0)
    assert repr(find_imputer({"name": "mean", "mean": [1, 2.5]})) == "MeanImputer([1.0, 2.5])"
    assert repr(find_imputer("mean")) == "MeanImputer()"
    for own in (tl.ConstantImputer(3.0), upside_down):
        assert find_imputer(own) is own


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            "linaer",
            ValueError,
            r"^`imputer` must be one of linear, constant, mean, blur, token; got 'linaer'\. Did you mean",
        ),
        ({"noise": 0.1}, ValueError, r"^`imputer` must be one of linear, constant, mean, blur, token; got None\.$"),
        (
            {"name": "linear", "noize": 0.1},
            ValueError,
            r"^`imputer linear` must be .*; got 'noize'\. Did you mean 'noise'",
        ),
        ({"name": "linear", "noise": "x"}, TypeError, r"^`imputer linear\.noise` must be a number; got 'x'\.$"),
        ({"name": "linear", "noise": -1}, ValueError, r"^`noise` must be >= 0"),
        ({"name": "mean", "mean": "x"}, TypeError, r"^`imputer mean\.mean` must be a number or a list of numbers"),
        (3, TypeError, r"^`imputer` must be one of linear, constant, mean, blur, token, or a function; got 3\.$"),
        (None, TypeError, r"^`imputer` must be one of .*, or a function; got None\.$"),
    ],
)
def test_imputers_that_do_not_exist_are_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        find_imputer(given)


@pytest.mark.parametrize(
    "imputer",
    [
        tl.LinearImputer(noise=0.5, tolerance=1e-4, method="torch", empty=0.25),
        tl.ConstantImputer(0.5),
        tl.MeanImputer(),
        tl.MeanImputer(0.5),
        tl.MeanImputer([0.5, 4.0]),
        tl.MeanImputer(torch.arange(6.0)),
        tl.MeanImputer(np.arange(12.0).reshape(3, 2, 2)),
        tl.BlurImputer(sigma=2.5),
    ],
    ids=repr,
)
def test_descriptions_survive_json_and_become_imputers_again(imputer):
    stored = json.loads(json.dumps(describe_imputer(imputer)))
    again = restore_imputer(stored)
    assert type(again) is IMPUTERS[stored["name"]] is type(imputer)
    assert describe_imputer(again) == stored
    assert repr(again) == repr(imputer)
    if not isinstance(imputer, tl.MeanImputer) or imputer.mean is None:
        return
    inputs = torch.rand(2, *np.shape(imputer.mean) or (3,))
    keep = torch.zeros(2, *(inputs.shape[2:] or inputs.shape[1:]), dtype=torch.bool)
    assert torch.equal(again(inputs, keep, []), imputer(inputs, keep, []))


def test_descriptions_tell_imputers_apart():
    given = [
        tl.LinearImputer(),
        tl.LinearImputer(noise=0.0),
        tl.ConstantImputer(0.0),
        tl.ConstantImputer(1.0),
        tl.MeanImputer([0.0, 1.0]),
        tl.MeanImputer([0.0, 2.0]),
        tl.MeanImputer(np.arange(5000.0)),
        tl.MeanImputer(np.arange(5000.0)[::-1]),
        tl.BlurImputer(),
        upside_down,
        lambda inputs, keep, streams: inputs,
    ]
    assert len({json.dumps(describe_imputer(imputer)) for imputer in given}) == len(given)


def test_functions_and_large_means_are_described_and_do_not_come_back():
    described = describe_imputer(upside_down)
    assert (described["name"], described["function"]) == ("own", "upside_down")
    large = describe_imputer(tl.MeanImputer(np.arange(5000.0)))
    assert large["mean"].startswith("(5000,) values ")
    for stored in (described, large):
        restored = restore_imputer(stored)
        assert isinstance(restored, UnavailableImputer)
        assert describe_imputer(restored) == stored
        with pytest.raises(tl.RunError, match=r"`imputer` of this run is a custom one .*Pass it again\."):
            restored(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), [0])


def test_a_mean_imputer_without_a_mean_says_what_to_pass():
    rows, keep = torch.rand(2, 3), torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"^`mean` is missing: pass tl\.MeanImputer\(mean\), with the mean of your training"
    ):
        tl.MeanImputer()(rows, keep, [0, 1])
