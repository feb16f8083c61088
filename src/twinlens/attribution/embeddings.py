"""Gradients for text: token ids have none, so that their embeddings are explained.

Shapes: N samples, T tokens, D values of an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.probing.model_call import evaluating


class EmbeddedModel(nn.Module):
    """A text model called with embeddings in the place of token ids.

    Its inputs (N, D + channels + 1, T) carry the tokens behind the embeddings, and a one by which to see how far a path
    from zero has come, so that whatever rows a method makes of them know their tokens.
    """

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        super().__init__()
        self.model, self.embedding = model, _find_embedding(model, tokens[:1])
        self.channels = tokens[:1].reshape(1, -1, tokens.shape[-1]).shape[1]
        self.packed = tokens.dim() == 3

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the inputs of this model for tokens (N, T) or (N, channels, T)."""
        known = tokens.reshape(len(tokens), -1, tokens.shape[-1]).to(self.embedding.weight.device)
        with torch.no_grad():
            values = self.embedding(known[:, 0]).transpose(1, 2)
        return torch.cat([values, known.to(values), torch.ones_like(values[:, :1])], dim=1)

    def forward(self, inputs: Tensor) -> Any:
        """Call the model on the tokens, with these embeddings."""
        size = self.embedding.embedding_dim
        carried = inputs[:, size:].detach()
        tokens = (carried[:, :-1] / carried[:, -1:]).round().long()
        with _replaced(self.embedding, inputs[:, :size].transpose(1, 2)):
            return self.model(tokens if self.packed else tokens[:, 0])


@contextmanager
def _replaced(embedding: nn.Embedding, values: Tensor) -> Iterator[None]:
    """Let an embedding return these values, once."""
    left = [values]
    handle = embedding.register_forward_hook(lambda *_: left.pop() if left else None)
    try:
        yield
    finally:
        handle.remove()


def _find_embedding(model: nn.Module, tokens: Tensor) -> nn.Embedding:
    """Find the embedding that reads the token ids, by calling the model once."""
    ids = tokens if tokens.dim() == 2 else tokens[:, 0]
    found: list[nn.Embedding] = []

    def watch(module: nn.Module, given: tuple[Any, ...], _: object) -> None:
        if (
            given
            and isinstance(given[0], Tensor)
            and given[0].shape == ids.shape
            and bool((given[0].cpu() == ids.cpu()).all())
        ):
            assert isinstance(module, nn.Embedding)
            found.append(module)

    handles = [part.register_forward_hook(watch) for part in model.modules() if isinstance(part, nn.Embedding)]
    try:
        with evaluating(model), torch.no_grad():
            device = next((p.device for p in model.parameters()), tokens.device)
            model(tokens.to(device))
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise ValueError(
            "`model` must read token ids by an nn.Embedding, so that its values can be explained; none was called with "
            "them. Explain it by a function of your own."
        )
    return found[0]
