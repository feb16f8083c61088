"""Explanations of noisy copies of an input, combined to one map.

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
"""How the explanations of noisy copies become one, from the means of x and of x²."""


@dataclass(frozen=True, kw_only=True)
class NoisyCopies:
    """Explains a batch by noisy copies of its inputs; the noise is drawn by sample id."""

    explain: Explain
    """What explains one copy, signed: (B, C, *S)."""

    kind: str
    """How the copies become one, a name in `ENSEMBLES`."""

    samples: int
    """Copies of each input."""

    variance: float
    """Of the Gaussian noise, in the model's units."""

    def __call__(self, part: Request) -> Tensor:
        """Explain one batch."""
        return self.combined(part, [self.kind])[0]

    def combined(self, part: Request, kinds: Sequence[str]) -> list[Tensor]:
        """Explain one batch in several ways, from the same copies."""
        mean, square = (torch.zeros_like(part.inputs, dtype=torch.float64) for _ in range(2))
        for draw in range(self.samples):
            noise = self.variance**0.5 * part.normal(part.inputs.shape[1:], "noise", draw)
            one = self.explain(replace(part, inputs=part.inputs + noise)).double()
            mean += one / self.samples
            square += one**2 / self.samples
        return [ENSEMBLES[kind](mean, square) for kind in kinds]
