"""The command verify: check the files of a run."""

from __future__ import annotations

import argparse
import json

from twinlens.cli.printing import open_console, print_plain
from twinlens.errors import RunError
from twinlens.run.directory import read_run
from twinlens.run.verification import verify_run
from twinlens.support.fields import to_json


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens verify`."""
    parser.add_argument("run", metavar="RUN", help="Run directory.")
    parser.add_argument("--json", action="store_true", help="Print one entry per file as JSON.")


def run_verify(namespace: argparse.Namespace) -> None:
    """Check every file of a run, and report the damaged ones."""
    findings = verify_run(read_run(namespace.run))
    bad = [finding for finding in findings if finding.problem is not None]
    if namespace.json:
        print(json.dumps(to_json(findings), indent=1))
    else:
        console = open_console()
        for finding in bad:
            print_plain(console, f"{finding.file}: {finding.problem}")
        print_plain(console, f"{len(findings) - len(bad)} of {len(findings)} files are intact.")
    if bad:
        raise RunError(
            f"{len(bad)} of {len(findings)} files are damaged or missing; the first is {bad[0].file!r}. Run the same "
            "command as before to make them again."
        )
