"""Shell completion: bash completes for real; zsh and fish read their scripts where they are installed."""

import shutil
import subprocess

import pytest

from tests.fuzz.commands import actions_of
from twinlens.attribution import METHODS
from twinlens.checks.check_catalogue import CHECKS
from twinlens.cli.completion import SHELLS, arguments_of
from twinlens.cli.main import COMMANDS, main
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import METRICS
from twinlens.reproduction import EXPERIMENTS

BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder, commands = tmp_path_factory.mktemp("scripts"), {name: arguments_of(name) for name in COMMANDS}
    for shell, write in SHELLS.items():
        (folder / shell).write_text(write(commands))
    return folder


@pytest.fixture
def complete(scripts, tmp_path):
    """What bash offers for the last of some words, in a folder of its own."""
    if BASH is None:
        pytest.skip("bash is not installed")

    def offered(*words):
        program = (
            'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _twinlens; printf "%s\n" "${COMPREPLY[@]}"'
        )
        given = [BASH, "--norc", "-c", program, "bash", str(scripts / "bash"), "twinlens", *words]
        done = subprocess.run(given, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1] if done.stdout.strip() else []

    return offered


def test_commands(complete):
    assert complete("") == [*COMMANDS, "--help", "--version"]
    assert complete("comp") == ["compare", "completion"]
    assert complete("nothing") == []


def test_every_flag_of_every_command(complete):
    for command in COMMANDS:
        flags = {flag for action in actions_of(command) for flag in action.option_strings}
        assert set(complete(command, "-")) == flags | {"-h", "--help"}
    assert complete("compare", "run", "--ve") == ["--verdicts"]


def test_values_of_flags(complete):
    assert complete("evaluate", "--imputer", "") == list(IMPUTERS)
    assert complete("ask", "run", "--protocol", "s") == ["soco"]
    assert complete("report", "--table", "") == ["latex", "markdown", "csv"]
    assert complete("evaluate", "--performance", "prob") == ["probability"]
    assert complete("selftest", "--method", "gradc") == ["gradcam"]
    assert complete("evaluate", "--limit", "") == []  # a number is for the person to say
    assert complete("evaluate", "--quiet", "--eng") == ["--engine"]


def test_values_behind_an_equals_sign(complete):
    """Of which bash makes words of their own."""
    assert complete("evaluate", "--imputer", "=") == list(IMPUTERS)
    assert complete("evaluate", "--imputer", "=", "l") == ["linear"]


def test_lists_of_names(complete):
    assert complete("evaluate", "--methods", "") == list(METHODS)
    assert complete("evaluate", "--metrics", "road_morf,soundness") == [
        "road_morf,soundness",
        "road_morf,soundness_two_sided",
    ]
    assert complete("evaluate", "--methods", "gradcam,random,sob") == ["gradcam,random,sobel"]


def test_names_by_their_place(complete):
    assert complete("reproduce", "") == [*EXPERIMENTS, "all"]
    assert complete("check", "") == list(CHECKS)
    assert complete("metrics", "") == list(METRICS)
    assert complete("methods", "") == [*METHODS, *METRICS, *IMPUTERS]
    assert complete("completion", "") == list(SHELLS)
    assert complete("demo", "im") == ["imagenet"]


def test_files_where_paths_are_expected(complete, tmp_path):
    (tmp_path / "my run").mkdir()
    (tmp_path / "model.pt2").touch()
    assert sorted(complete("evaluate", "--model", "m")) == ["model.pt2", "my run"]
    assert complete("compare", "one", "my") == ["my run"]
    assert complete("evaluate", "--weights", "=", "mod") == ["model.pt2"]
    assert sorted(complete("evaluate", "--data", "m")) == ["mnist", "model.pt2", "my run"]
    assert complete("evaluate", "mo") == ["model.pt2"]
    assert complete("evaluate", "--imputer", "mo") == []
    assert complete("metrics", "mo") == []


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_scripts_are_of_their_shell(scripts, shell, check):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, check, str(scripts / shell)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_every_command_and_flag(capsys, scripts, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == (scripts / shell).read_text()
    assert "@" not in script.replace('"$@"', "").replace("[@]", "")
    for command in COMMANDS:
        assert command in script
        for argument in arguments_of(command):
            for flag in argument.flags:
                assert (f" -l {flag[2:]} " if shell == "fish" and flag.startswith("--") else flag[1:]) in script


def test_other_shells_are_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
