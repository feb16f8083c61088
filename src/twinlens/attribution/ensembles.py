"""Explanations of noisy copies of an input, combined into one map.

Shapes: B samples of one batch, C channels, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from twinlens.attribution.harness import Request
from twinlens.attribution.method import Explain

ENSEMBLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sg": lambda mean, _: mean,
    "sq": lambda _, square: square,
    "var": lambda mean, square: square - mean**2,
}
"""How the explanations x of noisy copies are combined, from the means of x and of x²."""


@dataclass(frozen=True, kw_only=True)
class NoisyCopies:
    """Explains a batch by noisy copies of its inputs; the noise is drawn by sample id."""

    explain: Explain
    """Explains one copy, signed: (B, C, *S)."""
    kind: str
    """How the copies are combined, a name in `ENSEMBLES`."""
    samples: int
    variance: float
    reduce: Callable[[Tensor], Tensor] = lambda values: values
    """From combined attributions to what is returned."""

    def __call__(self, batch: Request) -> Tensor:
        """Explain one batch."""
        return self.combined(batch, [self.kind])[0]

    def combined(self, batch: Request, kinds: Sequence[str]) -> list[Tensor]:
        """Explain one batch in several ways, from the same copies."""
        mean, square = (torch.zeros_like(batch.inputs, dtype=torch.float64) for _ in range(2))
        for draw in range(self.samples):
            noise = self.variance**0.5 * batch.normal(batch.inputs.shape[1:], "noise", draw)
            one = self.explain(replace(batch, inputs=batch.inputs + noise)).double()
            mean += one / self.samples
            square += one**2 / self.samples
        return [self.reduce(ENSEMBLES[kind](mean, square)) for kind in kinds]
