"""Agreement: whether a model in another precision, or compiled, answers as it does in float32.

It is tested on probes of random maps, half of them smooth, and does not depend on the methods of a run.

Shapes: N samples, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.imputation.imputers import Imputer
from twinlens.probing.answers import REGRESSION
from twinlens.probing.execution import Agreement, Execution, Prepared
from twinlens.probing.maps import resize_maps
from twinlens.probing.probe import Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule

SAMPLES = 16
LEVELS = tuple(round(0.98 - 0.06 * k, 2) for k in range(16))
_WORTHWHILE = 4000  # a trial of some 200 probes takes one in twenty; among fewer, one prediction exceeds the limit
_FIRST = 2  # samples of a first look, which is enough for most refusals
_COARSE = 7  # positions along each axis of a smooth map before it is enlarged


def worth_trying(rows: int) -> bool:
    """Return whether a trial is a small share of the run's probes."""
    return rows >= _WORTHWHILE


def draw_maps(count: int, spatial: tuple[int, ...], seed: int) -> Tensor:
    """Draw random maps (N, *S); every other one is smooth where features have neighbours."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(count, *spatial, generator=generator)
    if len(spatial) <= 3:
        coarse = torch.rand(count, *(min(_COARSE, size) for size in spatial), generator=generator)
        maps[::2] = resize_maps(coarse, spatial, "bilinear")[::2]
    return maps


class AgreementTrial:
    """Compares the answers of executions on the same probes; `prober` takes a model and a number of samples."""

    def __init__(
        self, module: nn.Module, prober: Callable[[nn.Module, int], Prober], imputer: Imputer, seed: int
    ) -> None:
        self.module, self.prober, self.imputer, self.seed = module, prober, imputer, seed
        self._expected: dict[int, ProbeTable] = {}

    def __call__(self, execution: Execution) -> Agreement | None:
        """Compare answers with those in float32, first for two samples; None for regression models."""
        plain = replace(execution, precision="float32", compiled=False)
        for samples in (_FIRST, SAMPLES):
            if samples not in self._expected:
                self._expected[samples] = self._ask(plain, samples)
            if self._expected[samples].task == REGRESSION:
                return None
            expected, table = self._expected[samples], self._ask(execution, samples)
            agreement = Agreement(
                precision=execution.precision,
                compiled=execution.compiled,
                probes=table.predicted.size,
                predictions=float((table.predicted == expected.predicted).mean()),
                probabilities=float(np.abs(table.probability - expected.probability).max()),
            )
            if not agreement.enough:
                break
        return agreement

    def _ask(self, execution: Execution, samples: int) -> ProbeTable:
        prober = self.prober(Prepared(self.module, execution), samples)
        ranked = prober.rank(draw_maps(len(prober.ids), prober.spatial, self.seed), warn=False)
        return prober.sweep(ranked, Schedule(by="area", order="lerf", levels=LEVELS), self.imputer)
