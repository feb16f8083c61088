"""Attention written out in single operations: its weights can be read and its steps follow rules.

Fused attention, as in timm's and torchvision's vision transformers, allows neither.

Shapes: B samples, A heads, T tokens, D values of a head, E values of a token.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Product = Callable[[Tensor, Tensor], Tensor]
_FORWARD = inspect.signature(F.multi_head_attention_forward)


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
    """Compute `F.scaled_dot_product_attention` (B, A, T, D) with a custom product of matrices and softmax of rows."""
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], dim=-3) for each in (key, value))
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
    *args: Any,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute `F.multi_head_attention_forward` (T, B, E), for `nn.MultiheadAttention`, with these operations."""
    call = _FORWARD.bind(*args, **options)
    call.apply_defaults()
    own = call.arguments
    if any(own[name] is not None for name in ("bias_k", "bias_v", "key_padding_mask")) or own["add_zero_attn"]:
        raise ValueError(
            "`model` has attention with extra keys or a padding mask, for which there is no rule. Use "
            "integrated_gradients."
        )
    separate = [own[f"{name}_proj_weight"] for name in "qkv"]
    weights = separate if own["use_separate_proj_weight"] else own["in_proj_weight"].chunk(3)
    biases = (None,) * 3 if own["in_proj_bias"] is None else own["in_proj_bias"].chunk(3)
    query, mask = own["query"], own["attn_mask"]
    heads = []
    for tokens, weight, bias in zip((query, own["key"], own["value"]), weights, biases, strict=True):
        projected = linear(tokens.transpose(0, 1) if tokens.dim() == 3 else tokens[None], weight, bias)
        heads.append(projected.unflatten(-1, (own["num_heads"], -1)).transpose(1, 2))
    # A Boolean mask of that function is True where a token is hidden; fused attention has it the other way round.
    mixed = attention(*heads, attn_mask=~mask if mask is not None and mask.dtype is torch.bool else mask)
    out = linear(mixed.transpose(1, 2).flatten(2), own["out_proj_weight"], own["out_proj_bias"])
    return (out.transpose(0, 1) if query.dim() == 3 else out[0]), None
