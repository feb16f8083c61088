"""True soundness and completeness of maps, by definition, for known predictive features.

Shapes: N samples, S = spatial shape of a map, L levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.metrics.steps import Steps
from twinlens.probing.maps import check_ids, normalise
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import rank_features
from twinlens.support.arrays import Floats, Integers


def true_soundness(maps: Floats, predictive: NDArray[np.bool_]) -> Floats:
    """Compute the share of each map's attribution that lies on predictive features, (N,).

    Args:
        maps: (N, *S), without negative values.
        predictive: (N, *S), or (*S) for all samples: whether a feature is predictive.

    Returns:
        The true soundness |A ∩ I|_η / |A|_η; NaN for a map of zeros.

    Example:
        >>> true_soundness(np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), np.array([True, False, True]))
        array([0.75,  nan])
    """
    _check_shapes(maps, predictive, "predictive")
    return _ratio((maps * predictive).reshape(len(maps), -1).sum(axis=1), maps.reshape(len(maps), -1).sum(axis=1))


def true_soundness_curve(maps: Floats, predictive: NDArray[np.bool_], table: ProbeTable) -> Floats:
    """Compute the share of the kept attribution that lies on predictive features at each level of a sweep, (N, L).

    Args:
        maps: (N, *S) the probed maps.
        predictive: (N, *S), or (*S) for all samples: whether a feature is predictive.
        table: probes of these maps by area, least relevant first.

    Returns:
        The true values; NaN where no kept feature has attribution.
    """
    _check_shapes(maps, predictive, "predictive")
    on_predictive = (normalise(torch.from_numpy(maps)).numpy() * predictive).reshape(len(maps), -1)
    order = _most_relevant_first(maps, table.ids, table.settings.seed)
    sums = np.take_along_axis(on_predictive, order, axis=1).cumsum(axis=1)
    right = np.take_along_axis(np.pad(sums, ((0, 0), (1, 0))), order.shape[1] - table.removed, axis=1)
    return _ratio(right, table.kept_mass)


def true_completeness(maps: Floats, information: Floats, threshold: float = 0.0) -> Floats:
    """Compute the share of the information φ on features above a threshold × maximum of their map, (N,).

    Args:
        maps: (N, *S), without negative values.
        information: (N, *S), or (*S) for all samples: φ, the predictive information of each feature.
        threshold: relative to each map's maximum; at 0, all features with attribution count.

    Returns:
        The true completeness |A ∩ I|_φ / |I|_φ; NaN for a sample without any information.

    Example:
        >>> true_completeness(np.array([[3.0, 1.0, 0.0]]), np.array([4.0, 2.0, 2.0]))
        array([0.75])
        >>> true_completeness(np.array([[3.0, 1.0, 0.0]]), np.array([4.0, 2.0, 2.0]), threshold=0.5)
        array([0.5])
    """
    _check_shapes(maps, information, "information")
    flat, phi = (each.reshape(len(maps), -1) for each in (maps, np.broadcast_to(information, maps.shape)))
    marked = flat > threshold * flat.max(axis=1, keepdims=True)
    return _ratio((phi * marked).sum(axis=1), phi.sum(axis=1))


def true_steps(maps: Floats, effects: Floats, *, ids: Sequence[str] | None = None, seed: int = 0) -> Steps:
    """Return exact steps of one feature each, in the order in which the metrics rank the features of these maps.

    Its `soundness()`, `completeness()` and `calibration(…)` are what the metrics without a threshold estimate.

    Args:
        maps: (N, *S), without negative values.
        effects: (N, *S), or (*S) for all samples: Shapley values, negative for evidence against the target.
        ids: sample ids, 0 … N-1 by default, by which ties are broken.
        seed: seed of ties.

    Example:
        >>> exact = true_steps(np.array([[3.0, 1.0, 0.0]]), np.array([2.0, -1.0, 2.0]))
        >>> exact.soundness()[:, -1], exact.completeness()
        (array([0.5625]), array([[0.5, 0.5, 1. ]]))
    """
    _check_shapes(maps, effects, "effects")
    order = _most_relevant_first(maps, check_ids(ids, len(maps)), seed)
    phi, attribution = (
        np.take_along_axis(each.reshape(len(maps), -1), order, axis=1)
        for each in (np.broadcast_to(effects, maps.shape), maps)
    )
    return Steps(
        effects=phi,
        information=np.maximum(phi, 0.0),
        attribution=_ratio(attribution, np.broadcast_to(attribution.sum(axis=1, keepdims=True), attribution.shape)),
        sizes=np.ones_like(phi),
    )


def _most_relevant_first(maps: Floats, ids: Sequence[str], seed: int) -> Integers:
    """Return the positions (N, F) of the features in the order of their maps; ties are broken as in the metrics."""
    return np.argsort(-rank_features(torch.from_numpy(maps), ids=ids, seed=seed).rank.numpy(), axis=1)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full_like(whole, np.nan, dtype=np.float64), where=whole > 0))


def _check_shapes(maps: Floats, truth: Floats | NDArray[np.bool_], name: str) -> None:
    if truth.shape not in (maps.shape, maps.shape[1:]):
        raise ValueError(
            f"`{name}` must have the shape {maps.shape} of the maps, or {maps.shape[1:]}; got {truth.shape}."
        )
    if (maps < 0).any():
        raise ValueError(f"`maps` must not have negative values; the smallest is {maps.min():g}. Clip them at zero.")
