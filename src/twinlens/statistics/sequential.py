"""Sequential analysis: sizes of growing rounds of samples, and the correction for looking at each of them (K looks).

The looks are planned, and intervals are wide enough to hold at *all* looks with the confidence of one, regardless of
why you stop. The boundary is Pocock's, the same at each look.
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

_GROWTH = 1.5  # from round to round: smaller steps stop sooner, but need more looks
_NODES = 128  # of the quadrature at each look; half as many give the same six digits
_FARTHEST = 12.0  # standard errors beyond which nothing is left to integrate


def round_sizes(samples: int) -> tuple[int, ...]:
    """Return the number of samples after each round, up to all of them.

    Rounds are whole blocks of the exchanged control: a larger round keeps all earlier measurements.
    """
    sizes, size = list[int](), BLOCK
    while size <= (samples // BLOCK - 1) * BLOCK:  # the last block takes what is left over
        sizes.append(size)
        size = max(size + BLOCK, math.ceil(size * _GROWTH / BLOCK) * BLOCK)
    return (*sizes, samples)


@dataclass(frozen=True)
class Looks:
    """Looks at growing rounds of samples."""

    sizes: tuple[int, ...]
    """(K,) samples at each look."""

    def confidence(self, overall: float, *, at_once: int = 1) -> float:
        """Return the confidence of a single look, for intervals of `at_once` comparisons that hold at all looks."""
        if len(self.sizes) == 1:
            return overall
        # Where the adjusted p-value of one look is one minus the confidence.
        least, most = (1 - overall) / len(self.sizes), 1 - overall
        p: float = brentq(lambda p: self.p_value(p, at_once=at_once) - most, least / 2, most, xtol=1e-9)
        return 1 - p

    def p_value(self, p: float, *, at_once: int = 1) -> float:
        """Return the p-value adjusted for all looks: the chance that any look shows as much under the null hypothesis.

        With more comparisons `at_once` the boundary lies farther out, where looks have less in common.
        """
        if len(self.sizes) == 1:
            return p
        reach = float(norm.isf(min(p / at_once, 1.0) / 2))
        return min(1.0, at_once * crossings(self.sizes, reach)[-1]) if reach > 0 else 1.0

    def spent(self, confidence: float, look: int) -> float:
        """Return the chance of an error up to a look, counted from 1; at the last one 1 - confidence."""
        return crossings(self.sizes, float(norm.isf((1 - self.confidence(confidence)) / 2)))[look - 1]


ONE_LOOK = Looks((1,))
"""A run that measures all its samples at once; nothing is adjusted."""


@lru_cache(maxsize=4096)  # many p-values are equal, since they count resamples
def crossings(sizes: tuple[int, ...], reach: float) -> tuple[float, ...]:
    """Return the chance (K,) that a mean was more than `reach` standard errors off at any look so far.

    The sum of n samples is a random walk; its density within the boundary is propagated from look to look.
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
