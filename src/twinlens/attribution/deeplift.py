"""DeepLIFT and DeepSHAP: contributions to the change of a logit, from a backward pass that compares two inputs.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, M baselines.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from twinlens.attribution.ensembles import NoisyCopies
from twinlens.attribution.harness import Request, check_reference, like_one_input, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.rescale import RescaleRules
from twinlens.support.arrays import ArrayLike

MaxPooling = Literal["difference", "gradient"]


def contributing(model: nn.Module, baselines: Tensor, check: bool, max_pooling: MaxPooling) -> Explain:
    """Return a function that explains a batch by its mean signed contributions against baselines (M, C, *S)."""

    @torch.enable_grad()
    def explain(batch: Request) -> Tensor:
        total = torch.zeros_like(batch.inputs)
        for baseline in baselines:
            rules = RescaleRules(max_pooling=max_pooling)
            with rules:
                start = model(baseline[None].detach().requires_grad_())
            leaf = batch.inputs.detach().clone().requires_grad_()
            with rules.replay():
                logits = target_logits(model, leaf, batch.targets)
            (multipliers,) = torch.autograd.grad(logits.sum(), leaf)
            contributions = multipliers * (batch.inputs - baseline)
            if check and max_pooling == "difference":
                _check_complete(contributions, (logits - start[0, batch.targets]).detach(), batch)
            total += contributions
        return total / len(baselines)

    return explain


def _check_complete(contributions: Tensor, gained: Tensor, batch: Request) -> None:
    missing = (contributions.flatten(1).sum(dim=1) - gained).abs()
    for i in (missing > 0.05 * gained.abs() + 0.05).nonzero().flatten().tolist():
        raise ValueError(
            f"`model`: the contributions of sample {batch.ids[i]!r} do not sum to the change of its logit "
            f"({gained[i].item():.3g}, off by {missing[i].item():.3g}). The model has operations that DeepLIFT has "
            "no rule for, such as LayerNorm or attention. Use integrated_gradients, or check=False to continue."
        )


_MODEL = "a network of linear operations, activations (also in place, re-used or functional), max pooling and products"


@AttributionMethod(title="DeepLIFT", model=_MODEL)
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
            the positions of both, as the code of DeepSHAP does; contributions sum to the change of the logit.
            "gradient" passes everything to the position of the input's maximum, as the authors of DeepLIFT do, and
            Captum where pooling follows a ReLU; contributions then do not sum to that change, and `check` is off.
        check: refuse a model for which contributions do not sum to the change of the logit.
    """
    return contributing(model, like_one_input(baseline, "baseline", request.inputs)[None], check, max_pooling)


@AttributionMethod(title="DeepSHAP", model=_MODEL, copies_of="deepshap", options_as=deeplift)
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

    With a single baseline, as by default, it is DeepLIFT.

    Args:
        background: baselines (M, C, *S); by default a single one of zeros, as in the paper.
        ensemble: explain noisy copies, too, and combine them as `ig_sg`, `ig_sq` or `ig_var` does: "sg", "sq" or "var".
        samples: noisy copies of an ensemble.
        variance: variance of their noise.
    """
    zeros = torch.zeros_like(request.inputs[:1])
    baselines = zeros if background is None else check_reference(background, "background", request.inputs)
    one = contributing(model, baselines, check, max_pooling)
    return one if ensemble is None else NoisyCopies(explain=one, kind=ensemble, samples=samples, variance=variance)
