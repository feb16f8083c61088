"""A run under check: what other processes must agree on."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from twinlens.checks.checked_run import NetworkBuilder
from twinlens.support.code_digest import describe_function
print(describe_function(NetworkBuilder(path="run", spec="model.py:build", allow_code=False))["source"])
"""


@pytest.mark.slow
def test_a_network_builder_has_the_same_digest_in_every_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
