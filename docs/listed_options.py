"""For the API reference: list the options of functions and classes that are declared elsewhere.

mkdocstrings reads the source and does not run it. There `evaluate` takes `options`, `soundness` takes `**how`, and a
method takes a request; each option is declared once. At run time the signature and the docstring
list all of them (`twinlens.support.signatures`). This extension of griffe, the reader of mkdocstrings, uses
both.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import griffe

from twinlens.attribution.method import SharedOptions
from twinlens.metrics.catalogue import KINDS
from twinlens.models.packages import import_package
from twinlens.options import Options
from twinlens.probing.model_call import Labels, Model
from twinlens.probing.probe import ProbeOptions
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import Field, fields_of

_LAYERS = [[name] for name in ("attribution", "evaluation", "integrations", "laboratory", "metrics", "probing")]
"""Packages with such functions; others are not imported."""

_ALIASES = ((ArrayLike, "ArrayLike"), (Labels, "Labels"), (Model, "Model"))
_KINDS = {kind.value: griffe.ParameterKind(kind.description) for kind in inspect._ParameterKind}


class ListedOptions(griffe.Extension):
    """Replace signatures and docstrings in the source by those of run time, if they differ."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Let examples be code: griffe knows the section by its plural."""
        if obj.docstring:
            obj.docstring.value = _examples(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace them in a package that was read, once."""
        import_package("torchvision", "torchvision")  # with any build of torch; torchmetrics imports it
        for module in _modules(pkg):
            if module.path.split(".")[1:2] not in _LAYERS:
                continue
            there = importlib.import_module(module.path)
            for name, value in vars(there).items():
                listed = "__signature__" in getattr(value, "__dict__", {})
                if listed and value.__module__ == module.path and not name.startswith("_"):
                    if name not in module.members:  # generated, as the classes of the integrations are
                        kind = griffe.Class if inspect.isclass(value) else griffe.Function
                        module.set_member(name, kind(name, lineno=1, endlineno=1, parent=module))
                    _replace(module, name, value)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for below in module.modules.values():
        if not below.is_alias:
            yield from _modules(below)


def _examples(docstring: str) -> str:
    return re.sub(r"(?m)^Example:$", "Examples:", docstring)


def _replace(module: griffe.Module, name: str, value: Any) -> None:
    read = module.members[name]
    docstring = griffe.Docstring(
        _examples(inspect.getdoc(value) or ""), lineno=read.lineno, parser=griffe.Parser.google
    )
    written = {p.name: p.annotation for p in getattr(read, "parameters", ())}
    parameters = griffe.Parameters(*(_parameter(p, written) for p in inspect.signature(value).parameters.values()))
    if read.is_class:
        # The options of a class are those of its __init__, which it inherits.
        read.set_member("__init__", griffe.Function("__init__", parameters=parameters, parent=read))
        read.docstring, docstring.parent = docstring, read
    else:
        returns = "Tensor" if module.path.startswith("twinlens.attribution") else getattr(read, "returns", None)
        function = griffe.Function(
            name,
            lineno=read.lineno,
            endlineno=read.endlineno,
            parameters=parameters,
            returns=returns or "Tensor",
            docstring=docstring,
            parent=module,
        )
        docstring.parent = function
        module.set_member(name, function)


def _parameter(parameter: inspect.Parameter, written: dict[str, Any]) -> griffe.Parameter:
    required = parameter.default is parameter.empty
    return griffe.Parameter(
        parameter.name,
        annotation=written.get(parameter.name) or _annotation(parameter),
        kind=_KINDS[parameter.kind],
        default=None if required else repr(parameter.default),
    )


def _annotation(parameter: inspect.Parameter) -> str:
    """Return the type of a parameter as its declaration writes it."""
    for alias, name in _ALIASES:
        if parameter.annotation == alias:
            return name
    for declared in _declared(parameter.name):
        if declared.type == parameter.annotation:
            return _as_written(declared)
    text = (
        parameter.annotation
        if isinstance(parameter.annotation, str)
        else inspect.formatannotation(parameter.annotation)
    )
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)


def _declared(name: str) -> list[Field]:
    return [
        f for kind in (Options, ProbeOptions, SharedOptions, *KINDS.values()) for f in fields_of(kind) if f.name == name
    ]


def _as_written(option: Field) -> str:
    text: Any = option.group.__annotations__[option.name]
    tree = ast.parse(text.__forward_arg__ if isinstance(text, typing.ForwardRef) else text, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Annotated":
        tree = tree.slice.elts[0] if isinstance(tree.slice, ast.Tuple) else tree.slice
    return ast.unparse(tree)
