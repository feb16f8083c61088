"""Modified maps of a run, for order-vs-value: our variant, which keeps the order, and the paper's literal one.

Shapes: N samples, S = spatial shape of a map.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from twinlens.laboratory.modifications import MODIFICATIONS
from twinlens.probing.maps import normalise
from twinlens.probing.model_call import Labels, Model
from twinlens.run.run_reader import Evaluation
from twinlens.support.arrays import ArrayLike
from twinlens.support.randomness import stream

ORIGINAL = "original"
OURS, LITERAL = "ours", "literal"
VARIANTS = (OURS, LITERAL)


class Modified:
    """Modifies the maps of a run; a method that `evaluate` can call."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.run = evaluation.run
        self.shard_size = self.run.manifest.execution.shard_size
        self.positions = {name: position for position, name in enumerate(evaluation.ids())}

    def __call__(
        self,
        model: Model,
        inputs: ArrayLike,
        targets: Labels,
        *,
        ids: Sequence[str],
        seed: int,
        of: str,
        change: str,
        scheme: str,
        variant: str,
    ) -> Tensor:
        """Return the modified maps (N, *S) of the method `of`; see `modify`."""
        del model, inputs, targets  # the signature of a method
        return modify(self.originals(of, ids), change, scheme, variant, ids=ids, seed=seed)

    def originals(self, method: str, ids: Sequence[str]) -> Tensor:
        """Read the original maps (N, *S) of these samples."""
        positions = [self.run.manifest.place(self.positions[name]) for name in ids]
        shards = {shard: self.run.load_maps(method, shard) for shard in dict.fromkeys(shard for shard, _ in positions)}
        return torch.stack([shards[shard][row] for shard, row in positions])


def modify(maps: Tensor, change: str, scheme: str, variant: str, *, ids: Sequence[str], seed: int) -> Tensor:
    """Modify maps (N, *S), or scale them to 1.

    In the literal variant, remove and introduce draw different random numbers, values are clipped to 0 and 1, and maps
    have 8 bits before and after, like the authors' files.

    Args:
        maps: the original maps.
        change: "original", or a name in `MODIFICATIONS`.
        scheme: a name in `SCHEMES`.
        variant: a name in `VARIANTS`.
        ids: names of the samples.
        seed: random seed.

    Example:
        >>> maps = torch.tensor([[0.0, 1.0, 2.0, 4.0]])
        >>> modify(maps, "introduce", "constant", LITERAL, ids=["a"], seed=0)
        tensor([[0.6000, 0.8510, 1.0000, 1.0000]], dtype=torch.float64)
        >>> modify(maps, "introduce", "constant", OURS, ids=["a"], seed=0)
        tensor([[0.6000, 0.8500, 1.1000, 1.6000]], dtype=torch.float64)
    """
    scaled = normalise(maps.double())
    if variant == OURS:
        return scaled if change == ORIGINAL else MODIFICATIONS[change](maps, scheme, ids=ids, seed=seed)
    stored = _in_8_bits(scaled)
    if change == ORIGINAL:
        return stored
    lost = {"trace": 0.0} if change == "remove" else {}
    return _in_8_bits(MODIFICATIONS[change](stored, scheme, ids=ids, seed=stream(seed, change), **lost))


def _in_8_bits(maps: Tensor) -> Tensor:
    return (maps.clamp(0, 1) * 255).round() / 255
