"""Attribution methods: every one that the paper compares, behind one call.

A method is a function `(model, inputs, targets, *, …options, ids=None, seed=0, batch_size=None)` that returns maps
(N, *S), values >= 0. `AttributionMethod` in method.py explains how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from twinlens.attribution import (
    baselines,
    bottleneck,
    cam,
    deeplift,
    gradients,
    lrp,
    perturbation,
    shapley,
    transformers,
)
from twinlens.attribution.method import declared
from twinlens.errors import unknown
from twinlens.support.plugins import load_plugin, with_plugins

_FAMILIES = (gradients, deeplift, lrp, cam, transformers, perturbation, bottleneck, shapley, baselines)

METHODS: dict[str, Callable[..., Tensor]] = {
    name: value for family in _FAMILIES for name, value in vars(family).items() if hasattr(value, "declared")
}
"""All methods by name."""

BASELINES = frozenset(name for name, method in METHODS.items() if declared(method).baseline)
"""Baseline methods, which ignore the model or were crafted for a particular data set."""


def method_names() -> list[str]:
    """List the names of all methods: ours, and those of packages that are installed as plug-ins."""
    return with_plugins(METHODS, "twinlens.methods")


def plugin_method(argument: str, name: str, *, or_else: str = "") -> Any:
    """Import the method of a plug-in by its name; errors name `argument`, and say what else it can be."""
    if name not in (names := method_names()):
        raise unknown(argument, name, names, or_else=or_else)
    return load_plugin("twinlens.methods", name)


def title_of(name: str) -> str:
    """Return the name of a built-in method as papers write it; other names as they are.

    Example:
        >>> title_of("integrated_gradients"), title_of("mine")
        ('IG', 'mine')
    """
    return declared(METHODS[name]).title if name in METHODS else name


def find_ensemble(method: str, options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the explanation that a method makes noisy copies of, and how it combines them; None for other methods."""
    needs = declared(METHODS[method])
    kind = needs.combined or options.get("ensemble")
    return None if needs.copies_of is None or kind is None else (needs.copies_of, kind)
