"""What two runs have in common: shared samples, and metrics with equal settings.

Samples are equal if id, label and content are, by the digest of the whole data or by the fingerprint of each sample.
Equal ids alone are not enough.
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
from twinlens.support.resampling import FEWEST


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The samples that two runs share."""

    ids: frozenset[str] | None
    """Ids of the samples on which the runs are paired; None where the runs are compared as independent samples."""
    whole: bool
    """Whether these are all samples of both runs."""
    note: str | None


def shared_samples(names: tuple[str, str], runs: tuple[StoredRun, StoredRun]) -> Shared:
    """Return the samples that two runs share."""
    one, other = runs
    if one.results.data.digest == other.results.data.digest:
        return Shared(ids=frozenset(one.reader.original.ids), whole=True, note=None)
    sizes = [run.results.data.samples for run in runs]
    apart = f"the runs are compared as independent, with {sizes[0]} and {sizes[1]} samples."
    prints = [read_fingerprints(run.run) for run in runs]
    if missing := [name for name, own in zip(names, prints, strict=True) if own is None]:
        note = (
            f"The samples that {listed(names)} share are unknown, because {listed(missing)} "
            f"{'has' if len(missing) == 1 else 'have'} no {FILE}: {apart} Evaluate there again to write it."
        )
        return Shared(ids=None, whole=False, note=note)
    ids = [dict(zip(own or (), run.reader.original.ids, strict=True)) for own, run in zip(prints, runs, strict=True)]
    common = frozenset(ids[0][each] for each in ids[0].keys() & ids[1].keys())
    if len(common) == sizes[0] == sizes[1]:
        return Shared(ids=common, whole=True, note=None)
    if len(common) >= min(FEWEST, *sizes):
        left = " and ".join(
            f"{size - len(common)} of {name}" for name, size in zip(names, sizes, strict=True) if size > len(common)
        )
        note = f"{listed(names)} share {len(common)} samples and are compared on these, paired; {left} are left out."
        return Shared(ids=common, whole=False, note=note)
    share = f"share {len(common)} samples, too few to pair" if common else "share no samples"
    alike = len(set(one.reader.original.ids) & set(other.reader.original.ids)) - len(common)
    more = f" {alike} ids occur in both, but with different content or labels." if alike else ""
    return Shared(ids=None, whole=False, note=f"{listed(names)} {share}: {apart}{more}")


def unlike_settings(names: tuple[str, str], runs: tuple[StoredRun, StoredRun], metric: str) -> list[str]:
    """Return the options in which a metric differs between two runs."""
    one, other = (_options(run, metric) for run in runs)
    if isinstance(one["protocol"], dict) or isinstance(other["protocol"], dict):
        one, other = ({**options, "protocol": _protocol(options["protocol"])} for options in (one, other))
    return differences(other, one, places=(f"in {names[0]}", f"in {names[1]}"))


def _options(evaluation: StoredRun, name: str) -> dict[str, JSON]:
    """Return the options of a metric, with its default levels where none are set."""
    options = dict(evaluation.results.settings.metrics[name])
    metric = evaluation.metric_values.get(name)
    if "levels" in options and options["levels"] is None and metric is not None:
        options["levels"] = list(metric.sweeps(evaluation.reader.features)[0].schedule.levels)
    if _is_mean(options.get("imputer")):  # a note tells that each run has its own mean
        options["imputer"] = {"name": "mean"}
    return options


def _is_mean(imputer: JSON) -> bool:
    return isinstance(imputer, dict) and imputer["name"] == "mean"


def _protocol(protocol: JSON) -> JSON:
    """Return the rules of a protocol without its name and levels, which the metric has itself."""
    rules: dict[str, JSON] = to_json(PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol)
    return {key: value for key, value in rules.items() if key not in ("name", "levels")}


def unlike_runs(names: tuple[str, str], runs: tuple[StoredRun, StoredRun]) -> list[str]:
    """Return notes on other differences between two runs, which do not prevent a comparison."""
    one, other = (run.results for run in runs)
    notes = []
    if one.data.spatial != other.data.spatial:
        shapes = [" × ".join(map(str, results.data.spatial)) for results in (one, other)]
        notes.append(
            f"Maps have {shapes[0]} features in {names[0]} and {shapes[1]} in {names[1]}: equal shares are different "
            "numbers of features."
        )
    if _features(one) != _features(other):
        notes.append(f"Features differ: {_features(one)} in {names[0]}, {_features(other)} in {names[1]}.")
    imputers = [dict(results.settings.imputer) for results in (one, other)]
    if imputers[0] != imputers[1] and all(map(_is_mean, imputers)):
        notes.append(f"Removed features are replaced by different means in {listed(names)}.")
    for method in one.methods:
        if method in other.methods:
            records = [_record(run, method) for run in runs]
            if unlike := differences(records[1], records[0], places=(f"in {names[0]}", f"in {names[1]}")):
                notes.append(f"{method} differs: {'; '.join(unlike)}.")
    for kind, mine, theirs in (
        ("methods", list(one.methods), list(other.methods)),
        ("metrics", list(one.settings.metrics), list(other.settings.metrics)),
    ):
        for name, own, others in ((names[0], mine, theirs), (names[1], theirs, mine)):
            if alone := [each for each in own if each not in others]:
                notes.append(f"Of the {kind}, {listed(alone)} {'is' if len(alone) == 1 else 'are'} only in {name}.")
    return notes


def _features(results: Results) -> str:
    if results.data.segments is not None:
        return f"segments ({results.data.segments})"
    return "single channels of positions" if results.data.feature_kind == "channels" else "single positions"


def _record(evaluation: StoredRun, method: str) -> dict[str, JSON]:
    """Describe the origin of a method's maps; imported maps always differ between models."""
    record: dict[str, JSON] = to_json(evaluation.run.manifest.methods[method])
    return {key: value for key, value in record.items() if key != "maps"}
