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

    Two samples swap their maps; three take turns if the number is odd. They are of different classes if possible,
    because maps of one class resemble each other. Among many samples, maps are exchanged within random blocks of at
    least 64.

    Args:
        maps: (N, *S), one map per sample, at least two.
        labels: (N,) classes.
        ids: one name per sample, by which the exchange is drawn; 0 … N-1 by default.
        seed: random seed.

    Returns:
        The same maps (N, *S), each at the position of another sample.

    Example:
        >>> exchange_maps(np.array([[1.0], [2.0], [3.0], [4.0]]), [0, 0, 1, 1]).flatten().tolist()
        [3.0, 4.0, 1.0, 2.0]
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


def exchange_groups(ids: Sequence[str], labels: Sequence[int] | Integers, *, seed: int) -> dict[str, str]:
    """Return for each id the first of those that exchange maps among themselves: two, or three of an odd number.

    In a group, own and exchanged maps are the same maps on the same inputs. Groups are independent of each other.
    """
    partners = draw_partners(ids, labels, seed=seed)
    return {ids[k]: min(ids[k], ids[one], ids[partners[one]]) for k, one in enumerate(partners.tolist())}


def _exchange(ids: Sequence[str], classes: Integers, seed: int) -> Integers:
    """Draw the partners (N,) of one block: two samples swap their maps, and three take turns if the number is odd."""
    # Sorted by class, in a random order of classes, and shifted by half: as few samples as possible then meet their own
    # class, and none unless it holds more than half of all samples.
    ranks = {label: stream(seed, "class", str(label)) for label in np.unique(classes).tolist()}
    names = [(ranks[label], stream(seed, "exchange", name), name) for label, name in zip(classes, ids, strict=True)]
    order, half = sorted(range(len(ids)), key=names.__getitem__), len(ids) // 2
    pairs, label = list(zip(order[:half], order[half:], strict=False)), classes.tolist()

    def alike(pair: tuple[int, int]) -> bool:
        return bool(label[pair[0]] == label[pair[1]])

    # Then two pairs at a time change partners, unless that adds a partner of the same class.
    rng = np.random.default_rng(stream(seed, "swaps"))
    for a, b, turned in rng.integers([half, half, 2], size=(_SWAPS * len(ids), 3)).tolist():
        (one, other), (third, fourth) = pairs[a], pairs[b][::-1] if turned else pairs[b]
        changed = (one, fourth), (third, other)
        if a != b and sum(map(alike, changed)) <= alike(pairs[a]) + alike(pairs[b]):
            pairs[a], pairs[b] = changed
    partners = np.empty(len(ids), dtype=np.int64)
    for one, other in pairs:
        partners[one], partners[other] = other, one
    if len(ids) % 2:  # the last sample joins the pair in which it adds the fewest partners of the same class
        last = order[-1]
        one, other = min(pairs, key=lambda pair: sum(alike((last, each)) for each in pair) - alike(pair))
        partners[one], partners[last], partners[other] = last, other, one
    return partners


def draw_controlled(ids: Sequence[str], labels: Sequence[int] | Integers, share: float, *, seed: int) -> Integers:
    """Draw the samples on which the exchanged control is measured, as increasing positions; a larger share adds some.

    It is the share of each block; at least one sample is drawn. Samples that exchange maps are drawn together, except
    for the last of a block.
    """
    drawn, groups = list[int](), exchange_groups(ids, labels, seed=seed) if len(ids) > 1 else {ids[0]: ids[0]}
    for block in _blocks(ids, seed):
        keys = {k: (stream(seed, "control", group := groups[ids[k]]), group, ids[k]) for k in block.tolist()}
        drawn += sorted(keys, key=keys.__getitem__)[: max(1, round(share * len(block)))]
    return np.array(sorted(drawn), dtype=np.int64)


def _blocks(ids: Sequence[str], seed: int) -> list[Integers]:
    """Divide the samples into random blocks of increasing positions; the last block takes the remainder."""
    if len(ids) < 2 * BLOCK:
        return [np.arange(len(ids))]
    order = np.array(drawn_order(ids, seed=seed))
    return [np.sort(block) for block in np.split(order, range(BLOCK, len(ids) - BLOCK + 1, BLOCK))]
