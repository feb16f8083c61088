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
from twinlens.attribution.rules import Operation, Rules

_MOST_EXTRA = 16  # class, distillation and register tokens


class Attention(Rules):
    """A context that sees the attention weights of a model, whichever way it computes them."""

    def __init__(self) -> None:
        """Prepare for one call of the model."""
        self.weights: list[Tensor] = []
        """(B, A, T, T) of each layer, each token's over all tokens."""
        self.grids: list[tuple[int, int]] = []
        """Sizes of what convolutions made, among them the patches."""
        attention = functools.partial(attend, torch.matmul, self._seen)
        rules: dict[Operation, Operation] = dict.fromkeys((F.softmax, torch.softmax, Tensor.softmax), self._seen)
        rules[F.scaled_dot_product_attention] = attention
        rules[F.multi_head_attention_forward] = functools.partial(attend_with_heads, F.linear, attention)
        rules[F.conv2d] = self._convolved
        super().__init__(rules)

    def _seen(self, scores: Tensor, dim: int = -1, *args: Any, **options: Any) -> Tensor:
        options.pop("_stacklevel", None)
        weights = torch.softmax(scores, dim, *args, **options)
        if weights.dim() == 4 and dim in (-1, 3) and weights.shape[2] == weights.shape[3] > 1:
            if not weights.requires_grad:
                weights.requires_grad_()
            self.weights.append(weights)
        return weights

    def _convolved(self, *args: Any, **options: Any) -> Tensor:
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


def _look(model: nn.Module, part: Request, method: str) -> tuple[Attention, list[Tensor]]:
    """Call a model; return its attention, and the gradients of the target logits with respect to it."""
    seen = Attention()
    with torch.enable_grad(), seen:
        logit = target_logits(model, part.inputs.detach().clone().requires_grad_(), part.targets).sum()
    if not seen.weights:
        raise ValueError(
            f"`model` must have attention between all patches for {method}, and this one shows none. For convolutional "
            "networks use gradcam or lrp."
        )
    shapes = {tuple(one.shape[:1] + one.shape[2:]) for one in seen.weights}
    if len(shapes) > 1 or seen.weights[0].shape[0] != len(part):
        raise ValueError(
            f"`model` must attend to the same tokens in every layer for {method}; this one attends within windows or "
            "at several scales. Use attn_lrp or gradcam."
        )
    gradients = torch.autograd.grad(logit, seen.weights, allow_unused=True)
    return seen, [torch.zeros_like(w) if g is None else g for w, g in zip(seen.weights, gradients, strict=True)]


def _read(flow: Tensor, last: Tensor, seen: Attention, part: Request) -> Tensor:
    """Read the patches' share (B, H, W) in the tokens that the answer is made of: class tokens, or all that are pooled.

    Args:
        flow: (B, T, T), how much of each token is in each token of the last layer.
        last: (B, A, T, T) gradients of the last layer's attention; tokens without any are not read.
        seen: the attention.
        part: the samples.
    """
    is_read = (last != 0).any(dim=3).any(dim=1).to(flow)
    if not bool(is_read.any(dim=1).all()):
        raise ValueError("`model` must depend on its last attention for its answer, and does not. Use attn_lrp.")
    mixed = torch.einsum("bt,bts->bs", is_read / is_read.sum(dim=1, keepdim=True), flow)
    height, width = seen.find_grid()
    patches = mixed[:, flow.shape[1] - height * width :].unflatten(1, (height, width))
    return resize_to(patches, part.inputs.shape[2:])


_MODEL = "a vision transformer whose layers attend to all patches, such as timm's and torchvision's ViT"


@AttributionMethod(inputs="images", model=_MODEL)
def attention_rollout(model: nn.Module, request: Request) -> Explain:
    """Attention rollout (Abnar & Zuidema 2020): attention, half of it residual, multiplied through all layers.

    The same for every class: it says where a transformer looks and not for what.
    """

    def explain(part: Request) -> Tensor:
        seen, gradients = _look(model, part, "attention_rollout")
        flow = same = torch.eye(seen.weights[0].shape[-1]).to(part.inputs)
        for weights in seen.weights:
            flow = (0.5 * weights.detach().mean(dim=1) + 0.5 * same) @ flow
        return _read(flow, gradients[-1], seen, part)

    return explain


@AttributionMethod(inputs="images", model=_MODEL)
def gradient_attention(model: nn.Module, request: Request) -> Explain:
    """Gradient-weighted attention (Chefer et al. 2021): attention × its gradient, added up through all layers."""

    def explain(part: Request) -> Tensor:
        seen, gradients = _look(model, part, "gradient_attention")
        tokens = seen.weights[0].shape[-1]
        flow = torch.eye(tokens).to(part.inputs).expand(len(part), tokens, tokens)
        for weights, gradient in zip(seen.weights, gradients, strict=True):
            flow = flow + (weights.detach() * gradient).clamp(min=0).mean(dim=1) @ flow
        return _read(flow, gradients[-1], seen, part)

    return explain


@AttributionMethod(model=MODEL)
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

    The relevance of the target class, its logit, is conserved: what biases, class tokens, embeddings of places and the
    constants of softmax's expansions keep is counted, and makes up for what does not arrive at the pixels.

    Args:
        gamma: how much more contributions count that speak for a unit, in dense layers; 0 is the epsilon rule, which
            the authors take for language.
        patch_gamma: the same in convolutions, which make the patches.
        epsilon: stabiliser of both rules.
        softmax: pass relevance on to the scores of attention by an expansion, as in the paper, or take the weights of
            attention for constants (Ali et al. 2022).
        check: refuse a model for which relevance of the input and what was kept do not sum to the logit within 1%.
    """
    composite = attn_composite(gamma, patch_gamma, epsilon, constant_softmax=softmax == "constant")
    return lambda part: relevance_of(model, part, composite, check=check)[0]


def attn_composite(gamma: float, patch_gamma: float, epsilon: float, *, constant_softmax: bool = False) -> Composite:
    """Return the rules of AttnLRP."""

    def rule(value: float) -> Rule:
        return Gamma(value, epsilon) if value > 0 else Epsilon(epsilon)

    return Composite(dense=rule(gamma), convolution=rule(patch_gamma), constant_softmax=constant_softmax)
