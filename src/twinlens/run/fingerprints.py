"""Fingerprints of the samples of a run, to find the samples that two runs share. Ids of arrays are only positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from twinlens.data.samples import FINGERPRINT
from twinlens.errors import DamagedError
from twinlens.run.directory import Run
from twinlens.support.tensor_files import load_tensors, save_tensors

FILE = "fingerprints.safetensors"


def write_fingerprints(run: Run, fingerprints: Sequence[bytes]) -> None:
    """Store the fingerprint of each sample, in the order of the run's samples."""
    run.check_there()
    each = np.frombuffer(b"".join(fingerprints), dtype=np.uint8).reshape(-1, FINGERPRINT)
    save_tensors(run.path / FILE, {"fingerprints": torch.from_numpy(each.copy())})


def read_fingerprints(run: Run) -> tuple[bytes, ...] | None:
    """Read the fingerprint of each sample; None if they are not stored."""
    path = run.path / FILE
    if not path.exists():
        return None
    stored = load_tensors(path)[0].get("fingerprints")
    if stored is None or stored.dtype != torch.uint8 or stored.shape != (run.manifest.data.samples, FINGERPRINT):
        raise DamagedError(path, "it does not hold the samples of its run")
    return tuple(row.tobytes() for row in stored.numpy())
