"""What a page says about a run, as plain values that go into it as JSON.

Numbers come from results.json as they are; nothing is computed here but the front, ranks, and sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from twinlens.attribution import METHODS, controls
from twinlens.planning import METRICS
from twinlens.results import Evaluation

TITLES = {
    "soundness": "Soundness",
    "completeness": "Completeness",
    "road_morf": "ROAD, most relevant first",
    "road_lerf": "ROAD, least relevant first",
    "deletion": "Deletion",
    "insertion": "Insertion",
}
"""Headings of the charts."""

PLANE = ("soundness", "completeness")
_CURVE = ("levels", "performance", "values", "low", "high")


def describe_runs(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Gives what the page shows of each run, all but the sample explorer."""
    labels = run_labels(evaluations)
    return [describe_run(evaluation, label) for evaluation, label in zip(evaluations, labels, strict=True)]


def run_labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """Gives a short name of each run: that of its directory, or its path where two directories share a name."""
    names = [evaluation.path.resolve().name for evaluation in evaluations]
    return names if len(set(names)) == len(names) else [str(evaluation.path) for evaluation in evaluations]


def describe_run(evaluation: Evaluation, label: str) -> dict[str, Any]:
    """Gives what the page shows of one run."""
    results = evaluation.results
    metrics = measured_metrics(evaluation)
    front = pareto_front(results)
    return {
        "name": label,
        "model": results["model"]["name"],
        "data": results["data"]["name"],
        "samples": results["data"]["samples"],
        "accuracy": results["accuracy"],
        "measure": results["options"]["performance"],
        "facts": _facts(evaluation),
        "warnings": group_warnings([*_own_warnings(evaluation), *results.get("warnings", ())], evaluation.methods),
        "headlines": _headlines(evaluation, front),
        "verdicts": list(results.get("verdicts", ())),
        "metrics": [_metric(name, results["options"]["performance"]) for name in metrics],
        "methods": [_method(evaluation, name, results.get("ranking")) for name in order_methods(results)],
        "front": front,
        "frontShares": dict(results["front"]) if isinstance(results.get("front"), Mapping) else {},
        "confidence": results.get("confidence"),
        "resamples": results.get("resamples"),
    }


def measured_metrics(evaluation: Evaluation) -> list[str]:
    """Gives the metrics of a run in the order in which they are shown."""
    return [name for name in METRICS if name in evaluation.metrics]


def heading(metric: str) -> str:
    """Gives the short name of a metric with the direction that is better.

    Example:
        >>> heading("road_lerf")
        'ROAD LeRF ↓'
    """
    known = METRICS[metric]
    return f"{known.heading.replace('-' + chr(10), '').replace(chr(10), ' ')} {'↑' if known.higher_is_better else '↓'}"


def area_of(results: Mapping[str, Any], method: str, metric: str) -> float | None:
    """Gives the area of a method's curve, or None where it is not defined or was not measured."""
    area: float | None = results["methods"][method]["metrics"].get(metric, {}).get("area")
    return area


def best_methods(results: Mapping[str, Any], metric: str) -> list[str]:
    """Gives the methods with the best area of a metric: one, more where they tie, none where none is defined."""
    areas = {method: area_of(results, method, metric) for method in results["methods"]}
    known = {method: area for method, area in areas.items() if area is not None}
    if not known:
        return []
    best = (max if METRICS[metric].higher_is_better else min)(known.values())
    return [method for method, area in known.items() if area == best]


def pareto_front(results: Mapping[str, Any]) -> list[str]:
    """Gives the methods that no other beats in both soundness and completeness; none where these were not measured.

    Example:
        >>> def method(sound, complete):
        ...     return {"metrics": {"soundness": {"area": sound}, "completeness": {"area": complete}}}
        >>> pareto_front({"methods": {"a": method(0.9, 0.1), "b": method(0.5, 0.5), "c": method(0.4, 0.5)}})
        ['a', 'b']
    """
    if results.get("front"):
        return list(results["front"])
    points: dict[str, tuple[float, float]] = {}
    for method in results["methods"]:
        sound, complete = (area_of(results, method, metric) for metric in PLANE)
        if sound is not None and complete is not None:
            points[method] = (sound, complete)
    return [
        method
        for method, (sound, complete) in points.items()
        if not any(s >= sound and c >= complete and (s, c) != (sound, complete) for s, c in points.values())
    ]


def order_methods(results: Mapping[str, Any]) -> list[str]:
    """Gives the methods, best first: by the sum of their ranks in soundness and completeness."""
    sums = {method: _rank_sum(results, method) for method in results["methods"]}
    return sorted(sums, key=sums.__getitem__)


def _rank_sum(results: Mapping[str, Any], method: str) -> int:
    total = 0
    for metric in PLANE:
        own = area_of(results, method, metric)
        areas = [area_of(results, other, metric) for other in results["methods"]]
        total += sum(area is not None and (own is None or area > own) for area in areas)
    return total


def axis_titles(metric: str, measure: str) -> tuple[str, str]:
    """Gives what stands along the axes of a metric's chart.

    Example:
        >>> axis_titles("road_morf", "accuracy")
        ('share of features removed', 'loss of accuracy')
    """
    loss = f"loss of {measure}"
    known = {
        "soundness": (f"predictive level: {measure} reached", "soundness"),
        "completeness": ("attribution threshold", loss),
        "insertion": ("share of features still blurred", loss),
    }
    return known.get(metric, ("share of features removed", loss))


def _metric(name: str, measure: str) -> dict[str, Any]:
    x, y = axis_titles(name, measure)
    return {
        "key": name,
        "title": TITLES[name],
        "heading": heading(name),
        "summary": METRICS[name].summary,
        "higherIsBetter": METRICS[name].higher_is_better,
        "x": x,
        "y": y,
    }


def _method(evaluation: Evaluation, name: str, ranking: Any) -> dict[str, Any]:
    stored = evaluation.results["methods"][name]
    standings = {
        row["metric"]: [row["best_rank"], row["worst_rank"]]
        for row in (ranking if isinstance(ranking, list) else ())
        if isinstance(row, Mapping) and row.get("method") == name and "worst_rank" in row
    }
    return {
        "name": name,
        "control": is_control(evaluation, name),
        "seconds": evaluation.seconds().get(name),
        "metrics": {
            metric: {
                "area": curve["area"],
                "interval": curve.get("area_interval"),
                "ranks": standings.get(metric),
                **{column: curve[column] for column in _CURVE if curve.get(column) is not None},
            }
            for metric, curve in stored["metrics"].items()
        },
    }


def is_control(evaluation: Evaluation, method: str) -> bool:
    """Tells whether a method is a control, which looks at no model."""
    function = METHODS.get(evaluation.run.manifest["methods"][method].get("method", ""))
    return function is not None and function.__module__ == controls.__name__


def _facts(evaluation: Evaluation) -> list[list[str]]:
    """Says what was evaluated, as pairs of a heading and a text."""
    results, asked = evaluation.results, evaluation.run.manifest
    data, options = results["data"], results["options"]
    skipped = f", {len(data['skipped'])} left out" if data["skipped"] else ""
    imputer = dict(options["imputer"])
    settings = ", ".join(f"{key} {value}" for key, value in imputer.items() if key != "name")
    written = datetime.fromtimestamp((evaluation.path / "results.json").stat().st_mtime, UTC)
    versions = ", ".join(f"{package} {version}" for package, version in asked["versions"].items())
    return [
        ["Samples", f"{data['samples']:,}{skipped}"],
        ["Accuracy", f"{results['accuracy']:.1%} with nothing removed"],
        ["Protocol", f"{options['protocol']['name']}, by {options['performance']}, ε = {options['epsilon']:g}"],
        ["Imputation", imputer["name"] + (f" ({settings})" if settings else "")],
        ["Date", f"{written.day} {written:%B %Y}, {written:%H:%M} UTC"],
        ["Versions", versions],
        ["Identity", f"weights {results['model']['digest'][:8]}, data {data['digest'][:8]}, seed {options['seed']}"],
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _headlines(evaluation: Evaluation, front: Sequence[str]) -> list[str]:
    """Says in words what the plane shows."""
    results = evaluation.results
    if len(results["methods"]) < 2:
        return []
    best = {metric: best_methods(results, metric) for metric in PLANE}
    sentences = [
        f"{_listed(names)} {'has' if len(names) == 1 else 'have'} the highest {metric} "
        f"({area_of(results, names[0], metric):.3f}{_overlap(results, names[0], metric)})."
        for metric, names in best.items()
        if names
    ]
    if len(front) == 1:
        sentences.append(f"No other method beats {front[0]} on either side.")
    elif front:
        sentences.append(f"On the front are {_listed(front)}: nothing beats them on both sides at once.")
    return sentences


def _overlap(results: Mapping[str, Any], best: str, metric: str) -> str:
    """Says how many intervals overlap with that of the best, so that nobody takes its place for certain."""
    curves = {name: content["metrics"].get(metric, {}) for name, content in results["methods"].items()}
    ends = {name: curve.get("area_interval") for name, curve in curves.items()}
    known = {name: pair for name, pair in ends.items() if pair and None not in pair}
    if best not in known:
        return ""
    others = sum(pair[1] >= known[best][0] for name, pair in known.items() if name != best)
    return f"; its interval overlaps with {others} of {len(known) - 1} others" if others else "; clear of all intervals"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _own_warnings(evaluation: Evaluation) -> list[str]:
    """Says what is missing or trivial in a run, so that no gap on the page is a riddle."""
    results, methods = evaluation.results, evaluation.results["methods"]
    found = []
    if results["data"]["samples"] == 1:
        found.append("One sample only: nothing here says anything about other samples.")
    if skipped := results["data"]["skipped"]:
        found.append(
            f"{_count(len(skipped), 'sample')} could not be read and {'is' if len(skipped) == 1 else 'are'} left out. "
            f"The first: {skipped[0]['reason']}"
        )
    if not methods:
        found.append("No method is complete yet: start the run again with the same command, and it goes on.")
    if len(methods) == 1:
        found.append("One method only: there is nothing to compare it with. Add the control `random`, at least.")
    if not evaluation.metrics:
        found.append("No metric was asked for: the run holds maps alone.")
    for metric in PLANE:
        winners = [name for name in best_methods(results, metric) if is_control(evaluation, name)]
        if winners and not all(is_control(evaluation, name) for name in methods):
            found.append(
                f"The control {winners[0]} has the highest {metric}, though it never looks at the model: by this "
                "measure, on these samples, no method does better than a control."
            )
    return [*found, *_unreached(results)]


def group_warnings(warnings: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Groups warnings that say the same of several methods, but for the numbers; the first of a group speaks for it.

    Example:
        >>> group_warnings(["a: 3 maps are zero.", "b: 5 maps are zero.", "One sample only."], ["a", "b"])
        [['a: 3 maps are zero.', 'b: 5 maps are zero.'], ['One sample only.']]
    """
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        name, colon, text = warning.partition(": ")
        kind = re.sub(r"[0-9]+", "0", text) if colon and name in methods else warning
        groups.setdefault(kind, []).append(warning)
    return list(groups.values())


def _unreached(results: Mapping[str, Any]) -> list[str]:
    """Says where soundness has no value: nothing kept has attribution, or a level of performance is not reached."""
    found = []
    curves = {name: content["metrics"].get("soundness") for name, content in results["methods"].items()}
    for name, curve in curves.items():
        if curve and all(value is None for value in curve["values"]):
            found.append(f"{name}: soundness is not defined at any level, since nothing that is kept has attribution.")
    tops = {name: max(curve["performance"]) for name, curve in curves.items() if curve}
    if tops and results["options"]["performance"] == "accuracy" and min(tops.values()) < results["accuracy"]:
        high = min(tops.values())
        lowest = [name for name, top in tops.items() if top == high]
        found.append(
            f"{_listed(lowest)} {'reaches' if len(lowest) == 1 else 'reach'} no predictive level above {high:.3f} (the "
            f"untouched inputs: {results['accuracy']:.3f}), so the areas of soundness end there for all methods."
        )
    return found
