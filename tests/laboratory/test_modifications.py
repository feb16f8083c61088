import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from twinlens.laboratory.modifications import MODIFICATIONS, SCHEMES
from twinlens.probing.ranking import rank_features

EVERY = [(change, scheme) for change in MODIFICATIONS for scheme in SCHEMES]


def drawn(samples=3, side=10, seed=0):
    return torch.rand(samples, side, side, generator=torch.Generator().manual_seed(seed)) ** 2


def normal(maps):
    return maps.double() / maps.double().flatten(1).amax(dim=1)[:, None, None]


class TestTheTableOfThePaper:
    def test_constant(self):
        maps = drawn()
        assert torch.equal(
            tl.laboratory.remove_attribution(maps, "constant", trace=0), (normal(maps) - 0.6).clamp(min=0)
        )
        assert torch.equal(tl.laboratory.introduce_attribution(maps, "constant"), normal(maps) + 0.6)

    def test_the_trace_weighs_nothing(self):
        maps = drawn()
        for scheme in ("constant", "random"):
            with_trace, without = (tl.laboratory.remove_attribution(maps, scheme, trace=trace) for trace in (1e-9, 0))
            assert torch.allclose(with_trace, without, rtol=0, atol=1.1e-9)

    def test_random_shifts_each_feature_by_itself_within_the_amount(self):
        maps = drawn() + 1  # nothing is below 0.5 after scaling, and so nothing is cut off below
        down = normal(maps) - tl.laboratory.remove_attribution(maps, "random", amount=0.4)
        up = tl.laboratory.introduce_attribution(maps, "random", amount=0.4) - normal(maps)
        for shift in (down, up):
            assert shift.min() >= 0
            assert shift.max() <= 0.4
            assert 0.15 < shift.mean() < 0.25
            assert shift.unique().numel() == shift.numel()
        assert torch.allclose(down + up, torch.tensor(0.4, dtype=torch.float64))

    def test_partial_removes_a_fifth_in_the_middle_and_lifts_the_lowest_two_fifths(self):
        maps = (torch.randperm(100, generator=torch.Generator().manual_seed(1)) + 1.0).reshape(1, 10, 10)
        removed, introduced = (MODIFICATIONS[change](maps, "partial") * 100 for change in ("remove", "introduce"))
        expected = torch.where((maps > 60) & (maps <= 80), 0.0, maps.double())
        assert torch.allclose(removed, expected)
        expected = torch.where(maps <= 40, torch.tensor(80.2, dtype=torch.float64), maps.double())
        assert torch.allclose(introduced, expected)


class TestProperties:
    @given(st.integers(0, 10**6), st.sampled_from(EVERY))
    def test_nothing_negative_and_one_direction_only(self, seed, which):
        change, scheme = which
        maps = drawn(2, 6, seed)
        changed = MODIFICATIONS[change](maps, scheme, seed=seed)
        assert changed.dtype == torch.float64
        assert changed.shape == maps.shape
        assert (changed >= 0).all()
        assert (changed <= normal(maps)).all() if change == "remove" else (changed >= normal(maps)).all()

    @given(st.integers(0, 10**6), st.floats(0.01, 100))
    def test_scale_of_the_maps_changes_nothing(self, seed, factor):
        maps = drawn(2, 6, seed).double()
        for change, scheme in EVERY:
            one, other = (MODIFICATIONS[change](scaled, scheme, seed=seed) for scaled in (maps, factor * maps))
            assert torch.allclose(one, other, atol=1e-12)

    @pytest.mark.parametrize(("change", "scheme"), EVERY)
    def test_a_sample_is_changed_alike_wherever_it_stands(self, change, scheme):
        maps, ids = drawn(4), ["a", "b", "c", "d"]
        together = MODIFICATIONS[change](maps, scheme, ids=ids)
        alone = MODIFICATIONS[change](maps[2:3], scheme, ids=["c"])
        assert torch.equal(together[2:3], alone)

    def test_seed_and_id_change_what_is_random(self):
        maps = drawn(1).expand(2, -1, -1)
        changed = tl.laboratory.introduce_attribution(maps, "random")
        assert not torch.equal(changed[0], changed[1])
        assert not torch.equal(changed, tl.laboratory.introduce_attribution(maps, "random", seed=1))

    @given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
    def test_a_constant_keeps_the_order(self, seed, dtype):
        maps = drawn(2, 8, seed)
        for change in MODIFICATIONS.values():
            # Runs store maps in float32, which must not tie what was apart.
            before, after = (rank_features(each, ids="ab", seed=0) for each in (maps, change(maps).to(dtype)))
            assert torch.equal(before.rank, after.rank)

    @given(st.integers(0, 10**6))
    def test_at_random_both_changes_have_one_order(self, seed):
        maps = drawn(2, 8, seed)
        one, other = (rank_features(change(maps, "random"), ids="ab", seed=0) for change in MODIFICATIONS.values())
        assert torch.equal(one.rank, other.rank)

    def test_without_a_trace_what_is_left_keeps_its_order_and_the_rest_is_tied(self):
        maps = drawn(1)
        changed = tl.laboratory.remove_attribution(maps, "constant", trace=0).flatten()
        left = normal(maps).flatten() > 0.6
        assert 0 < left.sum() < len(left)
        assert torch.equal(changed[left].argsort(), maps.flatten()[left].argsort())
        assert (changed[~left] == 0).all()


class TestDegenerateMaps:
    def test_a_map_of_zeros(self):
        zeros = np.zeros((1, 4, 4))
        assert (tl.laboratory.remove_attribution(zeros) == 0).all()
        assert (tl.laboratory.introduce_attribution(zeros) == 0.6).all()

    def test_rows_and_signals(self):
        assert tl.laboratory.remove_attribution(np.ones((2, 5)), "partial").shape == (2, 5)


class TestRefusals:
    def test_scheme(self):
        with pytest.raises(ValueError, match="`scheme` must be one of constant, random, partial; got 'some'"):
            tl.laboratory.remove_attribution(drawn(), "some")

    @pytest.mark.parametrize("amount", [0, 1.1, float("nan")])
    def test_amount(self, amount):
        with pytest.raises((ValueError, TypeError), match=r"`amount` must (lie within|be a number; got nan)"):
            tl.laboratory.introduce_attribution(drawn(), amount=amount)

    def test_negative_maps(self):
        with pytest.raises(ValueError, match="`maps` must not be negative; the map of sample 'b'"):
            tl.laboratory.remove_attribution(torch.tensor([[1.0, 2.0], [1.0, -1.0]]), ids=["a", "b"])

    def test_one_map_without_its_sample(self):
        with pytest.raises(ValueError, match=r"`maps` must be \(samples, \*spatial\)"):
            tl.laboratory.remove_attribution(torch.ones(5))

    def test_ids(self):
        with pytest.raises(ValueError, match="`ids` must name each of the 3 samples; got 1"):
            tl.laboratory.remove_attribution(drawn(), ids=["a"])
