"""Looking several times: how large rounds of samples are, and what each look costs, so that the level holds for all.

Whoever looks at the data again and again, and stops when the answer pleases, is wrong more often than one time in
twenty. Here the looks are known beforehand, and intervals are so much wider that those of *all* looks hold at once,
with the confidence of one: whatever makes you stop, the last ones hold. It is Pocock's boundary, the same for all.

Shapes: K looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from twinlens.probing.exchange import BLOCK

_GROWTH = 1.5  # of a round over the last one: smaller steps stop sooner, and pay for more looks
_NODES = 128  # of the quadrature at each look; half as many give the same six digits
_FARTHEST = 12.0  # standard errors, beyond which nothing is left to integrate


def round_sizes(samples: int) -> tuple[int, ...]:
    """Return the number of samples after each round, up to all of them.

    Rounds are whole blocks of the exchanged control, so that a larger round leaves what was measured as it is.

    Example:
        >>> round_sizes(1000), round_sizes(100)
        ((64, 128, 192, 320, 512, 768, 1000), (100,))
    """
    sizes, size = list[int](), BLOCK
    while size <= (samples // BLOCK - 1) * BLOCK:  # the last block takes what is left over
        sizes.append(size)
        size = max(size + BLOCK, math.ceil(size * _GROWTH / BLOCK) * BLOCK)
    return (*sizes, samples)


@dataclass(frozen=True)
class Looks:
    """Looks at growing rounds of samples.

    Example:
        >>> looks = Looks((64, 128, 192, 320, 512, 768, 1000))
        >>> round(looks.confidence(0.95), 4), round(looks.p_value(0.01), 3)
        (0.9891, 0.046)
    """

    sizes: tuple[int, ...]
    """(K,) samples at each look."""

    def confidence(self, wanted: float, *, at_once: int = 1) -> float:
        """Return the confidence that intervals of each look need, for those of all looks to hold with what is wanted.

        Args:
            wanted: the confidence that all looks have together.
            at_once: number of comparisons that an interval holds for.
        """
        if len(self.sizes) == 1:
            return wanted
        # Where the p-value of one look, paid for, is one minus the confidence.
        least, most = (1 - wanted) / len(self.sizes), 1 - wanted
        found: float = brentq(lambda p: self.p_value(p, at_once=at_once) - most, least / 2, most, xtol=1e-9)
        return 1 - found

    def p_value(self, p: float, *, at_once: int = 1) -> float:
        """Return the p-value that holds under all looks, from the one of a single look.

        It is the chance that any of the looks shows as much where there is nothing to see.

        Args:
            p: of one look.
            at_once: number of comparisons that it holds for; the more, the farther out it lies, where looks have less
                in common.
        """
        if len(self.sizes) == 1 or math.isnan(p):
            return p
        reach = float(norm.isf(min(p / at_once, 1.0) / 2))
        return min(1.0, at_once * self.crossings(reach)[-1]) if reach > 0 else 1.0

    def spent(self, confidence: float, look: int) -> float:
        """Return the chance of an error up to a look, counted from 1, of all that one minus the confidence allows."""
        return self.crossings(float(norm.isf((1 - self.confidence(confidence)) / 2)))[look - 1]

    def crossings(self, reach: float) -> tuple[float, ...]:
        """Return the chance (K,) that a mean strays farther than `reach` standard errors at any look so far."""
        return _crossings(self.sizes, reach)


ONE_LOOK = Looks((1,))
"""That of a run which measures all its samples at once; nothing is to be paid for it."""


@lru_cache(maxsize=4096)  # p-values are whole numbers of resamples, and many are the same
def _crossings(sizes: tuple[int, ...], reach: float) -> tuple[float, ...]:
    """Compute `Looks.crossings`.

    The sum of n samples is a random walk; what is left of its density within the boundary goes on from look to look.
    """
    if reach >= _FARTHEST:
        return (0.0,) * len(sizes)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    shares = np.array(sizes) / sizes[-1]
    ends = reach * np.sqrt(shares)
    within = norm.pdf(ends[0] * nodes, scale=math.sqrt(shares[0])) * weights * ends[0]
    left = [within.sum()]
    for (share, end), (next_share, next_end) in pairwise(zip(shares, ends, strict=True)):
        steps = next_end * nodes[:, None] - end * nodes
        within = norm.pdf(steps, scale=math.sqrt(next_share - share)) @ within * weights * next_end
        left.append(within.sum())
    return tuple(np.clip(1 - np.array(left), 0.0, 1.0).tolist())
