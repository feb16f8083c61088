"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, …its own options, ids=None, seed=0, batch_size=None)` that returns
maps (N, *S), values >= 0. `AttributionMethod` in method.py says how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from twinlens.attribution.baselines import centre, pooling, random, rect, sobel
from twinlens.attribution.bottleneck import iba, input_iba
from twinlens.attribution.cam import cam, gradcam
from twinlens.attribution.deeplift import deeplift, deepshap
from twinlens.attribution.gradients import (
    excitation_backprop,
    gradient_shap,
    guided_backprop,
    ig_sg,
    ig_sq,
    ig_var,
    input_x_gradient,
    integrated_gradients,
    saliency,
    smoothgrad,
)
from twinlens.attribution.lrp import lrp
from twinlens.attribution.method import declared, refuse_unknown
from twinlens.attribution.perturbation import extremal_perturbation, occlusion, rise
from twinlens.attribution.shapley import kernel_shap
from twinlens.attribution.transformers import attention_rollout, attn_lrp, gradient_attention
from twinlens.errors import unknown
from twinlens.support.plugins import load_plugin, with_plugins

METHODS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        saliency,
        input_x_gradient,
        smoothgrad,
        guided_backprop,
        integrated_gradients,
        ig_sg,
        ig_sq,
        ig_var,
        gradient_shap,
        deeplift,
        deepshap,
        lrp,
        excitation_backprop,
        cam,
        gradcam,
        attention_rollout,
        gradient_attention,
        attn_lrp,
        occlusion,
        rise,
        extremal_perturbation,
        iba,
        input_iba,
        kernel_shap,
        random,
        sobel,
        centre,
        rect,
        pooling,
    )
}
"""Every method by its name."""

CONTROLS = frozenset(name for name, method in METHODS.items() if declared(method).control)
"""Methods that ignore the model, or were crafted to do well on a particular data set."""


def method_names() -> list[str]:
    """List the names of all methods: ours, and those of packages that are installed as plug-ins."""
    return with_plugins(METHODS, "twinlens.methods")


def plugin_method(argument: str, name: str, *, or_else: str = "") -> Any:
    """Import a method of another package by its name, refusing a name that no package has.

    Args:
        argument: that gave the name, for the error.
        name: of the plug-in.
        or_else: what else the argument can be.
    """
    if name not in (names := method_names()):
        raise unknown(argument, name, names, or_else=or_else)
    return load_plugin("twinlens.methods", name)


def find_ensemble(method: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name of what a method makes noisy copies of, and how it combines them; None for others.

    Example:
        >>> find_ensemble("ig_sq", {}), find_ensemble("deepshap", {"ensemble": "var"}), find_ensemble("deepshap", {})
        (('integrated_gradients', 'sq'), ('deepshap', 'var'), None)
    """
    about = declared(METHODS[method])
    kind = about.combined or options.get("ensemble")
    return None if about.copies_of is None or kind is None else (about.copies_of, kind)


def needs_reference(method: Callable[..., Tensor]) -> bool:
    """Return whether a method compares inputs with others, in its option `reference`, as it declares."""
    return declared(method).reference


def check_options(method: str, options: Iterable[str]) -> None:
    """Refuse an option that a method does not have.

    Example:
        >>> check_options("occlusion", ["windw"])
        Traceback (most recent call last):
            ...
        TypeError: `windw` is no option of occlusion; its options are window, stride, baseline, batch_size. Did you mean
        'window'?
    """
    refuse_unknown(METHODS[method], options)
