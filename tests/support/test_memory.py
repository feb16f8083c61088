import ctypes
import platform
import subprocess
import sys

import pytest

from twinlens.support import memory

CODE = """
import resource
import torch

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(12_000_000)  # 48 MB, more than glibc keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
usual = faults()
{keep}
faults()
print(usual, faults())
"""
BY_COMMAND = 'from twinlens.cli.main import main; assert main(["verify", "nowhere"]) == 2'
DIRECTLY = "from twinlens.support.memory import keep_freed_memory; assert keep_freed_memory()"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt belongs to glibc")
@pytest.mark.parametrize("keep", [DIRECTLY, BY_COMMAND], ids=["directly", "by a command"])
def test_freed_memory_is_used_again(keep):
    done = subprocess.run([sys.executable, "-c", CODE.format(keep=keep)], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert kept < usual / 4


@pytest.mark.parametrize("platform_", ["win32", "darwin", "linux"])
def test_other_systems_are_left_as_they_are(monkeypatch, platform_):
    def nothing(_):
        raise OSError("no such library")

    monkeypatch.setattr(sys, "platform", platform_)
    monkeypatch.setattr(ctypes, "CDLL", nothing)
    assert memory.keep_freed_memory() is False
