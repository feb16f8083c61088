"""Demonstrations: the main job on a model and data that come inside packages."""

from __future__ import annotations

from collections.abc import Mapping

from twinlens.metrics.catalogue import DEFAULT_METRICS, METRICS

# The paper's soundness at the levels of the two-sided one, and not in steps of 1%: it then needs no probes of its own,
# and a first look takes no longer than a coffee.
_LEVELS = METRICS["soundness_two_sided"].sweeps(10_000)[0].schedule.levels
_COARSE = tuple(percent / 100 for percent in range(94, 0, -6))

DEMOS: dict[str, Mapping[str, object]] = {
    "mnist": {
        "model": "mnist-cnn",
        "data": "mnist",
        "limit": 300,
        "metrics": {name: name for name in DEFAULT_METRICS} | {"soundness": {"metric": "soundness", "levels": _LEVELS}},
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
        "levels": _COARSE,
        "control_share": 1.0,
        "metrics": ["soundness_two_sided", "completeness", "soundness"],
        "methods": {
            "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
            "deeplift": "deeplift",
            "gradcam": "gradcam",
            "random": "random",
            "sobel": "sobel",
        },
    },
}
"""Arguments of `evaluate` for each demonstration."""
