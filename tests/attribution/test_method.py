"""What every method gets from the decorator: its signature, its docstring, its declarations and its checks."""

import inspect
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.docstrings import entries
from twinlens.attribution import BASELINES, find_ensemble
from twinlens.attribution.harness import Request
from twinlens.attribution.method import AttributionMethod, Explain, declared, explain_copies, options_of, refuse_unknown

SHARED = ["ids", "seed", "batch_size", "sign", "features"]


@pytest.mark.parametrize("name", tl.METHODS)
def test_every_option_of_a_method_is_listed_and_explained(name):
    method = tl.METHODS[name]
    parameters = inspect.signature(method).parameters
    assert list(parameters)[:3] == ["model", "inputs", "targets"]
    assert list(parameters)[-5:] == SHARED
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    documented = entries(method)
    assert list(documented) == list(parameters)
    assert all(len(text) > 5 for text in documented.values())
    assert "unused" not in inspect.getdoc(method)


@pytest.mark.parametrize("name", tl.METHODS)
def test_methods_are_pickled_by_name(name):
    assert pickle.loads(pickle.dumps(tl.METHODS[name])) is tl.METHODS[name]


def test_methods_declare_what_they_need():
    needing = {
        need: {name for name, method in tl.METHODS.items() if getattr(declared(method), need)}
        for need in ("baseline", "any_callable")
    }
    for option in ("reference", "layer", "segments"):
        needing[option] = {name for name, method in tl.METHODS.items() if option in options_of(method)}
    assert needing["reference"] == {"iba", "input_iba", "kernel_shap", "gradient_shap", "occlusion", "rise"}
    assert {name for name, method in tl.METHODS.items() if declared(method).reference == "rows"} == {
        "occlusion",
        "rise",
    }
    assert {"gradcam", "cam", "excitation_backprop", "iba"} <= needing["layer"]
    assert needing["baseline"] == {"random", "sobel", "centre", "rect", "pooling"} == BASELINES
    assert needing["any_callable"] == needing["segments"] == {"kernel_shap"}
    assert find_ensemble("ig_var", {}) == ("integrated_gradients", "var")
    assert find_ensemble("saliency", {}) is find_ensemble("deepshap", {}) is None
    assert find_ensemble("smoothgrad", {"ensemble": "sq"}) == ("saliency", "sq")


def test_every_method_has_a_title_of_its_own():
    titles = {name: declared(method).title for name, method in tl.METHODS.items()}
    assert all(titles.values())
    assert len(set(titles.values())) == len(titles)
    paper = (
        "integrated_gradients",
        "ig_sg",
        "ig_sq",
        "ig_var",
        "gradcam",
        "deepshap",
        "extremal_perturbation",
        "input_iba",
    )
    assert [titles[name] for name in paper] == [
        "IG",
        "IG-SG",
        "IG-SQ",
        "IG-Var",
        "GradCAM",
        "DeepSHAP",
        "ExPerturb",
        "InputIBA",
    ]


def test_a_method_of_one_screen():
    """As the docstring of the decorator says: options, checks, batches and an undisturbed model come by themselves."""
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(12, 2)).train()
    seen = []

    @AttributionMethod(title="Shifted", inputs="images")
    def shifted(model: nn.Module, request: Request, *, by: float = 1.0, times: int = 2) -> Explain:
        """Inputs, shifted.

        Args:
            by: how far.
            times: how often.
        """
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())

        def explain(batch: Request) -> torch.Tensor:
            seen.append((len(batch), torch.is_grad_enabled()))
            return batch.inputs + by * times

        return explain

    images = torch.arange(36.0).reshape(3, 1, 3, 4)
    assert torch.equal(shifted(model, images, [0, 1, 0], by=2.0, batch_size=2), images[:, 0] + 4)
    assert seen == [(2, False), (1, False)]
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    for options, error, message in (
        ({"times": 0}, ValueError, "`times` must be at least 1; got 0"),
        ({"by": "far"}, TypeError, "`by` must be a number; got 'far'"),
        ({"by": -1.0}, ValueError, "`by` must lie within"),
        (
            {"inputs": images[:, 0]},
            ValueError,
            r"`inputs` must be images \(N, C, H, W\) for shifted; got shape \(3, 3, 4",
        ),
        ({"inputs": images.long()}, ValueError, "token ids, which shifted cannot explain"),
        ({"model": np.sum}, TypeError, "`model` must be an nn.Module"),
        ({"targets": [0.5, 0.0, 1.0]}, TypeError, "`targets` must be integers"),
    ):
        with pytest.raises(error, match=message):
            shifted(**{"model": model, "inputs": images, "targets": [0, 1, 0]} | options)
    with pytest.raises(TypeError, match="`far` is no option of shifted; its options are by, times, batch_size"):
        shifted(model, images, [0, 1, 0], far=1)


@pytest.mark.parametrize("name", ["ig_sg", "deepshap", "smoothgrad"])
def test_ensembles_from_the_same_copies_are_those_of_each_alone(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    inputs, options = torch.randn(3, 1, 3, 4), {"samples": 3, "seed": 4}
    together = explain_copies(tl.METHODS[name], model, inputs, [0, 1, 0], ["sg", "sq", "var"], **options)
    for kind, maps in together.items():
        own = {} if name == "ig_sg" else {"ensemble": kind}
        alone = tl.METHODS[name if own else f"ig_{kind}"](model, inputs, [0, 1, 0], **options, **own)
        assert torch.equal(maps, alone)
        assert maps.max() > 0


def test_an_option_that_a_method_does_not_have():
    with pytest.raises(
        TypeError, match=r"window, stride, baseline, reference, batch_size, sign\. Did you mean 'window'\?$"
    ):
        refuse_unknown(tl.METHODS["occlusion"], ["windw"])
