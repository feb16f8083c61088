"""Tensors in safetensors files that are whole or absent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from twinlens.core.fields import JSON
from twinlens.core.files import written_whole


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: JSON = None) -> None:
    """Write tensors, and what JSON can say about them, as a file that is whole or absent.

    Equal contents make equal bytes.

    Raises:
        OSError: if the file cannot be written, as on a full disk.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One key of metadata: the order of several is not the same from process to process.
    metadata = {"twinlens": json.dumps({"about": about})}
    with written_whole(path) as unfinished:
        try:
            save_file(contiguous, unfinished, metadata=metadata)
        except SafetensorError as error:  # which is no OSError, though nothing but the disk can fail here
            raise OSError(f"{os.fspath(path)!r} cannot be written: {error}") from error
