import os
import resource
import signal
import sys

import pytest
import torch

from twinlens.errors import DamagedError
from twinlens.support.files import lock_file, make_folder, remove_unfinished
from twinlens.support.tensor_files import load_tensors, save_tensors


def killed_at(size, path, tensors):
    """Save tensors in a process that the system kills once a file is larger than this."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        save_tensors(path, tensors)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.kills
def test_a_process_that_is_killed_while_it_writes_leaves_what_the_next_removes(tmp_path):
    path, tensors = tmp_path / "maps.safetensors", {"maps": torch.ones(100_000)}
    assert killed_at(200_000, path, tensors) == -signal.SIGXFSZ
    assert not path.exists()
    assert list(tmp_path.iterdir())
    remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []
    save_tensors(path, tensors)
    assert torch.equal(load_tensors(path)[0]["maps"], tensors["maps"])


def test_files_that_are_not_there_or_are_none_of_ours(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "none.safetensors")
    (tmp_path / "other.safetensors").write_bytes(b"no header")
    with pytest.raises(DamagedError, match=r"other\.safetensors"):
        load_tensors(tmp_path / "other.safetensors")


def test_descriptors_are_closed_when_leftovers_are_removed(tmp_path):
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    for k in range(5):
        (tmp_path / f".{k}.unfinished").write_bytes(b"left")
    remove_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())
    assert before is None or len(os.listdir("/proc/self/fd")) == before


def test_folders_of_this_machine_need_no_package_for_others(tmp_path, monkeypatch):
    for name in ("upath", "upath.implementations.cloud"):
        monkeypatch.setitem(sys.modules, name, None)
    make_folder(tmp_path / "one" / "two")
    assert (tmp_path / "one" / "two").is_dir()


def test_a_lock_keeps_out_others_unless_it_is_shared(tmp_path):
    (tmp_path / "lock").touch()
    one, other = (os.open(tmp_path / "lock", os.O_RDONLY) for _ in range(2))
    try:
        assert (lock_file(one), lock_file(other), lock_file(other, shared=True)) == (True, False, False)
        assert (lock_file(one, shared=True), lock_file(other, shared=True), lock_file(other)) == (True, True, False)
    finally:
        os.close(one)
        os.close(other)
