"""Methods as people name them, and where their maps come from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from twinlens.attribution import METHODS, check_options, find_ensemble, needs_reference
from twinlens.core.fields import JSON, convert
from twinlens.core.functions import describe_function
from twinlens.data.stored_maps import StoredMaps, check_stored, open_maps
from twinlens.errors import unknown
from twinlens.options import Methods, QuestionOptions
from twinlens.running.directory import check_name
from twinlens.running.manifest import MethodRecord
from twinlens.running.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Method:
    """Where the maps of one name come from."""

    name: str
    """Name in the results."""

    source: str | Callable[..., Tensor] | StoredMaps
    """A name in `METHODS`, a function of the same signature, or maps made elsewhere."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method."""

    sign: str = "error"
    """What a negative value means."""

    channels: str | None = None
    """How several channels become one value per feature."""

    record: MethodRecord
    """What run.json says about it, so that another method of the same name is noticed."""

    @property
    def needs_reference(self) -> bool:
        """Whether it compares inputs with others, so that a run has to say with which."""
        named = isinstance(self.source, str) and needs_reference(METHODS[self.source])
        return named and "reference" not in self.options

    @property
    def ensemble(self) -> tuple[Callable[..., dict[str, Tensor]], str] | None:
        """What makes it together with others of the same noisy copies, and which of them it is."""
        return find_ensemble(self.source, self.options) if isinstance(self.source, str) else None

    def shares_copies(self, other: Method) -> bool:
        """Return whether both combine the explanations of the same noisy copies."""
        mine, its = (one.ensemble and (one.ensemble[0], one._options_of_copies) for one in (self, other))
        return mine is not None and mine == its

    @property
    def _options_of_copies(self) -> dict[str, JSON]:
        return {name: value for name, value in self.record.options.items() if name != "ensemble"}


def find_methods(methods: Methods, *, sign: str = "error", channels: str | None = None) -> dict[str, Method]:
    """Look up methods, refusing names, options and functions that do not exist before any work.

    Args:
        methods: names in `METHODS`; or a table from names of your own to a name, a function of the same signature, or a
            table of a "method" and its options.
        sign: what a negative value of a function's maps means.
        channels: how channels of a function's maps are reduced.

    Example:
        >>> find_methods({"mine": {"method": "occlusion", "window": 7}})["mine"].options
        {'window': 7}
        >>> find_methods(["gradcm"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `methods` must be one of saliency, ... got 'gradcm'. Did you mean 'gradcam'?
    """
    listed = [methods] if isinstance(methods, str) else methods
    if not isinstance(listed, Mapping):
        listed = convert(listed, tuple[str, ...], "methods")
    given = listed if isinstance(listed, Mapping) else {name: name for name in listed}
    found: dict[str, Method] = {}
    for name, source in given.items():
        options = dict(source) if isinstance(source, Mapping) else {"method": source}
        function = options.pop("method", name)
        if isinstance(function, str):
            if function not in METHODS:
                raise unknown("methods", function, METHODS)
            check_options(function, options)
            found[check_name(name)] = Method(
                name=name,
                source=function,
                options=options,
                record=MethodRecord(method=function, options=_described(options)),
            )
        elif callable(function):
            settings = options | _not_default({"sign": sign, "channels": channels})
            found[check_name(name)] = Method(
                name=name,
                source=function,
                options=options,
                sign=sign,
                channels=channels,
                record=MethodRecord(**describe_function(function), options=_described(settings)),
            )
        else:
            raise TypeError(f"`methods` must name a method or a function; {name!r} is {type(function).__name__}.")
    return found


def find_maps(options: QuestionOptions, subject: Subject) -> dict[str, Method]:
    """Open maps that were made elsewhere, and read each of them once."""
    found, sign, channels = {}, options.sign, options.channels
    for name, path in options.maps.items():
        stored = open_maps(path, subject.everything)
        digest = check_stored(stored, subject.samples, subject.data.spatial, sign=sign, channels=channels)
        record = MethodRecord(maps=digest, options=_described(_not_default({"sign": sign, "channels": channels})))
        found[check_name(name, "maps")] = Method(name=name, source=stored, sign=sign, channels=channels, record=record)
    return found


def join_methods(methods: Mapping[str, Method], maps: Mapping[str, Method]) -> dict[str, Method]:
    """Put methods and maps made elsewhere side by side, refusing a name that is in both, and nothing at all."""
    for name in maps:
        if name in methods:
            raise ValueError(f"`maps` and `methods` must have different names; {name!r} is in both.")
    if not methods and not maps:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}, or `maps` one set; got none.")
    return {**methods, **maps}


def _not_default(reading: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in reading.items() if value not in ("error", None)}


def _described(options: Mapping[str, object]) -> dict[str, JSON]:
    """Describe options as run.json can hold them; arrays by their content."""
    described: dict[str, JSON] = {}
    for name, value in options.items():
        if isinstance(value, Tensor | np.ndarray):
            array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
            described[name] = f"{array.shape} {hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}"
        elif isinstance(value, tuple):
            described[name] = list(value)
        else:
            described[name] = value if isinstance(value, int | float | str | list | None) else repr(value)
    return described
