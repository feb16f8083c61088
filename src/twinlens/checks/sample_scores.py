"""Per-sample scores: the result of every check that measures one number per sample.

Shapes: N samples, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from twinlens.integrations.explanations import attribute
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import Labels, Model
from twinlens.support.arrays import Floats
from twinlens.support.correlation import pearson, spearman
from twinlens.support.estimate import Estimate

Similarity = Literal["spearman", "pearson"]
SIMILARITIES: dict[str, Callable[[Floats, Floats], Floats]] = {"spearman": spearman, "pearson": pearson}
"""Similarity measures for pairs of maps: 1 for equal, 0 for unrelated, -1 for opposite."""
CORRELATION = (-1.0, 1.0)
SHARE = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SampleScores:
    """One score per sample. `estimate` returns their mean with its interval.

    Example:
        >>> SampleScores(name="Attr%", values=np.array([0.25, 0.75, np.nan]), ids=("a", "b", "c"))
        SampleScores(Attr% 0.500, 3 samples, 1 undefined)
    """

    name: str
    """What is measured."""

    values: Floats
    """(N,) scores; NaN where undefined."""

    ids: tuple[str, ...]
    """Sample ids."""

    limits: tuple[float, float] = (-np.inf, np.inf)
    """The smallest and the largest possible score; intervals stay within."""

    def __repr__(self) -> str:
        undefined = int(np.isnan(self.values).sum())
        return f"SampleScores({self.name} {self.estimate()}, {len(self.ids)} samples, {undefined} undefined)"

    def estimate(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the mean of the defined scores with its bootstrap interval.

        Scores of the same samples are resampled alike if `seed` is the same.
        """
        mean = Estimate.of_mean(self.values, self.ids, confidence, resamples=resamples, seed=seed)
        return mean.clipped(*self.limits)


def flat_maps(
    model: Model,
    inputs: Tensor,
    targets: Labels,
    method: str | Callable[..., Tensor],
    *,
    ids: tuple[str, ...],
    seed: int,
    options: Mapping[str, Any],
    on_numpy: bool = False,
) -> Floats:
    """Explain inputs and return checked maps, (N, F)."""
    batch = inputs.numpy() if on_numpy else inputs
    maps = attribute(model, batch, targets, method, ids=ids, seed=seed, **options)
    return check_maps(maps, spatial_shape(inputs.shape), ids=ids).flatten(1).double().cpu().numpy()
