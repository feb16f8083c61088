"""What the page says about a run, as plain values that go into it as JSON.

Numbers come from the results as they are; nothing is computed here but sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from twinlens.core.fields import JSON, to_json
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import Soundness
from twinlens.running.results import CurveResults, Results
from twinlens.running.run_reader import Evaluation

_LONGEST = 60  # signs of a setting that the page prints


def describe_runs(evaluations: Sequence[Evaluation]) -> list[dict[str, JSON]]:
    """Describe what the page shows of each run, all but the sample explorer."""
    labels = run_labels(evaluations)
    return [describe_run(evaluation, label) for evaluation, label in zip(evaluations, labels, strict=True)]


def run_labels(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return a short name of each run: that of its directory, or its path where two directories share a name."""
    names = [evaluation.path.resolve().name for evaluation in evaluations]
    return names if len(set(names)) == len(names) else [str(evaluation.path) for evaluation in evaluations]


def describe_run(evaluation: Evaluation, label: str) -> dict[str, JSON]:
    """Describe what the page shows of one run."""
    results, seconds = evaluation.results, evaluation.seconds()
    warnings = group_warnings([*evaluation.notes, *_own_warnings(results), *results.warnings], evaluation.methods)
    return {
        "name": label,
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "accuracy": results.accuracy,
        "facts": to_json(_facts(evaluation)),
        "warnings": to_json(warnings),
        "headlines": to_json(_headlines(results)),
        "verdicts": to_json(results.verdicts),
        "metrics": [_metric(results, name) for name in evaluation.metrics],
        "methods": [_method(results, name, seconds.get(name)) for name in results.best_first()],
        "plane": [results.first_of(Soundness), results.first_of(Completeness)],
        "front": to_json(list(results.front)),
        "frontShares": to_json(results.front),
        "confidence": results.confidence,
        "resamples": results.question.resamples,
    }


def name_of(results: Results, metric: str) -> str:
    """Return what sentences and axes call a metric."""
    about = results.about(metric)
    return about.short.removesuffix(about.arrow).rstrip()


def performance_of(results: Results, metric: str) -> str:
    """Return the name of the measure of performance that a metric was asked with."""
    performance = results.question.metrics[metric]["performance"]
    return str(performance["function"]) if isinstance(performance, dict) else str(performance)


def _metric(results: Results, name: str) -> dict[str, JSON]:
    about, kind = results.about(name), results.kind(name)
    x, y = about.axes(performance_of(results, name))
    return {
        "key": name,
        "name": name_of(results, name),
        "title": about.title,
        "heading": about.short,
        "summary": about.summary,
        "higherIsBetter": about.higher_is_better,
        "stairs": isinstance(kind, Soundness),
        "inverse": isinstance(kind, Completeness),
        "x": x,
        "y": y,
    }


def _method(results: Results, name: str, seconds: float | None) -> dict[str, JSON]:
    found = results.methods[name]
    ranks = {row.metric: [row.best_rank, row.worst_rank] for row in results.ranking if row.method == name}
    return {
        "name": name,
        "control": found.control,
        "seconds": seconds,
        "metrics": {metric: _curve(curve, ranks.get(metric)) for metric, curve in found.metrics.items()},
    }


def _curve(curve: CurveResults, ranks: list[int] | None) -> dict[str, JSON]:
    stored: dict[str, JSON] = to_json(curve)
    return {"area": stored.pop("area"), "interval": stored.pop("area_interval"), "ranks": to_json(ranks), **stored}


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """List what was evaluated, as pairs of a heading and a text."""
    results, data = evaluation.results, evaluation.results.data
    skipped = f", {len(data.skipped)} left out" if data.skipped else ""
    written = datetime.fromtimestamp((evaluation.path / "results.json").stat().st_mtime, UTC)
    versions = evaluation.run.manifest.versions.items()
    identity = f"weights {results.model.digest[:8]}, data {data.digest[:8]}, seed {results.seed}"
    return [
        ("Samples", f"{data.samples:,}{skipped}"),
        ("Accuracy", f"{results.accuracy:.1%} with nothing removed"),
        *([("Protocol", _asked(results))] if results.question.metrics else []),
        ("Imputation", _imputation(results)),
        ("Date", f"{written.day} {written:%B %Y}, {written:%H:%M} UTC"),
        ("Versions", ", ".join(f"{package} {version}" for package, version in versions)),
        ("Identity", identity),
    ]


def _asked(results: Results) -> str:
    """Say by which protocol, performance and epsilon was measured; of other metrics only what soundness does not say.

    Names of metrics are left out where one text holds for all.
    """
    texts: dict[str, list[str]] = {}
    sound = [name for name in results.question.metrics if isinstance(results.kind(name), Soundness)]
    for name in sound:
        texts.setdefault(_fine_print(results, name) + _judging(results.question.metrics[name]), []).append(name)
    said = {_fine_print(results, name) for name in sound}
    for name in results.question.metrics:
        if (text := _fine_print(results, name)) not in said:
            texts.setdefault(text, []).append(name)
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{', '.join(name_of(results, name) for name in names)}: {text}" for text, names in texts.items())


def _fine_print(results: Results, metric: str) -> str:
    protocol = results.question.metrics[metric]["protocol"]
    return f"{protocol['name'] if isinstance(protocol, dict) else protocol}, by {performance_of(results, metric)}"


def _judging(soundness: Mapping[str, JSON]) -> str:
    estimator = "" if soundness["estimator"] == "paper" else f", {str(soundness['estimator']).replace('_', '-')}"
    return f", ε = {soundness['epsilon']:g}{estimator}"


def _imputation(results: Results) -> str:
    """Name the run's imputer, and those of metrics with another one."""
    main = dict(results.question.imputer)
    others: dict[str, list[str]] = {}
    for name, metric in results.question.metrics.items():
        if isinstance(own := metric["imputer"], dict) and own != main:
            others.setdefault(_imputer(own), []).append(name_of(results, name))
    return "; ".join([_imputer(main), *(f"{', '.join(names)}: {text}" for text, names in others.items())])


def _imputer(described: Mapping[str, JSON]) -> str:
    settings = [f"{key} {_setting(value)}" for key, value in described.items() if key not in ("name", "source")]
    return str(described["name"]) + (f" ({', '.join(settings)})" if settings else "")


def _setting(value: JSON) -> str:
    text = ", ".join(map(_setting, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _headlines(results: Results) -> list[str]:
    """Put into words what the plane shows."""
    if len(results.methods) < 2:
        return []
    best = {metric: results.best(metric) for metric in results.sides}
    sentences = [
        f"{_listed(names)} {'has' if len(names) == 1 else 'have'} the highest {name_of(results, metric)} "
        f"({results.area(names[0], metric):.3f}{_overlap(results, names[0], metric)})."
        for metric, names in best.items()
        if names
    ]
    front = list(results.front)
    if len(front) == 1:
        sentences.append(f"No other method beats {front[0]} on either side.")
    elif front:
        sentences.append(f"On the front are {_listed(front)}: nothing beats them on both sides at once.")
    return sentences


def _overlap(results: Results, best: str, metric: str) -> str:
    """Count the intervals that overlap with that of the best, whose place is not certain then."""
    curves = {name: found.metrics.get(metric) for name, found in results.methods.items()}
    ends = {name: curve.area_interval for name, curve in curves.items() if curve and curve.area_interval}
    if best not in ends:
        return ""
    others = sum(high >= ends[best][0] for name, (_, high) in ends.items() if name != best)
    return f"; its interval overlaps with {others} of {len(ends) - 1} others" if others else "; clear of all intervals"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _own_warnings(results: Results) -> list[str]:
    """Name what is missing or trivial in a run, so that no gap on the page is a riddle."""
    methods, skipped, found = results.methods, results.data.skipped, []
    if results.data.samples == 1:
        found.append("One sample only: nothing here says anything about other samples.")
    if skipped:
        found.append(
            f"{_count(len(skipped), 'sample')} could not be read and {'is' if len(skipped) == 1 else 'are'} left out. "
            f"The first: {skipped[0].reason}"
        )
    if not methods:
        found.append("No method is complete yet: start the run again with the same command, and it goes on.")
    if len(methods) == 1:
        found.append("One method only: there is nothing to compare it with. Add the control `random`, at least.")
    if not results.question.metrics:
        found.append("No metric was asked for: the run holds maps alone.")
    for metric in results.sides:
        winners = [name for name in results.best(metric) if methods[name].control]
        if winners and not all(method.control for method in methods.values()):
            found.append(
                f"The control {winners[0]} has the highest {name_of(results, metric)}, though it never looks at the "
                "model: by this measure, on these samples, no method does better than a control."
            )
    sound = [name for name in results.question.metrics if isinstance(results.kind(name), Soundness)]
    return [*found, *(warning for metric in sound for warning in _unreached(results, metric))]


def group_warnings(warnings: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Group warnings that say the same of several methods, but for the numbers; the first of a group speaks for it.

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


def _unreached(results: Results, metric: str) -> list[str]:
    """Name where soundness has no value: nothing kept has attribution, or a level of performance is not reached."""
    found, title = [], name_of(results, metric)
    curves = {name: method.metrics[metric] for name, method in results.methods.items() if metric in method.metrics}
    for name, curve in curves.items():
        if all(value is None for value in curve.values):
            found.append(f"{name}: {title} is not defined at any level, since nothing that is kept has attribution.")
    high = results.soundness_up_to.get(metric)
    if high is not None and performance_of(results, metric) == "accuracy" and high < results.accuracy:
        lowest = [name for name, curve in curves.items() if max(p for p in curve.performance if p is not None) == high]
        found.append(
            f"{_listed(lowest)} {'reaches' if len(lowest) == 1 else 'reach'} no predictive level above {high:.3f} (the "
            f"untouched inputs: {results.accuracy:.3f}), so the areas of {title} end there for all methods."
        )
    return found
