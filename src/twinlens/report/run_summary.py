"""What the page says about a run, as plain values that go into it as JSON.

Numbers come from the results as they are; nothing is computed here but sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from twinlens.core.fields import JSON, to_json
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import Soundness
from twinlens.running.checks import Check
from twinlens.running.results import CurveResults, Results, StoppingResults
from twinlens.running.run_reader import Evaluation, run_labels
from twinlens.running.side_columns import side_columns
from twinlens.running.wording import describe_stopping, find_headlines, group_warnings, name_of, performance_of
from twinlens.statistics.contrasts import RunComparison

_LONGEST = 60  # signs of a setting that the page prints
_COMPARED = 16  # methods of which the page compares every pair in words


def describe_runs(evaluations: Sequence[Evaluation]) -> list[dict[str, JSON]]:
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


def describe_run(evaluation: Evaluation, label: str) -> dict[str, JSON]:
    """Describe what the page shows of one run."""
    results, seconds, compared = evaluation.results, evaluation.seconds(), evaluation.comparison()
    warnings = group_warnings([*evaluation.notes, *results.warnings], evaluation.methods)
    return {
        "name": label,
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "quality": results.describe_quality(),
        "facts": to_json(_facts(evaluation)),
        "warnings": to_json(warnings),
        "headlines": to_json(find_headlines(results)),
        "verdicts": to_json(compared.among(results.best_first()[:_COMPARED]).verdicts if compared else ()),
        "comparisons": math.comb(len(evaluation.methods), 2),
        "metrics": [_metric(results, name) for name in evaluation.metrics],
        "methods": [_method(results, name, seconds.get(name)) for name in results.best_first()],
        "beside": to_json(side_columns(evaluation)),
        "sides": to_json(results.sides),
        "plane": [results.first_of(Soundness), results.first_of(Completeness)],
        "front": to_json(list(results.front)),
        "frontShares": to_json(results.front),
        "confidence": results.confidence,
        "resamples": results.question.resamples,
        "checks": [_check(check, results) for check in evaluation.checks().values()],
    }


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
        "best": results.best(name),
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
        "metrics": {
            metric: {**_curve(curve, ranks.get(metric)), "knows": results.knows(name, metric)}
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


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
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
        *([("Protocol", _asked(results))] if results.question.metrics else []),
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


def _calls(evaluation: Evaluation) -> str:
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
