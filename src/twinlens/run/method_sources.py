"""The methods of a run, and where their maps come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from twinlens.attribution import METHODS, find_ensemble, plugin_method
from twinlens.attribution.method import declared, options_of, refuse_unknown
from twinlens.data.stored_maps import StoredMaps, StoredReading, check_stored, maps_from_array, open_maps
from twinlens.integrations.explanations import Explanation, adapt
from twinlens.models.callables import FunctionModel
from twinlens.options import DEFAULT_METHODS, MapsOptions, Methods
from twinlens.probing.maps import AS_IT_IS, Reading, ReadingOptions
from twinlens.probing.shap_values import contributions_to_targets, is_explanation, read_contributions
from twinlens.run.directory import check_name
from twinlens.run.manifest import MethodRecord
from twinlens.run.setup import Setup
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON, convert, replaced


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of a run: the source of its maps."""

    name: str
    source: str | Explanation | StoredMaps
    """A name in `METHODS`, an explanation of another library or your own, or stored maps."""
    options: Mapping[str, Any] = field(default_factory=dict)
    reading: Reading = AS_IT_IS
    """How its maps are read."""
    record: MethodRecord
    """Its description in run.json, which tells methods of the same name apart."""

    def needs_reference(self, shape: Sequence[int]) -> bool:
        """Return whether the run has to provide what it compares inputs of that shape (C, *S) or (D,) with."""
        if not isinstance(self.source, str) or "reference" in self.options:
            return False
        method = METHODS[self.source]
        return "reference" in options_of(method) and (len(shape) == 1 or declared(method).reference == "any")

    @property
    def takes_segments(self) -> bool:
        """Whether it explains the segments of the run instead of single features."""
        named = isinstance(self.source, str) and "segments" in options_of(METHODS[self.source])
        return named and "segments" not in self.options

    @property
    def asks_for_output(self) -> bool:
        """Whether the run has to say what the model returns, logits or probabilities."""
        named = isinstance(self.source, str) and "output" in options_of(METHODS[self.source])
        return named and "output" not in self.options

    @property
    def ensemble(self) -> tuple[str, str] | None:
        """The method whose noisy copies it combines, and how."""
        return find_ensemble(self.source, self.options) if isinstance(self.source, str) else None

    def shares_copies(self, other: Method) -> bool:
        """Return whether both combine the explanations of the same noisy copies."""
        return self._copies is not None and self._copies == other._copies

    @property
    def _copies(self) -> tuple[str, dict[str, JSON]] | None:
        options = {name: value for name, value in self.record.options.items() if name != "ensemble"}
        return None if self.ensemble is None else (self.ensemble[0], options)


def default_methods(setup: Setup) -> tuple[str, ...]:
    """Return the methods of a run that names none: each can explain its model and data."""
    module = setup.model.module
    if isinstance(module, FunctionModel) and module.arrays:  # no gradients
        return ("kernel_shap", "occlusion", "random")
    if setup.data.tokens or not setup.data.has_neighbours:  # no feature maps
        return tuple("occlusion" if name == "gradcam" else name for name in DEFAULT_METHODS)
    return DEFAULT_METHODS


def find_methods(methods: Methods, reading: ReadingOptions = AS_IT_IS, model: object = None) -> dict[str, Method]:
    """Look up methods, and refuse unknown names, options and functions; `reading` is for maps of custom methods.

    Methods may hold parts of the `model`, which do not belong to their own identity.
    """
    model = getattr(model, "module", model)
    module = model if isinstance(model, nn.Module) else None
    names = [methods] if isinstance(methods, str) else methods
    if not isinstance(names, Mapping):
        names = {name: name for name in convert(names, tuple[str, ...], "methods")}
    return {name: _find_method(check_name(name), source, reading, module) for name, source in names.items()}


def _find_method(name: str, source: Any, reading: ReadingOptions, model: nn.Module | None) -> Method:
    options = dict(source) if isinstance(source, Mapping) else {"method": source}
    origin = options.pop("method", name)
    if isinstance(origin, str):
        method = origin if origin in METHODS else plugin_method("methods", origin)
        if isinstance(method, str):
            refuse_unknown(METHODS[method], options)
            if reading.sign == "signed":
                options.setdefault("sign", "signed")
            record = MethodRecord(method=method, options=_described(options))
            own_reading = Reading(sign=options.pop("sign", "positive"))
            return Method(name=name, source=method, options=options, reading=own_reading, record=record)
        origin = method
    try:
        adapted = adapt(origin)
    except TypeError:
        raise TypeError(f"`methods` must name a method or a function; {name!r} is {type(origin).__name__}.") from None
    version = options.pop("version", None)
    own_reading, own = adapted.split_options(options, reading)
    described = describe_function(origin, None if version is None else str(version), model)
    record = MethodRecord(**described, options=_described(own | _not_default(own_reading)))
    return Method(name=name, source=adapted, options=own, reading=own_reading, record=record)


def find_maps(options: MapsOptions, setup: Setup) -> dict[str, Method]:
    """Open your own maps, and read each of them once."""
    methods = {}
    for name, value in options.maps.items():
        check_name(name, "maps")
        table = dict(value) if isinstance(value, Mapping) else {"maps": value}
        if "maps" not in table:
            raise ValueError(f'`maps` must say where they are; the table of {name!r} has no "maps".')
        source = table.pop("maps")
        reading = replaced(StoredReading(sign=options.sign, channels=options.channels), table, f"maps.{name}")
        if is_explanation(source):
            every = setup.everything
            inputs = [every.read(k) for k in range(len(every))]
            source = contributions_to_targets(source, every.labels, inputs, f"maps.{name}")
            reading = read_contributions(reading)
        stored = (
            open_maps(os.fspath(source), setup.everything)
            if isinstance(source, (str, os.PathLike))
            else maps_from_array(source, name, setup.everything)
        )
        digest = check_stored(stored, setup.samples, setup.data.spatial, reading, setup.model.preprocessing)
        record = MethodRecord(maps=digest, options=_described(_not_default(reading)))
        methods[name] = Method(name=name, source=stored, reading=reading, record=record)
    return methods


def join_methods(methods: Mapping[str, Method], maps: Mapping[str, Method]) -> dict[str, Method]:
    """Join methods and stored maps, and refuse a name that is in both, or no name at all."""
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
            if isinstance(method.source, Explanation):
                stack.enter_context(method.source.at_rest())
        yield


def _not_default(reading: Reading) -> dict[str, str | None]:
    usual = type(reading)()
    return {name: value for name, value in asdict(reading).items() if value != getattr(usual, name)}


def _described(options: Mapping[str, object]) -> dict[str, JSON]:
    """Describe options for run.json, with hashes of arrays."""
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
