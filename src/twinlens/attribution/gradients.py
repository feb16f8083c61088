"""Attribution from gradients, and from backward passes with changed rules.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, P points of a path or of a noise sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution.cam import find_layer, resize_to
from twinlens.attribution.harness import Request, at_least_one, in_batches, make_request, target_logits
from twinlens.attribution.rules import excitation_rules, guided_rules, rescale_rules
from twinlens.core.arrays import ArrayLike, as_tensor
from twinlens.core.calling import Labels
from twinlens.errors import unknown


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


def _baseline_of(baseline: float | ArrayLike, inputs: Tensor) -> Tensor:
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
    start = _baseline_of(baseline, request.inputs)
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


def _ensemble(
    model: nn.Module,
    request: Request,
    explain: Callable[[Request], Tensor],
    ensemble: str,
    *,
    samples: int,
    variance: float,
) -> Tensor:
    """Combine the explanations of noisy copies; the noise is drawn by sample id."""
    at_least_one(samples=samples)
    if not variance >= 0:
        raise ValueError(f"`variance` must be >= 0; got {variance!r}.")

    def explain_copies(part: Request) -> Tensor:
        mean, square = (torch.zeros_like(part.inputs, dtype=torch.float64) for _ in range(2))
        for draw in range(samples):
            noise = variance**0.5 * part.normal(part.inputs.shape[1:], "noise", draw)
            one = explain(replace(part, inputs=part.inputs + noise)).double()
            mean += one / samples
            square += one**2 / samples
        return ENSEMBLES[ensemble](mean, square)

    return in_batches(model, request, explain_copies)


def _ig_ensemble(
    model: nn.Module, request: Request, ensemble: str, samples: int, variance: float, steps: int, start: Tensor
) -> Tensor:
    at_least_one(steps=steps)

    def explain(part: Request) -> Tensor:
        return _integrate(model, part.inputs, part.targets, start, steps, part.batch_size)

    return _ensemble(model, request, explain, ensemble, samples=samples, variance=variance)


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
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = _baseline_of(baseline, request.inputs)
    return _ig_ensemble(model, request, "sg", samples, variance, steps, start)


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
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = _baseline_of(baseline, request.inputs)
    return _ig_ensemble(model, request, "sq", samples, variance, steps, start)


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
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = _baseline_of(baseline, request.inputs)
    return _ig_ensemble(model, request, "var", samples, variance, steps, start)


def _contributions(model: nn.Module, part: Request, baselines: Tensor, *, check: bool) -> Tensor:
    """Compute DeepLIFT's contributions (B, C, *S) against one baseline per sample, signed."""
    both = torch.cat([part.inputs, baselines])
    with torch.enable_grad():
        leaf = both.detach().clone().requires_grad_()
        with rescale_rules():
            logits = target_logits(model, leaf, part.targets.repeat(2))
        (multipliers,) = torch.autograd.grad(logits[: len(part)].sum(), leaf)
    contributions = multipliers[: len(part)] * (part.inputs - baselines)
    if check:
        gained = (logits[: len(part)] - logits[len(part) :]).detach()
        missing = (contributions.flatten(1).sum(dim=1) - gained).abs()
        off = (missing > 0.05 * gained.abs() + 0.05).nonzero().flatten().tolist()
        for i in off:
            raise ValueError(
                f"`model`: the contributions of sample {part.ids[i]!r} do not sum to the change of its logit "
                f"({gained[i].item():.3g}, off by {missing[i].item():.3g}). The model has operations that DeepLIFT has "
                "no rule for, such as LayerNorm or attention. Use integrated_gradients, or check=False to go on."
            )
    return contributions


def deeplift(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    baseline: float | ArrayLike = 0.0,
    check: bool = True,
) -> Tensor:
    """DeepLIFT with the rescale rule (Shrikumar et al. 2017), summed over the channels, its positive part.

    Args:
        model: a network of linear operations, activations, max pooling and products; ReLUs may be in place, re-used or
            functional.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        batch_size: samples per batch; by default 16, or more for small inputs.
        baseline: the reference, a number or an array like one input; zero in the paper.
        check: refuse a model for which contributions do not sum to the change of the logit.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = _baseline_of(baseline, request.inputs)
    return in_batches(
        model,
        request,
        lambda part: _contributions(model, part, start.expand_as(part.inputs), check=check),
    )


def deepshap(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    background: ArrayLike | None = None,
    check: bool = True,
    ensemble: Literal["sg", "sq", "var"] | None = None,
    samples: int = 20,
    variance: float = 0.3,
) -> Tensor:
    """DeepSHAP (Lundberg & Lee 2017): DeepLIFT's contributions averaged over baselines drawn from the data.

    Args:
        model: as for `deeplift`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: seed of the noise of an ensemble; every baseline serves every sample.
        batch_size: samples per batch; by default 16, or more for small inputs.
        background: baselines (M, C, *S); by default a single one of zeros, as in the paper.
        check: as for `deeplift`.
        ensemble: explain noisy copies, too, and combine them as `ig_sg`, `ig_sq` or `ig_var` does: "sg", "sq" or "var".
        samples: noisy copies of an ensemble.
        variance: of their noise.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    given = torch.zeros_like(request.inputs[:1]) if background is None else as_tensor(background, "background")
    if given.shape[1:] != request.inputs.shape[1:] or len(given) == 0:
        raise ValueError(
            f"`background` must hold baselines shaped like one input {tuple(request.inputs.shape[1:])}; got shape "
            f"{tuple(given.shape)}."
        )
    baselines = given.to(request.inputs)
    if not baselines.isfinite().all():
        raise ValueError("`background` must be finite; it holds NaN or infinity.")

    def explain(part: Request) -> Tensor:
        total = torch.zeros_like(part.inputs)
        for one in baselines:
            total += _contributions(model, part, one.expand_as(part.inputs), check=check)
        return total / len(baselines)

    if ensemble is None:
        return in_batches(model, request, explain)
    if ensemble not in ENSEMBLES:
        raise unknown("ensemble", ensemble, ENSEMBLES)
    return _ensemble(model, request, explain, ensemble, samples=samples, variance=variance)


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
