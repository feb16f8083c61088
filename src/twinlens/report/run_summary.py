"""What the page says about a run, as plain values that go into it as JSON.

Numbers come from the results as they are; nothing is computed here but sentences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from twinlens.metrics.performance import is_share
from twinlens.run.check_records import Check
from twinlens.run.results import ControlResults, CurveResults, Results, StoppingResults
from twinlens.run.side_columns import side_columns
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import (
    describe_stopping,
    find_headlines,
    group_warnings,
    listed,
    name_of,
    performance_of,
)
from twinlens.statistics.contrasts import RunComparison
from twinlens.support.fields import JSON, fields_of, to_json

_LONGEST = 60  # signs of a setting that the page prints
_NAMED = 3  # methods that a line names; of more it says how many they are
_COMPARED = 16  # methods of which the page compares every pair in words


def describe_runs(evaluations: Sequence[StoredRun]) -> list[dict[str, JSON]]:
    """Describe what the page shows of each run, all but the sample explorer."""
    labels = run_labels(evaluations)
    return [describe_run(evaluation, label) for evaluation, label in zip(evaluations, labels, strict=True)]


def describe_comparison(comparison: RunComparison) -> dict[str, JSON]:
    """Describe what the page shows of the differences between runs."""
    return {
        "confidence": comparison.confidence,
        "pairs": [{**to_json(pair), "decided": pair.decided} for pair in comparison.pairs],
        "verdicts": to_json(comparison.verdicts),
        "notes": to_json(comparison.notes),
    }


def describe_run(evaluation: StoredRun, label: str) -> dict[str, JSON]:
    """Describe what the page shows of one run."""
    results, seconds, compared = evaluation.results, evaluation.seconds(), evaluation.comparison()
    return {
        "name": label,
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "quality": results.describe_quality(),
        "facts": to_json(_facts(evaluation)),
        "warnings": _warnings(evaluation),
        "headlines": to_json(find_headlines(results)),
        "verdicts": to_json(compared.among(results.best_first()[:_COMPARED]).verdicts if compared else ()),
        "comparisons": math.comb(len(evaluation.methods), 2),
        "metrics": [_metric(results, name) for name in evaluation.metrics],
        "methods": [_method(results, name, seconds.get(name)) for name in results.best_first()],
        "beside": to_json(side_columns(evaluation)),
        "terms": _terms(results),
        "sides": to_json(results.sides),
        "plane": [results.first_of("soundness"), results.first_of("completeness")],
        "front": to_json(list(results.front)),
        "frontShares": to_json(results.front),
        "confidence": results.confidence,
        "resamples": results.settings.resamples,
        "checks": [_check(check, results) for check in evaluation.checks().values()],
    }


def _warnings(evaluation: StoredRun) -> list[JSON]:
    """Group warnings: a line for each group, and what stands behind it; diagnostics go by their kind."""
    results = evaluation.results
    kinds = {f"{name}: {d.message}": d.kind for name, m in results.methods.items() for d in m.diagnostics if d.message}
    groups: dict[str, list[str]] = {}
    for alike in group_warnings([*evaluation.notes, *results.warnings], evaluation.methods):
        groups.setdefault(kinds.get(alike[0], alike[0]), []).extend(alike)
    return [
        {"line": _warning_line(title, texts, evaluation.methods), "texts": to_json(texts)}
        for title, texts in groups.items()
    ]


def _warning_line(title: str, texts: Sequence[str], methods: Sequence[str]) -> str:
    """Say in a line what a group of warnings is about.

    Example:
        >>> _warning_line("noisy decisions", ["a: In 26% …", "b: In 3% …"], ["a", "b", "c"])
        'Noisy decisions: a and b'
        >>> _warning_line("a: 3 are odd. Mind.", ["a: 3 are odd. Mind.", "b: 4 are odd. Mind."], ["a", "b"])
        'a: 3 are odd (and 1 alike)'
    """
    names = [name for text in texts if (name := text.partition(": ")[0]) in methods]
    if title not in texts:
        many = len(names) > _NAMED
        return f"{title.capitalize()}: {f'{len(names)} of {len(methods)} methods' if many else listed(names)}"
    # Not at the colon after a method's name, which may hold one itself.
    start = len(names[0]) + 2 if names else 0
    end = re.search(r"[.:;]\s|, (of which|though)", title[start:])
    alike = f" (and {len(texts) - 1} alike)" if len(texts) > 1 else ""
    return (title if end is None else title[: start + end.start()]) + alike


def _terms(results: Results) -> list[JSON]:
    """Explain skill and what it is measured against, where it was measured."""
    if not any(results.control(method, metric) for method in results.methods for metric in results.settings.metrics):
        return []
    names = {"value": "exchanged maps (control)", "skill": "skill"}
    return [[names[field.name], field.help] for field in fields_of(ControlResults) if field.name in names]


def _metric(results: Results, name: str) -> dict[str, JSON]:
    about, measure = results.about(name), performance_of(results, name)
    x, y = about.axes(measure)
    return {
        "key": name,
        "name": name_of(results, name),
        "title": about.title,
        "heading": about.short,
        "summary": about.summary,
        "meaning": [*about.reading(measure), *_limits(results, name)],
        "higherIsBetter": about.higher_is_better,
        "best": results.best(name),
        "stairs": about.stairs,
        "inverse": about.decreasing,
        "x": x,
        "y": y,
    }


def _limits(results: Results, metric: str) -> list[str]:
    """Say how large a number of this run can be; nothing where it is a share, or where there is no curve."""
    measure = performance_of(results, metric)
    if results.about(metric).side == "soundness":
        high = results.soundness_up_to.get(metric)
        why = f"nine tenths of the {measure} with nothing removed"
        return [] if high is None else [f"Here they go up to {high:.3f}, {why}."]
    curves = [found.metrics[metric] for found in results.methods.values() if metric in found.metrics]
    untouched = (
        value + performance
        for curve in curves
        for value, performance in zip(curve.values, curve.performance, strict=True)
        if value is not None and performance is not None
    )
    whole = next(untouched, None)
    if whole is None:
        return []
    if is_share(measure):
        return [f"Here it is at most {whole:z.3f}, the {measure} with nothing removed."]
    return [f"There is no upper end: the {measure} is {whole:z.3f} with nothing removed, and may fall below 0."]


def _method(results: Results, name: str, seconds: float | None) -> dict[str, JSON]:
    found = results.methods[name]
    ranks = {row.metric: [row.best_rank, row.worst_rank] for row in results.ranking if row.method == name}
    return {
        "name": name,
        "control": found.control,
        "seconds": seconds,
        "metrics": {
            metric: {
                **_curve(curve, ranks.get(metric)),
                "direction": curve.control.direction if curve.control else None,
            }
            for metric, curve in found.metrics.items()
        },
    }


def _curve(curve: CurveResults, ranks: list[int] | None) -> dict[str, JSON]:
    stored: dict[str, JSON] = to_json(curve)
    return {"area": stored.pop("area"), "interval": stored.pop("area_interval"), "ranks": to_json(ranks), **stored}


def _check(check: Check, results: Results) -> dict[str, JSON]:
    """Describe a check: of the methods that the page knows, the best first, and its options in a line."""
    asked = ", ".join(f"{name.replace('_', ' ')} {_setting(value)}" for name, value in check.options.items() if value)
    return {
        "name": check.name,
        "title": check.title,
        "question": check.question,
        "source": check.source,
        "reading": check.reading,
        "options": f"{check.samples} samples" + (f"; {asked}" if asked else ""),
        "columns": [column.heading for column in check.columns],
        "stepTitle": check.step_title,
        "courseTitle": check.course_title,
        "steps": to_json(check.steps),
        "samples": check.samples,
        "notes": to_json(check.notes),
        "methods": [
            {"name": name, **to_json(check.methods[name])} for name in results.best_first() if name in check.methods
        ],
    }


def _facts(evaluation: StoredRun) -> list[tuple[str, str]]:
    """List what was evaluated, as pairs of a heading and a text."""
    results, data = evaluation.results, evaluation.results.data
    skipped = f", {len(data.skipped)} left out" if data.skipped else ""
    written = datetime.fromtimestamp((evaluation.path / "results.json").stat().st_mtime, UTC)
    versions = evaluation.run.manifest.versions.items()
    identity = f"weights {results.model.digest[:8]}, data {data.digest[:8]}, seed {results.seed}"
    return [
        ("Samples", f"{data.samples:,}{skipped}"),
        *([("Until", _stopping(results.stopping))] if results.stopping else []),
        *((name.capitalize(), f"{value} with nothing removed") for name, value in results.qualities()),
        *([("Features", f"segments, {data.segments}")] if data.segments else []),
        *([("Protocol", _asked(results))] if results.settings.metrics else []),
        ("Imputation", _imputation(results)),
        ("Model calls", _calls(evaluation)),
        ("Date", f"{written.day} {written:%B %Y}, {written:%H:%M} UTC"),
        ("Versions", ", ".join(f"{package} {version}" for package, version in versions)),
        ("Identity", identity),
    ]


def _stopping(found: StoppingResults) -> str:
    """Say why no more samples were drawn, and what was paid for looking several times."""
    return (
        f"{describe_stopping(found)} Intervals of all looks hold at once: each is one of {found.confidence:.1%}, and "
        f"{found.spent:.1%} of the 5% are spent."
    )


def _calls(evaluation: StoredRun) -> str:
    """Say how the model was called, and how well other precisions agreed with float32."""
    record = evaluation.run.manifest.execution
    how = f"{record.precision}, compiled" if record.compiled else record.precision
    trials = "; ".join(trial.describe() for trial in record.trials)
    return f"{how}, {record.batch_size} inputs each" + (f". Tried: {trials}" if trials else "")


def _asked(results: Results) -> str:
    """Say by which protocol, performance and epsilon was measured; of other metrics only what soundness does not say.

    Names of metrics are left out where one text holds for all.
    """
    texts: dict[str, list[str]] = {}
    sound = [name for name in results.settings.metrics if results.about(name).side == "soundness"]
    for name in sound:
        texts.setdefault(_fine_print(results, name) + _judging(results.settings.metrics[name]), []).append(name)
    said = {_fine_print(results, name) for name in sound}
    for name in results.settings.metrics:
        if (text := _fine_print(results, name)) not in said:
            texts.setdefault(text, []).append(name)
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{', '.join(name_of(results, name) for name in names)}: {text}" for text, names in texts.items())


def _fine_print(results: Results, metric: str) -> str:
    protocol = results.settings.metrics[metric]["protocol"]
    return f"{protocol['name'] if isinstance(protocol, dict) else protocol}, by {performance_of(results, metric)}"


def _judging(soundness: Mapping[str, JSON]) -> str:
    estimator = "" if soundness["estimator"] == "paper" else f", {str(soundness['estimator']).replace('_', '-')}"
    return f", ε = {soundness['epsilon']:g}{estimator}"


def _imputation(results: Results) -> str:
    """Name the run's imputer, and those of metrics with another one."""
    main = dict(results.settings.imputer)
    others: dict[str, list[str]] = {}
    for name, metric in results.settings.metrics.items():
        if isinstance(own := metric["imputer"], dict) and own != main:
            others.setdefault(_imputer(own), []).append(name_of(results, name))
    return "; ".join([_imputer(main), *(f"{', '.join(names)}: {text}" for text, names in others.items())])


def _imputer(described: Mapping[str, JSON]) -> str:
    settings = [f"{key} {_setting(value)}" for key, value in described.items() if key not in ("name", "source")]
    return str(described["name"]) + (f" ({', '.join(settings)})" if settings else "")


def _setting(value: JSON) -> str:
    text = ", ".join(map(_setting, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
