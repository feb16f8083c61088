"""Records of checks: what a file must hold to be read."""

import dataclasses
import json

import pytest

from twinlens.errors import RunError
from twinlens.run.check_records import Check, CheckColumn, MethodCheck, read_check
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json

CHECK = Check(
    name="test",
    title="Test",
    question="Does it work?",
    source="Nobody 2020",
    reading="Higher is better.",
    columns=(CheckColumn(title="score", better="higher"),),
    step_title="n",
    course_title="score",
    steps=("1", "2"),
    options={"limit": 3},
    samples=3,
    methods={
        "a": MethodCheck(
            values=(Estimate(value=0.5, low=0.25, high=0.75, samples=3),),
            course=(Estimate(value=None, samples=0), Estimate(value=0.5, samples=3)),
        )
    },
    versions={"twinlens": "1"},
)


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "test.json"
    path.write_text(json.dumps(to_json(CHECK)))
    assert read_check(path) == CHECK


def test_records_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match=r"`methods\.a\.values` must hold 2 estimates; got 1"):
        dataclasses.replace(CHECK, columns=CHECK.columns * 2)
    with pytest.raises(ValueError, match=r"`methods\.a\.course` must hold 1 estimates; got 2"):
        dataclasses.replace(CHECK, steps=("1",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (to_json(CHECK) | {"format": 1}, "has format 1, and this twinlens reads 2. Run `twinlens check test` again"),
        (to_json(CHECK) | {"name": "other"}, "is damaged: `name` must be 'test'; got 'other'"),
        (to_json(CHECK) | {"extra": 1}, "is damaged: .* got 'extra'"),
        ([], "is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "test.json"
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=message):
        read_check(path)
