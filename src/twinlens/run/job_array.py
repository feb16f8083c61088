"""Parts of a run: processes that have nothing in common but the run directory, each with its share of the units.

Files are whole or absent, and the same whoever makes them: at worst, two parts make the same one. No part makes the
maps of another, which may take hours. The control, which reads maps of other shards, waits for them as long as they
keep coming.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from twinlens.options import Part
from twinlens.run.engines import Failures, Seconds, run_in_order
from twinlens.run.units import Unit
from twinlens.run.wording import listed
from twinlens.run.work import EXCHANGED, EvaluationJob
from twinlens.support.progress import Progress

_PATIENCE = 300.0  # seconds without a new map, after which nobody seems to make any
_UNITS_OF_PATIENCE = 2.0  # the same in times of this part's longest unit, if that is more
_EVERY = 2.0  # seconds between two looks
_SILENCE = 60.0  # seconds of waiting before a word about it
_NAMED = 16  # parts that a message lists


def deal(units: Sequence[Unit], parts: int) -> dict[Unit, int]:
    """Return the number of each unit's part.

    Units are dealt in turn, method by method: every part has its share of each method, whatever that costs.

    Example:
        >>> numbers = deal([Unit(0, "a"), Unit(0, "b"), Unit(1, "a"), Unit(1, "b")], 2)
        >>> [unit.method for unit, number in numbers.items() if number == 1]
        ['a', 'b']
    """
    order = sorted(units, key=lambda unit: (unit.stage, unit.method or "", unit.shard))
    numbers = {unit: place % parts + 1 for place, unit in enumerate(order)}
    return {unit: numbers[unit] for unit in units}


def share_of(units: Sequence[Unit], part: Part) -> list[Unit]:
    """Return the units of one part, in their order."""
    return [unit for unit, number in deal(units, part.of).items() if number == part.number]


def run_part(job: EvaluationJob, part: Part, progress: Progress) -> tuple[Failures, Seconds]:
    """Run the units of one part in this process; units of the control whose maps do not come are left.

    Returns:
        Why methods failed, by name, and the seconds that each kind of work took.
    """
    failures = Failures()
    return failures, run_in_order(job, _in_turn(job, part, failures, progress), progress, failures)


def _in_turn(job: EvaluationJob, part: Part, failures: Failures, progress: Progress) -> Iterator[Unit]:
    """Yield the units of a part: those of the control last, each as soon as the maps that it reads are there."""
    units, longest = share_of(job.units(), part), 0.0
    for unit in units:
        if unit.stage != EXCHANGED:
            began = time.monotonic()
            yield unit
            longest = max(longest, time.monotonic() - began)
    patience, news, told = max(_PATIENCE, _UNITS_OF_PATIENCE * longest), time.monotonic(), False
    reads = _reads(job, [unit for unit in units if unit.stage == EXCHANGED])
    while reads:
        there = _listed({path.parent for files in reads.values() for path in files})
        yield from [unit for unit, files in reads.items() if files <= there]
        left = {unit: files - there for unit, files in reads.items() if files - there and unit.method not in failures}
        if left != reads:
            reads, news, told = left, time.monotonic(), False
            continue
        for method in {str(unit.method) for unit in reads}:
            progress.advance(method, 0, "waits for maps of other parts")
        waited = time.monotonic() - news
        if waited > patience:
            return
        if waited > _SILENCE and not told:
            told = True
            progress.warn(f"Part {part} waits for maps of other parts, {patience / 60:.0f} minutes for each new one.")
        time.sleep(_EVERY)


def _reads(job: EvaluationJob, units: Sequence[Unit]) -> dict[Unit, set[Path]]:
    """Return the maps that each unit of the control reads; none for one that is done."""
    undone = set(missing_units(job, units))
    return {
        unit: {job.run.maps_part(str(other.method), other.shard) for other in job.relies_on(unit) if unit in undone}
        for unit in units
    }


def missing_units(job: EvaluationJob, units: Sequence[Unit]) -> list[Unit]:
    """Return the units that are not done."""
    files = {unit: job.files(unit) for unit in units}
    there = _listed({path.parent for paths in files.values() for path in paths})
    return [unit for unit, paths in files.items() if not there.issuperset(paths)]


def _listed(folders: Iterable[Path]) -> set[Path]:
    """Return what is in folders; a listing is asked of the server, where `exists` may answer from memory."""
    found = set[Path]()
    for folder in folders:
        with suppress(FileNotFoundError):
            found.update(folder.iterdir())
    return found


def describe_missing(part: Part, units: Sequence[Unit], missing: Sequence[Unit]) -> str:
    """Describe in a line what a run lacks when one of its parts is done, and how it is completed.

    Example:
        >>> describe_missing(Part(1, 2), [Unit(0), Unit(1), Unit(2)], [Unit(1)])
        'Part 1/2 is done. Of the 3 units of the run 1 is missing, of part 2. Whichever part finishes last makes the
        results; so does the same command without `part`, which makes all that is missing.'
    """
    numbers = deal(units, part.of)
    left = sum(numbers[unit] == part.number for unit in missing)
    maps = {numbers[unit] for unit in missing if unit.stage != EXCHANGED} - {part.number}
    done = f"Part {part} is done"
    if left:
        needs = f", which need maps of {_parts(maps)}" if maps else ""
        done += f" but for {left} of its units{needs}: start it again later"
    lacks = f"{len(missing)} {'is' if len(missing) == 1 else 'are'} missing, of {_parts({numbers[u] for u in missing})}"
    return (
        f"{done}. Of the {len(units)} units of the run {lacks}. "
        "Whichever part finishes last makes the results; so does the same command without `part`, which makes all that "
        "is missing."
    )


def _parts(numbers: Collection[int]) -> str:
    more = [f"{len(numbers) - _NAMED} more"] if len(numbers) > _NAMED else []
    return f"part{'s' if len(numbers) != 1 else ''} {listed([*map(str, sorted(numbers)[:_NAMED]), *more])}"
