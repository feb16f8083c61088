"""Explanations of other libraries, in the few lines that a person would write."""

import functools

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients, LayerGradCam, NoiseTunnel, Saliency

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.errors import RunError

QUICK = {"metrics": ["deletion"], "batch_size": 16, "memory_format": "contiguous", "shard_size": 4, "resamples": 100}


@pytest.fixture
def model():
    return tiny_model().eval()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(10, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, 10)


def as_our_own(maps):
    """Channels summed, what speaks against the class dropped."""
    return maps.detach().sum(dim=1).clamp(min=0)


def test_captum(model, data):
    evaluation = tl.evaluate(model, data, {"ig": IntegratedGradients(model)}, **QUICK)
    inputs, labels = map(torch.from_numpy, data)
    expected = IntegratedGradients(model).attribute(inputs, target=labels)
    torch.testing.assert_close(evaluation.maps("ig"), as_our_own(expected).float())
    record = evaluation.run.manifest.methods["ig"]
    assert record.function == "IntegratedGradients"
    assert record.options == {"sign": "positive", "channels": "sum", "resize": "bilinear"}


def test_captum_with_options(model, data):
    evaluation = tl.evaluate(
        model,
        data,
        {
            "ig": {"method": IntegratedGradients(model), "n_steps": 7, "baselines": 0.5, "sign": "absolute"},
            "bound": functools.partial(Saliency(model).attribute, abs=False),
            "layer": LayerGradCam(model, model[0]),
            "noisy": {"method": NoiseTunnel(Saliency(model)), "nt_samples": 2},
        },
        **QUICK,
    )
    inputs, labels = map(torch.from_numpy, data)
    expected = IntegratedGradients(model).attribute(inputs, target=labels, n_steps=7, baselines=0.5)
    torch.testing.assert_close(evaluation.maps("ig"), expected.sum(dim=1).abs().float())
    expected = Saliency(model).attribute(inputs.requires_grad_(), target=labels, abs=False)
    torch.testing.assert_close(evaluation.maps("bound"), as_our_own(expected))
    assert evaluation.maps("layer").shape == (10, 8, 8)
    assert evaluation.run.manifest.methods["ig"].options["n_steps"] == 7


def test_coarse_maps_are_enlarged(model, data):
    coarse = torch.nn.Sequential(torch.nn.MaxPool2d(2), model).eval()
    evaluation = tl.evaluate(coarse, data, {"layer": LayerGradCam(coarse, coarse[1][0])}, **QUICK)
    inputs, labels = map(torch.from_numpy, data)
    small = as_our_own(LayerGradCam(coarse, coarse[1][0]).attribute(inputs, target=labels))
    assert small.shape == (10, 4, 4)
    large = torch.nn.functional.interpolate(small[:, None], size=(8, 8), mode="bilinear")[:, 0]
    torch.testing.assert_close(evaluation.maps("layer"), large)


def test_an_explanation_of_another_model_is_refused(model, data):
    other = tiny_model()
    with torch.no_grad():
        other[0].weight.mul_(2)
    with (
        pytest.warns(UserWarning, match="ig fails"),
        pytest.raises(RunError, match="of another model than the one being evaluated: their weights differ"),
    ):
        tl.evaluate(model, data, {"ig": IntegratedGradients(other)}, **QUICK)
    tl.evaluate(model, data, {"ig": IntegratedGradients(tiny_model())}, **QUICK)  # a copy will do


def test_grad_cam(model, data):
    grad_cam = pytest.importorskip("pytorch_grad_cam")
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    cam = grad_cam.GradCAM(model=model, target_layers=[model[0]])
    evaluation = tl.evaluate(model, data, {"cam": cam}, **QUICK)
    assert cam.activations_and_grads.activations == []  # of the probes, none was kept
    inputs, labels = map(torch.from_numpy, data)
    expected = cam(input_tensor=inputs, targets=[ClassifierOutputTarget(k) for k in labels])
    assert expected.max() > 0
    torch.testing.assert_close(evaluation.maps("cam"), torch.from_numpy(expected))
    np.testing.assert_array_equal(tl.attribute(model, inputs, labels, cam), expected)


def test_quantus(model, data):
    quantus = pytest.importorskip("quantus")
    saliency = functools.partial(quantus.explain, method="Saliency")
    evaluation = tl.evaluate(model, data, {"saliency": saliency}, **QUICK)
    inputs, labels = data
    expected = quantus.explain(model, inputs, labels, method="Saliency")
    torch.testing.assert_close(evaluation.maps("saliency"), as_our_own(torch.from_numpy(expected)))


def test_a_function_gets_what_it_takes(model, data):
    def plain(model, inputs, targets):
        assert isinstance(targets, torch.Tensor)
        assert targets.dtype == torch.int64
        return inputs.abs().sum(dim=1) + targets[:, None, None]

    def seeded(model, x, y, seed):
        return np.full((len(x), 8, 8), seed) + np.arange(8)

    evaluation = tl.evaluate(model, data, {"plain": plain, "seeded": seeded}, seed=5, **QUICK)
    inputs, labels = data
    expected = np.abs(inputs).sum(axis=1) + labels[:, None, None]
    np.testing.assert_allclose(evaluation.maps("plain"), expected, rtol=1e-6)
    assert evaluation.maps("seeded").min() == 5


def test_how_maps_are_read_can_be_said_of_each(model, data, tmp_path):
    signed = np.random.default_rng(1).normal(size=(10, 3, 4, 4)).astype(np.float32)

    def own(model, inputs, targets, ids):
        return torch.from_numpy(signed)[[int(name) for name in ids]]

    np.save(tmp_path / "maps.npy", signed)
    reading = {"channels": "norm", "resize": "nearest"}
    evaluation = tl.evaluate(
        model,
        data,
        {"own": {"method": own, **reading}},
        maps={
            "array": {"maps": signed, **reading},
            "tensor": {"maps": torch.from_numpy(signed), **reading},
            "file": {"maps": str(tmp_path / "maps.npy"), **reading},
            "plain": np.ones((10, 8, 8)),
        },
        **QUICK,
    )
    expected = torch.from_numpy(np.linalg.norm(signed, axis=1)).repeat_interleave(2, 1).repeat_interleave(2, 2)
    for name in ("own", "array", "tensor", "file"):
        torch.testing.assert_close(evaluation.maps(name), expected)
    assert evaluation.maps("plain").unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({"mine": np.ones((9, 8, 8))}, "`maps` 'mine' must hold one map for each of the 10 samples"),
        ({"mine": 3}, r"`maps` 'mine' must hold one map for each of .*; its shape is \(\)"),
        ({"mine": "no.npy"}, "no.npy"),
        ({"mine": ["a", "b"]}, r"`maps\.mine` must hold real numbers"),
        ({"mine": {"map": "x.npy"}}, "the table of 'mine' has no \"maps\""),
        ({"mine": {"maps": np.ones((10, 8, 8)), "sing": "absolute"}}, r"`maps\.mine` must be one of .*'sign'"),
        ({"mine": np.ones((10, 4, 4))}, r"Say how to resize it \(`resize`\)"),
        ({"mine": -np.ones((10, 8, 8))}, "must not be negative"),
    ],
)
def test_maps_at_hand_that_cannot_be_used(model, data, maps, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tl.evaluate(model, data, [], maps=maps, **QUICK)


def test_what_a_method_returns_is_checked(model, data):
    inputs, labels = data
    with pytest.raises(ValueError, match=r"`maps` must have shape \(10, 8, 8\)"):
        tl.attribute(model, inputs, labels, lambda model, x, y: x[:, 0, :4])
    with pytest.raises(ValueError, match="`maps` must not be negative"):
        tl.attribute(model, inputs, labels, lambda model, x, y: x[:, 0])
    maps = tl.attribute(model, inputs, labels, lambda model, x, y: x, sign="absolute", channels="sum")
    np.testing.assert_allclose(maps, np.abs(inputs.sum(axis=1)), rtol=1e-5)
