"""Digests of models and functions by content: their source, what they read, their attributes, their packages' versions.

An object becomes entries, one for the code of each function, for each value that a function reads, and for each
attribute of a module. No entry depends on an address, on the order of a dict or on the machine.
"""

from __future__ import annotations

import array
import ast
import collections
import contextlib
import copyreg
import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_DEEPEST = 100  # levels of references that are followed; beyond them, only types count
_SCALARS = (bool, int, float, complex, str, bytes)
_BUFFERS = (bytearray, memoryview, array.array)
# Modules whose objects are values: attributes of a network that are objects of other packages do not count, because
# they may hold caches and handles of this process.
_VALUES = (
    *("argparse", "array", "builtins", "collections", "datetime", "decimal", "fractions", "functools", "numpy"),
    *("operator", "re", "scipy", "sklearn", "string", "torch.distributions", "torchvision.transforms", "types", "uuid"),
)
_ROUTINES = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
)
_PRINTED = (torch.dtype, torch.device, torch.memory_format, np.dtype, enum.Enum, PurePath, range, slice)
_IGNORED = (logging.Logger, RemovableHandle)  # they hold numbers and caches of this process
_RECORDED = {"torch", "numpy", "twinlens", *sys.stdlib_module_names}  # run.json has their versions
_LIBRARIES = (sysconfig.get_path("stdlib") + os.sep, str(Path(__file__).parents[1]) + os.sep)
_FUNCTIONS = ("__func__", "fget", "fset", "func")  # of static methods, properties and cached properties
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# What every module has; the rest are its attributes. A copy of a model of transformers elsewhere is the same model.
_OWN = {*vars(nn.Module()), "_is_hf_initialized", "_torchdynamo_wrapper_id", "name_or_path"}


def describe_function(
    function: Callable[..., Any], version: str | None = None, model: nn.Module | None = None
) -> dict[str, Any]:
    """Describe a function by its name and a digest, which distinguishes functions of the same name.

    The digest covers its source, the values in its closure, and the globals that it reads; for an object, its class and
    attributes; with a `version`, that alone. Parts of `model` count by their names: it has a digest of its own.
    """
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    known = {} if model is None else {id(part): f"model.{path}" for path, part in model.named_modules()}
    entries = {"version": version} if version is not None else _Fingerprint(function, known).digests()
    return {"function": name, "source": _joined(entries)}


def model_digest(model: nn.Module, calls: Iterable[Callable[[], object]] = ()) -> str:
    """Hash a model: its code, parameters, buffers, attributes and hooks.

    What changes between two of the `calls`, such as a counter or stored activations, is not part of it.
    """
    entries, first = _Fingerprint(model).digests() if not calls else {}, True
    for call in calls:
        call()
        current = _Fingerprint(model).digests()
        entries = current if first else {path: each for path, each in entries.items() if current.get(path) == each}
        first = False
    return _joined(entries)


def source_digest(path: Path) -> str:
    """Hash a Python file and the files beside it that it imports, directly or not."""
    root, waiting, sources = path.resolve().parent, [path.resolve()], dict[str, str]()
    while waiting:
        file = waiting.pop()
        name = os.path.relpath(file, root)
        if name not in sources and file.is_file():
            content = file.read_bytes()
            sources[name] = hashlib.blake2b(content, digest_size=16).hexdigest()
            waiting += [found for node in ast.walk(ast.parse(content)) for found in _imported(node, file, root)]
    return _joined(sources)


def _imported(node: ast.AST, file: Path, root: Path) -> list[Path]:
    """Return the files beside `file` that an import statement may mean."""
    if isinstance(node, ast.Import):
        folder, names = root, [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        folder, module = file.parents[node.level - 1] if node.level else root, node.module or ""
        names = [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
    else:
        return []
    paths = [folder.joinpath(*name.split(".")[:count]) for name in names for count in range(1, name.count(".") + 2)]
    return [file for path in paths for file in (path / "__init__.py", path.with_name(f"{path.name}.py"))]


def _joined(entries: Mapping[str, str]) -> str:
    return hashlib.blake2b(repr(sorted(entries.items())).encode(), digest_size=16).hexdigest()


class _Fingerprint:
    """The entries of an object: hashes of values by their paths, each object once."""

    def __init__(self, value: Any, known: Mapping[int, str] | None = None) -> None:
        self._hashes: dict[str, Any] = defaultdict(lambda: hashlib.blake2b(digest_size=16))
        self._seen: dict[int, tuple[str, Any]] = {key: (path, None) for key, path in (known or {}).items()}
        self._add(value, "")

    def digests(self) -> dict[str, str]:
        """Return the digest of each entry."""
        return {path: digest.hexdigest() for path, digest in self._hashes.items()}

    def _add(self, value: Any, path: str, depth: int = 0, *, plain: bool = False) -> None:
        """Add a value, and what it refers to, to an entry; with `plain`, no objects of other packages."""
        self._text(path, type(value).__qualname__)
        if value is None or type(value) in _SCALARS:
            self._text(path, repr(value))
            return
        if id(value) in self._seen:
            self._text(path, f"again {self._seen[id(value)][0]}")
            return
        self._seen[id(value)] = path, value  # kept, so that no other object gets its address
        if depth > _DEEPEST or isinstance(value, _IGNORED):
            return
        own = self._own_class(value, path, depth)
        if isinstance(value, (*_SCALARS, *_PRINTED)):
            self._text(path, _printed(value))
        elif isinstance(value, _BUFFERS):
            self._hashes[path].update(bytes(value))
        elif isinstance(value, (Tensor, np.ndarray, np.generic)):
            self._array(value, path, depth)
        elif isinstance(value, types.ModuleType):
            self._text(path, f"{value.__name__} {_distribution(value.__name__)}")
            self._text(path, "" if _is_installed(value) else _module_source(value))
        elif isinstance(value, type):
            self._class(value, path, depth)
        elif isinstance(value, _ROUTINES):
            self._routine(value, path, depth)
        elif isinstance(value, nn.Module):
            self._network(value, path, depth)
        else:
            self._object(value, path, depth, plain=plain, own=own)

    def _own_class(self, value: Any, path: str, depth: int) -> bool:
        """Add the class and the attributes of a value, and return True, if the class belongs to no package.

        Classes, functions and networks are added in other ways.
        """
        kind = type(value)
        other = isinstance(value, (type, types.ModuleType, nn.Module, *_ROUTINES))
        if kind.__module__ == "builtins" or other or _is_installed(kind):
            return False
        self._add(kind, f"{path}/class", depth + 1)
        for name, each in sorted(_attributes(value).items()):
            self._add(each, f"{path}.{name}", depth + 1)
        return True

    def _text(self, path: str, text: str) -> None:
        self._hashes[path].update(f"{len(text)}:{text}".encode("utf-8", "backslashreplace"))

    def _array(self, value: Any, path: str, depth: int) -> None:
        nested = isinstance(value, Tensor) and value.is_nested
        self._text(path, f"{value.dtype} {'' if nested else tuple(value.shape)}")
        if isinstance(value, Tensor) and (nested or value.layout != torch.strided):
            for part in _parts(value):
                self._array(part, path, depth)
            return
        if isinstance(value, np.ma.MaskedArray):
            self._array(np.ma.getmaskarray(value), path, depth)
        try:
            if isinstance(value, Tensor):
                if value.is_quantized:
                    self._text(path, str(value.qscheme()))
                    value = value.dequantize()
                array = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
                raw = array.view(torch.uint8).numpy() if array.dim() else array.numpy()
            else:
                raw = np.ascontiguousarray(value)
        except (RuntimeError, TypeError, ValueError):  # no plain memory, as of meta tensors
            return
        if raw.dtype.names:  # the bytes between its fields, as in the trees of scikit-learn, may be anything
            for name in raw.dtype.names:
                self._array(raw[name], path, depth)
        elif raw.dtype == object:
            self._add(raw.ravel().tolist(), path, depth + 1)
        else:
            self._hashes[path].update(raw.tobytes())

    def _class(self, kind: type, path: str, depth: int) -> None:
        if not _is_installed(type(kind)):
            self._add(type(kind), f"{path}/metaclass", depth + 1)
        for base in kind.__mro__:
            own = not _is_installed(base)
            self._text(path, f"{base.__module__}.{base.__qualname__} {'' if own else _distribution(base.__module__)}")
            for name, member in sorted(vars(base).items()) if own else ():
                for function in [*(getattr(member, part, None) for part in _FUNCTIONS), member]:
                    if inspect.isroutine(function) or not name.startswith("__"):
                        self._add(function, f"{path}/{base.__qualname__}.{name}", depth + 1)

    def _routine(self, value: Any, path: str, depth: int) -> None:
        if (bound := getattr(value, "__self__", None)) is not None and not isinstance(bound, types.ModuleType):
            self._add(bound, f"{path}/self", depth + 1)
        function = getattr(value, "__func__", value)
        module = str(getattr(function, "__module__", ""))
        self._text(path, f"{module}.{getattr(function, '__qualname__', '')}")
        if not isinstance(function, types.FunctionType) or _is_installed(function):
            self._text(path, _distribution(module))
            for k, each in enumerate(_wrapped(function)):
                self._add(each, f"{path}/{k}", depth + 1)
            return
        self._text(path, _source(function))
        self._items(function.__kwdefaults__ or {}, path, depth)
        self._items(dict(enumerate(function.__defaults__ or ())), path, depth)
        self._items({name: each for name, each in vars(function).items() if name[0] != "_"}, path, depth, plain=True)
        names, imports = _names(function.__code__)
        for k, cell in enumerate(function.__closure__ or ()):
            try:
                self._add(cell.cell_contents, f"{path}/{k}", depth + 1)
            except ValueError:  # not assigned yet
                self._text(path, f"{k} is empty")
        self._read(function.__globals__, names, path, depth)
        for name in sorted(imports):
            try:
                found = importlib.util.find_spec(name)
            except (ImportError, ValueError):
                continue
            if found is not None and (file := found.origin or "").endswith(".py") and not _is_library(file):
                self._text(path, f"{name} {source_digest(Path(file))}")

    def _read(self, values: Mapping[str, Any], names: set[str], path: str, depth: int) -> None:
        """Add the values that a function reads, and the attributes of modules among them."""
        for name in sorted(names & values.keys()):
            value = values[name]
            if isinstance(value, types.ModuleType) and not _is_installed(value) and id(value) not in self._seen:
                self._seen[id(value)] = f"{path}/{name}", value
                self._read(vars(value), names, f"{path}/{name}", depth + 1)
            else:
                self._add(value, f"{path}/{name}", depth + 1)

    def _items(self, items: Mapping[Any, Any], path: str, depth: int, *, plain: bool = False) -> None:
        for key, value in sorted(items.items(), key=lambda item: _name(item[0])):
            self._text(path, _name(key))
            self._add(value, path, depth + 1, plain=plain)

    def _network(self, value: nn.Module, path: str, depth: int) -> None:
        self._add(type(value), f"{path}/class", depth)
        if isinstance(code := getattr(value, "code", None), str):  # of TorchScript or torch.fx
            self._text(path, code)
        fixed = isinstance(value, (torch.jit.ScriptModule, torch.fx.GraphModule))
        attributes = {} if fixed else {name: each for name, each in vars(value).items() if name not in _OWN}
        hooks = {} if fixed else {name: [*filter(_is_foreign, getattr(value, name).values())] for name in _HOOKS}
        weights = {**dict(value.named_parameters(recurse=False)), **dict(value.named_buffers(recurse=False))}
        for name, each in {**weights, **attributes, **{name: each for name, each in hooks.items() if each}}.items():
            self._add(each, f"{path}.{name}", depth + 1, plain=True)
        for name, part in value._modules.items():  # in order, which is that of the calls in nn.Sequential
            self._text(path, name)
            self._add(part, f"{path}.{name}", depth)

    def _object(self, value: Any, path: str, depth: int, *, plain: bool, own: bool) -> None:
        if isinstance(value, functools.partial):
            self._add(value.func, f"{path}/func", depth + 1)
            self._items({**dict(enumerate(value.args)), **value.keywords}, path, depth)
        elif isinstance(value, (np.random.Generator, np.random.BitGenerator, torch.Generator)):
            self._text(path, _seed(value))
        elif isinstance(value, Mapping):
            self._items(value, path, depth, plain=plain)
        elif isinstance(value, (list, tuple, collections.deque)):
            for k, each in enumerate(value):
                self._add(each, f"{path}/{k}" if isinstance(each, nn.Module) else path, depth + 1, plain=plain)
        elif callable(getattr(type(value), "to_numpy", None)):  # as of pandas, whose attributes include caches
            for each in (value.to_numpy(), *(axis.to_numpy() for axis in getattr(value, "axes", ()))):
                self._add(each, path, depth + 1)
        elif isinstance(value, (set, frozenset)):
            self._text(path, " ".join(sorted(map(_name, value))))
        elif own and _attributes(value):
            return
        elif own or not plain or isinstance(value, torch.ScriptObject) or _is_plain(value):
            # A script object holds the weights of quantised modules.
            self._add(type(value), path, depth + 1)
            self._items(_state(value), path, depth)


def _is_plain(value: Any) -> bool:
    """Return whether an object of a package is a value; the state of a `RandomState` may be that of this process."""
    module = type(value).__module__
    return any(f"{module}.".startswith(f"{name}.") for name in _VALUES) and not isinstance(value, np.random.RandomState)


def _wrapped(function: Any) -> list[Any]:
    """Return the functions and classes that a function of a library holds, as those of decorators do."""
    if not isinstance(function, types.FunctionType):
        return []
    held = [vars(function).get("__wrapped__")]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            content = cell.cell_contents
            held += content.values() if isinstance(content, Mapping) else [content]
    classes = [each for each in held if isinstance(each, type) and not _is_installed(each)]
    return [*(each for each in held if isinstance(each, _ROUTINES)), *classes]


def _attributes(value: Any) -> dict[str, Any]:
    """Return what `__dict__` and `__slots__` of a value hold."""
    state = object.__getstate__(value)
    both = state if isinstance(state, tuple) else (state, None)
    return {name: each for part in both for name, each in (part or {}).items()}


def _printed(value: Any) -> str:
    """Return a number, a text or another simple value as text, regardless of methods of its own class."""
    base = next((kind for kind in _SCALARS if isinstance(value, kind)), None)
    return str(value) if base is None else base.__repr__(value)


def _state(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object; of a compiled one, such as a tree of scikit-learn, what it is copied from."""
    try:
        state = _attributes(value) or value.__getstate__()
        if not state:
            reduce = copyreg.dispatch_table.get(type(value))
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
            _, arguments, *more = reduced
            state = {"arguments": arguments, "items": [list(each) for each in more[1:3] if each is not None]}
    except Exception:  # code of any library
        return {}
    return state if isinstance(state, Mapping) else {"state": state}


def _parts(value: Tensor) -> list[Tensor]:
    """Return the dense tensors that a nested one, a sparse one or one in another layout consists of."""
    if value.is_nested:
        return [*value.unbind()]
    if value.layout == torch.sparse_coo:
        whole = value.detach().coalesce()
        return [whole.indices(), whole.values()]
    if value.layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):  # such as MKL-DNN
        return [value.detach().to_dense()]
    rows = value.layout in (torch.sparse_csr, torch.sparse_bsr)
    names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
    return [getattr(value.detach(), name)() for name in (*names, "values")]


def _name(key: object) -> str:
    """Return a key of a dict or an item of a set as text without addresses."""
    if isinstance(key, (tuple, frozenset)):
        names = [_name(each) for each in key]
        return str(names if isinstance(key, tuple) else sorted(names))
    plain = isinstance(key, (str, bytes, int, float, enum.Enum))
    return str(key) if plain else str(getattr(key, "__qualname__", type(key).__qualname__))


def _source(value: Any) -> str:
    """Return the source of a function or a module; where there is none, as at a prompt, what it was compiled to."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        code = getattr(value, "__code__", None)
        constants = [each for each in getattr(code, "co_consts", ()) if not isinstance(each, types.CodeType)]
        return f"{getattr(code, 'co_code', b'')!r} {constants!r}"


def _module_source(module: types.ModuleType) -> str:
    """Return a digest of a module's file and the files beside it that it imports."""
    file = getattr(module, "__file__", None) or ""
    return source_digest(Path(file)) if file.endswith(".py") and os.path.isfile(file) else _source(module)


def _is_installed(value: Any) -> bool:
    """Return whether a function, class or module belongs to an installed package, Python or twinlens itself."""
    if isinstance(value, type):  # a file that was loaded as a model may share its name with another module
        functions = [inspect.unwrap(each) for each in vars(value).values() if isinstance(each, types.FunctionType)]
        files = [each.__code__.co_filename for each in functions if isinstance(each, types.FunctionType)]
        if any(not _is_library(each) and not each.startswith("<") for each in files):
            return False
        module = sys.modules.get(value.__module__)
        file, known = getattr(module, "__file__", None), module is not None and value.__module__ != "__main__"
    elif isinstance(value, types.FunctionType):
        file, known = value.__code__.co_filename, False
    else:
        file, known = getattr(value, "__file__", None), value.__name__ != "__main__"
    return known if file is None else _is_library(file)


def _is_library(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(_LIBRARIES)


def _is_foreign(hook: object) -> bool:
    return not str(getattr(hook, "__module__", "")).startswith("twinlens.")


@functools.cache
def _distribution(module: str) -> str:
    """Return the version of the package that a module belongs to, unless run.json records it anyway."""
    package = module.partition(".")[0]
    if package in _RECORDED or not _is_installed(sys.modules.get(package, types.ModuleType("__main__"))):
        return ""
    try:
        return version(package)
    except PackageNotFoundError:
        own = getattr(sys.modules[package], "__version__", None)
        names = [] if own is not None else packages_distributions().get(package, [])  # which takes a second
        return str(own) if own is not None else " ".join(f"{name} {version(name)}" for name in sorted({*names}))


def _seed(generator: np.random.Generator | np.random.BitGenerator | torch.Generator) -> str:
    """Return the seed of a generator, regardless of later draws; empty for one without a fixed seed."""
    if isinstance(generator, torch.Generator):
        return str(generator.initial_seed())
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    entropy = getattr(bits.seed_seq, "entropy", None)
    drawn = isinstance(entropy, int) and entropy >= 2**64  # drawn by NumPy from the system, 128 bits
    return "" if drawn else f"{entropy} {getattr(bits.seed_seq, 'spawn_key', ())}"


def _names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the names that a function and its inner functions look up, and the modules that they import."""
    names, imports = set(code.co_names), {i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}
    for inner in (each for each in code.co_consts if isinstance(each, types.CodeType)):
        more, also = _names(inner)
        names, imports = names | more, imports | also
    return names, imports
