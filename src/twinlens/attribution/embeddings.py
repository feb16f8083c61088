"""Explanations of text: token ids have no gradients, so their embeddings are explained, or tokens are hidden.

Shapes: N samples, T tokens, D values of an embedding.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from twinlens.attribution.harness import hooked
from twinlens.imputation.imputers import REMOVED
from twinlens.probing.model_call import evaluating
from twinlens.probing.tokens import TokenModel, mean_embeddings, token_ids


class EmbeddedModel(nn.Module):
    """A text model called with embeddings instead of token ids.

    Its inputs (N, D + channels + 1, T) hold the tokens behind the embeddings, and a one. Every row that a method makes
    of them, such as a point on a path from zero, still gives its tokens: divided by what the one has become.
    """

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        super().__init__()
        self.model, self.embedding = model, _find_embedding(model, tokens[:1])
        self.packed = tokens.dim() == 3

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the inputs of this model for tokens (N, T) or (N, channels, T)."""
        ids = tokens.reshape(len(tokens), -1, tokens.shape[-1]).to(self.embedding.weight.device)
        with torch.no_grad():
            values = self.embedding(ids[:, 0]).transpose(1, 2)
        return torch.cat([values, ids.to(values), torch.ones_like(values[:, :1])], dim=1)

    def forward(self, inputs: Tensor) -> Any:
        """Call the model on the tokens, with these embeddings."""
        size = self.embedding.embedding_dim
        carried = inputs[:, size:].detach()
        tokens = (carried[:, :-1] / carried[:, -1:]).round().long()
        values = [inputs[:, :size].transpose(1, 2).contiguous()]  # for the first call of the embedding only
        # A model may leave out padding at the end.
        with hooked(
            [self.embedding], lambda _, __, read: values.pop()[:, : read.shape[1]].contiguous() if values else None
        ):
            return self.model(tokens if self.packed else tokens[:, 0])


class MaskedModel(nn.Module):
    """A text model called with token ids as floating-point numbers; a negative id is a hidden token.

    The embedding of a hidden token is the mean of the vocabulary.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Any:
        """Call the model on tokens (N, T) or (N, channels, T)."""
        tokens = inputs.round().long()
        if isinstance(self.model, TokenModel):  # which hides tokens itself
            return self.model(tokens)
        with mean_embeddings(self.model, token_ids(tokens)):
            return self.model(tokens.clamp(min=0))


def hide_tokens(inputs: Tensor, keep: Tensor) -> Tensor:
    """Hide the tokens (B, T) or (B, channels, T) that are not kept (B, T)."""
    if inputs.dim() == keep.dim():
        return torch.where(keep, inputs, REMOVED)
    return torch.cat([torch.where(keep, inputs[:, 0], REMOVED)[:, None], inputs[:, 1:]], dim=1)


def _find_embedding(model: nn.Module, tokens: Tensor) -> nn.Embedding:
    """Find the embedding that reads the token ids, by calling the model once."""
    ids = tokens if tokens.dim() == 2 else tokens[:, 0]
    readers: list[nn.Embedding] = []

    def check(module: nn.Module, arguments: tuple[Any, ...], _: object) -> None:
        first = arguments[0] if arguments else None
        if isinstance(first, Tensor) and first.dim() == 2 and torch.equal(first.cpu(), ids.cpu()[:, : first.shape[1]]):
            readers.append(cast("nn.Embedding", module))

    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    with evaluating(model), torch.no_grad(), hooked(embeddings, check):
        device = next((p.device for p in model.parameters()), tokens.device)
        model(tokens.to(device))
    if not readers:
        raise ValueError(
            "`model` must read token ids with an nn.Embedding, whose values can be explained; none was called with "
            "them. Explain it with your own function."
        )
    return readers[0]
