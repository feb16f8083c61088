"""What each of two processes does in the test of torchmetrics; the second one is started with this module."""

from datetime import timedelta

import numpy as np
import torch

import tests.conftest  # noqa: F401 (with which torchvision, and so torchmetrics, can be imported)
from tests.integrations.conftest import FEW, LEVELS
from tests.tiny import tiny_model
from twinlens.integrations.torchmetrics import Completeness, Deletion, Soundness

SHARES = [
    ([[0, 2], [4]], [[1, 3, 5]]),
    ([[0, 1], [2, 3]], [[4, 5], [0, 1]]),
    ([[5, 4, 3, 2, 1, 0]], []),
]
"""Batches of each process: in turns; with samples again where they had run out; all in one of them."""


def measure(model, batches, images, labels, maps):
    """Values of three metrics with ids and three without, and the sorted scores of the samples."""
    found = []
    for named in (True, False):
        for metric in (
            Soundness(**FEW),
            Soundness(estimator="paper", **LEVELS),
            Completeness(),
            Completeness(estimator="paper"),
            Deletion(reduction="none"),
        ):
            for batch in batches:
                metric.update(
                    model, images[batch], labels[batch], maps[batch], [f"no. {k}" for k in batch] if named else None
                )
            found.append(metric.compute().reshape(-1).sort().values)
            assert len(metric.curve().table) == 6
            if batches:  # whatever was gathered for that, each process goes on with its own samples
                assert len(metric.probes) == len(batches) * len(metric.metric.sweeps(None))
    return torch.cat(found)


def work(rank, folder, *data):
    """Measure every division of the samples together with the other process."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(minutes=20)
    )
    try:
        return torch.stack([measure(tiny_model().double().eval(), share[rank], *data) for share in SHARES])
    finally:
        torch.distributed.destroy_process_group()


def second(_, folder, *data):
    """Be the other process, and write what came out."""
    torch.set_num_threads(1)
    np.save(f"{folder}/second.npy", work(1, folder, *data).numpy())
