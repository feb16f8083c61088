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
DIRECTLY = (
    "from twinlens.support.memory import keep_freed_memory, keeps_freed_memory\n"
    "assert not keeps_freed_memory() and keep_freed_memory() and keeps_freed_memory()"
)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt belongs to glibc")
@pytest.mark.parametrize("keep", [DIRECTLY, BY_COMMAND], ids=["directly", "by a command"])
def test_freed_memory_is_used_again(keep):
    done = subprocess.run([sys.executable, "-c", CODE.format(keep=keep)], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert kept < usual / 4


BLOCKS = """
import resource
import torch
from twinlens.support.memory import teach_allocator

{teach}
layers = lambda: [torch.ones(2_500_000) for _ in range(4)]  # 10 MB each
for _ in range(3):
    layers()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
layers()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries reuse memory in other ways")
def test_a_large_block_teaches_the_allocator_to_reuse_others():
    code = BLOCKS.format(teach="teach_allocator()")
    faults = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert faults < 10_000_000 / 4096  # pages of one of the four blocks


def test_the_cache_is_the_one_that_the_system_reports(monkeypatch):
    def size(report):
        memory.second_level_cache.cache_clear()
        monkeypatch.setattr(memory.os, "sysconf", report, raising=False)
        return memory.second_level_cache()

    def unknown(_):
        raise ValueError("unrecognized configuration name")

    assert [size(lambda _, b=b: b) for b in (2**21, 2**30, 4096, 0, -1)] == [2**21, 2**22, 2**18, 2**20, 2**20]
    assert size(unknown) == 2**20
    memory.second_level_cache.cache_clear()


@pytest.mark.parametrize("platform_", ["win32", "darwin", "linux"])
def test_other_systems_are_left_as_they_are(monkeypatch, platform_):
    def nothing(_):
        raise OSError("no such library")

    monkeypatch.setattr(sys, "platform", platform_)
    monkeypatch.setattr(ctypes, "CDLL", nothing)
    monkeypatch.setattr(memory, "_kept", [])  # a command of another test may have kept it
    assert memory.keep_freed_memory() is False
    assert memory.keeps_freed_memory() is False
