"""Demonstrations: the main job on a model and data that come inside packages."""

from __future__ import annotations

from collections.abc import Mapping

# Steps of 5% where the paper takes 1%: a first look should not take longer than a coffee.
_LEVELS = (0.98, *(percent / 100 for percent in range(95, 0, -5)))

DEMOS: dict[str, Mapping[str, object]] = {
    "mnist": {
        "model": "mnist-cnn",
        "data": "mnist",
        "limit": 500,
        "levels": _LEVELS,
        "methods": {
            "integrated_gradients": {"method": "integrated_gradients", "steps": 16, "batch_size": 128},
            "ig_sg": {"method": "ig_sg", "samples": 4, "steps": 8, "batch_size": 128},
            "guided_backprop": "guided_backprop",
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "occlusion": {"method": "occlusion", "window": 7, "stride": 3},
            "random": "random",
            "sobel": "sobel",
        },
    },
    "imagenet": {
        "model": "efficientnet-lite0",
        "data": "imagenet20",
        "levels": _LEVELS,
        "methods": {
            "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
            "input_x_gradient": "input_x_gradient",
            "guided_backprop": "guided_backprop",
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "iba": "iba",
            "random": "random",
            "sobel": "sobel",
        },
    },
}
"""Arguments of `evaluate` for each demonstration."""
