"""Models that return something else than a tensor of logits, as a person hands them over."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.small_runs import samples
from tests.tiny import tiny_model

QUICK = {"metrics": ["deletion", "completeness"], "batch_size": 16, "memory_format": "contiguous", "resamples": 100}
Pair = namedtuple("Pair", ["logits", "features"])


class Wrapped(nn.Module):
    """The tiny model, its answer wrapped."""

    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = tiny_model(), wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


WRAPPED = {
    "[0]": lambda z: (z, z.sum(dim=1)),
    "['logits']": lambda z: {"features": z[:, :, None], "logits": z},
    "['out']": lambda z: {"out": z},
    ".logits": lambda z: SimpleNamespace(logits=z),
}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, 8)


@pytest.mark.parametrize("place", WRAPPED)
def test_logits_are_found_in_what_a_model_returns(data, place):
    plain = tl.evaluate(tiny_model(), data, ["gradcam", "occlusion", "rise"], **QUICK)
    found = tl.evaluate(Wrapped(WRAPPED[place]), data, ["gradcam", "occlusion", "rise"], **QUICK)
    assert found.run.manifest.model.output == place
    for method in plain.methods:
        torch.testing.assert_close(found.maps(method), plain.maps(method))
        np.testing.assert_array_equal(
            found.curve(method, "deletion").performance, plain.curve(method, "deletion").performance
        )


def test_a_named_tuple_is_read_by_its_name(data):
    maps = tl.attribute(Wrapped(lambda z: Pair(z, z)), *data, "saliency")
    torch.testing.assert_close(maps, tl.attribute(tiny_model(), *data, "saliency"))


def test_a_function_of_ones_own_sees_the_model_as_it_is(data):
    def mine(model, inputs, targets):
        return model(inputs)["out"].mean() + inputs[:, 0].detach()

    found = tl.evaluate(Wrapped(WRAPPED["['out']"]), data, {"mine": {"method": mine, "sign": "absolute"}}, **QUICK)
    inputs = torch.from_numpy(data[0])
    with torch.no_grad():
        expected = tiny_model().eval()(inputs).mean() + inputs[:, 0]
    torch.testing.assert_close(found.maps("mine"), expected.abs())


@pytest.mark.parametrize("shape", [(-1, 1), (-1,)])
def test_one_logit_is_that_of_the_second_of_two_classes(data, shape):
    inputs, labels = data[0], data[1] % 2

    def two(z):
        half = (z[:, 1] - z[:, 0]) / 2
        return torch.stack([-half, half], dim=1)

    one = Wrapped(lambda z: (z[:, 1] - z[:, 0]).reshape(shape))
    found = tl.evaluate(one, (inputs, labels), ["integrated_gradients"], **QUICK)
    plain = tl.evaluate(Wrapped(two), (inputs, labels), ["integrated_gradients"], **QUICK)
    assert found.run.manifest.model.output == "one logit"
    torch.testing.assert_close(found.maps("integrated_gradients"), plain.maps("integrated_gradients"))
    tables = [e.curve("integrated_gradients", "deletion").table for e in (found, plain)]
    np.testing.assert_allclose(tables[0].probability, tables[1].probability, rtol=1e-6)
    np.testing.assert_array_equal(tables[0].predicted, tables[1].predicted)
    with pytest.raises(ValueError, match=r"has label 2 .* the model knows 0 to 1"):
        tl.evaluate(one, data, ["random"], **QUICK)


def test_what_holds_no_logits_is_refused(data):
    with pytest.raises(TypeError, match=r"must return logits \(samples, classes\), or have them as `logits`"):
        tl.evaluate(Wrapped(lambda z: {"a": z, "b": z}), data, ["random"], **QUICK)


def test_a_softmax_at_the_end_of_the_model_is_noticed():
    model, (inputs, labels) = nn.Sequential(tiny_model(), nn.Softmax(dim=1)), samples()
    maps = np.random.default_rng(0).random((len(inputs), *inputs.shape[2:]))
    arguments = (model, torch.from_numpy(inputs), labels, maps)
    with pytest.warns(UserWarning, match="seems to end with a softmax.*output='probabilities'"):
        tl.deletion(*arguments)
    with pytest.warns(UserWarning, match="seems to end with a softmax"):
        tl.evaluate(model, (inputs, labels), ["random"], **QUICK)
    for output in ("probabilities", "logits"):  # no warning, which would be an error here
        tl.deletion(*arguments, output=output)
        tl.evaluate(model, (inputs, labels), ["random"], output=output, **QUICK)
