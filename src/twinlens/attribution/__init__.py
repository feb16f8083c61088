"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, ids=None, seed=0, …its own options) -> maps (N, *S)`, values >= 0.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from torch import Tensor

from twinlens.attribution.bottleneck import iba, input_iba
from twinlens.attribution.cam import cam, gradcam
from twinlens.attribution.controls import centre, pooling, random, rect, sobel
from twinlens.attribution.gradients import (
    deeplift,
    deepshap,
    excitation_backprop,
    guided_backprop,
    ig_sg,
    ig_sq,
    ig_var,
    input_x_gradient,
    integrated_gradients,
    saliency,
)
from twinlens.attribution.harness import check_numbers
from twinlens.attribution.perturbation import extremal_perturbation, occlusion, rise
from twinlens.attribution.shapley import kernel_shap
from twinlens.core.arguments import check_arguments, checked, kinds_of
from twinlens.core.arrays import ArrayLike, as_tensor
from twinlens.core.calling import Labels, Model, blaming
from twinlens.core.maps import spatial_shape
from twinlens.core.randomness import check_seed
from twinlens.errors import unknown


def _method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a method check its arguments, name the model where that fails, and return no map that is not finite."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Tensor:
        args, named = check_arguments(function, args, named)
        check_numbers(named, kinds_of(function))
        with blaming("model"):
            maps = function(*args, **named)
        if not maps.isfinite().all():
            raise ValueError("`inputs` lead to NaN or infinity in the maps. Check their normalisation.")
        return maps

    return call


METHODS: dict[str, Callable[..., Tensor]] = {
    function.__name__: _method(function)
    for function in (
        saliency,
        input_x_gradient,
        guided_backprop,
        integrated_gradients,
        ig_sg,
        ig_sq,
        ig_var,
        deeplift,
        deepshap,
        excitation_backprop,
        cam,
        gradcam,
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

CONTROLS = frozenset(function.__name__ for function in (random, sobel, centre, rect, pooling))
"""Methods that ignore the model, or were crafted to do well on a particular data set."""


def options_of(method: Callable[..., Tensor]) -> dict[str, inspect.Parameter]:
    """Return a method's own options by name, without `ids` and `seed`, which all methods share."""
    parameters = inspect.signature(method).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY and name not in ("ids", "seed")}


def needs_reference(method: Callable[..., Tensor]) -> bool:
    """Return whether a method compares inputs with others, as its option `reference` declares."""
    return "reference" in options_of(method)


def check_options(method: str, options: Iterable[str]) -> None:
    """Refuse an option that a method does not have.

    Example:
        >>> check_options("occlusion", ["windw"])
        Traceback (most recent call last):
            ...
        TypeError: `windw` is no option of occlusion; its options are batch_size, window, stride, baseline. Did you mean
        'window'?
    """
    known = options_of(METHODS[method])
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            listed = f"its options are {', '.join(known)}" if known else "it has none"
            raise TypeError(f"`{name}` is no option of {method}; {listed}.{hint}")


def _checked_maps(maps: Any, inputs: Tensor) -> Tensor:
    """Refuse what a function of the user's returned, if these are no maps of finite numbers for the inputs."""
    values, spatial = as_tensor(maps, "method"), spatial_shape(inputs.shape)
    if values.shape[:1] != inputs.shape[:1] or values.shape[1:] != spatial != values.shape[2:]:
        raise ValueError(
            f"`method` must return maps {(len(inputs), *spatial)}, or these with a channel axis second; it returned "
            f"shape {tuple(values.shape)}."
        )
    if values.is_floating_point() and not values.isfinite().all():
        raise ValueError("`method` must return maps of finite numbers; it returned NaN or infinity.")
    return values


@checked
def attribute(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
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
        method: a name in `METHODS`, or a function of the same signature.
        ids: one name per sample; random draws derive from `seed` and the name.
        seed: seed of everything random.
        **options: options of the method; `help(tl.METHODS[name])` explains them.

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
    if callable(method):
        with blaming("method"):
            maps = method(model, inputs, targets, ids=ids, seed=seed, **options)
        return _checked_maps(maps, as_tensor(inputs, "inputs"))
    if method not in METHODS:
        raise unknown("method", method, METHODS, or_else=", or a function")
    check_options(method, options)
    return METHODS[method](model, inputs, targets, ids=ids, seed=seed, **options)
