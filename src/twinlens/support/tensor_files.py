"""Tensors in safetensors files, written completely or not at all, with a digest of their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from twinlens.errors import DamagedError, first_line
from twinlens.support.fields import JSON
from twinlens.support.files import read_whole, written_whole
from twinlens.support.memory import is_out_of_memory


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: JSON = None) -> None:
    """Write tensors and a JSON value about them; the file appears when it is complete.

    Equal contents give equal bytes.

    Raises:
        OSError: if the file cannot be written, as on a full disk.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One key of metadata: the order of several differs between processes.
    metadata = {"twinlens": json.dumps({"digest": _digest(contiguous, about), "about": about})}
    # `save_file` writes to a temporary file of its own, which a killed process would leave behind.
    content = save(contiguous, metadata=metadata)
    with written_whole(path) as unfinished:
        try:
            unfinished.write_bytes(content)
        except OSError as error:
            raise OSError(f"{os.fspath(path)!r} cannot be written: {error}") from error


def load_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], Any]:
    """Read the tensors and the JSON value that `save_tensors` wrote.

    Raises:
        DamagedError: if the content is not what was written.
    """
    try:
        content = read_whole(path)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        stored = json.loads(header["__metadata__"]["twinlens"])
        tensors, about, digest = load(content), stored["about"], stored["digest"]
    except Exception as error:  # a broken file raises errors of many kinds
        if is_out_of_memory(error) or isinstance(error, OSError):
            raise
        raise DamagedError(path, first_line(error)) from None
    if _digest(tensors, about) != digest:
        raise DamagedError(path)
    return tensors, about


def _digest(tensors: Mapping[str, Tensor], about: JSON) -> str:
    digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
