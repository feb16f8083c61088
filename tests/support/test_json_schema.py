"""JSON Schema from types, against an independent validator and real files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from jsonschema import Draft202012Validator

from tests.distribution import ROOT
from tests.small_runs import make_run
from twinlens.support.fields import JSON, from_json, to_json
from twinlens.support.json_schema import json_schema

FOLDER = ROOT / "docs" / "reference" / "schema"


@dataclass(frozen=True)
class Inner:
    """Something small."""

    name: str
    """Its name."""


@dataclass(frozen=True)
class Outer:
    """Something with a field of each kind.

    More about it.
    """

    inner: Inner
    number: float
    count: int | None
    kind: Literal["a", "b"] = "a"
    pair: tuple[int, str] = (1, "x")
    many: tuple[Inner, ...] = ()
    table: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    hidden: object = field(default=None, metadata={"stored": False})


VALID = Outer(Inner("x"), float("nan"), None, "b", (2, "y"), (Inner("z"),), {"a": {"b": [1, None, {"c": True}]}})


@pytest.fixture
def validator():
    schema = json_schema(Outer, address="https://example.org/outer.json", title="outer")
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_what_is_written_is_valid(validator):
    assert [*validator.iter_errors(json.loads(json.dumps(to_json(VALID))))] == []
    assert from_json(Outer, to_json(VALID), "outer").table == VALID.table


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("inner", {"name": 1}),
        ("inner", {"name": "x", "more": 1}),
        ("number", "1"),
        ("count", 1.5),
        ("kind", "c"),
        ("pair", [1]),
        ("pair", [1, "x", 2]),
        ("many", [1]),
        ("table", {"a": 1}),
        ("hidden", 1),
    ],
)
def test_what_the_reader_refuses_is_invalid(validator, key, value):
    stored = {**to_json(VALID), key: value}
    assert [*validator.iter_errors(stored)]
    if key != "hidden":
        with pytest.raises((TypeError, ValueError)):
            from_json(Outer, stored, "outer")


def test_a_missing_field_is_invalid_and_help_is_part_of_the_schema(validator):
    stored = to_json(VALID)
    del stored["number"]
    assert "'number' is a required property" in [error.message for error in validator.iter_errors(stored)]
    schema = validator.schema["$defs"]
    assert schema["Inner"]["properties"]["name"]["description"] == "Its name."
    assert schema["Outer"]["description"] == "Something with a field of each kind."


def test_a_type_without_a_schema_is_refused():
    @dataclass(frozen=True)
    class Odd:
        made: complex

    with pytest.raises(TypeError, match="has no JSON Schema"):
        json_schema(Odd, address="", title="")


def test_files_of_real_runs_are_valid(tmp_path):
    make_run(
        tmp_path / "run", metrics=["soundness_rank", "completeness_share", "deletion"], methods=["random", "saliency"]
    )
    make_run(tmp_path / "rounds", metrics="headline", until=0.2, resamples=500)
    for folder in ("run", "rounds"):
        for name in ("results", "run"):
            schema = json.loads((FOLDER / f"{name}-6.json").read_text(encoding="utf-8"))
            stored = json.loads((tmp_path / folder / f"{name}.json").read_text(encoding="utf-8"))
            assert [*Draft202012Validator(schema).iter_errors(stored)] == []
            stored["unknown"] = 1
            assert [*Draft202012Validator(schema).iter_errors(stored)]
