"""Tensors in safetensors files that are whole or absent, with a digest of their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from twinlens.errors import DamagedError, first_line
from twinlens.support.fields import JSON
from twinlens.support.files import at_hand, written_whole


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], about: JSON = None) -> None:
    """Write tensors, and what JSON can say about them, as a file that is whole or absent.

    Equal contents make equal bytes.

    Raises:
        OSError: if the file cannot be written, as on a full disk.

    Example:
        >>> import torch
        >>> save_tensors("memory://two.safetensors", {"maps": torch.ones(2)}, about=["a", "b"])
        >>> load_tensors("memory://two.safetensors")
        ({'maps': tensor([1., 1.])}, ['a', 'b'])
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One key of metadata: the order of several is not the same from process to process.
    metadata = {"twinlens": json.dumps({"digest": _digest(contiguous, about), "about": about})}
    # `save_file` would write to a file of its own beside this one, which a killed process leaves for ever.
    content = save(contiguous, metadata=metadata)
    with written_whole(path) as unfinished:
        try:
            unfinished.write_bytes(content)
        except OSError as error:
            raise OSError(f"{os.fspath(path)!r} cannot be written: {error}") from error


def load_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], Any]:
    """Read the tensors that `save_tensors` wrote, and what was said about them.

    Raises:
        DamagedError: if the content is not what was written.
    """
    try:
        with at_hand(path) as there, safe_open(there, "pt") as file:
            stored = json.loads((file.metadata() or {}).get("twinlens", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        digest, about = stored["digest"], stored["about"]
    except OSError:
        raise
    except Exception as error:  # of whatever kind a broken header raises
        raise DamagedError(path, first_line(error)) from None
    if _digest(tensors, about) != digest:
        raise DamagedError(path)
    return tensors, about


def _digest(tensors: Mapping[str, Tensor], about: JSON) -> str:
    found = hashlib.blake2b(json.dumps(about).encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
