import numpy as np
import pandas as pd
import pytest
import torch

from tests.small_runs import QUICK, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.integrations.explanations import attribute
from twinlens.probing.maps import (
    CHANNELS,
    Reading,
    check_ids,
    check_maps,
    map_kinds,
    normalise,
    spatial_shape,
    to_float32,
)
from twinlens.support.arrays import as_tensor

IDS = ("cat", "dog")


def read(maps, spatial, *, ids, **reading):
    return check_maps(maps, spatial, ids=ids, reading=Reading(**reading))


def test_maps_with_and_without_channel_axis_are_the_same_maps():
    maps = torch.rand(2, 4, 5)
    for given in (maps, maps[:, None], maps.numpy()):
        assert torch.equal(read(given, (4, 5), ids=IDS), maps)


def test_channels_are_reduced_only_by_name():
    maps = torch.tensor([[[3.0], [-4.0]]])
    expected = {"sum": -1.0, "mean": -0.5, "max": 3.0, "absolute_sum": 7.0, "norm": 5.0}
    assert set(expected) == set(CHANNELS)
    for name, value in expected.items():
        reduced = read(maps, (1,), ids=("cat",), channels=name, sign="absolute")
        assert reduced.item() == pytest.approx(abs(value))
    with pytest.raises(ValueError, match=r"have 2 channels .* channels='sum' or 'mean'"):
        read(maps, (1,), ids=("cat",))
    with pytest.raises(ValueError, match=r"`channels` must be one of sum, mean.*got 'total'"):
        read(maps, (1,), ids=("cat",), channels="total")


def test_sign_policy():
    maps = torch.tensor([[1.0, 2.0], [1.0, -3.0]])
    with pytest.raises(ValueError, match=r"map of sample 'dog' goes down to -3, and 1 of 2 maps.*sign='positive'"):
        read(maps, (2,), ids=IDS)
    assert read(maps, (2,), ids=IDS, sign="positive").tolist() == [[1, 2], [1, 0]]
    assert read(maps, (2,), ids=IDS, sign="absolute").tolist() == [[1, 2], [1, 3]]
    assert read(maps, (2,), ids=IDS, sign="signed").tolist() == [[1, 2], [1, -3]]
    assert maps[1, 1] == -3  # the caller's array is left alone
    with pytest.raises(ValueError, match="`sign` must be one of error, positive, absolute, signed; got 'abs'"):
        read(maps, (2,), ids=IDS, sign="abs")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("sign", ["error", "positive", "absolute"])
def test_non_finite_maps_are_refused_under_every_sign_policy(bad, sign):
    maps = torch.tensor([[1.0, 2.0], [1.0, bad]])
    with pytest.raises(ValueError, match=r"map of sample 'dog' contains NaN or infinity, as do 1 of 2 maps"):
        read(maps, (2,), ids=IDS, sign=sign)


def test_overflow_in_the_channel_sum_is_refused():
    maps = torch.full((1, 2, 1), 3e38)
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        read(maps, (1,), ids=("cat",), channels="sum")


def test_infinity_behind_a_larger_channel_is_refused():
    maps = torch.tensor([[[1.0], [-float("inf")]]])
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        read(maps, (1,), ids=("cat",), channels="max")


def test_wrong_count_and_wrong_shape():
    with pytest.raises(
        ValueError, match=r"one map for each of the 2 samples \(ids 'cat' to 'dog'\); got shape \(3, 4\)"
    ):
        read(torch.rand(3, 4), (4,), ids=IDS)
    with pytest.raises(ValueError, match=r"must have shape \(2, 4, 5\).*got \(2, 5, 4\)\. Say how to resize"):
        read(torch.rand(2, 5, 4), (4, 5), ids=IDS)
    with pytest.raises(TypeError, match="real numbers"):
        read(torch.rand(2, 4).to(torch.complex64), (4,), ids=IDS)


def test_eight_bit_maps_are_exact():
    maps = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    checked = read(maps, (16, 16), ids=("cat",))
    assert checked.dtype == torch.float32
    assert np.array_equal(checked.numpy(), maps.astype(np.float32))


def test_arrays_that_torch_cannot_share_are_copied_without_a_warning():
    array = np.arange(6.0).reshape(2, 3)
    frozen = array.copy()
    frozen.flags.writeable = False
    for given in (array[:, ::-1], array.astype(">f8"), frozen, array.astype(np.uint16), array.tolist()):
        assert np.array_equal(as_tensor(given, "maps").numpy(), np.asarray(given))
    with pytest.raises(TypeError, match="`maps` must hold real numbers; got list of dtype <U1"):
        as_tensor(["a"], "maps")


def test_normalise_and_kinds():
    maps = torch.tensor([[1.0, 4.0], [2.0, 2.0], [0.0, 0.0]])
    assert normalise(maps).tolist() == [[0.25, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert map_kinds(maps) == ["regular", "constant", "zero"]


def test_ids():
    assert check_ids([3, "x"], 2) == ("3", "x")
    with pytest.raises(ValueError, match="name each of the 3 samples; got 2 ids"):
        check_ids(["a", "b"], 3)
    with pytest.raises(ValueError, match="'a' occurs twice"):
        check_ids(["a", "b", "a"], 3)


def test_empty_inputs_have_no_maps():
    with pytest.raises(ValueError, match=r"none of them empty; got shape \(0, 3, 4, 4\)"):
        spatial_shape((0, 3, 4, 4))


def test_one_sample_and_maps_one_place_wide_are_resized():
    assert read(torch.ones(1, 2, 2), (4, 4), ids=("cat",), resize="nearest").shape == (1, 4, 4)
    assert read(torch.ones(2, 1, 3), (4, 4), ids=IDS, resize="bilinear").shape == (2, 4, 4)
    with pytest.raises(ValueError, match="`maps` must have shape"):
        read(torch.ones(2, 0, 3), (4, 4), ids=IDS, resize="nearest")


@pytest.mark.parametrize("factor", [1e-60, 1e-320, 1e60, 1e300])
def test_maps_beyond_float32_are_scaled_and_rank_as_they_are(factor, tmp_path):
    maps = np.random.default_rng(0).random((10, 9, 9)) + 0.01
    scaled = to_float32(torch.from_numpy(maps * factor))
    order = torch.from_numpy(maps * factor).flatten(1).argsort(dim=1)  # some are equal close to the smallest number
    assert (scaled.flatten(1).gather(1, order).diff(dim=1) >= 0).all()
    assert ((scaled.flatten(1).amax(dim=1) >= 0.5) & (scaled.flatten(1).amax(dim=1) < 1)).all()

    def areas(factor, how):
        own = maps * factor
        methods = {"mine": lambda model, inputs, targets, ids: own[[int(name) for name in ids]]} if how == "own" else {}
        stored = {"maps": {"mine": own}} if how == "stored" else {}
        evaluation = evaluate(tiny_model(), samples(), methods, metrics=["deletion"], **stored, **QUICK)
        return evaluation.summary()

    if factor > 1e-300:  # closer to the smallest number, digits are lost
        for how in ("own", "stored"):
            close = pd.testing.assert_frame_equal
            close(areas(factor, how), areas(1.0, how), rtol=1e-6)
    assert torch.equal(
        attribute(tiny_model(), torch.from_numpy(samples()[0]), samples()[1], lambda *_: maps),
        torch.from_numpy(maps).float(),
    )


def test_maps_within_float32_are_not_scaled():
    maps = torch.tensor([[1e-20, 3e-21], [0.0, 0.0], [1e20, 1.0]], dtype=torch.float64)
    assert torch.equal(to_float32(maps), maps.float())
    assert torch.equal(to_float32(maps.float()), maps.float())
