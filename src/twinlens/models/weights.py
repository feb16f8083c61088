"""Weights of models, read from files as tensors only: nothing is ever unpickled."""

from __future__ import annotations

import importlib
import os
import pickle
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.errors import ModelError, first_line, short_repr
from twinlens.support.arrays import check_dense
from twinlens.support.files import check_unpacked_size


def load_weights(module: nn.Module, path: str) -> None:
    """Load the weights of a file into a module; names must match, apart from a common wrapper around them."""
    state = read_state(path)
    for wrapper in ("state_dict", "model_state_dict", "model"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    for name, value in state.items():
        if not isinstance(name, str):
            raise ModelError(f"`weights` {path!r} must hold tensors by name; one is called {name!r}.")
        if isinstance(value, Tensor):
            try:
                check_dense(value, "weights")
            except TypeError as error:
                raise ModelError(f"`weights` {path!r}: {name!r} cannot be used. {error}") from None
    if state and all(name.startswith("module.") for name in state):  # saved from DataParallel
        state = {name.removeprefix("module."): value for name, value in state.items()}
    own = module.state_dict()
    both = [n for n in state if n in own]
    for problem, names in {
        # The number of batches that a network saw in training is seldom published, and torch does not need it.
        "it lacks": [n for n in own if n not in state and not n.endswith("num_batches_tracked")],
        "the model does not have": [n for n in state if n not in own],
        "of another shape than the model's is": [n for n in both if own[n].shape != getattr(state[n], "shape", None)],
        "the model has no complex numbers in": [n for n in both if _is_complex(state[n]) and not _is_complex(own[n])],
    }.items():
        if names:
            raise ModelError(
                f"`weights` {path!r} do not fit the model: {problem} {names[0]!r} ({len(names)} of {len(own)} tensors)."
            )
    try:
        module.load_state_dict(state)
    except RuntimeError as error:  # such as complex numbers for real ones
        reason = " ".join(str(error).split())
        raise ModelError(f"`weights` {path!r} do not fit the model: {reason[-200:]}") from None


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def read_state(path: str) -> dict[str, Any]:
    """Read a state dict: tensors by name. A file that holds anything else, such as code, is refused."""
    if not os.path.isfile(path):  # which accepts a name that is too long, unlike that of pathlib
        raise ModelError(f"`weights` must be a file, 'default' or 'none'; there is no file {short_repr(path)}.")
    try:
        check_unpacked_size(path)
        if path.endswith(".safetensors"):
            safetensors: Any = importlib.import_module("safetensors.torch")
            return dict(safetensors.load_file(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle protocol of files that are refused anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelError(
            f"`weights` {path!r} hold more than tensors, and loading that could run code. Save model.state_dict(), "
            "or use safetensors."
        ) from None
    except Exception as error:
        raise ModelError(f"`weights` {path!r} cannot be read: {first_line(error)}") from None
    if not isinstance(state, dict):
        raise ModelError(f"`weights` {path!r} must hold a state dict; they hold a {type(state).__name__}.")
    return state
