"""Every metric by its name, and metrics as callers request them: a name, a value, or a table of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeGuard

from twinlens.errors import unknown
from twinlens.imputation.imputers import describe_imputer, restore_imputer
from twinlens.metrics.calibration import Calibration
from twinlens.metrics.metric import About, ForeignMetric, Metric
from twinlens.metrics.removal import Completeness, Deletion, Insertion, Road, RoadGain
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.steps import STEPS
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON, REQUIRED, fields_of, from_json, replaced, to_json
from twinlens.support.plugins import load_plugin, with_plugins

MetricRequest = str | Metric | Mapping[str, Any]
MetricRequests = str | Metric | Sequence[str | Metric] | Mapping[str, MetricRequest]
"""Metrics as a caller requests them: names of metrics or groups, values, or a table from custom names to either."""

KINDS: dict[str, type[Metric]] = {
    "soundness": Soundness,
    "completeness": Completeness,
    "calibration": Calibration,
    "road": Road,
    "road_gain": RoadGain,
    "deletion": Deletion,
    "insertion": Insertion,
}
"""The classes of our metrics, which the documentation lists."""

METRIC_PLUGINS = "twinlens.metrics"
"""The entry points of metrics in other packages."""

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Soundness(estimator="rank"),
        Completeness(estimator="share"),
        Calibration(),
        Soundness(),
        Completeness(),
        Road(order="morf"),
        Road(order="lerf"),
        RoadGain(),
        Deletion(),
        Insertion(),
        Soundness(estimator="rank", evidence="against"),
        Completeness(estimator="share", evidence="against"),
        Calibration(evidence="against"),
    )
}
"""Our metrics by name, the headline pair first, and evidence against the target last."""
_AGAINST = ("soundness_rank_against", "completeness_share_against", "calibration_against")

GROUPS: dict[str, dict[str, MetricRequest]] = {
    "default": {
        name: {"metric": name, "steps": STEPS} if name == "soundness" else name
        for name in METRICS
        if name not in ("deletion", "insertion", *_AGAINST)
    },
    "headline": {name: name for name in ("soundness_rank", "completeness_share")},
    "paper": {name: name for name in ("soundness", "completeness")},
    "all": {name: name for name in METRICS if name not in _AGAINST},
    "against": {name: name for name in _AGAINST[:2]},
}
"""Names for several metrics at once. The default reads the paper's soundness from the probes of the headline pair."""


def metric_names() -> list[str]:
    """List the names of all metrics: ours, and those of installed plug-ins."""
    return with_plugins(METRICS, METRIC_PLUGINS)


def metric_named(name: str) -> Metric:
    """Return a metric by its name, with default options; a plug-in is imported now.

    Example:
        >>> metric_named("soundnes")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: `metrics` must be one of soundness_rank, ... got 'soundnes'. Did you mean 'soundness'?
    """
    if name in METRICS:
        return METRICS[name]
    if name not in (names := metric_names()):
        raise unknown("metrics", name, [*names, *GROUPS])
    plugin = load_plugin(METRIC_PLUGINS, name)
    if not _is_metric(plugin) or plugin.name != name:
        what = f"one called {plugin.name!r}" if _is_metric(plugin) else f"{type(plugin).__name__} {plugin!r}"[:100]
        raise TypeError(f"The plug-in {name!r} must be a metric as a value, called {name!r}; it is {what}.")
    return plugin


def first_of(metrics: Mapping[str, Metric | ForeignMetric], side: str) -> str | None:
    """Return the name of the first metric of a side that has an exchanged control by default, or of the first."""
    names = [name for name, metric in metrics.items() if metric.about.side == side]
    return next((name for name in names if metrics[name].controlled), names[0] if names else None)


def headline(metrics: Mapping[str, Metric]) -> list[str]:
    """Return the metrics whose intervals decide whether there are enough samples.

    These are both sides, soundness and completeness, if they have an interval; without either, all metrics that have
    one. The paper's soundness by accuracy has none.

    Example:
        >>> headline(find_metrics("default")), headline(find_metrics(["soundness", "deletion"]))
        (['soundness_rank', 'completeness_share'], ['deletion'])
    """
    sides = [name for side in ("soundness", "completeness") if (name := first_of(metrics, side)) is not None]
    usable = [name for name, metric in metrics.items() if metric.has_interval]
    return [name for name in sides if name in usable] or usable


def find_metrics(
    requests: MetricRequests, shared: Mapping[str, Any] | None = None, *, signed: bool = False
) -> dict[str, Metric]:
    """Return requested metrics as values, by unique names.

    Args:
        requests: one name of a metric or group, or one value, or several of them; or a table from custom names to a
            name, a value, or a table of a "metric" and its options.
        shared: options of the run; a metric that is requested by name takes those it shares with the run.
        signed: whether maps are signed; the groups "default", "headline" and "all" then bring "against".

    Example:
        >>> find_metrics(["completeness", Soundness(epsilon=0.02)])["soundness"].epsilon
        0.02
        >>> list(find_metrics([Soundness(), Soundness(epsilon=0.02)]))
        ['soundness', 'soundness(epsilon=0.02)']
        >>> find_metrics({"mine": {"metric": "soundness", "epsilon": 0.05}})["mine"].epsilon
        0.05
    """
    if isinstance(requests, Mapping):
        return {str(name): _find(request, str(name), shared or {}) for name, request in requests.items()}
    items = [requests] if isinstance(requests, str) or not isinstance(requests, Sequence) else [*requests]
    if signed and any(isinstance(item, str) and item in ("default", "headline", "all") for item in items):
        items.append("against")
    metrics: dict[str, Metric] = {}
    for item in _without_groups(items):
        metric = _find(item, None, shared or {})
        name = item if isinstance(item, str) else metric.name
        if metrics.get(name, metric) != metric:
            name = f"{name}({_settings(metric)})"
        if metrics.get(name, metric) != metric:
            raise ValueError(f"`metrics` has two called {name}, which differ in a function. Pass a table of names.")
        metrics[name] = metric
    return metrics


def metric_table(names: Sequence[str]) -> dict[str, MetricRequest]:
    """Return a request for each metric that names of metrics and groups stand for, by its name.

    Example:
        >>> metric_table(["headline", "deletion"])
        {'soundness_rank': 'soundness_rank', 'completeness_share': 'completeness_share', 'deletion': 'deletion'}
    """
    return {str(each["metric"] if isinstance(each, Mapping) else each): each for each in _without_groups(names)}


def _without_groups(items: Sequence[MetricRequest]) -> list[MetricRequest]:
    """Replace the name of each group by its metrics, except those that are also requested by name."""
    metrics: list[MetricRequest] = []
    for item in items:
        group = GROUPS.get(item) if isinstance(item, str) else None
        metrics += [item] if group is None else [each for name, each in group.items() if name not in items]
    return metrics


def _find(request: MetricRequest, name: str | None, shared: Mapping[str, Any]) -> Metric:
    if _is_metric(request):
        if request.name in METRICS and type(request) is not type(METRICS[request.name]):
            raise ValueError(f"`metrics` has a custom metric called {request.name!r}, a name of ours. Rename it.")
        return request
    options = dict(request) if isinstance(request, Mapping) else {"metric": request}
    base = options.pop("metric", name)
    if not isinstance(base, str):
        raise unknown("metrics", base, metric_names())
    metric = metric_named(base)
    usable = {key: value for key, value in shared.items() if key in metric.shared}
    return replaced(metric, usable | options, f"metrics.{name or base}")


def _is_metric(value: object) -> TypeGuard[Metric]:
    """Tell a metric from its class, which has all the same attributes."""
    return isinstance(value, Metric) and is_dataclass(value) and not isinstance(value, type)


def _settings(metric: Metric) -> str:
    """List the options that differ from their defaults."""
    changed = [
        (field.name, getattr(metric, field.name))
        for field in fields_of(type(metric))
        if field.default is REQUIRED or getattr(metric, field.name) != field.default
    ]
    # Imputers can be called too, and print all their settings; a function prints its address.
    shown = {name: repr(value) if is_dataclass(value) or not callable(value) else "…" for name, value in changed}
    return ", ".join(f"{name}={text}" for name, text in shown.items())


def describe_metric(metric: Metric) -> dict[str, JSON]:
    """Describe a metric for results.json; `rebuild_metric` restores it unless it measures by a function.

    Example:
        >>> describe_metric(Deletion())["metric"], describe_metric(Soundness(epsilon=0.02))["epsilon"]
        ('deletion', 0.02)
    """
    options: dict[str, JSON] = {"metric": metric.name}
    for field in fields_of(type(metric)):
        value = getattr(metric, field.name)
        if field.name == "imputer":
            options[field.name] = None if value is None else describe_imputer(value)
        else:
            options[field.name] = describe_function(value) if callable(value) else to_json(value)
    if metric.name not in METRICS:  # it may not be installed where the results are read
        options["about"] = to_json(metric.about)
    return options


def described_metric(description: Mapping[str, JSON]) -> Metric | ForeignMetric:
    """Return a metric by its description, for display.

    Example:
        >>> described_metric({"metric": "deletion"}).about.title
        'Deletion'
    """
    name = str(description["metric"])
    if name in METRICS or "about" not in description:
        metric = metric_named(name)
        shown = [field.name for field in fields_of(type(metric)) if field.name in ("steps", "levels")]
        return replaced(metric, {key: description[key] for key in shown if key in description}, f"metrics.{name}")
    return ForeignMetric(name=name, about=from_json(About, description["about"], f"metrics.{name}.about"))


def rebuild_metric(description: Mapping[str, JSON]) -> Metric | None:
    """Restore a metric from its description; None where it, or its performance measure, is custom and not available.

    Example:
        >>> rebuild_metric(describe_metric(Soundness(epsilon=0.02))).epsilon
        0.02
    """
    if isinstance(description["performance"], dict):
        return None
    foreign = isinstance(described_metric(description), ForeignMetric)
    if foreign and description["metric"] not in metric_names():
        return None
    described = description["imputer"]
    imputer = restore_imputer(described) if isinstance(described, dict) else None
    options = {name: value for name, value in description.items() if name != "about"}
    return _find({**options, "imputer": imputer}, None, {})
