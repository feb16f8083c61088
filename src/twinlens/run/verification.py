"""Verification of a run: every file against its digest and its samples, and the results against the probes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from twinlens.errors import DamagedError, RunError, first_line
from twinlens.probing.exchange import draw_controlled
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.run.analysis import analyse
from twinlens.run.check_records import check_files, read_check
from twinlens.run.directory import Run, read_json
from twinlens.run.fingerprints import FILE as FINGERPRINTS
from twinlens.run.fingerprints import read_fingerprints
from twinlens.run.manifest import Manifest, Settings
from twinlens.run.pairs_table import FILE as PAIRS
from twinlens.run.queries import PAIRS as QUERY_PAIRS
from twinlens.run.queries import query_files
from twinlens.run.sample_selection import FILE as SELECTION
from twinlens.run.sample_selection import read_selection
from twinlens.run.stored_run import StoredRun
from twinlens.run.table_reader import TableReader
from twinlens.support.fields import JSON, to_json
from twinlens.support.memory import is_out_of_memory
from twinlens.support.tensor_files import load_tensors


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One file of a run."""

    file: str
    """Its path within the run directory."""
    problem: str | None
    """What is wrong with it; None if it is intact."""


def verify_run(run: Run) -> list[Finding]:
    """Check every file that a run should have, without writing anything or calling the model.

    Maps and probes must match their digests, and hold the samples, levels and seed of their run. results.json must be
    what the probes give.
    """
    manifest, findings = run.manifest, list[Finding]()

    def look(path: Path, check: Callable[[], object]) -> None:
        findings.append(Finding(file=str(path.relative_to(run.path)), problem=_problem(path, check)))

    tables = [_load(run.original_shard(shard)) for shard in range(manifest.shards)]
    for shard, table in enumerate(tables):
        original, ids = run.original_shard(shard), None if table is None else table.ids
        look(original, partial(_check_table, run, original, None, None))
        for method in manifest.methods:
            look(run.maps_shard(method, shard), partial(_check_maps, run.maps_shard(method, shard), ids))
            for sweep in manifest.sweeps:
                probed = _probed(tables, shard, sweep.exchanged, manifest)
                path = run.probes_shard(method, sweep.name, shard)
                if probed != ():  # the control need not have samples in every shard
                    look(path, partial(_check_table, run, path, sweep.schedule, probed))
    if (run.path / SELECTION).exists():
        look(run.path / SELECTION, partial(read_selection, run))
    if (run.path / FINGERPRINTS).exists():
        look(run.path / FINGERPRINTS, partial(read_fingerprints, run))
    intact = all(finding.problem is None for finding in findings)
    look(run.path / "results.json", lambda: _check_results(run, recompute=intact))
    if findings[-1].problem is None and (stored := StoredRun.open(run.path)).results.pairs_digest:
        look(run.path / PAIRS, stored.comparison)
    with contextlib.suppress(RunError):  # without results.json, queries cannot be opened either
        stored = StoredRun.open(run.path)
        for path in query_files(run):
            look(path, partial(_check_query, stored, path, recompute=intact))
    for path in check_files(run):
        look(path, partial(read_check, path))
    for left in run.path.rglob(".*.unfinished"):
        findings.append(Finding(file=str(left.relative_to(run.path)), problem="left by a killed process"))
    return findings


def _problem(path: Path, check: Callable[[], object]) -> str | None:
    """Return what a check says about a file, as text or as an error."""
    if not path.exists():
        return "missing"
    try:
        result = check()
        return result if isinstance(result, str) else None
    except DamagedError as error:
        return f"damaged: {error.reason}"
    except (ValueError, TypeError, KeyError, OSError) as error:
        if is_out_of_memory(error):
            raise
        return f"damaged: {first_line(error)}"


def _load(original: Path) -> ProbeTable | None:
    try:
        return ProbeTable.load(original)
    except (ValueError, OSError):
        return None


def _probed(
    tables: Sequence[ProbeTable | None], shard: int, exchanged: float, manifest: Manifest
) -> tuple[str, ...] | None:
    """Return the ids of a sweep in a shard: all, or those of the control; None if that is unknown."""
    here, intact = tables[shard], [table for table in tables if table is not None]
    if not exchanged or here is None:
        return None if here is None else here.ids
    if len(intact) < len(tables):
        return None
    everybody = [name for table in intact for name in table.ids]
    labels = np.concatenate([table.labels for table in intact])
    drawn = {everybody[k] for k in draw_controlled(everybody, labels, exchanged, seed=manifest.seed).tolist()}
    return tuple(name for name in here.ids if name in drawn)


def _check_ids(ids: tuple[str, ...], expected: tuple[str, ...] | None) -> str | None:
    return None if expected is None or ids == expected else "of other samples than those of its shard"


def _check_maps(path: Path, ids: tuple[str, ...] | None) -> str | None:
    return _check_ids(tuple(load_tensors(path)[1]["ids"]), ids)


def _check_table(run: Run, path: Path, schedule: Schedule | None, ids: tuple[str, ...] | None) -> str | None:
    table = ProbeTable.load(path)
    if schedule is not None and table.settings.schedule != schedule:
        return "of another schedule than run.json has for it"
    if table.settings.seed != run.manifest.seed or table.settings.spatial != run.manifest.data.spatial:
        return "of another run: its seed or the size of its maps differs"
    return _check_ids(table.ids, ids)


def _check_results(run: Run, *, recompute: bool) -> str | None:
    """Compare results.json with the probes, unless files are missing or a metric is custom."""
    results, manifest = StoredRun.open(run.path).results, run.manifest
    settings, metrics = results.settings, results.settings.values()
    measured = {*results.methods, *results.incomplete}
    if (settings, results.data, measured) != (manifest.settings, manifest.data, {*manifest.methods}):
        return "older than the last command, which has not ended"
    if not recompute or len(metrics) < len(settings.metrics):
        return None
    return _compare_with_probes(TableReader(run), settings, read_json(run.path / "results.json"))


def _check_query(run: StoredRun, path: Path, *, recompute: bool) -> str | None:
    """Compare a stored query with the probes, as results.json."""
    query = run.open_query(path)
    query.comparison()
    if query.outdated is not None:
        return f"older than the run: {query.outdated}. Ask again"
    if not recompute or len(query.metric_values) < len(query.metrics):
        return None
    stored = {key: value for key, value in read_json(path).items() if key != QUERY_PAIRS}
    return _compare_with_probes(query.reader, query.results.settings, stored)


def _compare_with_probes(reader: TableReader, settings: Settings, stored: JSON) -> str | None:
    again = to_json(analyse(reader, settings.values(), settings).results)
    return None if json.loads(json.dumps(again)) == stored else "not what its probes give"
