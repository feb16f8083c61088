"""DeepLIFT and DeepSHAP: contributions to the change of a logit, from a backward pass that compares two inputs.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, M baselines.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from twinlens.attribution.ensembles import NoisyCopies
from twinlens.attribution.gradients import baseline_of
from twinlens.attribution.harness import Request, find_baselines, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.rescale import RescaleRules
from twinlens.support.arrays import ArrayLike

MaxPooling = Literal["difference", "gradient"]


def _contributions(
    model: nn.Module, part: Request, baseline: Tensor, *, check: bool, max_pooling: MaxPooling = "difference"
) -> Tensor:
    """Compute DeepLIFT's contributions (B, C, *S) against a baseline (C, *S), signed."""
    rules = RescaleRules(max_pooling=max_pooling)
    with torch.enable_grad():
        with rules:
            start = model(baseline[None].detach().requires_grad_())
        leaf = part.inputs.detach().clone().requires_grad_()
        with rules.replay():
            logits = target_logits(model, leaf, part.targets)
        (multipliers,) = torch.autograd.grad(logits.sum(), leaf)
    contributions = multipliers * (part.inputs - baseline)
    if check and max_pooling == "difference":
        gained = (logits - start[0, part.targets]).detach()
        missing = (contributions.flatten(1).sum(dim=1) - gained).abs()
        off = (missing > 0.05 * gained.abs() + 0.05).nonzero().flatten().tolist()
        for i in off:
            raise ValueError(
                f"`model`: the contributions of sample {part.ids[i]!r} do not sum to the change of its logit "
                f"({gained[i].item():.3g}, off by {missing[i].item():.3g}). The model has operations that DeepLIFT has "
                "no rule for, such as LayerNorm or attention. Use integrated_gradients, or check=False to go on."
            )
    return contributions


_MODEL = "a network of linear operations, activations (also in place, re-used or functional), max pooling and products"


@AttributionMethod(model=_MODEL)
def deeplift(
    model: nn.Module,
    request: Request,
    *,
    baseline: float | ArrayLike = 0.0,
    max_pooling: MaxPooling = "difference",
    check: bool = True,
) -> Explain:
    """DeepLIFT with the rescale rule (Shrikumar et al. 2017), summed over the channels, its positive part.

    Args:
        baseline: the reference, a number or an array like one input; zero in the paper.
        max_pooling: the rule of max pooling. "difference" shares what the maximum gained over the baseline's between
            the places of both, as the code of DeepSHAP does, so that contributions sum to the change of the logit.
            "gradient" passes all to the place of the input's maximum, as the authors of DeepLIFT do, and Captum where
            pooling stands behind a ReLU; contributions then do not sum to that change, and `check` is off.
        check: refuse a model for which contributions do not sum to the change of the logit.
    """
    start = baseline_of(baseline, request.inputs)
    return lambda part: _contributions(model, part, start, check=check, max_pooling=max_pooling)


@AttributionMethod(model=_MODEL, copies_of="deepshap", options_as=deeplift)
def deepshap(
    model: nn.Module,
    request: Request,
    *,
    background: ArrayLike | None = None,
    max_pooling: MaxPooling = "difference",
    check: bool = True,
    ensemble: Literal["sg", "sq", "var"] | None = None,
    samples: int = 20,
    variance: float = 0.3,
) -> Explain:
    """DeepSHAP (Lundberg & Lee 2017): DeepLIFT's contributions averaged over baselines drawn from the data.

    With a single baseline, as by default, it is DeepLIFT itself.

    Args:
        background: baselines (M, C, *S); by default a single one of zeros, as in the paper.
        ensemble: explain noisy copies, too, and combine them as `ig_sg`, `ig_sq` or `ig_var` does: "sg", "sq" or "var".
        samples: noisy copies of an ensemble.
        variance: of their noise.
    """
    one = _against(model, request, background, check, max_pooling)
    return one if ensemble is None else NoisyCopies(explain=one, kind=ensemble, samples=samples, variance=variance)


def _against(
    model: nn.Module, request: Request, background: ArrayLike | None, check: bool, max_pooling: MaxPooling
) -> Explain:
    """Return what explains a batch by its mean contributions against all baselines."""
    baselines = find_baselines(background, "background", request.inputs)

    def explain(part: Request) -> Tensor:
        total = torch.zeros_like(part.inputs)
        for one in baselines:
            total += _contributions(model, part, one, check=check, max_pooling=max_pooling)
        return total / len(baselines)

    return explain
