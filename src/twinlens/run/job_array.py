"""Job arrays: N processes that share a run directory, each with its share of the units.

Files are complete or absent, and the same from every job: at worst, two jobs make the same file. No job makes the maps
of another, which may take hours. The control, which reads maps of other shards, waits for them as long as new ones
appear.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from twinlens.errors import DamagedError
from twinlens.options import Job
from twinlens.run.units import Unit
from twinlens.run.wording import listed
from twinlens.run.work import EXCHANGED, EvaluationWork
from twinlens.support.memory import describe_shortage
from twinlens.support.progress import Progress

Failures = dict[str, Exception]
"""Errors by method."""
_PATIENCE = 300.0  # seconds without a new map after which a job stops waiting
_UNITS_OF_PATIENCE = 2.0  # the same in multiples of this job's longest unit, if that is more
_EVERY = 2.0  # seconds between two looks
_SILENCE = 60.0  # seconds of waiting before a message
_NAMED = 16  # jobs listed in a message


def deal(units: Sequence[Unit], jobs: int) -> dict[Unit, int]:
    """Return the number of each unit's job, in turn, method by method: each job has its share of each method."""
    order = sorted(units, key=lambda unit: (unit.stage, unit.method or "", unit.shard))
    numbers = {unit: k % jobs + 1 for k, unit in enumerate(order)}
    return {unit: numbers[unit] for unit in units}


def share_of(units: Sequence[Unit], job: Job) -> list[Unit]:
    """Return the units of one job, in their order."""
    return [unit for unit, number in deal(units, job.of).items() if number == job.number]


def run_in_order(
    work: EvaluationWork, units: Iterable[Unit], progress: Progress, failures: Failures
) -> dict[str, float]:
    """Run units in this process and return the seconds by task; `failures` receives the errors by method.

    After an error in a method, its other units are skipped. Errors of the run directory, such as a full disk, end the
    run.
    """
    worker = work.worker(progress)
    for unit in units:
        if unit.method in failures:
            continue
        try:
            worker.do(unit)
        except (OSError, DamagedError):
            raise
        except Exception as error:
            if unit.method is None:
                raise
            shortage = describe_shortage(error)
            failures[unit.method] = error if shortage is None else MemoryError(shortage)
            progress.warn(f"{unit.method} fails and is left out: {failures[unit.method]}")
    return worker.seconds


def in_turn(
    work: EvaluationWork, units: Sequence[Unit], job: Job, failures: Failures, progress: Progress
) -> Iterator[Unit]:
    """Yield the units of a job: those of the control last, each as soon as the maps that it reads exist.

    Those whose maps do not appear are left.
    """
    longest = 0.0
    for unit in units:
        if unit.stage != EXCHANGED:
            start = time.monotonic()
            yield unit
            longest = max(longest, time.monotonic() - start)
    patience, news, warned = max(_PATIENCE, _UNITS_OF_PATIENCE * longest), time.monotonic(), False
    control = [unit for unit in units if unit.stage == EXCHANGED]
    missing = set(missing_units(work, control))
    reads = {unit: work.maps_read(unit) if unit in missing else set[Path]() for unit in control}
    while reads:
        existing = _existing({path.parent for files in reads.values() for path in files})
        yield from [unit for unit, files in reads.items() if files <= existing]
        left = {u: files - existing for u, files in reads.items() if files - existing and u.method not in failures}
        if left != reads:
            reads, news, warned = left, time.monotonic(), False
            continue
        for method in {str(unit.method) for unit in reads}:
            progress.advance(method, 0, "waits for maps of other jobs")
        waited = time.monotonic() - news
        if waited > patience:
            return
        if waited > _SILENCE and not warned:
            warned = True
            progress.warn(f"Job {job} waits for maps of other jobs, {patience / 60:.0f} minutes for each new one.")
        time.sleep(_EVERY)


def missing_units(work: EvaluationWork, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that are not done."""
    files = {unit: work.files(unit) for unit in units}
    existing = _existing({path.parent for paths in files.values() for path in paths}) - work.run.damaged
    return [unit for unit, paths in files.items() if not existing.issuperset(paths)]


def _existing(folders: Iterable[Path]) -> set[Path]:
    """List the files in folders. On network file systems a listing is fresh, while `exists` may be cached."""
    files = set[Path]()
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError):  # the latter of an object store
            files.update(folder.iterdir())
    return files


def describe_missing(job: Job, units: Sequence[Unit], missing: Sequence[Unit]) -> str:
    """Describe in a line what a run lacks when one of its jobs is done, and how to complete it."""
    numbers = deal(units, job.of)
    left = sum(numbers[unit] == job.number for unit in missing)
    maps = {numbers[unit] for unit in missing if unit.stage != EXCHANGED} - {job.number}
    done = f"Job {job} is done"
    if left:
        needs = f", which need maps of {_jobs(maps)}" if maps else ""
        done += f" but for {left} of its units{needs}: start it again later"
    lacks = f"{len(missing)} {'is' if len(missing) == 1 else 'are'} missing, of {_jobs({numbers[u] for u in missing})}"
    return (
        f"{done}. Of the {len(units)} units of the run {lacks}. The last job to finish writes the results; the same "
        "command without `part` completes the run, too."
    )


def _jobs(numbers: Collection[int]) -> str:
    more = [f"{len(numbers) - _NAMED} more"] if len(numbers) > _NAMED else []
    return f"job{'s' if len(numbers) != 1 else ''} {listed([*map(str, sorted(numbers)[:_NAMED]), *more])}"
