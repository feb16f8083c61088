"""Attribution from gradients, and from backward passes with changed rules.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, P points of a path or of a noise sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution.cam import find_layer, resize_to
from twinlens.attribution.harness import (
    Request,
    at_least_one,
    in_batches,
    make_request,
    several_in_batches,
    target_logits,
)
from twinlens.attribution.rules import excitation_rules, guided_rules
from twinlens.core.arrays import ArrayLike, as_tensor
from twinlens.core.calling import Labels


def _gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = inputs.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(target_logits(model, leaf, targets).sum(), leaf)
    return gradient


def saliency(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> Tensor:
    """Saliency (Simonyan et al. 2014): the largest magnitude of the target logit's gradient over the channels.

    Args:
        model: any differentiable module that returns logits.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        batch_size: samples per batch; by default 16, or more for small inputs.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)

    def explain(part: Request) -> Tensor:
        magnitude = _gradient(model, part.inputs, part.targets).abs()
        return magnitude if magnitude.dim() == 2 else magnitude.amax(dim=1)

    return in_batches(model, request, explain)


def input_x_gradient(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> Tensor:
    """Input × gradient (Shrikumar et al. 2016), summed over the channels, its positive part.

    Arguments as for `saliency`.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    return in_batches(model, request, lambda part: part.inputs * _gradient(model, part.inputs, part.targets))


def guided_backprop(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> Tensor:
    """Guided backpropagation (Springenberg et al. 2015): ReLUs let only positive gradients pass.

    Arguments as for `saliency`. In-place, re-used and functional ReLUs follow the rule as well; a model without any is
    refused, because the result would be its plain gradient.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)

    def explain(part: Request) -> Tensor:
        rules = guided_rules()
        with rules:
            gradient = _gradient(model, part.inputs, part.targets)
        if rules.used == 0:
            raise ValueError("`model` must have ReLUs for guided_backprop, and this one has none. Use saliency.")
        return gradient

    return in_batches(model, request, explain)


def baseline_of(baseline: float | ArrayLike, inputs: Tensor) -> Tensor:
    """Return a baseline shaped like one input."""
    values = as_tensor(baseline, "baseline").to(inputs)
    if not values.isfinite().all():
        raise ValueError(f"`baseline` must be finite as {inputs.dtype}; it holds NaN or infinity.")
    try:
        return values.expand(inputs.shape[1:])
    except RuntimeError as error:
        raise ValueError(
            f"`baseline` must be a number or fit one input {tuple(inputs.shape[1:])}; got shape {tuple(values.shape)}."
        ) from error


def _integrate(model: nn.Module, inputs: Tensor, targets: Tensor, baseline: Tensor, steps: int, rows: int) -> Tensor:
    """Compute signed integrated gradients (B, C, *S) by Gauss-Legendre quadrature, `rows` points per call."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    places = torch.tensor((nodes + 1) / 2, dtype=inputs.dtype, device=inputs.device)
    shares = torch.tensor(weights / 2, dtype=inputs.dtype, device=inputs.device)
    mean = torch.zeros_like(inputs)
    together = max(1, rows // len(inputs))
    one_more = [1] * (inputs.dim() - 1)
    for first in range(0, steps, together):
        place, share = places[first : first + together], shares[first : first + together]
        points = baseline + place.reshape(-1, 1, *one_more) * (inputs - baseline)
        gradients = _gradient(model, points.flatten(0, 1), targets.repeat(len(place))).unflatten(0, points.shape[:2])
        mean += (share.reshape(-1, 1, *one_more) * gradients).sum(dim=0)
    return mean * (inputs - baseline)


def integrated_gradients(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
) -> Tensor:
    """Integrated Gradients (Sundararajan et al. 2017), summed over the channels, its positive part.

    Args:
        model: any differentiable module that returns logits.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        batch_size: samples per batch, and points of their paths per call of the model; by default 16, or more for
            small inputs.
        steps: points of the Gauss-Legendre quadrature along the path.
        baseline: where the path starts, a number or an array like one input; zero in the paper.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = baseline_of(baseline, request.inputs)
    at_least_one(steps=steps)
    return in_batches(
        model,
        request,
        lambda part: _integrate(model, part.inputs, part.targets, start, steps, part.batch_size),
    )


ENSEMBLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sg": lambda mean, _: mean,
    "sq": lambda _, square: square,
    "var": lambda mean, square: square - mean**2,
}
"""How the explanations of noisy copies become one, from the means of x and of x²."""


def combine_copies(
    model: nn.Module,
    request: Request,
    explain: Callable[[Request], Tensor],
    kinds: Sequence[str],
    *,
    samples: int,
    variance: float,
) -> dict[str, Tensor]:
    """Combine the explanations of noisy copies in several ways; the noise is drawn by sample id."""
    at_least_one(samples=samples)
    if not variance >= 0:
        raise ValueError(f"`variance` must be >= 0; got {variance!r}.")

    def explain_copies(part: Request) -> list[Tensor]:
        mean, square = (torch.zeros_like(part.inputs, dtype=torch.float64) for _ in range(2))
        for draw in range(samples):
            noise = variance**0.5 * part.normal(part.inputs.shape[1:], "noise", draw)
            one = explain(replace(part, inputs=part.inputs + noise)).double()
            mean += one / samples
            square += one**2 / samples
        return [ENSEMBLES[kind](mean, square) for kind in kinds]

    return dict(zip(kinds, several_in_batches(model, request, explain_copies), strict=True))


def ig_ensembles(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    kinds: Sequence[str],
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    samples: int = 20,
    variance: float = 0.3,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
) -> dict[str, Tensor]:
    """Make several of IG-SG ("sg"), IG-SQ ("sq") and IG-Var ("var") from the same noisy copies, for the price of one.

    Arguments as for `ig_sg`.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = baseline_of(baseline, request.inputs)
    at_least_one(steps=steps)

    def explain(part: Request) -> Tensor:
        return _integrate(model, part.inputs, part.targets, start, steps, part.batch_size)

    return combine_copies(model, request, explain, kinds, samples=samples, variance=variance)


def ig_sg(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    samples: int = 20,
    variance: float = 0.3,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
) -> Tensor:
    """IG-SG: the mean of integrated gradients over noisy copies (SmoothGrad, Smilkov et al. 2017).

    Args:
        model: any differentiable module that returns logits.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample, by which its noise is drawn.
        seed: seed of the noise.
        batch_size: samples per batch; by default 16, or more for small inputs.
        samples: noisy copies of each input; 20 in the paper.
        variance: of the Gaussian noise, in the model's units; 0.3 in the paper.
        steps: points along each path.
        baseline: where each path starts; zero in the paper.
    """
    return ig_ensembles(
        model, inputs, targets, ["sg"], ids=ids, seed=seed, batch_size=batch_size,
        samples=samples, variance=variance, steps=steps, baseline=baseline,
    )["sg"]  # fmt: skip


def ig_sq(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    samples: int = 20,
    variance: float = 0.3,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
) -> Tensor:
    """IG-SQ: the mean square of integrated gradients over noisy copies (SmoothGrad², Hooker et al. 2019).

    Arguments as for `ig_sg`.
    """
    return ig_ensembles(
        model, inputs, targets, ["sq"], ids=ids, seed=seed, batch_size=batch_size,
        samples=samples, variance=variance, steps=steps, baseline=baseline,
    )["sq"]  # fmt: skip


def ig_var(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    samples: int = 20,
    variance: float = 0.3,
    steps: int = 32,
    baseline: float | ArrayLike = 0.0,
) -> Tensor:
    """IG-Var: the variance of integrated gradients over noisy copies (VarGrad, Adebayo et al. 2018).

    Arguments as for `ig_sg`.
    """
    return ig_ensembles(
        model, inputs, targets, ["var"], ids=ids, seed=seed, batch_size=batch_size,
        samples=samples, variance=variance, steps=steps, baseline=baseline,
    )["var"]  # fmt: skip


def excitation_backprop(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    layer: str | None = None,
) -> Tensor:
    """Excitation backpropagation (Zhang et al. 2018): the probability that a feature wins on the way to the class.

    Args:
        model: a convolutional network with ReLUs.
        inputs: (N, C, H, W).
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        batch_size: samples per batch; by default 16, or more for small inputs.
        layer: dotted name of the layer at which probabilities are read, summed over its channels and resized to the
            input; by default the last spatial feature map.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)

    def explain(part: Request) -> Tensor:
        kept: list[Tensor] = []

        def watch(_: nn.Module, __: object, output: Tensor) -> Tensor:
            kept.append(output.detach().clone().requires_grad_())
            return kept[-1].clone()

        handle = find_layer(model, part.inputs, layer).register_forward_hook(watch)
        try:
            with torch.enable_grad(), excitation_rules():
                logits = target_logits(model, part.inputs, part.targets)
            (probability,) = torch.autograd.grad(logits.sum(), kept[-1])
        finally:
            handle.remove()
        if probability.dim() != 4:
            raise ValueError("`model` must have convolutional features for excitation_backprop. Use gradcam.")
        return resize_to(probability.sum(dim=1), part.inputs.shape[2:])

    return in_batches(model, request, explain)
