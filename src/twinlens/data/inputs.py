"""Inputs: from samples to the tensor that a model expects.

Shapes: B samples, C channels, S = spatial shape, D features of a tabular row.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from twinlens.data.samples import Samples
from twinlens.models.loading import LoadedModel


def load_inputs(samples: Samples, model: LoadedModel, workers: int) -> Tensor:
    """Read samples as the model expects them, (B, C, *S) or (B, D)."""
    with ThreadPoolExecutor(workers) as pool:
        inputs = list(pool.map(lambda i: model.preprocessing(samples.read(i)), range(len(samples))))
    for name, one in zip(samples.ids, inputs, strict=True):
        if one.shape != inputs[0].shape:
            raise ValueError(
                f"All inputs must have one size; sample {name!r} has {tuple(one.shape)} and {samples.ids[0]!r} "
                f"{tuple(inputs[0].shape)}. Resize and crop them, as with --resize and --crop."
            )
    return torch.stack(inputs)
