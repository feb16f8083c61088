"""Text as a model sees it: token ids, an attention mask that marks padding, and language models.

Shapes: N samples, T tokens, V tokens of the vocabulary, D values of an embedding.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.probing.answers import find_logits
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
    remedy = "Let the tokenizer pad: padding=True."
    try:
        ids = as_tensor(inputs[IDS], IDS)
        mask = as_tensor(inputs[MASK], MASK) if MASK in inputs else torch.ones_like(ids)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} {remedy}") from None
    if ids.is_floating_point() or ids.dim() != 2 or mask.shape != ids.shape:
        raise ValueError(
            f"`{IDS}` and `{MASK}` must be integers of one shape (samples, tokens); got {ids.dtype} of shape "
            f"{tuple(ids.shape)}, and shape {tuple(mask.shape)}. {remedy}"
        )
    return torch.stack([ids.long(), mask.long()], dim=1)


class TokenModel(nn.Module):
    """A model in the style of transformers, called with ids and attention mask (N, 2, T) in one tensor.

    Models of transformers are called without the columns at the end that are padding in every row.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Any:
        """Call the model by the names of its arguments."""
        if hasattr(self.model, "get_input_embeddings"):
            tokens = without_padding(tokens)
        ids, attention = tokens[:, 0], tokens[:, 1] > 0
        # Attention to nothing is not a number: a text without tokens is the first of its removed ones.
        first = torch.arange(ids.shape[1], device=ids.device) == 0
        attention = torch.where(attention.any(dim=1, keepdim=True), attention, first)
        with mean_embeddings(self.model, ids):
            return self.model(input_ids=ids.clamp(min=0), attention_mask=attention.long(), **self.more(tokens))

    def more(self, tokens: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 (of language models)
        """Return further arguments of the model."""
        return {}


def called_with_tokens(model: Any) -> TokenModel:
    """Return a model that is called with ids and attention mask in one tensor; leave one that already is."""
    return model if isinstance(model, TokenModel) else TokenModel(model)


class NextToken(TokenModel):
    """A causal language model as a classifier of prompts: its logits (N, V) of the token that comes next.

    Pass it to `evaluate` or a metric, with prompts as a tokenizer returns them. Labels are ids of tokens; in
    `evaluate`, None stands for those that the model itself finds most likely.

    Example:
        >>> language_model = nn.Embedding(9, 9)  # as a toy: each token determines the next
        >>> model = NextToken(lambda input_ids, attention_mask: language_model(input_ids))
        >>> prompts = pack_tokens({"input_ids": [[1, 2, 3], [4, 5, 0]], "attention_mask": [[1, 1, 1], [1, 1, 0]]})
        >>> torch.equal(model(prompts), language_model(torch.tensor([3, 5])))
        True
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        arguments = inspect.signature(getattr(model, "forward", model)).parameters
        self.takes_positions = "position_ids" in arguments

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits behind the last token of each row."""
        tokens = as_packed(tokens)
        logits = find_logits(super().forward(tokens))[0]
        if not isinstance(logits, Tensor) or logits.dim() != 3:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"`model` must return logits (samples, tokens, vocabulary) as a language model; got {shape}."
            )
        last = (tokens[:, 1] != 0).long().mul(torch.arange(1, tokens.shape[2] + 1, device=tokens.device)).amax(dim=1)
        return logits[torch.arange(len(logits), device=logits.device), last.clamp(min=1) - 1]

    def more(self, tokens: Tensor) -> dict[str, Tensor]:
        """Number positions from the first token where padding comes before it."""
        there = tokens[:, 1] != 0
        if not self.takes_positions or bool(there[:, 0].all()):
            return {}
        return {"position_ids": (there.long().cumsum(dim=1) - 1).clamp(min=0)}


def as_packed(tokens: Tensor) -> Tensor:
    """Return ids (N, T) with an attention mask of ones, as (N, 2, T); leave packed tokens alone."""
    return torch.stack([tokens, torch.ones_like(tokens)], dim=1) if tokens.dim() == 2 else tokens


def without_padding(tokens: Tensor) -> Tensor:
    """Drop the columns at the end of tokens (N, 2, T) that are padding in every row."""
    columns = (tokens[:, 1] != 0).any(dim=0).nonzero()
    return tokens[:, :, : int(columns[-1]) + 1] if len(columns) else tokens


@contextmanager
def mean_embeddings(model: Any, ids: Tensor) -> Iterator[None]:
    """Let removed tokens, whose id is negative, have the mean of all embeddings."""
    removed = ids < 0
    if not isinstance(model, nn.Module) or not bool(removed.any()):
        if bool(removed.any()):
            raise ValueError(
                "`model` must be an nn.Module, to replace embeddings by their mean. Choose another removal."
            )
        yield
        return
    done: list[nn.Module] = []

    def fill(module: nn.Embedding, arguments: tuple[Any, ...], values: Tensor) -> Tensor | None:
        first = arguments[0] if arguments else None
        if done or not isinstance(first, Tensor) or not torch.equal(first, ids.clamp(min=0)):
            return None
        done.append(module)
        return torch.where(removed[..., None], module.weight.mean(dim=0), values)

    handles = [each.register_forward_hook(fill) for each in model.modules() if isinstance(each, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if not done:
        raise ValueError(
            "`model` must read token ids with an nn.Embedding, to replace embeddings by their mean; none was called "
            "with them. Choose another removal."
        )
