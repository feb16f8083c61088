"""Modified maps of a run, for order-vs-value: our variant, which keeps the order, and the paper's to the letter.

Shapes: N samples, S = spatial shape of a map.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from twinlens.laboratory.modifications import MODIFICATIONS
from twinlens.outcome import Evaluation
from twinlens.probing.maps import normalise
from twinlens.probing.model_call import Labels, Model
from twinlens.support.arrays import ArrayLike
from twinlens.support.randomness import stream

ORIGINAL = "original"
OURS, LITERAL = "ours", "literal"
VARIANTS = (OURS, LITERAL)
_LARGEST = 255  # of 8 bits


class Modified:
    """Modifies the maps of a run; a method that `evaluate` can call."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.run = evaluation.run
        self.shard_size = self.run.manifest.execution.shard_size
        self.places = {name: place for place, name in enumerate(evaluation.ids())}

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
        """Return the modified maps (N, *S) of these samples, whatever the model.

        Args:
            model: not used, as are `inputs` and `targets`.
            inputs: not used.
            targets: not used.
            ids: names of the samples.
            seed: seed of the modification.
            of: method whose maps are modified.
            change: "original", or a name in `MODIFICATIONS`.
            scheme: a name in `SCHEMES`.
            variant: a name in `VARIANTS`.
        """
        del model, inputs, targets
        return modify(self.originals(of, ids), change, scheme, variant, ids=ids, seed=seed)

    def originals(self, method: str, ids: Sequence[str]) -> Tensor:
        """Read the original maps (N, *S) of these samples."""
        places = [self.run.manifest.shard_row(self.places[name]) for name in ids]
        shards = {shard: self.run.load_maps(method, shard) for shard in dict.fromkeys(shard for shard, _ in places)}
        return torch.stack([shards[shard][place] for shard, place in places])


def modify(maps: Tensor, change: str, scheme: str, variant: str, *, ids: Sequence[str], seed: int) -> Tensor:
    """Modify maps (N, *S), or scale them to 1.

    To the letter, remove and introduce draw numbers of their own, values end at 0 and 1, and maps are stored in 8 bits
    before and after, as the authors' files are.

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
    return (maps.clamp(0, 1) * _LARGEST).round() / _LARGEST
