"""The command line as a whole: unknown commands, help, versions."""

import subprocess
import sys

import pytest

from twinlens.cli.main import COMMANDS, main


def test_near_misses_are_named(run):
    code, _, error = run("evalute")
    assert (code, error.count("Did you mean 'evaluate'?")) == (2, 1)
    code, _, error = run("methods", "gradcm")
    assert (code, error.count("Did you mean 'gradcam'?")) == (2, 1)
    code, output, error = run()
    assert (code, output) == (2, "")
    assert "Start with `twinlens demo`" in error


def test_every_command_has_help_with_examples(capsys):
    for name, command in COMMANDS.items():
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        text = capsys.readouterr().out
        assert end.value.code == 0
        assert text.startswith(f"usage: twinlens {name} {command.usage}\n\n{command.summary[0].upper()}")
        assert text.rstrip().endswith("\n".join(f"  {example}" for example in command.examples))
        assert all(example.startswith(f"twinlens {name}") for example in command.examples)


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("twinlens 0.")


def test_help_loads_nothing_heavy():
    text = (
        "import sys; from twinlens.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'rich', 'PIL', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for arguments in (["-c", text], ["-m", "twinlens", "--version"]):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_is_gone_ends_a_command_quietly():
    command = [sys.executable, "-m", "twinlens.cli.main", "methods"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
