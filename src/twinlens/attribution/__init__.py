"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, ids=None, seed=0, …its own options) -> maps (N, *S)`, values >= 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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
from twinlens.attribution.perturbation import extremal_perturbation, occlusion, rise
from twinlens.attribution.shapley import kernel_shap
from twinlens.maps import ArrayLike
from twinlens.probing import Labels, Model

METHODS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
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
    """Explains why a model gives each input its target class.

    Args:
        model: an `nn.Module` that returns logits; for `kernel_shap` also a callable such as `predict_proba`.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the model expects them.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        ids: one name per sample, from which all that is random is drawn.
        seed: the other half of what randomness is drawn from.
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
    if callable(method):
        return method(model, inputs, targets, ids=ids, seed=seed, **options)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, or a function; got {method!r}.")
    function = METHODS[method]
    known = [name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise TypeError(f"`{name}` is no option of {method}; its options are {', '.join(known)}.")
    return function(model, inputs, targets, ids=ids, seed=seed, **options)
