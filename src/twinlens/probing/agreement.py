"""Agreement: does a model answer as it does in float32, on probes like those of the run that is ahead?

The probes belong to maps that are drawn, half of them smooth, so that the outcome depends on the model, the data and
the imputer, and not on the methods of a run.

Shapes: N samples, S = spatial shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from twinlens.imputation.imputers import Imputer
from twinlens.probing.answers import REGRESSION
from twinlens.probing.execution import Agreement, Execution, Prepared
from twinlens.probing.probe import Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule

SAMPLES = 16
LEVELS = tuple(round(0.98 - 0.06 * k, 2) for k in range(16))
_SHARE = 20  # a trial takes at most one in so many of the probes ahead
_FEWEST = 200  # of fewer probes, one other prediction would be more than may differ
_FIRST = 2  # samples of a first look, which is enough to refuse most of what is refused
_COARSE = 7  # places along each axis of a map that are drawn before it is made smooth


def worth_trying(rows: int) -> bool:
    """Return whether so many probes are ahead that a trial is a small share of them."""
    return rows >= _SHARE * _FEWEST


def draw_maps(count: int, spatial: tuple[int, ...], seed: int) -> Tensor:
    """Draw maps (N, *S), of which every other one is smooth where features have neighbours.

    Example:
        >>> draw_maps(2, (8, 8), seed=0).shape
        torch.Size([2, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(count, *spatial, generator=generator)
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(len(spatial))
    if mode is not None:
        coarse = torch.rand(count, 1, *(min(_COARSE, size) for size in spatial), generator=generator)
        maps[::2] = interpolate(coarse, size=spatial, mode=mode)[::2, 0]
    return maps


class AgreementTrial:
    """Asks the same probes in several ways.

    Args:
        module: the model.
        prober: makes a prober for a model, of so many samples.
        imputer: fills in removed features.
        seed: of the maps.
    """

    def __init__(
        self, module: nn.Module, prober: Callable[[nn.Module, int], Prober], imputer: Imputer, seed: int
    ) -> None:
        self.module, self.prober, self.imputer, self.seed = module, prober, imputer, seed
        self._expected: dict[int, ProbeTable] = {}

    def __call__(self, execution: Execution) -> Agreement | None:
        """Compare answers with those in float32; None where there are no predictions, as in regression.

        A first look at two samples comes before all of them.
        """
        plain = replace(execution, precision="float32", compiled=False)
        for samples in (_FIRST, SAMPLES):
            if samples not in self._expected:
                self._expected[samples] = self._ask(plain, samples)
            if self._expected[samples].task == REGRESSION:
                return None
            found = _compare(execution, self._ask(execution, samples), self._expected[samples])
            if not found.enough:
                break
        return found

    def _ask(self, execution: Execution, samples: int) -> ProbeTable:
        prober = self.prober(Prepared(self.module, execution), samples)
        ranked = prober.rank(draw_maps(len(prober.ids), prober.spatial, self.seed), warn=False)
        return prober.sweep(ranked, Schedule(by="area", order="lerf", levels=LEVELS), self.imputer)


def _compare(execution: Execution, found: ProbeTable, expected: ProbeTable) -> Agreement:
    return Agreement(
        precision=execution.precision,
        compiled=execution.compiled,
        probes=found.predicted.size,
        predictions=float((found.predicted == expected.predicted).mean()),
        probabilities=float(np.abs(found.probability - expected.probability).max()),
    )
