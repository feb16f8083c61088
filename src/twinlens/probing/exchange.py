"""The exchanged control: every input is judged by the map of another input.

Exchanged maps have the same values and the same shapes as a method's own maps, and know nothing of the input that they
are laid over. What a method scores above them is what it knows of *this* input.

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
"""Samples among which maps are exchanged, in the order in which the seed draws them: more samples add blocks, and leave
those that are there as they are."""
_SWAPS = 8  # per sample, after which nothing is left of the order in which classes stood side by side


@checked
def exchange_maps(
    maps: ArrayLike, labels: Sequence[int] | ArrayLike, *, ids: Sequence[str | int] | None = None, seed: int = 0
) -> Tensor:
    """Exchange maps between samples, so that no sample keeps its own.

    The map comes from a sample of another class wherever there is one: a map of the same class would share what a
    method knows of the class. Of many samples, maps are exchanged within blocks of at least 64 that the seed draws.

    Args:
        maps: (N, *S), one map per sample, at least two.
        labels: (N,) classes.
        ids: one name per sample, by which the exchange is drawn; 0 … N-1 by default.
        seed: seed of the exchange.

    Returns:
        The same maps (N, *S), each in the place of another sample.

    Example:
        >>> exchange_maps(np.array([[1.0], [2.0], [3.0], [4.0]]), [0, 0, 1, 1]).flatten().tolist()
        [3.0, 4.0, 2.0, 1.0]
    """
    given = as_tensor(maps, "maps")
    if given.dim() == 0 or len(given) < 2:
        raise ValueError(f"`maps` must hold those of at least two samples; got shape {tuple(given.shape)}.")
    if given.is_floating_point() and not given.isfinite().all():
        raise ValueError("`maps` must be finite; some contain NaN or infinity.")
    names = check_ids(ids, len(given))
    return given[draw_partners(names, check_labels(labels, names), seed=seed)]


def draw_partners(
    ids: Sequence[str], labels: Sequence[int] | Integers, *, seed: int, within: int | None = BLOCK
) -> Integers:
    """Draw for each sample the position (N,) of the sample whose map it gets: a permutation that leaves none in place.

    The draw depends on the seed, the ids and their classes, and not on the order of the samples.

    Args:
        ids: names of the samples.
        labels: their classes.
        seed: seed of the exchange.
        within: size of the blocks that exchange among themselves; None for all samples at once.

    Example:
        >>> draw_partners(["a", "b", "c", "d"], [0, 0, 1, 1], seed=0)
        array([3, 2, 0, 1])
    """
    if len(ids) < 2:
        raise ValueError(f"`ids` must name at least two samples, so that their maps can be exchanged; got {len(ids)}.")
    classes, partners = np.asarray(labels), np.empty(len(ids), dtype=np.int64)
    for block in _blocks(ids, seed, within):
        partners[block] = block[_exchange([ids[position] for position in block], classes[block], seed)]
    return partners


def _exchange(ids: Sequence[str], classes: Integers, seed: int) -> Integers:
    """Draw the partners (N,) of one block."""
    count = len(ids)
    # Class by class, in an order of the seed's; moved on by the size of the largest class, as few samples as possible
    # meet their own class: none, unless it holds more than half of all samples.
    places = {label: stream(seed, "class", str(label)) for label in np.unique(classes).tolist()}
    names = [(places[label], stream(seed, "exchange", name), name) for label, name in zip(classes, ids, strict=True)]
    order = np.array(sorted(range(count), key=names.__getitem__))
    largest = int(np.unique(classes, return_counts=True)[1].max())
    partner = np.roll(order, -(largest if largest < count else 1))
    # Then mixed: two samples swap their partners wherever that brings neither of them nearer to its own class.
    kind, rng = classes[order].tolist(), np.random.default_rng(stream(seed, "swaps"))
    given, own = classes[partner].tolist(), order.tolist()
    mixed = partner.tolist()
    for a, b in rng.integers(count, size=(_SWAPS * count, 2)).tolist():
        before = (given[a] == kind[a]) + (given[b] == kind[b])
        after = (given[b] == kind[a]) + (given[a] == kind[b])
        if after <= before and mixed[b] != own[a] and mixed[a] != own[b]:
            mixed[a], mixed[b] = mixed[b], mixed[a]
            given[a], given[b] = given[b], given[a]
    partners = np.empty(count, dtype=np.int64)
    partners[order] = mixed
    return partners


def draw_controlled(ids: Sequence[str], share: float, *, seed: int, within: int | None = BLOCK) -> Integers:
    """Draw the share of the samples that the control is measured on, as increasing positions; a larger share adds some.

    Args:
        ids: names of the samples.
        share: share of the samples of each block, of which at least one is drawn.
        seed: seed of the draw.
        within: as for `draw_partners`.

    Example:
        >>> draw_controlled(["a", "b", "c", "d"], 0.5, seed=0)
        array([2, 3])
    """
    drawn = list[int]()
    for block in _blocks(ids, seed, within):
        order = sorted(block.tolist(), key=lambda position: (stream(seed, "control", ids[position]), ids[position]))
        drawn += order[: max(1, round(share * len(block)))]
    return np.array(sorted(drawn), dtype=np.int64)


def _blocks(ids: Sequence[str], seed: int, within: int | None) -> list[Integers]:
    """Cut the samples into blocks, each as increasing positions, in the order in which the seed draws them.

    The last block takes what is left over, so that none is smaller than `within`.
    """
    if within is None or len(ids) < 2 * within:
        return [np.arange(len(ids))]
    order = np.array(drawn_order(ids, seed=seed))
    return [np.sort(block) for block in np.split(order, range(within, len(ids) - within + 1, within))]
