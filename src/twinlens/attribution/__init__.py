"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, ids=None, seed=0, …its own options) -> maps (N, *S)`, values >= 0.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from twinlens.attribution.adapters import Adapted, adapt
from twinlens.attribution.bottleneck import iba, input_iba
from twinlens.attribution.cam import cam, gradcam
from twinlens.attribution.controls import centre, pooling, random, rect, sobel
from twinlens.attribution.deeplift import deeplift, deepshap, deepshap_ensembles
from twinlens.attribution.gradients import (
    excitation_backprop,
    guided_backprop,
    ig_ensembles,
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
from twinlens.attribution.tokens import ON_EMBEDDINGS, EmbeddedModel
from twinlens.core.arguments import check_arguments, checked, kinds_of
from twinlens.core.arrays import ArrayLike
from twinlens.core.calling import Labels, Model, blaming, check_inputs
from twinlens.core.maps import AS_IT_IS, check_maps, spatial_shape
from twinlens.core.randomness import check_seed
from twinlens.core.tokens import are_tokens
from twinlens.errors import unknown


def _method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a method check its arguments, name the model where that fails, and return no map that is not finite."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Tensor:
        args, named = check_arguments(function, args, named)
        check_numbers(named, kinds_of(function))
        with blaming("model"):
            maps = function(*_on_embeddings(function.__name__, args), **named)
        if not maps.isfinite().all():
            raise ValueError("`inputs` lead to NaN or infinity in the maps. Check their normalisation.")
        return maps

    return call


def _on_embeddings(method: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put embeddings in the place of token ids."""
    if len(args) < 2 or not are_tokens(args[1]) or not isinstance(args[0], nn.Module):
        return args
    model, tokens, *rest = args
    if method == "random":
        return (model, tokens.float(), *rest)
    if method not in ON_EMBEDDINGS:
        raise ValueError(
            f"`inputs` are token ids, which {method} cannot explain; {', '.join(ON_EMBEDDINGS)} and random can, and so "
            "may a function of yours."
        )
    embedded = EmbeddedModel(model, tokens)
    return (embedded, embedded.embed(tokens), *rest)


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


_IG_ENSEMBLES = {"ig_sg": "sg", "ig_sq": "sq", "ig_var": "var"}


def find_ensemble(method: str, options: Mapping[str, Any]) -> tuple[Callable[..., dict[str, Tensor]], str] | None:
    """Return what makes ensembles of a method from the same noisy copies, and which of them it is; None for others.

    Example:
        >>> function, kind = find_ensemble("deepshap", {"ensemble": "var"})
        >>> function.__name__, kind
        ('deepshap_ensembles', 'var')
    """
    if method in _IG_ENSEMBLES:
        return ig_ensembles, _IG_ENSEMBLES[method]
    if method == "deepshap" and options.get("ensemble") is not None:
        return deepshap_ensembles, options["ensemble"]
    return None


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
    if not isinstance(method, str):
        return _attribute_by(adapt(method, "method"), model, inputs, targets, ids, seed, options)
    if method not in METHODS:
        raise unknown("method", method, METHODS, or_else=", or a function")
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
