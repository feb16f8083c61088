"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, …its own options, ids=None, seed=0, batch_size=None)` that returns
maps (N, *S), values >= 0. `AttributionMethod` in method.py says how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from twinlens.attribution.adapters import Adapted, adapt
from twinlens.attribution.bottleneck import iba, input_iba
from twinlens.attribution.cam import cam, gradcam
from twinlens.attribution.controls import centre, pooling, random, rect, sobel
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
from twinlens.core.arguments import checked
from twinlens.core.arrays import ArrayLike
from twinlens.core.calling import Labels, Model, blaming, check_inputs
from twinlens.core.maps import AS_IT_IS, check_maps, spatial_shape
from twinlens.core.plugins import METHOD_PLUGINS, load_plugin, with_plugins
from twinlens.core.randomness import check_seed
from twinlens.errors import unknown

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
    return with_plugins(METHODS, METHOD_PLUGINS)


def plugin_method(argument: str, name: str, *, or_else: str = "") -> Any:
    """Import a method of another package by its name, refusing a name that no package has.

    Args:
        argument: that gave the name, for the error.
        name: of the plug-in.
        or_else: what else the argument can be.
    """
    if name not in (names := method_names()):
        raise unknown(argument, name, names, or_else=or_else)
    return load_plugin(METHOD_PLUGINS, name)


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


@checked
def attribute(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    method: Any = "integrated_gradients",
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> Tensor:
    """Explain why a model gives each input its target class.

    Args:
        model: an `nn.Module` that returns logits; for `kernel_shap` also a callable such as `predict_proba`.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the model expects them.
        targets: (N,) classes to explain.
        method: a name in `METHODS`; a function `(model, inputs, targets)`, which may also take `ids`, `seed` and
            options; an attribution of Captum, an object of pytorch-grad-cam, or `quantus.explain`.
        ids: one name per sample; random draws derive from `seed` and the name.
        seed: seed of everything random.
        **options: options of the method; `help(tl.METHODS[name])` explains them. For a method that is not ours `sign`,
            `channels` and `resize` say how its maps are read, as in `evaluate`.

    Returns:
        Maps (N, *S), float32, values >= 0.

    Example:
        >>> import torch
        >>> linear = torch.nn.Linear(3, 2, bias=False)
        >>> linear.weight.data = torch.tensor([[1.0, -1.0, 0.0], [0.0, 2.0, 0.0]])
        >>> attribute(linear, torch.tensor([[5.0, 1.0, 7.0]]), [0], "integrated_gradients")
        tensor([[5., 0., 0.]])
    """
    check_seed(seed)
    if isinstance(method, str) and method not in METHODS:
        method = plugin_method("method", method, or_else=", or a function")
    if not isinstance(method, str):
        return _attribute_by(adapt(method, "method"), model, inputs, targets, ids, seed, options)
    check_options(method, options)
    return METHODS[method](model, inputs, targets, ids=ids, seed=seed, **options)


def _attribute_by(
    method: Adapted,
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    ids: Sequence[str | int] | None,
    seed: int,
    options: Mapping[str, Any],
) -> Tensor:
    """Explain by a method that is not ours, and check what it returns."""
    reading, own = method.split_options(options, AS_IT_IS)
    given, names = check_inputs(inputs, ids, tokens=True)
    with blaming("method"):
        maps = method(model, given, targets, ids=names, seed=seed, **own)
    try:
        return check_maps(maps, spatial_shape(given.shape), ids=names, **asdict(reading)).float()
    except (ValueError, TypeError) as error:
        raise type(error)(f"`method` returned what cannot be used: {error}") from None
