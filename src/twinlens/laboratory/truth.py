"""True soundness and completeness of maps, by definition, for known predictive features.

Shapes: N samples, S = spatial shape of a map, L levels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.probing.maps import normalise
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import rank_features
from twinlens.support.arrays import Floats


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
    values = torch.from_numpy(maps)
    rank = rank_features(values, ids=table.ids, seed=table.settings.seed).rank.numpy()
    most_relevant_first = np.argsort(-rank, axis=1)
    on_predictive = (normalise(values).numpy() * predictive).reshape(len(maps), -1)
    sums = np.take_along_axis(on_predictive, most_relevant_first, axis=1).cumsum(axis=1)
    right = np.take_along_axis(np.pad(sums, ((0, 0), (1, 0))), rank.shape[1] - table.removed, axis=1)
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


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full_like(whole, np.nan, dtype=np.float64), where=whole > 0))


def _check_shapes(maps: Floats, truth: Floats | NDArray[np.bool_], name: str) -> None:
    if truth.shape not in (maps.shape, maps.shape[1:]):
        raise ValueError(
            f"`{name}` must have the shape {maps.shape} of the maps, or {maps.shape[1:]}; got {truth.shape}."
        )
    if (maps < 0).any():
        raise ValueError(f"`maps` must not have negative values; the smallest is {maps.min():g}. Clip them at zero.")
