"""Verification: every file of a run directory against its digest and its place, and results against their probes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twinlens.errors import DamagedError, RunError, first_line
from twinlens.probing.exchange import draw_controlled
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.run.analysis import analyse
from twinlens.run.check_records import check_files, read_check
from twinlens.run.directory import Run, read_json
from twinlens.run.fingerprints import FILE as FINGERPRINTS
from twinlens.run.fingerprints import read_fingerprints
from twinlens.run.manifest import Manifest
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.run_reader import Evaluation, open_evaluation
from twinlens.run.sample_selection import FILE, read_selection
from twinlens.run.table_reader import TableReader
from twinlens.support.fields import to_json
from twinlens.support.tensor_files import load_tensors


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One file of a run."""

    file: str
    """Its path within the run directory."""

    problem: str | None
    """What is wrong with it; None where it is whole."""


def verify_run(run: Run[Manifest]) -> list[Finding]:
    """Check every file that a run should have; nothing is written, and no model is called.

    Maps and probes must fit their digests, and hold the samples, levels and seed that belong at their place.
    results.json must be what the probes give.
    """
    manifest, found = run.manifest, list[Finding]()

    def look(path: Path, check: Callable[[], str | None]) -> None:
        found.append(Finding(file=str(path.relative_to(run.path)), problem=_problem(path, check)))

    samples = [_ids_of(run.untouched_part(shard)) for shard in range(manifest.shards)]
    for shard, ids in enumerate(samples):
        untouched = run.untouched_part(shard)
        look(untouched, partial(_check_table, run, untouched, None, None))
        for method in manifest.methods:
            look(run.maps_part(method, shard), partial(_check_maps, run.maps_part(method, shard), ids))
            for sweep in manifest.sweeps:
                probed = _probed(samples, shard, sweep.exchanged, manifest)
                part = run.probes_part(method, sweep.name, shard)
                if probed != ():  # the control need not have samples in every shard
                    look(part, partial(_check_table, run, part, sweep.schedule, probed))
    if (run.path / FILE).exists():
        look(run.path / FILE, lambda: None if read_selection(run) else "it is empty")
    if (run.path / FINGERPRINTS).exists():
        look(run.path / FINGERPRINTS, lambda: None if read_fingerprints(run) else "it is empty")
    parts_are_whole = all(finding.problem is None for finding in found)
    look(run.path / "results.json", lambda: _check_results(run, recompute=parts_are_whole))
    if found[-1].problem is None and (evaluation := open_evaluation(run.path)).results.pairs_digest:
        look(run.path / PAIRS, lambda: _check_pairs(evaluation))
    for path in check_files(run):
        look(path, partial(_check_check, path))
    found += [Finding(file=str(path.relative_to(run.path)), problem="left by a killed process") for path in _left(run)]
    return found


def _problem(path: Path, check: Callable[[], str | None]) -> str | None:
    if not path.exists():
        return "missing"
    try:
        return check()
    except DamagedError as error:
        return f"damaged: {error.reason}"
    except (ValueError, TypeError, KeyError, OSError) as error:
        return f"damaged: {first_line(error)}"


def _ids_of(untouched: Path) -> tuple[str, ...] | None:
    try:
        return ProbeTable.load(untouched).ids
    except (ValueError, OSError):
        return None


def _probed(
    samples: Sequence[tuple[str, ...] | None], shard: int, exchanged: float, manifest: Manifest
) -> tuple[str, ...] | None:
    """Return the ids that a sweep holds of a shard: all of it, or those of the control; None where that is unknown."""
    here = samples[shard]
    if not exchanged or here is None:
        return here
    known = [ids for ids in samples if ids is not None]
    if len(known) < len(samples):
        return None
    everybody = [name for ids in known for name in ids]
    positions = draw_controlled(everybody, exchanged, seed=manifest.seed, within=manifest.exchange_within).tolist()
    drawn = {everybody[position] for position in positions}
    return tuple(name for name in here if name in drawn)


def _check_ids(there: tuple[str, ...], wanted: tuple[str, ...] | None) -> str | None:
    return None if wanted is None or there == wanted else "of other samples than those of its shard"


def _check_maps(path: Path, ids: tuple[str, ...] | None) -> str | None:
    return _check_ids(tuple(load_tensors(path)[1]["ids"]), ids)


def _check_table(run: Run[Manifest], path: Path, schedule: Schedule | None, ids: tuple[str, ...] | None) -> str | None:
    table = ProbeTable.load(path)
    if schedule is not None and table.settings.schedule != schedule:
        return "of another schedule than run.json has for it"
    if table.settings.seed != run.manifest.seed or table.settings.spatial != run.manifest.data.spatial:
        return "of another run: its seed or the size of its maps differs"
    return _check_ids(table.ids, ids)


def _check_results(run: Run[Manifest], *, recompute: bool) -> str | None:
    """Compare results.json with what the probes give, unless parts are missing or a function of the user's measured."""
    results, manifest = open_evaluation(run.path).results, run.manifest
    question, metrics = results.question, results.question.values()
    measured = {*results.methods, *results.incomplete}
    if (question, results.data, measured) != (manifest.question, manifest.data, {*manifest.methods}):
        return "of before the last command, which has not ended"
    if not recompute or len(metrics) < len(question.metrics):
        return None
    again = to_json(analyse(TableReader(run), metrics, question).results)
    return None if json.loads(json.dumps(again)) == read_json(run.path / "results.json") else "not what its parts give"


def _check_pairs(evaluation: Evaluation) -> str | None:
    try:
        evaluation.comparison()
    except RunError:
        return "not what belongs to results.json"
    return None


def _check_check(path: Path) -> str | None:
    read_check(path)
    return None


def _left(run: Run[Manifest]) -> Iterator[Path]:
    yield from run.path.rglob(".*.unfinished")
