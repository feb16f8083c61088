"""The exchanged control: every input is evaluated with the map of another input.

The difference in score is what the method's maps say about *this* input.

Shapes: N samples, S = spatial shape of a map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from twinlens.probing.maps import check_ids
from twinlens.probing.model_call import check_labels
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Integers, as_tensor
from twinlens.support.randomness import drawn_order, stream

BLOCK = 64
"""Number of samples among which maps are exchanged, in the order drawn by the seed. More samples add blocks and leave
existing blocks unchanged."""
_SWAPS = 8  # per sample, enough to mix the initial order of classes


@checked
def exchange_maps(
    maps: ArrayLike, labels: Sequence[int] | ArrayLike, *, ids: Sequence[str | int] | None = None, seed: int = 0
) -> Tensor:
    """Exchange maps between samples; no sample keeps its own map.

    The map comes from a sample of another class if possible, because maps of one class resemble each other. Among many
    samples, maps are exchanged within random blocks of at least 64.

    Args:
        maps: (N, *S), one map per sample, at least two.
        labels: (N,) classes.
        ids: one name per sample, by which the exchange is drawn; 0 … N-1 by default.
        seed: random seed.

    Returns:
        The same maps (N, *S), each at the position of another sample.

    Example:
        >>> exchange_maps(np.array([[1.0], [2.0], [3.0], [4.0]]), [0, 0, 1, 1]).flatten().tolist()
        [3.0, 4.0, 2.0, 1.0]
    """
    values = as_tensor(maps, "maps")
    if values.dim() == 0 or len(values) < 2:
        raise ValueError(f"`maps` must hold those of at least two samples; got shape {tuple(values.shape)}.")
    if values.is_floating_point() and not values.isfinite().all():
        raise ValueError("`maps` must be finite; some contain NaN or infinity.")
    names = check_ids(ids, len(values))
    return values[draw_partners(names, check_labels(labels, names), seed=seed)]


def draw_partners(ids: Sequence[str], labels: Sequence[int] | Integers, *, seed: int) -> Integers:
    """Draw for each sample the position (N,) of the sample whose map it gets: a permutation without fixed points.

    The order of the samples does not matter; the draw depends on the seed, the ids and their classes.
    """
    if len(ids) < 2:
        raise ValueError(f"`ids` must name at least two samples to exchange their maps; got {len(ids)}.")
    classes, partners = np.asarray(labels), np.empty(len(ids), dtype=np.int64)
    for block in _blocks(ids, seed):
        partners[block] = block[_exchange([ids[position] for position in block], classes[block], seed)]
    return partners


def _exchange(ids: Sequence[str], classes: Integers, seed: int) -> Integers:
    """Draw the partners (N,) of one block."""
    count = len(ids)
    # Sorted by class, in a random order of classes, and shifted by the size of the largest class: as few samples as
    # possible then meet their own class, and none unless it holds more than half of all samples.
    ranks = {label: stream(seed, "class", str(label)) for label in np.unique(classes).tolist()}
    names = [(ranks[label], stream(seed, "exchange", name), name) for label, name in zip(classes, ids, strict=True)]
    order = np.array(sorted(range(count), key=names.__getitem__))
    largest = int(np.unique(classes, return_counts=True)[1].max())
    partner = np.roll(order, -(largest if largest < count else 1))
    # Then two samples at a time swap their partners, unless that adds a partner of the same class.
    own_class, rng = classes[order].tolist(), np.random.default_rng(stream(seed, "swaps"))
    partner_class, own = classes[partner].tolist(), order.tolist()
    mixed = partner.tolist()
    for a, b in rng.integers(count, size=(_SWAPS * count, 2)).tolist():
        before = (partner_class[a] == own_class[a]) + (partner_class[b] == own_class[b])
        after = (partner_class[b] == own_class[a]) + (partner_class[a] == own_class[b])
        if after <= before and mixed[b] != own[a] and mixed[a] != own[b]:
            mixed[a], mixed[b] = mixed[b], mixed[a]
            partner_class[a], partner_class[b] = partner_class[b], partner_class[a]
    partners = np.empty(count, dtype=np.int64)
    partners[order] = mixed
    return partners


def draw_controlled(ids: Sequence[str], share: float, *, seed: int) -> Integers:
    """Draw the samples on which the exchanged control is measured, as increasing positions; a larger share adds some.

    It is the share of each block; at least one sample is drawn.
    """
    drawn = list[int]()
    for block in _blocks(ids, seed):
        order = sorted(block.tolist(), key=lambda position: (stream(seed, "control", ids[position]), ids[position]))
        drawn += order[: max(1, round(share * len(block)))]
    return np.array(sorted(drawn), dtype=np.int64)


def _blocks(ids: Sequence[str], seed: int) -> list[Integers]:
    """Divide the samples into random blocks of increasing positions; the last block takes the remainder."""
    if len(ids) < 2 * BLOCK:
        return [np.arange(len(ids))]
    order = np.array(drawn_order(ids, seed=seed))
    return [np.sort(block) for block in np.split(order, range(BLOCK, len(ids) - BLOCK + 1, BLOCK))]
