"""The command suite: run named tasks, export their numbers, and compare methods in one table."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from twinlens.attribution import METHODS
from twinlens.cli.flags import names_of
from twinlens.cli.printing import new_table, open_console, plain, print_plain
from twinlens.errors import RunError, unknown
from twinlens.suites import running
from twinlens.suites.definition import built_in_suites, find_suite, requested_methods, with_overrides
from twinlens.suites.leaderboard import board_tasks, write_leaderboard
from twinlens.suites.running import FILE, SuiteRun, deviations, open_suite_run
from twinlens.suites.submission import Submission, make_submission, problems, read_submission
from twinlens.support.fields import to_json
from twinlens.support.files import write_json
from twinlens.support.progress import Bars

_FLAGS = {"run": ("methods", "model", "weights", "data", "out"), "export": ("out",), "table": ("out",)}
"""Flags of each action."""


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens suite`."""
    parser.add_argument("action", metavar="ACTION", help=f"{', '.join(ACTIONS)}.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="A suite as NAME@VERSION or a file NAME.toml (show, run); the directory of its run (export, table), or a "
        "submission (verify, table).",
    )
    parser.add_argument("--methods", metavar="A,B,…", help="run: methods, or all; by default those of the suite.")
    parser.add_argument("--model", metavar="SPEC", help="run: the model of a suite that names none.")
    parser.add_argument("--weights", metavar="FILE", help="run: its weights.")
    parser.add_argument("--data", metavar="SPEC", help="run: the data of a suite that names none.")
    parser.add_argument(
        "-o",
        "--out",
        metavar="PATH",
        help="Directory of run (default: twinlens-suite-NAME-VERSION) and table; file of export.",
    )


def run_suite(namespace: argparse.Namespace) -> None:
    """Do what is asked with suites."""
    if namespace.action not in ACTIONS:
        raise unknown("action", namespace.action, ACTIONS)
    for flag in ("methods", "model", "weights", "data", "out"):
        if getattr(namespace, flag) is not None and flag not in _FLAGS.get(namespace.action, ()):
            where = " or ".join(f"suite {action}" for action, flags in _FLAGS.items() if flag in flags)
            raise ValueError(f"`{flag}` belongs to {where}. Leave out --{flag}.")
    least, most = {"list": (0, 0), "table": (1, 10**6)}.get(namespace.action, (1, 1))
    if not least <= len(namespace.names) <= most:
        wanted = "no name" if most == 0 else "one name" if most == 1 else "at least one directory or submission"
        raise ValueError(f"suite {namespace.action} takes {wanted}; got {len(namespace.names)}.")
    ACTIONS[namespace.action](namespace)


def _list(_: argparse.Namespace) -> None:
    table = new_table()
    for heading in ("suite", "tasks", ""):
        table.add_column(heading, no_wrap=heading != "")
    for name, suite in built_in_suites().items():
        needs = (
            " (needs --data)" if any(task.source is None and task.data is None for task in suite.tasks.values()) else ""
        )
        table.add_row(plain(name), str(len(suite.tasks)), plain(f"{suite.title}{needs}"))
    open_console().print(table)


def _show(namespace: argparse.Namespace) -> None:
    suite, console = find_suite(namespace.names[0]), open_console()
    print_plain(console, f"{suite}: {suite.title}")
    for text in (suite.question, suite.note):
        if text:
            print_plain(console, text)
    print_plain(console, f"Digest: {suite.digest()}")
    for heading, values in (("Metrics", suite.metrics), ("Methods", suite.methods), ("Packages", suite.packages)):
        if values:
            print_plain(console, f"{heading}: {', '.join(values)}")
    for name, task in suite.tasks.items():
        settings = {key: value for key, value in to_json(task).items() if value not in (None, {}, "default")}
        settings |= {"expected": {key: value for key, value in settings.pop("expected").items() if value is not None}}
        print_plain(console, f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items() if value != {})}")


def _run(namespace: argparse.Namespace) -> None:
    suite = find_suite(namespace.names[0])
    names = namespace.methods and (list(METHODS) if namespace.methods.strip() == "all" else names_of(namespace.methods))
    tasks = with_overrides(suite, weights=namespace.weights, model=namespace.model, data=namespace.data)
    out = namespace.out or f"twinlens-suite-{suite.name}-{suite.version}"
    with Bars() as progress, contextlib.redirect_stdout(sys.stderr):
        run = running.run_suite(suite, tasks, requested_methods(suite, names), out, progress)
    _print_run(run)


def _print_run(run: SuiteRun) -> None:
    console, suite = open_console(), run.record.suite
    for task in board_tasks([make_submission(run)]):
        table = new_table(plain(task.label), space=0)
        table.add_column("method", no_wrap=True)
        for column in task.table.columns:
            table.add_column(plain(column.name), justify="right")
        for row in task.table.rows:
            cells = [
                cell.text(3 if column.digits is None else column.digits)
                for cell, column in zip(row.cells, task.table.columns, strict=True)
            ]
            table.add_row(plain(row.method), *cells, style="dim" if row.baseline else "")
        console.print(table)
        print_plain(console, task.about)
    for name, task_record in run.record.tasks.items():
        for text in deviations(suite, name, task_record.data_digest, task_record.confidence):
            print_plain(console, f"Warning: {text}")
    print_plain(console, f"All files are in {run.path}; `twinlens suite table {run.path}` makes a page.")


def _export(namespace: argparse.Namespace) -> None:
    submission = make_submission(open_suite_run(namespace.names[0]))
    _refuse(problems(submission), namespace.names[0])
    out = namespace.out or "submission.json"
    write_json(out, to_json(submission))
    print_plain(open_console(), out)


def _verify(namespace: argparse.Namespace) -> None:
    submission = read_submission(namespace.names[0])
    _refuse(problems(submission), namespace.names[0])
    counts = ", ".join(f"{len(task.methods)} methods on {name}" for name, task in submission.tasks.items())
    print_plain(open_console(), f"{submission.suite}: {counts}. Digests, ranges and differences are right.")


def _table(namespace: argparse.Namespace) -> None:
    submissions = [_submission(name) for name in namespace.names]
    folder = write_leaderboard(submissions, namespace.out or "leaderboard")
    print_plain(open_console(), f"Page: {folder / 'index.html'}")


def _submission(name: str) -> Submission:
    if (Path(name) / FILE).exists() or Path(name).is_dir():
        submission = make_submission(open_suite_run(name))
    else:
        submission = read_submission(name)
    _refuse(problems(submission), name)
    return submission


def _refuse(found: list[str], name: str) -> None:
    """Refuse a submission with problems, all of which are printed."""
    for problem in found[:-1] if len(found) > 1 else []:
        print_plain(open_console(), problem)
    if found:
        raise RunError(f"{name!r} cannot be trusted: {found[-1]}.")


ACTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "list": _list,
    "show": _show,
    "run": _run,
    "export": _export,
    "verify": _verify,
    "table": _table,
}
"""What can be done with suites."""
