import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypedDict

import numpy as np
import pytest

from twinlens.support.fields import REQUIRED, Default, convert, fields_of, from_json, replaced, to_json


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read."""

    limit: int | None = None
    """Evaluate this many samples,
    drawn by the seed."""

    bare: str = "no help"

    seed: int = 0
    """Seed of what is read."""


@dataclass(frozen=True, kw_only=True)
class Run(Reading):
    name: str
    """Name of the run."""

    tables: Mapping[str, float] = field(default_factory=dict)
    """From names to numbers."""

    seed: int = 7

    about = "no field, because it has no annotation"


class How(TypedDict, total=False):
    sign: Annotated[str, Default("error")]
    """What a negative value
    means."""

    device: Annotated[str | None, Default(None)]
    """Where to compute."""

    batch_size: int
    """Rows per call."""


@dataclass(frozen=True, kw_only=True)
class Point:
    x: float
    y: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Curve:
    title: str
    points: tuple[Point, ...] = ()
    by_name: Mapping[str, Point] = field(default_factory=dict)
    area: float = math.nan
    kind: Literal["area", "value"] = "area"


class Filling(Protocol):
    def __call__(self, inputs: object) -> object: ...


def test_fields_of_a_dataclass_have_types_defaults_helps_and_groups():
    found = {each.name: each for each in fields_of(Run)}
    assert list(found) == ["limit", "bare", "seed", "name", "tables"]  # those of the base first
    assert found["limit"].help == "Evaluate this many samples, drawn by the seed."
    assert found["limit"].type == int | None
    assert found["limit"].default is None
    assert found["limit"].group is Reading
    assert found["bare"].help == ""
    assert found["name"].default is REQUIRED
    assert found["name"].group is Run
    assert found["tables"].default == {}
    # A field that is declared again keeps its help and its group, and has the new default.
    assert (found["seed"].default, found["seed"].help, found["seed"].group) == (7, "Seed of what is read.", Reading)


def test_fields_of_a_typed_dict_have_their_default_in_the_annotation():
    found = {each.name: each for each in fields_of(How)}
    assert list(found) == ["sign", "device", "batch_size"]
    assert found["sign"].type is str
    assert (found["sign"].default, found["sign"].help) == ("error", "What a negative value means.")
    assert found["device"].type == str | None
    assert found["device"].default is None
    assert found["batch_size"].default is REQUIRED


@pytest.mark.parametrize("module", ["typed_at_a_prompt", __name__])
def test_a_class_without_source_has_fields_without_help(module):
    space: dict[str, Any] = {"dataclass": dataclass, "__name__": module}
    exec("@dataclass\nclass Typed:\n    seed: int = 0\n    'Seed.'\n", space)
    assert [(each.name, each.help) for each in fields_of(space["Typed"])] == [("seed", "")]


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (True, bool, True),
        (3, int, 3),
        (np.int64(3), int, 3),
        (1, float, 1.0),
        (np.float32(0.5), float, 0.5),
        ("a", str, "a"),
        (None, int | None, None),
        (4, int | None, 4),
        ([0.5, 1], tuple[float, ...], (0.5, 1.0)),
        (np.array([0.5, 1.0]), Sequence[float], (0.5, 1.0)),
        ("gradcam", tuple[str, ...], ("gradcam",)),
        ("gradcam", Sequence[str], ("gradcam",)),
        (["a", "b"], Sequence[str], ("a", "b")),
        ([1, "a"], tuple[int, str], (1, "a")),
        ({"a": 1}, Mapping[str, float], {"a": 1.0}),
        ("area", Literal["area", "value"], "area"),
        (Path("out"), str | Path, Path("out")),
        (len, Callable[..., int], len),
        (len, Filling, len),
        ({"x": 1}, Point, Point(x=1.0)),
        (Point(x=2.0), Point, Point(x=2.0)),
        ([{"x": 1}], tuple[Point, ...], (Point(x=1.0),)),
        ({"any": object}, Any, {"any": object}),
    ],
)
def test_values_of_the_declared_type_are_taken(value, wanted, expected):
    found = convert(value, wanted, "name")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        ("no", bool, "`name` must be true or false; got 'no'."),
        (1, bool, "`name` must be true or false; got 1."),
        (True, int, "`name` must be a whole number; got True."),
        (1.5, int, "`name` must be a whole number; got 1.5."),
        (True, int | None, "`name` must be a whole number; got True."),
        ("x", float, "`name` must be a number; got 'x'."),
        (True, float, "`name` must be a number; got True."),
        (math.nan, float, "`name` must be a number; got nan."),
        (3, str, "`name` must be text; got 3."),
        (None, str, "`name` must be text; got None."),
        (3, Mapping[str, str], "`name` must be a table; got 3."),
        (["a"], Mapping[str, str], "`name` must be a table; got ['a']."),
        ({"a": 3}, Mapping[str, str], "`name.a` must be text; got 3."),
        (3, Sequence[float], "`name` must be a list of numbers; got 3."),
        ("0.5", Sequence[float], "`name` must be a list of numbers; got '0.5'."),
        ([0.5, "x"], tuple[float, ...], "`name` must be a list of numbers; got [0.5, 'x']."),
        (3, tuple[str, ...], "`name` must be a list of names; got 3."),
        ({"a": 1}, tuple[str, ...], "`name` must be a list of names; got {'a': 1}."),
        ([1, 2, 3], tuple[int, int], "`name` must be a list of numbers; got [1, 2, 3]."),
        (3, str | Callable[..., int], "`name` must be text or a function; got 3."),
        (3, Filling, "`name` must be Filling; got 3."),
        (3, Point, "`name` must be Point; got 3."),
        (list(range(100)), bool, "`name` must be true or false; got list [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1…."),
    ],
)
def test_values_of_another_type_are_refused_by_the_name_of_the_field(value, wanted, message):
    with pytest.raises(TypeError) as caught:
        convert(value, wanted, "name")
    assert str(caught.value) == message


def test_a_near_miss_is_named():
    with pytest.raises(ValueError, match=r"^`engine` must be one of local, ray; got 'lokal'. Did you mean 'local'\?$"):
        convert("lokal", Literal["local", "ray"], "engine")
    with pytest.raises(ValueError, match=r"^`channels` must be one of sum, norm; got 'nrm'. Did you mean 'norm'\?$"):
        convert("nrm", Literal["sum", "norm"] | None, "channels")


def test_nested_dataclasses_are_refused_by_their_path():
    with pytest.raises(TypeError, match=r"^`curve\.x` must be a number; got 'far'\.$"):
        convert({"x": "far"}, Point, "curve")
    with pytest.raises(ValueError, match=r"^`curve` must be one of x, y; got 'z'"):
        convert({"z": 1}, Point, "curve")
    with pytest.raises(TypeError, match=r"^`curve\.by_name\.a\.y` must be a number; got \[\]\.$"):
        from_json(Curve, {"title": "", "by_name": {"a": {"x": 0.0, "y": []}}}, "curve")


def test_json_round_trip():
    curve = Curve(title="a", points=(Point(x=0.0), Point(x=1.0, y=2.0)), by_name={"p": Point(x=3.0)}, area=0.5)
    stored = to_json(curve)
    assert stored == {
        "title": "a",
        "points": [{"x": 0.0, "y": 0.5}, {"x": 1.0, "y": 2.0}],
        "by_name": {"p": {"x": 3.0, "y": 0.5}},
        "area": 0.5,
        "kind": "area",
    }
    assert from_json(Curve, stored, "curve") == curve


def test_nan_is_null_in_json_and_comes_back():
    curve = Curve(title="a", area=math.nan)
    stored = to_json(curve)
    assert stored["area"] is None
    assert math.isnan(from_json(Curve, stored, "curve").area)
    with pytest.raises(TypeError, match=r"`curve\.title` must be text; got None"):
        from_json(Curve, {"title": None}, "curve")


def test_unknown_missing_and_wrong_fields_are_named():
    with pytest.raises(ValueError, match=r"^`curve` must be one of title, points, .*got 'titel'. Did you mean 'title'"):
        from_json(Curve, {"titel": "a"}, "curve")
    with pytest.raises(ValueError, match=r"^`curve` must have 'title'; it is missing\.$"):
        from_json(Curve, {"area": 0.5}, "curve")
    with pytest.raises(TypeError, match=r"^`curve` must be a table of Curve; got \[1\]\.$"):
        from_json(Curve, [1], "curve")
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        to_json({"a": object()})
    assert to_json({"where": Path("a") / "b"}) == {"where": str(Path("a") / "b")}


def test_fields_are_replaced():
    assert replaced(Point(x=1.0), {"y": 2.0}, "point") == Point(x=1.0, y=2.0)
    with pytest.raises(ValueError, match="`point` must be one of x, y; got 'z'"):
        replaced(Point(x=1.0), {"z": 2.0}, "point")


class Plain:
    noted: int

    first: int
    """Help for the first."""


@dataclass(frozen=True)
class Mixed(Plain):
    first: int = 1
    second: int = 2


def test_what_a_class_notes_that_has_no_fields_is_no_field():
    """But what it says about one of the same name is its help."""
    assert [(each.name, each.help) for each in fields_of(Mixed)] == [("first", "Help for the first."), ("second", "")]
