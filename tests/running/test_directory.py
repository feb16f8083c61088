import os

import pytest

from tests.test_evaluation import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate


def make_run(path, methods=("random",), metrics="deletion", **options):
    return evaluate(tiny_model(), samples(), methods, out=path, metrics=metrics, **{**OPTIONS, **options})


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_is_not_opened_through_a_link(tmp_path, dangling):
    precious = tmp_path / "precious.txt"
    if not dangling:
        precious.write_text("years of work")
    make_run(tmp_path / "run")
    lock = tmp_path / "run" / ".lock"
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(RunError, match=r"\.lock' cannot be used to hold the run: it is a symbolic link\. Remove it"):
        make_run(tmp_path / "run")
    assert precious.exists() != dangling
    assert dangling or precious.read_text() == "years of work"
    lock.unlink()
    lock.write_text("kept as it is")
    make_run(tmp_path / "run")
    assert lock.read_text() == "kept as it is"
    lock.unlink()
    os.mkfifo(lock)
    make_run(tmp_path / "run")  # and does not wait for somebody who writes to the pipe
