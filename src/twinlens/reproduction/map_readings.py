"""Readings of the paper about maps: the noise of ensembles, the text or the authors' code, and the bits of a value.

Attributions are computed once, with all channels and signs. Every reading makes its maps from them: the text drops
negative values, and the authors' scripts (commit 4ac26f4 of github.com/sandylaker/soco) average magnitudes over
channels and store them as images of 8 bits.

Shapes: N samples, C channels, S = spatial shape of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from twinlens.outcome import Evaluation
from twinlens.reproduction.experiment import ExperimentOptions

DEVIATION, VARIANCE = "deviation", "variance"
PAPER, SOCO = "paper", "soco"
NOISE = {DEVIATION: 0.3**2, VARIANCE: 0.3}
"""Variance of the noise, by reading of the paper's N(0, 0.3 · I)."""

_WORDS = {
    DEVIATION: "0.3 as a standard deviation",
    VARIANCE: "0.3 as a variance",
    SOCO: "the authors' code",
    PAPER: "the text",
}


@dataclass(frozen=True, kw_only=True)
class MapReading:
    """One reading: what the noise of ensembles is, whose metrics and maps are used, and the bits of a value."""

    noise: str = DEVIATION
    protocol: str = PAPER
    bits: int | None = None

    @property
    def folder(self) -> str:
        """Directory of its run."""
        return "-".join([self.noise, self.protocol] + ([f"{self.bits}-bit"] if self.bits else []))

    @property
    def words(self) -> str:
        """The reading in words."""
        bits = [f"{self.bits}-bit maps"] if self.bits and self.protocol == PAPER else []
        return ", ".join([_WORDS[self.noise], *([_WORDS[SOCO]] if self.protocol == SOCO else []), *bits])


def list_readings(options: ExperimentOptions) -> list[MapReading]:
    """Return the readings that the options name, the default one first."""
    noises = (DEVIATION, VARIANCE) if options.noise == "both" else (options.noise,)
    protocols = (PAPER, SOCO) if options.protocol == "both" else (options.protocol,)
    return [
        MapReading(noise=noise, protocol=protocol, bits=options.bits or (8 if protocol == SOCO else None))
        for protocol, noise in product(protocols, noises)
    ]


class StoredMaps:
    """Reads maps by sample from one or several runs, each of which holds some samples."""

    def __init__(self, *evaluations: Evaluation) -> None:
        self.first = evaluations[0].run.manifest
        self.shard_size = self.first.execution.shard_size
        self.rows = {
            name: (number, *evaluation.run.manifest.shard_row(position))
            for number, evaluation in enumerate(evaluations)
            for position, name in enumerate(evaluation.ids())
        }
        self.runs = [evaluation.run for evaluation in evaluations]

    def originals(self, method: str, ids: Sequence[str], *, signed: bool = False) -> Tensor:
        """Read the original maps of these samples: their positive part, or signed."""
        rows = [self.rows[name] for name in ids]
        shards = {
            (run, shard): self.runs[run].load_maps(method, shard, signed=signed)
            for run, shard in dict.fromkeys((run, shard) for run, shard, _ in rows)
        }
        return torch.stack([shards[run, shard][row] for run, shard, row in rows])


class Readings(StoredMaps):
    """Makes the maps of a reading from stored attributions; a method that `evaluate` can call."""

    def methods(self, names: Mapping[str, str], reading: MapReading) -> dict[str, Any]:
        """Return methods for `evaluate`, from their names to those of the stored attributions."""
        # A version identifies the maps; the content of this object would change when the run of attributions grows.
        kind = "absolute" if reading.protocol == SOCO else "positive"
        common = {"method": self, "kind": kind, "bits": reading.bits or 0, "version": 1}
        return {name: {**common, "of": of} for name, of in names.items()}

    def __call__(self, *_: object, ids: Sequence[str], seed: int, of: str, kind: str, bits: int) -> Tensor:  # noqa: ARG002 (nothing is random)
        """Return the maps (N, *S) of the method `of`; model, inputs and targets are not used."""
        maps = self.originals(of, ids, signed=True)
        if self.first.data.feature_kind == "channels":
            maps = reduce_channels(maps, kind)
        return in_bits(maps, bits) if bits else maps


def reduce_channels(attributions: Tensor, kind: str) -> Tensor:
    """Return maps (N, *S) of attributions (N, C, *S): the positive part of their sum, or their mean magnitude."""
    return attributions.abs().mean(dim=1) if kind == "absolute" else attributions.sum(dim=1).clamp(min=0)


def in_bits(maps: Tensor, bits: int) -> Tensor:
    """Return maps (N, *S) from 0 to 1 with so many bits for each value, rounded down as the authors' scripts do.

    Example:
        >>> in_bits(torch.tensor([[1.0, 2.0, 3.0]]), 1)
        tensor([[0., 0., 1.]])
    """
    flat = maps.flatten(1).double()
    low, high = flat.amin(dim=1, keepdim=True), flat.amax(dim=1, keepdim=True)
    most = 2**bits - 1
    scaled: Tensor = ((flat - low) / (high - low).clamp(min=torch.finfo(flat.dtype).tiny) * most).floor()
    stored: Tensor = (scaled / most).float()
    return stored.reshape(maps.shape)
