"""Methods as people name them, and where their maps come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from twinlens.attribution import METHODS, check_options, find_ensemble, needs_reference, plugin_method
from twinlens.attribution.method import declared
from twinlens.data.stored_maps import StoredMaps, check_stored, maps_from_array, open_maps
from twinlens.integrations.explanations import Adapted, adapt
from twinlens.options import MapsOptions, Methods
from twinlens.probing.maps import AS_IT_IS, Reading, ReadingOptions
from twinlens.run.directory import check_name
from twinlens.run.manifest import MethodRecord
from twinlens.run.setup import Setup
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON, convert, replaced


@dataclass(frozen=True, kw_only=True)
class Method:
    """Where the maps of one name come from."""

    name: str
    """Name in the results."""

    source: str | Adapted | StoredMaps
    """A name in `METHODS`, an explanation of another origin, or maps made elsewhere."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method."""

    reading: Reading = AS_IT_IS
    """How its maps are read."""

    record: MethodRecord
    """What run.json says about it, so that another method of the same name is noticed."""

    @property
    def needs_reference(self) -> bool:
        """Whether it compares inputs with others, so that a run has to say with which."""
        named = isinstance(self.source, str) and needs_reference(METHODS[self.source])
        return named and "reference" not in self.options

    @property
    def takes_segments(self) -> bool:
        """Whether it explains the segments of a run instead of single features."""
        named = isinstance(self.source, str) and declared(METHODS[self.source]).segments
        return named and "segments" not in self.options

    @property
    def ensemble(self) -> tuple[str, str] | None:
        """What it makes noisy copies of, and how it combines them."""
        return find_ensemble(self.source, self.options) if isinstance(self.source, str) else None

    def shares_copies(self, other: Method) -> bool:
        """Return whether both combine the explanations of the same noisy copies."""
        mine, its = (one.ensemble and (one.ensemble[0], one._options_of_copies) for one in (self, other))
        return mine is not None and mine == its

    @property
    def _options_of_copies(self) -> dict[str, JSON]:
        return {name: value for name, value in self.record.options.items() if name != "ensemble"}


def find_methods(methods: Methods, reading: ReadingOptions = AS_IT_IS) -> dict[str, Method]:
    """Look up methods, refusing names, options and functions that do not exist before any work.

    Args:
        methods: names in `METHODS`; or a table from names of your own to a name, an explanation that `adapt` takes, or
            a table of a "method" and its options.
        reading: how maps of what is not ours are read, where its own table does not say it.

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
        origin = options.pop("method", name)
        check_name(name)
        if isinstance(origin, str) and origin not in METHODS:
            origin = plugin_method("methods", origin)
        if isinstance(origin, str):
            found[name] = _named(name, origin, options)
        else:
            found[name] = _of_other_origin(name, origin, options, reading)
    return found


def _named(name: str, method: str, options: Mapping[str, object]) -> Method:
    check_options(method, options)
    return Method(
        name=name, source=method, options=options, record=MethodRecord(method=method, options=_described(options))
    )


def _of_other_origin(name: str, origin: Any, given: Mapping[str, object], asked: ReadingOptions) -> Method:
    try:
        source = adapt(origin)
    except TypeError:
        raise TypeError(f"`methods` must name a method or a function; {name!r} is {type(origin).__name__}.") from None
    options = dict(given)
    version = options.pop("version", None)
    reading, own = source.split_options(options, asked)
    described = describe_function(origin, None if version is None else str(version))
    return Method(
        name=name,
        source=source,
        options=own,
        reading=reading,
        record=MethodRecord(**described, options=_described(own | _not_default(reading))),
    )


def find_maps(options: MapsOptions, setup: Setup) -> dict[str, Method]:
    """Open maps that were made elsewhere, and read each of them once."""
    found = {}
    for name, given in options.maps.items():
        check_name(name, "maps")
        table = dict(given) if isinstance(given, Mapping) else {"maps": given}
        if "maps" not in table:
            raise ValueError(f'`maps` must say where they are; the table of {name!r} has no "maps".')
        source = table.pop("maps")
        reading = replaced(Reading(sign=options.sign, channels=options.channels), table, f"maps.{name}")
        stored = (
            open_maps(os.fspath(source), setup.everything)
            if isinstance(source, (str, os.PathLike))
            else maps_from_array(source, name, setup.everything)
        )
        digest = check_stored(stored, setup.samples, setup.data.spatial, reading)
        record = MethodRecord(maps=digest, options=_described(_not_default(reading)))
        found[name] = Method(name=name, source=stored, reading=reading, record=record)
    return found


def join_methods(methods: Mapping[str, Method], maps: Mapping[str, Method]) -> dict[str, Method]:
    """Put methods and maps made elsewhere side by side, refusing a name that is in both, and nothing at all."""
    for name in maps:
        if name in methods:
            raise ValueError(f"`maps` and `methods` must have different names; {name!r} is in both.")
    if not methods and not maps:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}, or `maps` one set; got none.")
    return {**methods, **maps}


@contextmanager
def at_rest(methods: Mapping[str, Method]) -> Iterator[None]:
    """Keep the hooks of other libraries' explanations off the model during a block."""
    with ExitStack() as stack:
        for method in methods.values():
            if isinstance(method.source, Adapted):
                stack.enter_context(method.source.at_rest())
        yield


def _not_default(reading: Reading) -> dict[str, str | None]:
    return {name: value for name, value in asdict(reading).items() if value != getattr(AS_IT_IS, name)}


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
