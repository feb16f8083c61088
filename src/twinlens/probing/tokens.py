"""Text as a model sees it: token ids, and an attention mask that marks padding.

Shapes: N samples, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.support.arrays import as_tensor

IDS, MASK = "input_ids", "attention_mask"


def are_tokens(inputs: object) -> bool:
    """Return whether inputs are token ids: integers, but not those of 8-bit images."""
    return isinstance(inputs, Tensor) and inputs.dtype in (torch.int32, torch.int64)


def token_ids(inputs: Tensor) -> Tensor:
    """Return the ids (N, T) of tokens with or without an attention mask, (N, 2, T) or (N, T)."""
    return inputs if inputs.dim() == 2 else inputs[:, 0]


def pack_tokens(inputs: Mapping[str, Any]) -> Tensor:
    """Return the output of a tokenizer as one tensor (N, 2, T): the ids, and the attention mask, by default all ones.

    Example:
        >>> pack_tokens({"input_ids": [[5, 6, 0]], "attention_mask": [[1, 1, 0]]})
        tensor([[[5, 6, 0],
                 [1, 1, 0]]])
    """
    if IDS not in inputs:
        raise ValueError(f"`inputs` must hold {IDS!r} and {MASK!r}; got {sorted(map(str, inputs))}.")
    ids = as_tensor(inputs[IDS], IDS)
    mask = as_tensor(inputs[MASK], MASK) if MASK in inputs else torch.ones_like(ids)
    if ids.is_floating_point() or ids.dim() != 2 or mask.shape != ids.shape:
        raise ValueError(
            f"`{IDS}` and `{MASK}` must be integers of one shape (samples, tokens); got {ids.dtype} of shape "
            f"{tuple(ids.shape)}, and shape {tuple(mask.shape)}. Let the tokenizer pad: padding=True."
        )
    return torch.stack([ids.long(), mask.long()], dim=1)


class TokenModel(nn.Module):
    """A classifier in the style of transformers, called with ids and attention mask (N, 2, T) in one tensor."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Any:
        """Call the classifier by the names of its arguments."""
        return self.model(input_ids=tokens[:, 0], attention_mask=tokens[:, 1])
