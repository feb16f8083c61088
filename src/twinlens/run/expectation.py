"""What to expect of a run on large inputs: how many model calls, and about how long they take."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from twinlens.data.inputs import load_inputs
from twinlens.probing.model_call import evaluating, find_device
from twinlens.run.job_array import missing_units
from twinlens.run.units import Unit
from twinlens.run.work import EvaluationWork

_LARGE = 1_000_000  # values of an input from which a probe is tried before the work
_LONG = 300.0  # seconds of a run that is announced


def announce(work: EvaluationWork, units: Sequence[Unit]) -> str | None:
    """Describe a run on large inputs that takes minutes, from the time of one probe; None for others."""
    data = work.run.manifest.data
    if data.tokens or torch.Size(data.shape).numel() < _LARGE or not work.sweeps:
        return None
    calls = sum(work.rows(missing_units(work, units)).values())
    if not calls:
        return None
    inputs = load_inputs(work.samples.take([0]), work.model, workers=1)
    keep = torch.rand(1, *data.spatial, generator=torch.Generator().manual_seed(0)) < 0.5
    device, dtype = find_device(work.model.module, None)
    start = time.perf_counter()
    with evaluating(work.model.module), torch.inference_mode():
        probe = work.sweeps[0][1](inputs.to(device), keep.to(device), [0])
        work.model.module(probe.to(dtype=dtype))
    each = time.perf_counter() - start
    if each * calls < _LONG:
        return None
    size = " × ".join(map(str, data.shape))
    return (
        f"{calls:,} model calls on inputs of {size} take about {each * calls / 60:,.0f} minutes here, {each:.1f} s "
        "each with imputation; maps come on top. Smaller inputs (`preprocessing`), a smaller `limit`, or "
        "metrics='headline' take less. An interrupted run resumes."
    )
