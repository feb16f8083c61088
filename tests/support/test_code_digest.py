"""Functions are told apart by their source and by whatever they read, and by nothing else."""

import argparse
import array
import collections
import contextlib
import copy
import datetime
import decimal
import enum
import functools
import importlib
import linecache
import re
import sys
import types
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from twinlens.support import code_digest
from twinlens.support.code_digest import describe_function, model_digest


def reading(value):
    """A function that reads a value from around it."""

    def method():
        return value

    return method


def with_default(value):
    def method(*, scale=value):
        return scale

    return method


def digest(function, **options):
    return describe_function(function, **options)["source"]


def sparse(kind, dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a beta
        return getattr(dense, f"to_sparse_{kind}")()


LONG = np.arange(5000.0)  # of which NumPy prints the ends alone
OTHER = np.where(LONG == 2500, -1.0, LONG)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, OTHER),
        (torch.from_numpy(LONG), torch.from_numpy(OTHER)),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (None, 0),
        ([1, 2], [1, 3]),
        ((1, (2, 3)), (1, (2, 4))),
        ({"a": [1]}, {"a": [2]}),
        ({1, 2}, {1, 3}),
        ([0.0] * 20_000 + [1.0], [0.0] * 20_000 + [2.0]),
        (dict.fromkeys(range(20_000), 0) | {"z": 1}, dict.fromkeys(range(20_000), 0) | {"z": 2}),
        (collections.deque([1.0]), collections.deque([2.0])),
        (array.array("d", [1.0]), array.array("d", [2.0])),
        (bytearray(b"1"), bytearray(b"2")),
        (decimal.Decimal(1), decimal.Decimal(2)),
        (datetime.timedelta(seconds=1), datetime.timedelta(seconds=2)),
        (np.array([1.0, None]), np.array([2.0, None])),
        (pd.Series([1.0]), pd.Series([2.0])),
        (torch.tensor([0.0, 1.0]).to_sparse(), torch.tensor([0.0, 2.0]).to_sparse()),
        (nn.Linear(2, 2), nn.Linear(2, 2)),
        (type("Net", (nn.ReLU,), {"__module__": "mine"})(), type("Net", (nn.ReLU,), {"__module__": "yours"})()),
    ],
)
def test_what_a_function_reads_tells_it_apart(one, other):
    assert digest(reading(one)) != digest(reading(other))
    assert digest(reading(one)) == digest(reading(copy.deepcopy(one)))


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_compressed_sparse_tensors_are_told_apart(kind):
    one, same, other, flipped = (
        digest(reading(sparse(kind, dense)))
        for dense in (torch.eye(2), torch.eye(2), 2 * torch.eye(2), torch.eye(2).flip(0))
    )
    assert one == same
    assert len({one, other, flipped}) == 3


class _Base:
    """A class of this file, which no package has."""

    def __call__(self):
        return self.value


class _Meta(type):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda value: type("Kind", (_Base,), {"_value": value})(),
        lambda value: type("Kind", (_Base,), {"value": functools.cached_property(lambda self: value)})(),
        lambda value: type("Kind", (_Base,), {"value": functools.cache(lambda self: value)})(),
        lambda value: type("Meta", (_Meta,), {"value": value, "get": lambda cls: cls.value})("Kind", (_Base,), {})(),
        lambda value: functools.cache(lambda: value),
    ],
    ids=["private", "cached_property", "cached method", "metaclass", "cache"],
)
def test_what_a_class_or_a_decorator_holds_tells_functions_apart(make):
    assert digest(make(1.0)) == digest(make(1.0)) != digest(make(2.0))
    one, same, other = Net(), Net(), Net()
    one.extra, same.extra, other.extra = make(1.0), make(1.0), make(2.0)
    assert model_digest(one) == model_digest(same) != model_digest(other)


@pytest.mark.parametrize(
    "decorator",
    [
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu"),
        torch.compiler.disable,
        torch.vmap,
        np.errstate(all="ignore"),
        contextlib.contextmanager,
        functools.singledispatch,
        lambda function: torch.no_grad()(torch.autocast("cpu")(function)),
    ],
)
def test_a_function_counts_below_the_decorator_of_a_library(decorator):
    def make(value):
        return decorator(lambda inputs: value * inputs)

    class Decorated(Net):
        forward = make(1.0)

    class Other(Net):
        forward = make(2.0)

    Other.__qualname__ = Decorated.__qualname__
    assert digest(make(1.0)) == digest(make(1.0)) != digest(make(2.0))
    assert model_digest(Decorated()) == model_digest(Decorated()) != model_digest(Other())


def chain(length, value):
    """A function that calls one that calls one … that reads a value."""
    inner = reading(value)
    for _ in range(length):
        inner = reading(inner)
    return inner


def test_long_chains_of_functions_and_attributes_are_followed():
    assert digest(chain(60, 1.0)) == digest(chain(60, 1.0)) != digest(chain(60, 2.0))


def with_attribute(value):
    function = reading(0)
    function.scale = value
    return function


class _List(list):
    pass


class _Number(float):
    pass


class _Slots:
    __slots__ = ("__dict__", "value")


def attribute(made, value):
    made.value, made.more = value, 0
    return made


class _Kind(enum.Enum):
    ONE = 1.0
    TWO = 2.0


@pytest.mark.parametrize(
    "make",
    [
        with_attribute,
        lambda value: attribute(_List([1]), value),
        lambda value: attribute(_Number(1), value),
        lambda value: attribute(_Slots(), value),
        lambda value: {_Kind(value)},
        lambda value: {(_Kind(value), 1): 1},
        lambda value: re.compile(f"{value}|" + 300 * "x"),
        lambda value: np.ma.array([1.0, 2.0], mask=[value == 1, False]),
        lambda value: torch.tensor([complex(0, value)]).conj(),
        lambda value: torch.full((3,), value).to_mkldnn(),
        lambda value: types.SimpleNamespace(scale=value),
        lambda value: argparse.Namespace(scale=value),
        lambda value: torch.distributions.Normal(0.0, value),
        lambda value: np.poly1d([value, 1.0]),
        lambda value: [np.zeros(1) for _ in range(10_001)] + [np.array([value])],
    ],
    ids=[
        *("function", "list", "number", "slots", "enum", "key", "pattern", "mask", "conjugate", "mkldnn", "namespace"),
        *("arguments", "distribution", "polynomial", "long"),
    ],
)
def test_attributes_and_values_of_unusual_classes_count(make):
    assert digest(reading(make(1.0))) == digest(reading(make(1.0))) != digest(reading(make(2.0)))
    one, same, other = Net(), Net(), Net()
    one.extra, same.extra, other.extra = make(1.0), make(1.0), make(2.0)
    assert model_digest(one) == model_digest(same) != model_digest(other)


def test_nested_tensors_are_read():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        one, same, other = (
            torch.nested.nested_tensor([torch.full((2,), value), torch.ones(1)]) for value in (1.0, 1.0, 2.0)
        )
    assert digest(reading(one)) == digest(reading(same)) != digest(reading(other))


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning:torch")
def test_a_compiled_model_is_the_same_each_time_it_is_compiled():
    assert model_digest(torch.compile(Net())) == model_digest(torch.compile(Net()))
    assert model_digest(torch.compile(Net())) != model_digest(torch.compile(Net(factor=2.0)))


def test_defaults_of_keywords_tell_functions_apart():
    assert digest(with_default(1)) == digest(with_default(1)) != digest(with_default(2))


def test_names_that_are_not_assigned_yet_have_their_place():
    def partly(first):
        def method():
            return one, other

        if first:
            one = 3
        else:
            other = 3
        return method

    assert digest(partly(True)) != digest(partly(False))


def test_objects_that_refer_to_themselves_end():
    circle = [1]
    circle.append(circle)
    assert digest(reading(circle)) != digest(reading([1, [1]]))


def test_compiled_objects_are_told_apart_by_their_state():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    trees = [DecisionTreeClassifier(random_state=0).fit(rows, rows[:, k] > 0).tree_ for k in (0, 0, 1)]
    one, same, other = (digest(reading(tree)) for tree in trees)
    assert one == same != other


@pytest.mark.parametrize(
    "generator",
    [np.random.default_rng, np.random.PCG64, lambda seed: torch.Generator().manual_seed(seed)],
    ids=["numpy", "bits", "torch"],
)
def test_generators_are_told_apart_by_their_seed_alone(generator):
    one, same, other = (generator(seed) for seed in (0, 0, 1))
    if isinstance(same, np.random.Generator):
        same.normal()  # what was drawn does not count, so that a run goes on in a process that used it
    assert digest(reading(one)) == digest(reading(same)) != digest(reading(other))


def test_a_generator_without_a_seed_is_one_function_in_every_process():
    seeded = digest(reading(np.random.default_rng(0)))
    assert digest(reading(np.random.default_rng())) == digest(reading(np.random.default_rng())) != seeded


def test_generators_spawned_from_one_seed_differ():
    one, other = np.random.default_rng(0).spawn(2)
    assert digest(reading(one)) != digest(reading(other))


def test_a_version_stands_for_everything_else():
    assert digest(reading(1), version="1") == digest(reading(2), version="1") != digest(reading(1), version="2")


def test_bytes_between_the_fields_of_an_array_do_not_count():
    fields = np.dtype([("left", np.int64), ("flag", np.uint8)], align=True)
    one, other = (np.frombuffer(bytearray([filling]) * 64, fields) for filling in (0, 255))
    for each in (one, other):
        each["left"], each["flag"] = [1, 2, 3, 4], 1
    assert one.tobytes() != other.tobytes()
    digests = [describe_function(reading(each)) for each in (one, other)]
    assert digests[0] == digests[1]
    other["left"][0] = 7
    assert describe_function(reading(other)) != digests[0]


class Net(nn.Module):
    """A module with one of everything that `state_dict` lacks."""

    def __init__(self, factor=1.0, listed=0.0, buffer=0.0, hook=None):
        super().__init__()
        self.factor, self.linear = factor, nn.Linear(2, 2)
        nn.init.constant_(self.linear.weight, 0.5)
        nn.init.zeros_(self.linear.bias)
        self.parts = [nn.PReLU(init=listed)]
        self.register_buffer("hidden", torch.tensor(buffer), persistent=False)
        if hook is not None:
            self.linear.register_forward_hook(hook)

    def forward(self, inputs):
        return self.factor * self.parts[0](self.linear(inputs))


@pytest.mark.parametrize(
    "change",
    [
        {"factor": pd.Series([2.0])},
        {"factor": collections.deque([2.0])},
        {"factor": 2.0},
        {"listed": 1.0},
        {"buffer": 1.0},
        {"hook": lambda _, __, answer: -answer},
    ],
    ids=["frame", "deque", "attribute", "list", "buffer", "hook"],
)
def test_a_model_is_told_apart_by_what_its_state_dict_lacks(change):
    assert model_digest(Net()) == model_digest(Net()) != model_digest(Net(**change))


def test_the_order_of_attributes_does_not_count():
    one, other = Net(), Net()
    one.left, one.right = 1, 2
    other.right, other.left = 2, 1
    assert model_digest(one) == model_digest(other)


def quantised(seed):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of this interface
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})


def test_packed_weights_of_quantised_modules_count():
    assert model_digest(quantised(0)) == model_digest(quantised(0)) != model_digest(quantised(1))


HELPERS = "FACTOR = {factor}\n\n\ndef change(value):\n    return {sign}value\n"
CALLER = """
import torch
from torch import nn
import digest_helpers
from digest_helpers import change

class Net(nn.Module):
    def forward(self, inputs):
        return {body}

class Callable:
    def __call__(self, inputs):
        return {body}

def late(inputs):
    import digest_helpers
    return digest_helpers.change(inputs)
"""


@pytest.mark.parametrize("name", ["Net", "Callable", "late"])
@pytest.mark.parametrize("body", ["change(inputs)", "digest_helpers.FACTOR * inputs", "digest_helpers.change(inputs)"])
def test_code_in_other_files_counts(tmp_path, monkeypatch, name, body):
    def fresh(factor=1, sign="", body=body):
        for module in ("digest_caller", "digest_helpers"):
            sys.modules.pop(module, None)
        (tmp_path / "digest_helpers.py").write_text(HELPERS.format(factor=factor, sign=sign))
        (tmp_path / "digest_caller.py").write_text(CALLER.format(body=body))
        importlib.invalidate_caches()
        linecache.clearcache()
        value = getattr(importlib.import_module("digest_caller"), name)
        return model_digest(value()) if name == "Net" else digest(value() if name == "Callable" else value)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first = fresh()
    assert fresh() == first
    assert fresh(factor=2, sign="-") != first
    assert name == "late" or fresh(body="inputs") != first


def test_a_captured_module_counts_with_what_it_imports(tmp_path, monkeypatch):
    def fresh(factor):
        for module in ("digest_outer", "digest_inner"):
            sys.modules.pop(module, None)
        (tmp_path / "digest_inner.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / "digest_outer.py").write_text(
            "import digest_inner\n\n\ndef change(value):\n    return digest_inner.FACTOR * value\n"
        )
        importlib.invalidate_caches()
        linecache.clearcache()
        module = importlib.import_module("digest_outer")
        net = Net()
        net.helper = module
        return digest(reading(module)), digest(lambda value: module.change(2 * value)), model_digest(net)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first, again, other = fresh(1), fresh(1), fresh(2)
    assert first == again
    assert not {*first} & {*other}


def test_what_changes_from_call_to_call_is_no_identity():
    def model(called):
        net = Net()
        net.calls, net.kept = called, []

        def call(rows):
            net.calls += 1
            net.kept.append(torch.full((rows,), float(net.calls)))

        return model_digest(net, [lambda: call(1), lambda: call(2)])

    assert model(0) == model(5)


def test_the_version_of_a_package_counts(monkeypatch):
    def function():
        return DecisionTreeClassifier

    first = digest(function)
    monkeypatch.setattr(code_digest, "version", lambda _: "99.0")
    code_digest._distribution.cache_clear()
    try:
        monkeypatch.setattr(sys.modules["sklearn"], "__version__", "99.0")
        assert digest(function) != first
    finally:
        code_digest._distribution.cache_clear()


def test_parts_of_the_model_are_not_part_of_a_method():
    one, other = Net(factor=1.0), Net(factor=2.0)
    alike = [describe_function(reading(net.linear), model=net) for net in (one, other)]
    assert alike[0] == alike[1] != describe_function(reading(one.linear), model=other)
