"""Layer-wise relevance propagation for convolutional networks.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from twinlens.attribution.embeddings import EmbeddedModel
from twinlens.attribution.harness import Request, like_one_input, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.propagation import Composite, InputRule, Propagation
from twinlens.attribution.relevance import AlphaBeta, Epsilon, Gamma, Layer, Rule, share_flat, share_in_box
from twinlens.support.arrays import ArrayLike

LRPRule = Literal[
    "epsilon_plus_flat", "epsilon_plus", "epsilon_gamma_box", "epsilon_alpha2beta1_flat",
    "epsilon", "gamma", "alpha1beta0", "alpha2beta1",
]  # fmt: skip
MODEL = (
    "a network of linear layers, activations, pooling, normalisations, attention, sums and products (also in place, "
    "re-used or functional)"
)
_PLUS, _BOTH = AlphaBeta(1, 0), AlphaBeta(2, 1)


def _choose(rule: str, epsilon: float, gamma: float, box: InputRule, spread: bool) -> Composite:
    small, favouring = Epsilon(epsilon), Gamma(gamma, epsilon)
    rules: dict[str, tuple[Rule, Rule, InputRule | None]] = {
        "epsilon_plus_flat": (small, _PLUS, share_flat),
        "epsilon_plus": (small, _PLUS, None),
        "epsilon_gamma_box": (small, favouring, box),
        "epsilon_alpha2beta1_flat": (small, _BOTH, share_flat),
        "epsilon": (small, small, None),
        "gamma": (favouring, favouring, None),
        "alpha1beta0": (_PLUS, _PLUS, None),
        "alpha2beta1": (_BOTH, _BOTH, None),
    }
    dense, convolution, first = rules[rule]
    return Composite(dense=dense, convolution=convolution, first=first, spread=spread)


@AttributionMethod(title="LRP", model=MODEL, tokens="embeddings")
def lrp(
    model: nn.Module,
    request: Request,
    *,
    rule: LRPRule = "epsilon_plus_flat",
    epsilon: float = 1e-6,
    gamma: float = 0.25,
    low: float | ArrayLike | None = None,
    high: float | ArrayLike | None = None,
    bias: Literal["keep", "spread"] = "keep",
    check: bool = True,
) -> Explain:
    """Layer-wise relevance propagation (Bach et al. 2015), summed over the channels, its positive part.

    The relevance of the target class is its logit; every layer passes it to the layer before and conserves it. What
    biases keep is counted: with the relevance of the input it sums to the logit.

    Args:
        rule: one rule for all layers, "epsilon", "gamma", "alpha1beta0" (z⁺) or "alpha2beta1"; or a composite
            (Montavon et al. 2019; Kohlbrenner et al. 2020): epsilon in dense layers, another in convolutions (plus is
            z⁺), and a flat or a box rule where the input is read, except for token ids.
        epsilon: stabiliser of the epsilon and gamma rules; a larger one keeps more relevance and leaves less noise.
        gamma: extra weight of contributions with the sign of the output.
        low: smallest value that inputs can have, for the box rule: a number, or an array that fits one input; by
            default the minimum of each channel of the sample.
        high: largest value that inputs can have; as `low`.
        bias: let biases keep their share of relevance; or spread it over the other contributions, in layers of the plus
            and alpha-beta rules.
        check: refuse a model for which relevance of the input and of biases do not sum to the logit within 1%.
    """
    composite = _choose(rule, epsilon, gamma, _box(low, high, request.inputs), bias == "spread")
    if isinstance(model, EmbeddedModel):  # which has no pixels to share flatly
        composite = replace(composite, first=None)
    return lambda batch: relevance_of(model, batch, composite, check=check)[0]


def relevance_of(
    model: nn.Module, batch: Request, composite: Composite, *, check: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return relevance of the inputs (B, *S), signed, what was kept on the way (B,), and the logits (B,)."""
    propagation = Propagation(composite, len(batch))
    with torch.enable_grad():
        leaf = batch.inputs.detach().clone().requires_grad_()
        with propagation:
            logits = target_logits(model, leaf, batch.targets)
        (gradient,) = torch.autograd.grad(logits.sum(), leaf)
    relevance = _summed(batch.inputs * gradient)
    for each in propagation.at_input:
        own = each.unsqueeze(1) if each.shape[1:] == leaf.shape[2:] else each  # channels that are taken for positions
        at_input = _summed(own)
        if at_input.shape != relevance.shape:
            raise ValueError(
                f"`rule` must not end in a flat or box rule for this model, whose first layer reads values of shape "
                f"{tuple(each.shape[1:])} and not the input. Use 'epsilon_plus'."
            )
        relevance = relevance + at_input
    kept = torch.as_tensor(propagation.kept).to(logits).expand(len(batch))
    if check:
        _check_conserved(relevance, kept, logits.detach(), batch)
    return relevance, kept, logits.detach()


def _summed(values: Tensor) -> Tensor:
    return values if values.dim() == 2 else values.sum(dim=1)


def _check_conserved(relevance: Tensor, kept: Tensor, logits: Tensor, batch: Request) -> None:
    total = relevance.flatten(1).sum(dim=1) + kept
    missing = (total - logits).abs()
    # Rounding grows with what is summed, which may be much more than the logit where positive and negative cancel.
    rounding = 1e-4 * (relevance.flatten(1).abs().sum(dim=1) + kept.abs())
    for i in (missing > 0.01 * logits.abs() + rounding).nonzero().flatten().tolist():
        raise ValueError(
            f"`model`: relevance of sample {batch.ids[i]!r} and of biases sum to {total[i].item():.3g} and not to the "
            f"logit {logits[i].item():.3g}. The model has operations that LRP has no rule for. Use "
            "integrated_gradients, or check=False to continue."
        )


def _box(low: float | ArrayLike | None, high: float | ArrayLike | None, inputs: Tensor) -> InputRule:
    least, most = (
        None if value is None else like_one_input(value, name, inputs) for name, value in (("low", low), ("high", high))
    )

    def rule(layer: Layer, x: Tensor, relevance: Tensor) -> Tensor:
        axes = tuple(range(2, x.dim())) or (1,)
        bottom = x.amin(dim=axes, keepdim=True) if least is None else least
        top = x.amax(dim=axes, keepdim=True) if most is None else most
        return share_in_box(layer, x, relevance, bottom.expand_as(x), top.expand_as(x))

    return rule
