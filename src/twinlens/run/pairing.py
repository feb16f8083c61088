"""What two runs have in common: which samples they share, and whether they were asked the same.

Samples are the same where id, label and content are: by the digest of the whole data, or by the fingerprint of each
sample. Ids by themselves say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.metrics.protocols import PROTOCOLS
from twinlens.run.fingerprints import FILE, read_fingerprints
from twinlens.run.manifest import differences
from twinlens.run.results import Results
from twinlens.run.stored_run import StoredRun
from twinlens.run.wording import listed
from twinlens.support.fields import JSON, to_json

FEWEST = 10
"""Shared samples below which two runs are not paired, unless one of them has no more."""

_LISTED = 6  # levels that a note prints one by one


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The samples that two runs share."""

    ids: frozenset[str] | None
    """Their names, on which the runs are paired; None where the runs are compared as independent ones."""

    whole: bool
    """Whether these are all samples of both."""

    note: str | None
    """What a reader has to know of it."""


def shared_samples(names: tuple[str, str], runs: tuple[StoredRun, StoredRun]) -> Shared:
    """Find the samples that two runs share."""
    one, other = runs
    if one.results.data.digest == other.results.data.digest:
        return Shared(ids=frozenset(one.reader.original.ids), whole=True, note=None)
    sizes = [run.results.data.samples for run in runs]
    apart = f"the runs are compared as independent ones, with {sizes[0]} and {sizes[1]} samples."
    prints = [read_fingerprints(run.run) for run in runs]
    if lacking := [name for name, own in zip(names, prints, strict=True) if own is None]:
        note = (
            f"Which samples {listed(names)} share is not known, since {listed(lacking)} "
            f"{'holds' if len(lacking) == 1 else 'hold'} no {FILE}: {apart} Evaluate there again, and it is written."
        )
        return Shared(ids=None, whole=False, note=note)
    known = [dict(zip(own or (), run.reader.original.ids, strict=True)) for own, run in zip(prints, runs, strict=True)]
    common = frozenset(known[0][each] for each in known[0].keys() & known[1].keys())
    if len(common) == sizes[0] == sizes[1]:
        return Shared(ids=common, whole=True, note=None)
    if len(common) >= min(FEWEST, *sizes):
        left = " and ".join(
            f"{size - len(common)} of {name}" for name, size in zip(names, sizes, strict=True) if size > len(common)
        )
        note = (
            f"{listed(names)} share {len(common)} samples and are compared on these alone, paired; {left} are left out."
        )
        return Shared(ids=common, whole=False, note=note)
    share = f"share {len(common)} samples, too few to pair" if common else "share no sample"
    alike = len(set(one.reader.original.ids) & set(other.reader.original.ids)) - len(common)
    mind = f" {alike} ids are the same in both, of other content or another label." if alike else ""
    return Shared(ids=None, whole=False, note=f"{listed(names)} {share}: {apart}{mind}")


def unlike_questions(names: tuple[str, str], runs: tuple[StoredRun, StoredRun], metric: str) -> list[str]:
    """List what two runs were asked otherwise under the name of a metric, by the names of the fields."""
    one, other = (_asked(run, metric) for run in runs)
    lists = {key for asked in (one, other) for key, value in asked.items() if isinstance(value, list)}
    if any(one.get(key) != other.get(key) for key in lists):
        one, other = ({**asked, **{key: _levels(asked.get(key)) for key in lists}} for asked in (one, other))
    if isinstance(one["protocol"], dict) or isinstance(other["protocol"], dict):
        one, other = ({**asked, "protocol": _fine_print(asked["protocol"])} for asked in (one, other))
    return differences(other, one, places=_places(names))


def _places(names: tuple[str, str]) -> tuple[str, str]:
    return f"in {names[0]}", f"in {names[1]}"


def _asked(evaluation: StoredRun, name: str) -> dict[str, JSON]:
    """Describe a metric as it was asked, with the levels that it takes where none are named."""
    asked = dict(evaluation.results.settings.metrics[name])
    metric = evaluation.metric_values.get(name)
    if "levels" in asked and asked["levels"] is None and metric is not None:
        asked["levels"] = list(metric.sweeps(evaluation.reader.features)[0].schedule.levels)
    if _is_mean(asked.get("imputer")):  # of the samples of each run, which a note tells
        asked["imputer"] = {"name": "mean"}
    return asked


def _is_mean(imputer: JSON) -> bool:
    return isinstance(imputer, dict) and imputer["name"] == "mean"


def _levels(levels: JSON) -> JSON:
    """Abbreviate many levels, so that both their number and their ends are seen."""
    if not isinstance(levels, list) or len(levels) <= _LISTED:
        return levels
    return f"{levels[0]}, {levels[1]}, … {levels[-2]}, {levels[-1]} ({len(levels)} levels)"


def _fine_print(protocol: JSON) -> JSON:
    """Spell out a protocol, but for its name, and its levels, which are among those of the metric."""
    known = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    spelled: dict[str, JSON] = to_json(known)
    return {key: value for key, value in spelled.items() if key not in ("name", "levels")}


def unlike_runs(names: tuple[str, str], runs: tuple[StoredRun, StoredRun]) -> list[str]:
    """List what else differs between two runs and can be compared nevertheless: inputs, methods, and what one lacks."""
    one, other = (run.results for run in runs)
    notes = []
    if one.data.spatial != other.data.spatial:
        shapes = [" × ".join(map(str, results.data.spatial)) for results in (one, other)]
        notes.append(
            f"Maps have {shapes[0]} features in {names[0]} and {shapes[1]} in {names[1]}: equal shares removed are not "
            "equal numbers of features."
        )
    if one.data.segments != other.data.segments:
        notes.append(
            f"Features are not the same in both: {_features(one)} in {names[0]}, {_features(other)} in {names[1]}."
        )
    imputers = [dict(results.settings.imputer) for results in (one, other)]
    if imputers[0] != imputers[1] and all(map(_is_mean, imputers)):
        notes.append(f"Removed features have a mean of its own in each of {listed(names)}.")
    for method in one.methods:
        if method in other.methods:
            records = [_record(run, method) for run in runs]
            if found := differences(records[1], records[0], places=_places(names)):
                notes.append(f"{method} is not the same in both: {'; '.join(found)}.")
    for kind, mine, theirs in (
        ("methods", list(one.methods), list(other.methods)),
        ("metrics", list(one.settings.metrics), list(other.settings.metrics)),
    ):
        for name, own, others in ((names[0], mine, theirs), (names[1], theirs, mine)):
            if alone := [each for each in own if each not in others]:
                notes.append(f"Of the {kind}, {listed(alone)} {'is' if len(alone) == 1 else 'are'} in {name} alone.")
    return notes


def _features(results: Results) -> str:
    return "single places" if results.data.segments is None else f"segments ({results.data.segments})"


def _record(evaluation: StoredRun, method: str) -> dict[str, JSON]:
    """Describe where the maps of a method come from; maps made elsewhere differ from model to model in any case."""
    record: dict[str, JSON] = to_json(evaluation.run.manifest.methods[method])
    return {key: value for key, value in record.items() if key != "maps"}
