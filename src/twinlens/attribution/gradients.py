"""Attribution from gradients, and from backward passes with changed rules.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, M baselines.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution.cam import resize_to
from twinlens.attribution.ensembles import NoisyCopies
from twinlens.attribution.feature_maps import find_layer
from twinlens.attribution.harness import Request, check_reference, hooked, like_one_input, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.rules import excitation_rules, guided_rules
from twinlens.support.arrays import ArrayLike


def _gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = inputs.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(target_logits(model, leaf, targets).sum(), leaf)
    return gradient


@AttributionMethod(title="Saliency", tokens="embeddings")
def saliency(model: nn.Module, request: Request) -> Explain:
    """Saliency (Simonyan et al. 2014): the largest magnitude of the target logit's gradient over the channels."""
    return lambda batch: _largest(_gradient(model, batch.inputs, batch.targets))


def _largest(gradient: Tensor) -> Tensor:
    return gradient.abs() if gradient.dim() == 2 else gradient.abs().amax(dim=1)


@AttributionMethod(title="Input × Gradient", tokens="embeddings")
def input_x_gradient(model: nn.Module, request: Request) -> Explain:
    """Input × gradient (Shrikumar et al. 2016), summed over the channels, its positive part."""
    return lambda batch: batch.inputs * _gradient(model, batch.inputs, batch.targets)


@AttributionMethod(title="Guided Backprop", model="a network with ReLUs")
def guided_backprop(model: nn.Module, request: Request) -> Explain:
    """Guided backpropagation (Springenberg et al. 2015): ReLUs let only positive gradients pass.

    In-place, re-used and functional ReLUs follow the rule as well. A model without any is refused: the result would be
    its plain gradient.
    """

    def explain(batch: Request) -> Tensor:
        rules = guided_rules()
        with rules:
            gradient = _gradient(model, batch.inputs, batch.targets)
        if rules.used == 0:
            raise ValueError("`model` must have ReLUs for guided_backprop, and this one has none. Use saliency.")
        return gradient

    return explain


def integrating(model: nn.Module, request: Request, *, steps: int = 32, baseline: float | ArrayLike = 0.0) -> Explain:
    """Return a function that explains a batch by signed integrated gradients, by Gauss-Legendre quadrature."""
    start = like_one_input(baseline, "baseline", request.inputs)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    quadrature = [torch.tensor(values).to(start) for values in ((nodes + 1) / 2, weights / 2)]
    beside = [1] * start.dim()

    def explain(batch: Request) -> Tensor:
        inputs, together = batch.inputs, max(1, batch.batch_size // len(batch))
        mean = torch.zeros_like(inputs)
        for position, share in zip(*(each.split(together) for each in quadrature), strict=True):
            points = start + position.reshape(-1, 1, *beside) * (inputs - start)
            gradients = _gradient(model, points.flatten(0, 1), batch.targets.repeat(len(position)))
            mean += (share.reshape(-1, 1, *beside) * gradients.unflatten(0, points.shape[:2])).sum(dim=0)
        return mean * (inputs - start)

    return explain


@AttributionMethod(title="IG", tokens="embeddings")
def integrated_gradients(
    model: nn.Module, request: Request, *, steps: int = 32, baseline: float | ArrayLike = 0.0
) -> Explain:
    """Integrated Gradients (Sundararajan et al. 2017), summed over the channels, its positive part.

    Args:
        steps: points of the Gauss-Legendre quadrature along the path.
        baseline: where the path starts, a number or an array like one input; zero in the paper.
    """
    return integrating(model, request, steps=steps, baseline=baseline)


def _noisy_ig(
    model: nn.Module, request: Request, kind: str, *, samples: int = 20, variance: float = 0.3, **options: Any
) -> Explain:
    one = integrating(model, request, **options)
    return NoisyCopies(explain=one, kind=kind, samples=samples, variance=variance)


@AttributionMethod(title="IG-SG", copies_of="integrated_gradients", combined="sg", options_as=integrated_gradients)
def ig_sg(model: nn.Module, request: Request, *, samples: int = 20, variance: float = 0.3, **options: Any) -> Explain:
    """IG-SG: the mean of integrated gradients over noisy copies (SmoothGrad, Smilkov et al. 2017).

    Args:
        samples: noisy copies of each input; 20 in the paper.
        variance: variance of the Gaussian noise, in the model's units; 0.3 in the paper.
    """
    return _noisy_ig(model, request, "sg", samples=samples, variance=variance, **options)


@AttributionMethod(title="IG-SQ", copies_of="integrated_gradients", combined="sq", options_as=ig_sg)
def ig_sq(model: nn.Module, request: Request, **options: Any) -> Explain:
    """IG-SQ: the mean square of integrated gradients over noisy copies (SmoothGrad², Hooker et al. 2019)."""
    return _noisy_ig(model, request, "sq", **options)


@AttributionMethod(title="IG-Var", copies_of="integrated_gradients", combined="var", options_as=ig_sg)
def ig_var(model: nn.Module, request: Request, **options: Any) -> Explain:
    """IG-Var: the variance of integrated gradients over noisy copies (VarGrad, Adebayo et al. 2018)."""
    return _noisy_ig(model, request, "var", **options)


@AttributionMethod(title="SmoothGrad", copies_of="saliency", options_as=ig_sg)
def smoothgrad(
    model: nn.Module,
    request: Request,
    *,
    ensemble: Literal["sg", "sq", "var"] = "sg",
    samples: int = 20,
    variance: float = 0.3,
) -> Explain:
    """SmoothGrad (Smilkov et al. 2017): the mean gradient over noisy copies, its largest magnitude over the channels.

    Args:
        ensemble: take the mean of the gradients; or "sq", their mean square (Hooker et al. 2019); or "var", their
            variance (Adebayo et al. 2018).
        samples: noisy copies of each input.
    """
    return NoisyCopies(
        explain=lambda batch: _gradient(model, batch.inputs, batch.targets),
        kind=ensemble,
        samples=samples,
        variance=variance,
        reduce=_largest,
    )


@AttributionMethod(title="GradientSHAP")
def gradient_shap(
    model: nn.Module,
    request: Request,
    *,
    reference: ArrayLike | None = None,
    samples: int = 50,
    noise: float = 0.0,
) -> Explain:
    """GradientSHAP, or expected gradients (Lundberg & Lee 2017; Erion et al. 2021), its positive part.

    Integrated gradients with a baseline drawn from other inputs and a point drawn on the path from it, anew for each
    sample of the mean.

    Args:
        reference: baselines (M, C, *S), from which one is drawn at a time; a run draws them from its data. By default
            a single baseline of zeros, which gives integrated gradients at random points.
        samples: draws for each input; the error falls as 1 / √samples.
        noise: standard deviation of Gaussian noise added to the input at each draw, in the model's units.
    """
    zeros = torch.zeros_like(request.inputs[:1])
    baselines = zeros if reference is None else check_reference(reference, "reference", request.inputs)

    def explain(batch: Request) -> Tensor:
        total, generators = torch.zeros_like(batch.inputs), batch.generators("paths")
        for draw in range(samples):
            chosen = [int(torch.randint(len(baselines), (), generator=each)) for each in generators]
            positions = torch.stack([torch.rand((), generator=each) for each in generators]).to(batch.inputs)
            start, end = baselines[chosen], batch.inputs
            if noise > 0:
                end = end + noise * batch.normal(batch.inputs.shape[1:], "noise", draw)
            points = start + positions.reshape(-1, *[1] * (end.dim() - 1)) * (end - start)
            total += _gradient(model, points, batch.targets) * (end - start)
        return total / samples

    return explain


@AttributionMethod(title="Excitation Backprop", inputs="spatial", model="a convolutional network with ReLUs")
def excitation_backprop(
    model: nn.Module, request: Request, *, layer: str | None = None, contrastive: bool = False
) -> Explain:
    """Excitation backpropagation (Zhang et al. 2018): the probability that a feature wins on the way to the class.

    Args:
        contrastive: subtract the probabilities on the way to the opposite class, whose weights in the last linear layer
            have the other sign. Evidence for every class then cancels out.
        layer: dotted name of the layer at which probabilities are read, summed over its channels and resized to the
            input; by default the last spatial feature map.
    """

    def explain(batch: Request) -> Tensor:
        kept: list[Tensor] = []
        signs: list[int] = []

        def keep(_: nn.Module, __: object, output: Tensor) -> Tensor:
            kept.append(output.detach().clone().requires_grad_())
            return kept[-1].clone()

        with hooked([find_layer(model, batch.inputs, layer)], keep), torch.enable_grad(), excitation_rules(signs):
            logit = target_logits(model, batch.inputs, batch.targets).sum()
        (probability,) = torch.autograd.grad(logit, kept[-1], retain_graph=contrastive)
        if contrastive:
            signs.append(-1)
            probability = probability - torch.autograd.grad(logit, kept[-1])[0]
        if probability.dim() != batch.inputs.dim():
            raise ValueError("`model` must have convolutional features for excitation_backprop. Use gradcam.")
        return resize_to(probability.sum(dim=1), batch.inputs.shape[2:])

    return explain
