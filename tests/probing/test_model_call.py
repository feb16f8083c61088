import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.small_runs import QUICK, samples
from tests.tiny import tiny_model
from twinlens.probing.model_call import check_inputs


def test_integers_are_taken_as_tokens_and_only_where_they_may_be():
    tokens, pixels = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.uint8)
    assert check_inputs(tokens, None, tokens=True)[0] is not None
    for given, allowed in ((tokens, False), (pixels, True), (pixels, False)):
        with pytest.raises(TypeError, match="`inputs` must be floating-point, normalised as the model expects"):
            check_inputs(given, None, tokens=allowed)


def test_a_loaded_model_is_refused_with_its_module_as_the_remedy():
    loaded, inputs = tl.load_model("mnist-cnn"), torch.zeros(2, 1, 28, 28)
    with pytest.raises(TypeError, match=r"got LoadedModel\. Pass its `module`, and inputs as that expects them"):
        tl.completeness(loaded, inputs, [0, 1], torch.ones(2, 28, 28))
    with pytest.raises(TypeError, match=r"got int\.$"):
        tl.completeness(3, inputs, [0, 1], torch.ones(2, 28, 28))


@pytest.mark.parametrize("row", [[1.5, -0.5], [0.4, 0.4], [0.7, 0.7]])
def test_probabilities_are_not_negative_and_sum_to_one(row):
    with pytest.raises(ValueError, match=r"`model` must return probabilities, >= 0 and summing to 1 in each row"):
        tl.deletion(lambda x: np.tile(row, (len(x), 1)), np.ones((2, 3)), [0, 1], np.ones((2, 3)), levels=(0.5,))


class InPlace(nn.Module):
    """The tiny model, which subtracts a mean from its inputs in place."""

    def __init__(self, in_place):
        super().__init__()
        self.inner, self.in_place = tiny_model(), in_place

    def forward(self, inputs):
        return self.inner(inputs.sub_(0.5) if self.in_place else inputs - 0.5)


@pytest.mark.parametrize("method", ["occlusion", "rise", "integrated_gradients", "saliency"])
def test_a_model_that_works_in_place_gets_copies(method):
    inputs, targets = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), [0, 1, 2, 0]
    before = inputs.clone()
    expected = tl.attribute(InPlace(False), inputs, targets, method)
    model = InPlace(True)
    with pytest.warns(UserWarning, match="`model` changes its inputs in place") as caught:
        maps = [tl.attribute(model, inputs, targets, method) for _ in range(2)]
    assert len(caught) == 1
    assert torch.equal(inputs, before)
    for each in maps:
        torch.testing.assert_close(each, expected)


def test_an_evaluation_protects_the_inputs_of_other_libraries(tmp_path):
    def method(model, inputs, targets):
        first = model(inputs)
        return (model(inputs) - first).abs().sum(dim=1)[:, None, None].expand(-1, *inputs.shape[2:]) + 1

    data = samples()
    with pytest.warns(UserWarning, match="`model` changes its inputs in place"):
        run = tl.evaluate(InPlace(True), data, {"mine": method}, metrics=["deletion"], out=tmp_path / "run", **QUICK)
    assert run.maps("mine").max() == 1
    assert np.array_equal(data[0], samples()[0])
