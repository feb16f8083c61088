"""Queries: results with other settings of the metrics, one file each in RUN/results, beside the run's own results."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from twinlens.errors import RunError
from twinlens.run.directory import Run, is_name, read_json
from twinlens.run.manifest import Settings, differences
from twinlens.run.results import Results
from twinlens.support.fields import JSON, to_json

FOLDER = "results"
PAIRS = "pairs"
"""The key of the lines of pairs.csv in the file of a query; its other keys are those of results.json."""
_REQUEST = ("metrics", "resamples")
_LONGEST = 60  # characters of a derived name before its digest


def query_name(settings: Settings, own: Settings) -> str | None:
    """Return a name that tells how settings differ from a run's own; None if they ask the same.

    A change of several metrics is named once: "performance-probability". If metrics were left out or added, the name
    lists all of them.
    """
    if query_digest(settings) == query_digest(own):
        return None
    changes: dict[str, list[str]] = {}
    for metric, options in settings.metrics.items():
        for change in _changes(options, own.metrics.get(metric, options)):
            changes.setdefault(change, []).append(metric)
    parts = [f"{metrics[0]}-{change}" if len(metrics) == 1 else change for change, metrics in changes.items()]
    if settings.metrics.keys() != own.metrics.keys():
        named = {metrics[0] for metrics in changes.values() if len(metrics) == 1}
        parts = [*(metric for metric in settings.metrics if metric not in named), *parts]
    if settings.resamples != own.resamples:
        parts.append(f"resamples-{settings.resamples}")
    name = "+".join(filter(None, (re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-._") for part in parts)))
    return name if 0 < len(name) <= _LONGEST else f"{name[:_LONGEST] or 'query'}-{query_digest(settings)}"


def query_digest(settings: Settings) -> str:
    """Return a short digest of what is asked: the metrics in their order, with their options, and the resamples."""
    request = {key: to_json(getattr(settings, key)) for key in _REQUEST}
    return hashlib.blake2b(json.dumps(request).encode(), digest_size=4).hexdigest()


def query_files(run: Run) -> list[Path]:
    """List the files of a run's stored queries."""
    return sorted(path for path in (run.path / FOLDER).glob("*.json") if is_name(path.stem))


def query_content(results: Results, pairs: str) -> dict[str, JSON]:
    """Return the content of the file of a query: that of results.json, and the lines of pairs.csv."""
    content = to_json(results)
    assert isinstance(content, dict)
    return {**content, PAIRS: [*pairs.split("\n")]}


def check_replaceable(path: Path, content: Mapping[str, JSON], *, own: bool) -> None:
    """Refuse to replace a file by a query, unless it has the same content, or is the run's `own` and asks the same."""
    if not path.exists():
        return
    remedy = "Choose another `name`, or remove the file."
    stored = read_json(path, remedy)
    if json.dumps(stored) == json.dumps(content):
        return
    settings = [each.get("settings") if isinstance(each, dict) else None for each in (content, stored)]
    here, there = ({key: each.get(key) for key in _REQUEST} if isinstance(each, dict) else None for each in settings)
    same = json.dumps(here) == json.dumps(there)
    if there is None or (same and not own):
        raise RunError(f"`name` {path.stem!r} is taken: {str(path)!r} holds something else. {remedy}")
    if not same:
        changes = differences(here, there) or ["the metrics have another order"]
        more = f" ({len(changes) - 3} more)" if len(changes) > 3 else ""
        raise RunError(
            f"`name` {path.stem!r} is taken by a query with other settings: {'; '.join(changes[:3])}{more}. {remedy}"
        )


def _changes(options: Mapping[str, JSON], own: Mapping[str, JSON]) -> list[str]:
    """List the options that differ, each with its values."""
    return ["-".join([key, *_leaves(value)]) for key, value in options.items() if value != own.get(key)]


def _leaves(value: JSON) -> list[str]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [str(value)] if items is None else [leaf for item in items for leaf in _leaves(item)]
