"""JSON Schema (draft 2020-12) of what `to_json` writes of a frozen dataclass, from types and help of its fields."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from twinlens.support.fields import JSON, REQUIRED, Field, fields_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def json_schema(kind: type, *, address: str, title: str) -> dict[str, JSON]:
    """Return the schema of a dataclass; `address` identifies it.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: float
        ...     names: tuple[str, ...] = ()
        >>> json_schema(Point, address="", title="")["$defs"]["Point"]["properties"]["names"]
        {'type': 'array', 'items': {'type': 'string'}}
    """
    definitions: dict[str, JSON] = {}
    whole = _schema(kind, definitions)
    return {"$schema": DRAFT, "$id": address, "title": title, **whole, "$defs": dict(sorted(definitions.items()))}


def _schema(declared: Any, definitions: dict[str, JSON]) -> dict[str, JSON]:  # noqa: PLR0911 (one per kind of type)
    """Return the schema of a type; those of dataclasses are added to `definitions`."""
    if declared in (Any, object):
        return {}
    if declared in _PLAIN:
        return {"type": _PLAIN[declared]}
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        return {"enum": [*arguments]}
    if origin in (Union, types.UnionType):
        if any(get_origin(each) is list for each in arguments):  # JSON, which holds itself
            return {}
        return _either([_schema(each, definitions) for each in arguments])
    if origin in (tuple, Sequence, Collection):
        if origin is tuple and arguments[-1] is not Ellipsis:
            items: list[JSON] = [_schema(each, definitions) for each in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        if declared.__name__ not in definitions:
            definitions[declared.__name__] = {}  # found again if it holds itself
            definitions[declared.__name__] = _object(declared, definitions)
        return {"$ref": f"#/$defs/{declared.__name__}"}
    raise TypeError(f"{declared} has no JSON Schema.")


def _object(kind: type, definitions: dict[str, JSON]) -> dict[str, JSON]:
    hidden = {f.name for f in dataclasses.fields(kind) if not f.metadata.get("stored", True)}
    fields = [field for field in fields_of(kind) if field.name not in hidden]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").split("\n\n")[0].replace("\n", " "),
        "properties": {field.name: _property(field, definitions) for field in fields},
        "required": [field.name for field in fields if field.default is REQUIRED],
        "additionalProperties": False,
    }


def _property(field: Field, definitions: dict[str, JSON]) -> JSON:
    schema = _schema(field.type, definitions)
    if field.type is float:  # NaN is written as null
        schema = {"type": ["number", "null"]}
    return schema | ({"description": field.help} if field.help else {})


def _either(schemas: list[dict[str, JSON]]) -> dict[str, JSON]:
    """Join the schemas of a union, those of plain types in one list."""
    plain = [each["type"] for each in schemas if each.keys() == {"type"} and isinstance(each["type"], str)]
    others: list[JSON] = [each for each in schemas if each.keys() != {"type"} or not isinstance(each["type"], str)]
    types: JSON = plain[0] if len(plain) == 1 else [*plain]
    if not others:
        return {"type": types}
    return {"anyOf": [*others, *([{"type": types}] if plain else [])]}
