import pytest

import twinlens as tl
from tests.fuzz import commands
from tests.fuzz.calls import CALLS, Call, attempt, names_argument, parameters_of, uncalled
from tests.fuzz.files import config_case, file_case, image_case, run_case
from tests.fuzz.fuzzing import CaseError, Fuzzer, fuzz, table
from tests.fuzz.hostile import changed_case, hostile_case
from tests.fuzz.values import PLAIN
from twinlens.cli.main import COMMANDS


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    return Fuzzer(tmp_path_factory.mktemp("fuzz"), seed=0)


@pytest.mark.slow
def test_a_few_hundred_bad_inputs_end_clearly():
    """The short part of `make fuzz`, with a fixed seed."""
    done = fuzz(seed=7, cases=280)
    assert done.failures == []
    assert done.total("refused") > 120
    assert done.total("accepted") > 25
    assert {kind for kind, _ in done.counts} == {
        "calls",
        "flags",
        "run.toml",
        "images",
        "files of data",
        "runs",
        "hostile runs",
        "changed between",
    }


def test_every_public_name_has_a_valid_call():
    """Whoever adds a public function or class adds a valid call of it to `tests/fuzz/calls.py`."""
    assert uncalled() == []
    assert {f"METHODS[{name!r}]" for name in tl.METHODS} <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_valid_calls_are_accepted(fuzzer, name):
    call = CALLS[name](fuzzer.subject)
    assert fuzzer.outcome("calls", name, lambda: attempt(call, call.given, {}, [])) == "accepted"


def test_every_flag_of_every_command_is_found():
    flags = {command: commands.actions_of(command) for command in COMMANDS}
    assert set(flags) == set(COMMANDS)
    named = {action.dest for action in flags["evaluate"]}
    assert {"epsilon", "resize", "compile", "option", "config"} <= named
    assert "help" not in named


@pytest.mark.parametrize("command", COMMANDS)
def test_valid_commands_are_accepted(fuzzer, command):
    def case():
        return commands.attempt(fuzzer, command, commands.base_of(fuzzer, command), None, "")

    assert fuzzer.outcome("flags", command, case) == "accepted"


@pytest.mark.parametrize("case", [config_case, image_case, file_case, run_case, hostile_case, changed_case])
def test_bent_files_are_made_in_every_kind(fuzzer, case):
    assert case(fuzzer) in ("accepted", "refused")


def test_what_counts_as_a_failure(tmp_path):
    fuzzer = Fuzzer(tmp_path, seed=0)

    def traceback():
        raise KeyError("x")

    def outside():
        (tmp_path / "tiny_model.py").write_text("changed")
        return 0

    def many_lines():
        raise ValueError("one\ntwo")

    def silent():
        raise CaseError("NaN without a word")

    for case in (traceback, many_lines, silent, outside):
        fuzzer.outcome("any", case.__name__, case)
    assert [failure.split(": ")[1] for failure in fuzzer.failures] == ["traceback", "many_lines", "silent", "outside"]
    assert fuzzer.counts == {("any", "failed"): 4}
    assert table(fuzzer).splitlines()[-1] == "| all | 4 | 0 | 0 | 4 |"


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("`steps` must be at least 1; got 0.", True),
        ("`options` must be one of steps", False),
        ("`metrics.soundness.steps` must be a number", True),
        ("unsupported operand type(s)", False),
        ("`window` must be larger than steps", True),
        ("`window` must be larger", False),
    ],
)
def test_what_names_an_argument(message, named):
    assert names_argument(message, {"steps": "number 0"}, ["steps", "window"]) is named


@pytest.mark.parametrize(
    "function", [lambda steps: steps.nothing, lambda steps: (steps,)[int(bool(steps)) + 5], lambda steps: float("nan")]
)
def test_calls_that_are_not_clear(fuzzer, function):
    call = Call(function, {"steps": 1})
    ended = fuzzer.outcome("calls", "unclear", lambda: attempt(call, {"steps": None}, {"steps": "None"}, ["steps"]))
    assert ended.startswith(("AttributeError", "IndexError", "AssertionError: NaN without a word"))


def test_every_argument_of_the_widest_functions_is_replaced(fuzzer):
    known = {name: set(parameters_of(name, CALLS[name](fuzzer.subject))) for name in ("soundness", "evaluate")}
    assert {"imputer", "sign", "epsilon", "batch_size", "progress"} <= known["soundness"]
    assert {"resamples", "engine", "part", "metrics"} <= known["evaluate"]
    assert "None" in PLAIN
