"""Attention written out in single operations, so that its weights can be seen and its parts follow rules.

Fused attention, as timm's and torchvision's vision transformers call it, shows neither.

Shapes: B samples, A heads, T tokens, D values of a head, E values of a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor], Tensor]


def attend(
    multiply: Product,
    softmax: Callable[[Tensor], Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute what `F.scaled_dot_product_attention` does, by the given operations; arguments are the same.

    Args:
        multiply: multiplies matrices.
        softmax: along the last dimension of the scores (B, A, T, T).
        query, key, value: (B, A, T, D).
        attn_mask: True where a token is seen, or numbers that are added to the scores.
        dropout_p: ignored; methods explain models in evaluation mode.
        is_causal: see the tokens before alone.
        scale: of the scores; by default 1 / √D.
        enable_gqa: let several heads of the query share one of key and value.
    """
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], dim=-3) for part in (key, value))
    scores = multiply(query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale), key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        hidden = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    return multiply(softmax(scores), value)


def attend_with_heads(
    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    attention: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Compute what `F.multi_head_attention_forward` does for `nn.MultiheadAttention`, by the given operations.

    Args:
        linear: applies a weight and a bias.
        attention: as `F.scaled_dot_product_attention`.
        query, key, value: (T, B, E), as that function takes them; the other arguments are its own.
    """
    if bias_k is not None or bias_v is not None or add_zero_attn or key_padding_mask is not None:
        raise ValueError(
            "`model` has attention with extra keys or a padding mask, which its methods cannot see through. Use "
            "integrated_gradients."
        )
    weights: Sequence[Tensor | None] = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        assert in_proj_weight is not None
        weights = in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    heads = []
    for given, weight, bias in zip((query, key, value), weights, biases, strict=True):
        assert weight is not None
        projected = linear(given.transpose(0, 1) if given.dim() == 3 else given[None], weight, bias)
        heads.append(projected.unflatten(-1, (num_heads, -1)).transpose(1, 2))
    mixed = attention(*heads, attn_mask=None if attn_mask is None else _seen(attn_mask))
    out = linear(mixed.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    return (out.transpose(0, 1) if query.dim() == 3 else out[0]), None


def _seen(attn_mask: Tensor) -> Tensor:
    """Turn a mask of `nn.MultiheadAttention`, True where a token is hidden, into one of the fused attention."""
    return ~attn_mask if attn_mask.dtype is torch.bool else attn_mask
