"""Functions are told apart by their source and by whatever they read, and by nothing else."""

import copy

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from twinlens.support.code_digest import describe_function


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
        (nn.Linear(2, 2), nn.Linear(2, 2)),
        (type("Net", (nn.ReLU,), {"__module__": "mine"})(), type("Net", (nn.ReLU,), {"__module__": "yours"})()),
    ],
)
def test_what_a_function_reads_tells_it_apart(one, other):
    assert digest(reading(one)) != digest(reading(other))
    assert digest(reading(one)) == digest(reading(copy.deepcopy(one)))


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
    for array in (one, other):
        array["left"], array["flag"] = [1, 2, 3, 4], 1
    assert one.tobytes() != other.tobytes()
    digests = [describe_function(reading(array)) for array in (one, other)]
    assert digests[0] == digests[1]
    other["left"][0] = 7
    assert describe_function(reading(other)) != digests[0]
