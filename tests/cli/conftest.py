from collections.abc import Callable

import pytest

from tests.tiny import image_folder, model_file
from twinlens.cli.main import main


@pytest.fixture
def subject(tmp_path) -> list[str]:
    """Options for a model and a folder of twelve images, in batches of a fixed size."""
    data = image_folder(tmp_path / "images")
    return ["--model", model_file(tmp_path), "--data", data, "--batch-size", "16", "--memory-format", "contiguous"]


@pytest.fixture
def run(capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs a command, and returns its exit code, standard output and standard error."""

    def run_command(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command
