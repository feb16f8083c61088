"""The command verify: is every file of a run whole?"""

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
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument("--json", action="store_true", help="print one entry per file as JSON")


def run_verify(given: argparse.Namespace) -> None:
    """Check every file of a run, and say what is whole."""
    found = verify_run(read_run(given.run))
    bad = [finding for finding in found if finding.problem is not None]
    console = open_console()
    if given.json:
        print(json.dumps(to_json(found), indent=1))
    else:
        for finding in bad:
            print_plain(console, f"{finding.file}: {finding.problem}")
        print_plain(console, f"{len(found) - len(bad)} of {len(found)} files are whole.")
    if bad:
        raise RunError(
            f"{len(bad)} of {len(found)} files are damaged or missing, the first is {bad[0].file!r}. Start the run "
            "again with the same command: they are made anew."
        )
