"""Attribution for vision transformers, from their attention weights and by relevance propagation.

Shapes: B samples, A heads, T tokens (extra ones first, then h · w patches), (H, W) the size of the input.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from twinlens.attribution.attention import attend, attend_with_heads
from twinlens.attribution.cam import resize_to
from twinlens.attribution.harness import Request, target_logits
from twinlens.attribution.lrp import MODEL, relevance_of
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.propagation import Composite
from twinlens.attribution.relevance import Epsilon, Gamma, Rule
from twinlens.attribution.rules import SOFTMAX, Operation, Rules

_MOST_EXTRA = 16  # class, distillation and register tokens


class Attention(Rules):
    """A context that records the attention weights of a model, fused or not."""

    def __init__(self) -> None:
        """Prepare for one call of the model."""
        self.weights: list[Tensor] = []
        """(B, A, T, T) of each layer, each token's over all tokens."""
        self.grids: list[tuple[int, int]] = []
        """Sizes of the outputs of convolutions, among them the grid of patches."""
        attention = functools.partial(attend, torch.matmul, self._softmax)
        rules: dict[Operation, Operation] = dict.fromkeys(SOFTMAX, self._softmax)
        rules[F.scaled_dot_product_attention] = attention
        rules[F.multi_head_attention_forward] = functools.partial(attend_with_heads, F.linear, attention)
        rules[F.conv2d] = self._convolution
        super().__init__(rules)

    def _softmax(self, scores: Tensor, dim: int = -1, *args: Any, **options: Any) -> Tensor:
        options.pop("_stacklevel", None)
        weights = torch.softmax(scores, dim, *args, **options)
        if weights.dim() == 4 and dim in (-1, 3) and weights.shape[2] == weights.shape[3] > 1:
            if not weights.requires_grad:
                weights.requires_grad_()
            self.weights.append(weights)
        return weights

    def _convolution(self, *args: Any, **options: Any) -> Tensor:
        y: Tensor = F.conv2d(*args, **options)
        if y.dim() == 4:
            self.grids.append((y.shape[2], y.shape[3]))
        return y

    def find_grid(self) -> tuple[int, int]:
        """Return the size (h, w) of the grid of patches; the tokens before them are extra ones."""
        tokens = self.weights[-1].shape[-1]
        side = int(tokens**0.5)
        for height, width in [*reversed(self.grids), (side, side)]:
            if 0 <= tokens - height * width <= _MOST_EXTRA and height * width > 1:
                return height, width
        raise ValueError(
            f"`model` must attend to patches on a grid, with at most {_MOST_EXTRA} tokens before them; it has {tokens} "
            "tokens. Use attn_lrp, which needs no grid."
        )


def _record(model: nn.Module, batch: Request, method: str) -> tuple[Attention, list[Tensor]]:
    """Call a model; return its attention, and the gradients of the target logits with respect to it."""
    attention = Attention()
    with torch.enable_grad(), attention:
        logit = target_logits(model, batch.inputs.detach().clone().requires_grad_(), batch.targets).sum()
    layers = attention.weights
    if not layers:
        raise ValueError(
            f"`model` must have attention between all patches for {method}, and this one shows none. For convolutional "
            "networks use gradcam or lrp."
        )
    if len({each.shape[2:] for each in layers}) > 1 or any(len(each) != len(batch) for each in layers):
        raise ValueError(
            f"`model` must attend to the same tokens in every layer for {method}; this one attends within windows or "
            "at several scales. Use attn_lrp or gradcam."
        )
    gradients = torch.autograd.grad(logit, layers, allow_unused=True)
    return attention, [torch.zeros_like(w) if g is None else g for w, g in zip(layers, gradients, strict=True)]


def _read(flow: Tensor, last: Tensor, attention: Attention, batch: Request) -> Tensor:
    """Read the share (B, H, W) of the patches in the tokens that form the answer: class tokens, or all that are pooled.

    `flow` (B, T, T) is how much of each token is in each of the last layer; those without gradients there are not read.
    """
    is_read = (last != 0).any(dim=3).any(dim=1).to(flow)
    if not bool(is_read.any(dim=1).all()):
        raise ValueError("`model` must depend on its last attention for its answer, and does not. Use attn_lrp.")
    mixed = torch.einsum("bt,bts->bs", is_read / is_read.sum(dim=1, keepdim=True), flow)
    if batch.inputs.dim() == 3:  # tokens of a text, without padding that the model left out
        return F.pad(mixed, (0, batch.inputs.shape[2] - mixed.shape[1]))
    height, width = attention.find_grid()
    patches = mixed[:, flow.shape[1] - height * width :].unflatten(1, (height, width))
    return resize_to(patches, batch.inputs.shape[2:])


_MODEL = "a vision transformer whose layers attend to all patches, such as timm's and torchvision's ViT"


@AttributionMethod(title="Attention Rollout", inputs="images", model=_MODEL, tokens="embeddings")
def attention_rollout(model: nn.Module, request: Request) -> Explain:
    """Attention rollout (Abnar & Zuidema 2020): attention, half of it residual, multiplied through all layers.

    The same for every class: it shows where a transformer looks, not for what.
    """

    def explain(batch: Request) -> Tensor:
        attention, gradients = _record(model, batch, "attention_rollout")
        flow = identity = torch.eye(attention.weights[0].shape[-1]).to(batch.inputs)
        for weights in attention.weights:
            flow = (0.5 * weights.detach().mean(dim=1) + 0.5 * identity) @ flow
        return _read(flow, gradients[-1], attention, batch)

    return explain


@AttributionMethod(title="Gradient Attention", inputs="images", model=_MODEL, tokens="embeddings")
def gradient_attention(model: nn.Module, request: Request) -> Explain:
    """Gradient-weighted attention (Chefer et al. 2021): attention × its gradient, added up through all layers."""

    def explain(batch: Request) -> Tensor:
        attention, gradients = _record(model, batch, "gradient_attention")
        tokens = attention.weights[0].shape[-1]
        flow = torch.eye(tokens).to(batch.inputs).expand(len(batch), tokens, tokens)
        for weights, gradient in zip(attention.weights, gradients, strict=True):
            flow = flow + (weights.detach() * gradient).clamp(min=0).mean(dim=1) @ flow
        return _read(flow, gradients[-1], attention, batch)

    return explain


@AttributionMethod(title="AttnLRP", model=MODEL, tokens="embeddings")
def attn_lrp(
    model: nn.Module,
    request: Request,
    *,
    gamma: float = 0.05,
    patch_gamma: float = 0.25,
    epsilon: float = 1e-6,
    softmax: Literal["expansion", "constant"] = "expansion",
    check: bool = True,
) -> Explain:
    """AttnLRP (Achtibat et al. 2024): layer-wise relevance propagation through attention, in single pixels.

    The relevance of the target class, its logit, is conserved: what biases, class tokens, position embeddings and the
    constants of softmax's expansions keep is counted, and makes up for what does not arrive at the pixels.

    Args:
        gamma: extra weight of contributions with the sign of the output, in dense layers; 0 is the epsilon rule, which
            the authors use for language.
        patch_gamma: the same in convolutions, which make the patches.
        epsilon: stabiliser of both rules.
        softmax: pass relevance to the scores of attention by an expansion, as in the paper, or treat attention weights
            as constants (Ali et al. 2022).
        check: refuse a model for which relevance of the input and what was kept do not sum to the logit within 1%.
    """
    composite = attn_composite(gamma, patch_gamma, epsilon, constant_softmax=softmax == "constant")
    return lambda batch: relevance_of(model, batch, composite, check=check)[0]


def attn_composite(gamma: float, patch_gamma: float, epsilon: float, *, constant_softmax: bool = False) -> Composite:
    """Return the rules of AttnLRP."""

    def rule(value: float) -> Rule:
        return Gamma(value, epsilon) if value > 0 else Epsilon(epsilon)

    return Composite(dense=rule(gamma), convolution=rule(patch_gamma), constant_softmax=constant_softmax)
