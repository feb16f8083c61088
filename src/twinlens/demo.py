"""Demonstrations: the main job on a model and data that come inside packages."""

from __future__ import annotations

from typing import Any

DEMOS: dict[str, dict[str, Any]] = {
    "mnist": {
        "model": "mnist-cnn",
        "data": "mnist",
        "limit": 500,
        "methods": {
            "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
            "ig_sg": {"method": "ig_sg", "samples": 4, "steps": 8},
            "guided_backprop": "guided_backprop",
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "occlusion": "occlusion",
            "random": "random",
            "sobel": "sobel",
        },
    },
    "imagenet": {
        "model": "efficientnet-lite0",
        "data": "imagenet20",
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
