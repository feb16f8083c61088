"""Digests of custom functions: of their source and of what they read from closures, globals and attributes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEEPEST = 12  # levels of references that are followed; beyond them, only types count
_MOST_ITEMS = 10_000


def describe_function(function: Callable[..., Any], version: str | None = None) -> dict[str, Any]:
    """Describe a function by its name and a digest, which distinguishes functions of the same name.

    The digest covers its source, the values in its closure, and the globals that it reads; for an object, its class and
    attributes; with a `version`, that alone.

    Example:
        >>> describe_function(describe_function)["function"]
        'describe_function'
        >>> one, other = (functools.partial(describe_function, version=v) for v in "12")
        >>> describe_function(one) == describe_function(other)
        False
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    digest = hashlib.blake2b(digest_size=16)
    if version is None:
        _Fingerprint(digest).add(function)
    else:
        digest.update(f"version {version}".encode())
    return {"function": name, "source": digest.hexdigest()}


class _Fingerprint:
    """Feeds values to a hash, each once, by content and never by address."""

    def __init__(self, digest: Any) -> None:
        self._digest, self._seen = digest, dict[int, int]()

    def add(self, value: Any, depth: int = 0) -> None:
        """Add one value, and what it refers to."""
        self._text(type(value).__qualname__)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._text(repr(value))
            return
        if id(value) in self._seen:
            self._text(f"again {self._seen[id(value)]}")
            return
        self._seen[id(value)] = len(self._seen)
        if depth > _DEEPEST:
            return
        if isinstance(value, (Tensor, np.ndarray)):
            self._array(value)
        elif isinstance(value, types.ModuleType):
            self._text(f"{value.__name__} {getattr(value, '__version__', '')}")
        elif inspect.isroutine(value) or isinstance(value, type):
            self._code(value, depth)
        else:
            self._object(value, depth)

    def _text(self, text: str) -> None:
        self._digest.update(f"{len(text)}:{text}".encode("utf-8", "backslashreplace"))

    def _array(self, value: Any) -> None:
        try:
            array = value.detach().cpu().contiguous() if isinstance(value, Tensor) else np.ascontiguousarray(value)
            raw = array.view(torch.uint8).numpy() if isinstance(array, Tensor) and array.dim() else np.asarray(array)
        except (RuntimeError, TypeError, ValueError):  # no plain memory, as of sparse and meta tensors
            return
        self._text(f"{value.dtype} {tuple(value.shape)}")
        if raw.dtype.names:  # the bytes between its fields, as in the trees of scikit-learn, may be anything
            for name in raw.dtype.names:
                self._array(raw[name])
        elif raw.dtype != object:
            self._digest.update(raw.tobytes())

    def _code(self, value: Any, depth: int) -> None:
        if (bound := getattr(value, "__self__", None)) is not None and not isinstance(bound, types.ModuleType):
            self.add(bound, depth + 1)
        function = getattr(value, "__func__", value)
        self._text(f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}")
        try:
            self._text(inspect.getsource(function))
        except (OSError, TypeError):  # typed at a prompt, or compiled
            if (code := getattr(function, "__code__", None)) is not None:
                self._digest.update(code.co_code)
                self._text(repr([each for each in code.co_consts if not isinstance(each, types.CodeType)]))
        if isinstance(function, types.FunctionType) and not _installed(function):
            self._read(function, depth)

    def _read(self, function: types.FunctionType, depth: int) -> None:
        """Add what a function reads from its surroundings."""
        self._items(function.__kwdefaults__ or {}, depth)
        for default in function.__defaults__ or ():
            self.add(default, depth + 1)
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents, depth + 1)
            except ValueError:  # not assigned yet
                self._text("empty")
        names = [name for name in _names(function.__code__) if name in function.__globals__]
        self._items({name: function.__globals__[name] for name in sorted(names)}, depth)

    def _items(self, items: Mapping[Any, Any], depth: int) -> None:
        for k, (key, value) in enumerate(items.items()):
            if k == _MOST_ITEMS:
                return
            self._text(str(key))
            self.add(value, depth + 1)

    def _object(self, value: Any, depth: int) -> None:
        if isinstance(value, nn.Module):
            self._text(type(value).__module__)
            self._items({name: each for name, each in value.state_dict().items() if isinstance(each, Tensor)}, depth)
        elif isinstance(value, functools.partial):
            self.add(value.func, depth + 1)
            self._items({**dict(enumerate(value.args)), **value.keywords}, depth)
        elif isinstance(value, (np.random.Generator, np.random.BitGenerator, torch.Generator)):
            self._text(_seed(value))
        elif isinstance(value, Mapping):
            self._items(value, depth)
        elif isinstance(value, (list, tuple)):
            self._items(dict(enumerate(value[:_MOST_ITEMS])), depth)
        elif isinstance(value, (set, frozenset)):
            self._text(" ".join(sorted(map(str, value))))
        else:
            self.add(type(value), depth + 1)
            self._items(getattr(value, "__dict__", None) or self._state(value), depth)

    def _state(self, value: Any) -> Mapping[Any, Any]:
        """Return the state of a compiled object, such as a tree of scikit-learn."""
        try:
            state = value.__getstate__()
        except Exception:  # code of any library
            return {}
        return state if isinstance(state, Mapping) else {} if state is None else {"state": state}


def _seed(generator: np.random.Generator | np.random.BitGenerator | torch.Generator) -> str:
    """Return the seed of a generator, regardless of later draws; empty for one without a fixed seed.

    Example:
        >>> _seed(np.random.default_rng(3)), _seed(np.random.default_rng())
        ('3 ()', '')
    """
    if isinstance(generator, torch.Generator):
        return str(generator.initial_seed())
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    entropy = getattr(bits.seed_seq, "entropy", None)
    drawn = isinstance(entropy, int) and entropy >= 2**64  # drawn by NumPy from the system, 128 bits
    return "" if drawn else f"{entropy} {getattr(bits.seed_seq, 'spawn_key', ())}"


def _installed(function: types.FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename


def _names(code: types.CodeType) -> Iterable[str]:
    """Return the names that a function and its inner functions look up."""
    inside = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {*code.co_names, *(name for each in inside for name in _names(each))}
