from pathlib import Path

import pytest

from twinlens.errors import RunError
from twinlens.reproduction import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.experiment_storage import find_stored, store
from twinlens.support.fields import fields_of


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": 0}, ValueError, "`limit` must be at least 1; got 0"),
        ({"limit": True}, TypeError, "`limit` must be a whole number; got True"),
        ({"limit": 1.5}, TypeError, "`limit` must be a whole number; got 1.5"),
        ({"paper": "no"}, TypeError, "`paper` must be true or false; got 'no'"),
        ({"seed": "x"}, TypeError, "`seed` must be a whole number; got 'x'"),
        ({"data": 3}, TypeError, "`data` must be text; got 3"),
        ({"device": 0}, TypeError, "`device` must be text; got 0"),
        ({"out": 3}, TypeError, "`out` must be text or PathLike; got 3"),
    ],
)
def test_options_are_checked_when_they_are_made(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        ExperimentOptions(**{"out": tmp_path} | options)


def test_a_directory_may_be_given_as_text():
    assert ExperimentOptions(out="here/there").out == Path("here/there")


def test_every_option_has_a_help():
    fields = fields_of(ExperimentOptions)
    assert [field.name for field in fields] == [
        "out", "paper", "data", "classes", "model", "weights", "allow_code", "limit", "leave_out", "noise",
        "protocol", "bits", "epochs", "compile", "seed", "device",
    ]  # fmt: skip
    assert all(field.help for field in fields)
    assert {field.name: field.default for field in fields}["device"] is None


def test_an_experiment_with_swapped_weights_is_another_one(tmp_path):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"one")
    options = ExperimentOptions(out=tmp_path / "out", weights=str(weights))
    experiment = Experiment(title="", source="", run=lambda *_: None)
    store("benchmark", experiment, options, Outcome(numbers={}, claims=(), figures={}), 1.0)
    assert find_stored("benchmark", options) is not None
    weights.write_bytes(b"other")
    with pytest.raises(RunError, match="was made with another model, weights or data"):
        find_stored("benchmark", options)
