"""Shell completion, as a shell requests it through argcomplete."""

import os
import subprocess
import sys

import pytest

from tests.fuzz.commands import actions_of
from twinlens.attribution import METHODS
from twinlens.checks.check_catalogue import CHECKS
from twinlens.cli.completion import completion_parser
from twinlens.cli.main import COMMANDS
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import METRICS
from twinlens.reproduction import EXPERIMENTS

HEAVY = "import sys; assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"


@pytest.fixture
def complete(tmp_path):
    """Returns what is offered at the end of a command line, in a folder of its own."""

    def request(line):
        line = f"twinlens {line}"
        request = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path.parent / "answer"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        command = [sys.executable, "-m", "twinlens"]
        done = subprocess.run(command, env=os.environ | request, cwd=tmp_path, capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"", b"")
        return [word.rstrip() for word in (tmp_path.parent / "answer").read_text().split("\n") if word]

    return request


def test_commands(complete):
    assert complete("") == list(COMMANDS)
    assert complete("comp") == ["compare"]
    assert complete("nothing") == []


def test_every_flag_of_every_command():
    parser = completion_parser(dict.fromkeys(COMMANDS, ""))
    [commands] = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    for name in COMMANDS:
        flags = {flag for action in actions_of(name) for flag in action.option_strings}
        complete = {flag for action in commands[name]._actions for flag in action.option_strings}
        assert complete == flags | {"-h", "--help"}


def test_flags_and_their_values(complete):
    assert complete("compare run --ve") == ["--verdicts"]
    assert complete("evaluate --imputer ") == list(IMPUTERS)
    assert complete("evaluate --imputer=l") == ["--imputer=linear"]
    assert complete("report --table m") == ["markdown"]
    assert complete("evaluate --performance prob") == ["probability"]
    assert complete("evaluate --limit ") == []


def test_names_and_lists_of_names(complete):
    assert complete("evaluate --methods ") == list(METHODS)
    assert complete("evaluate --metrics deletion,road") == [
        f"deletion,road_{kind}" for kind in ("morf", "lerf", "gain")
    ]
    assert complete("evaluate --metrics he") == ["headline"]
    assert complete("reproduce ") == [*EXPERIMENTS, "all"]
    assert complete("check ") == list(CHECKS)
    assert complete("metrics ") == list(METRICS)
    assert complete("methods ") == [*METHODS, *METRICS, *IMPUTERS]


def test_paths(complete, tmp_path):
    (tmp_path / "my_run").mkdir()
    (tmp_path / "model.pt2").touch()
    assert complete("compare one m") == ["my_run/"]
    assert sorted(complete("evaluate --data m")) == ["mnist", "model.pt2", "my_run/"]
    assert complete("evaluate mo") == ["model.pt2"]
    assert complete("metrics mo") == []


def test_completion_loads_nothing_heavy():
    summaries = dict.fromkeys(COMMANDS, "")
    program = f"from twinlens.cli.completion import completion_parser; completion_parser({summaries}); {HEAVY}"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
