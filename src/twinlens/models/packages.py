"""Packages that some models need, imported when they are used."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from types import ModuleType

import torch

from twinlens.errors import ModelError, first_line, install_hint


def import_package(name: str, extra: str) -> ModuleType:
    """Import a package of an extra, or name the command that installs it."""
    if name == "transformers" and importlib.util.find_spec("torchvision") is not None:
        import_package("torchvision", "torchvision")  # with operators that transformers imports, too
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ModelError(f"This needs {name}: {install_hint(extra)}") from None
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise ModelError(f"{name} cannot be imported: {first_line(error)} Install it anew.") from error
    # The compiled operators of torchvision do not fit this torch; classifiers do not need them.
    for operator in ("nms", "qnms"):
        with suppress(RuntimeError):  # defined already
            torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
    return importlib.import_module(name)
