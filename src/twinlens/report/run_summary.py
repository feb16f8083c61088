"""The content of the page about a run, as JSON. Numbers are copied from the results; only sentences are made here."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from twinlens.report.method_summary import describe_method, show_setting
from twinlens.report.plane import plane_of, tradeoff_of
from twinlens.report.results_table import (
    ResultsTable,
    check_steps_table,
    check_table,
    describe_samples_of,
    differences_table,
    results_table,
)
from twinlens.run.check_records import Check
from twinlens.run.results import CurveResults, Results, StoppingResults
from twinlens.run.stored_run import StoredRun
from twinlens.run.wording import (
    describe_power,
    describe_stopping,
    group_warnings,
    name_of,
    performance_of,
    settings_of,
    split_headlines,
)
from twinlens.statistics.contrasts import RunComparison, RunPair
from twinlens.statistics.verdicts import Comparison
from twinlens.support.fields import JSON, fields_of, to_json

_COMPARED = 16  # methods whose pairs are compared in words


def describe_comparison(comparison: RunComparison, evaluations: Sequence[StoredRun]) -> dict[str, JSON]:
    """Return the content about the differences between runs, with one table per pair of runs."""
    groups: dict[tuple[str, str], list[RunPair]] = {}
    for pair in comparison.pairs:
        groups.setdefault((pair.first, pair.second), []).append(pair)
    runs = [evaluation.results for evaluation in evaluations]
    sides = {metric for results in runs for metric in results.sides}
    return {
        "confidence": comparison.confidence,
        "tables": [
            {
                "title": f"{first} − {second}",
                "note": describe_samples_of(next((p for p in pairs if p.quantity == "area"), pairs[0])),
                "table": _with_headlines(differences_table(pairs, runs), sides),
            }
            for (first, second), pairs in groups.items()
        ],
        "verdicts": to_json(comparison.verdicts),
        "notes": to_json(comparison.notes),
    }


def describe_run(evaluation: StoredRun, label: str) -> dict[str, JSON]:
    """Return the content about one run."""
    results, compared, seconds = evaluation.results, evaluation.comparison(), evaluation.seconds()
    advised, others = split_headlines(results)
    return {
        "name": label,
        "query": evaluation.query,
        "model": results.model.name,
        "data": results.data.name,
        "samples": results.data.samples,
        "quality": results.describe_quality(),
        "facts": to_json(_facts(evaluation)),
        "warnings": _grouped_warnings(evaluation),
        "headlines": to_json(advised),
        "remarks": [*others, *_certainty(results, compared)],
        "verdicts": to_json(compared.among(results.best_first()[:_COMPARED]).verdicts if compared else ()),
        "comparisons": math.comb(len(evaluation.methods), 2),
        "metrics": [_metric(results, name) for name in evaluation.metrics],
        "methods": [
            {**_method(results, name), "about": describe_method(evaluation, name, seconds)}
            for name in results.best_first()
        ],
        "table": _table(evaluation, label),
        "terms": _terms(results),
        "plane": to_json(plane_of(results)),
        "tradeoff": to_json(tradeoff_of(results)),
        "missing": [side for side in ("soundness", "completeness") if results.first_of(side) is None],
        "confidence": results.confidence,
        "resamples": results.settings.resamples,
        "checks": [_check(check, results) for check in evaluation.checks().values()],
    }


def _table(evaluation: StoredRun, label: str) -> dict[str, JSON]:
    """Return the table of a run, with the settings that each column depends on."""
    results, table = evaluation.results, results_table([evaluation], [label])
    settings = {name: settings_of(results, name) for name in evaluation.metrics}
    return _with_headlines(table, results.sides, settings)


def _with_headlines(
    table: ResultsTable, sides: Collection[str], settings: Mapping[str, str] | None = None
) -> dict[str, JSON]:
    """Return a table whose headline columns are marked: the areas and the skill of these metrics."""
    shown = {key for side in sides for key in (side, f"{side}_skill")}
    columns: list[JSON] = [
        {**fields, "headline": column.key in shown, "settings": (settings or {}).get(column.key)}
        for column, fields in ((column, to_json(column)) for column in table.columns)
    ]
    return {"columns": columns, "rows": to_json(table.rows)}


def _grouped_warnings(evaluation: StoredRun) -> list[JSON]:
    """Return a line for each kind of warning, and its texts."""
    groups = group_warnings(evaluation.results, evaluation.notes)
    return [{"line": group.line, "texts": to_json(group.texts)} for group in groups]


def _certainty(results: Results, compared: Comparison | None) -> list[JSON]:
    """Return why measuring stopped, and how small a difference the samples can show."""
    stopping = [] if results.stopping is None else [describe_stopping(results.stopping)]
    power = describe_power(results, compared)
    return [*stopping, *([] if power is None else [power])]


def _terms(results: Results) -> list[JSON]:
    """Explain skill and the exchanged control, where they were measured."""
    if not any(map(results.with_skill, results.settings.metrics)):
        return []
    [skill] = [field.help for field in fields_of(CurveResults) if field.name == "skill"]
    control = (
        "The value of the same maps exchanged between the samples, which is the value of own maps less their skill."
    )
    return [["exchanged control", control], ["skill", skill]]


def _metric(results: Results, name: str) -> dict[str, JSON]:
    about, measure = results.about(name), performance_of(results, name)
    x, y = about.axes(measure)
    return {
        "key": name,
        "name": name_of(results, name),
        "title": about.title,
        "heading": about.short,
        "summary": about.summary,
        "meaning": [*about.reading(measure), *_limit(results, name)],
        "settings": settings_of(results, name),
        "folded": name not in _first_charts(results),
        "stairs": about.stairs,
        "decreasing": about.decreasing,
        "x": x,
        "y": y,
    }


def _first_charts(results: Results) -> list[str]:
    """Return the metrics whose charts come first: the headline pair and calibration, or all where a run has neither."""
    metrics = results.settings.metrics
    first = [name for name in metrics if name in results.sides or results.kind(name).name == "calibration"]
    return first or list(metrics)


def _limit(results: Results, metric: str) -> list[str]:
    """Return up to which predictive level soundness is measured, where it has one."""
    high = results.soundness_up_to.get(metric)
    why = f"nine tenths of the {performance_of(results, metric)} with nothing removed"
    return [] if high is None else [f"Here they go up to {high:.3f}, {why}."]


def _method(results: Results, name: str) -> dict[str, JSON]:
    """Return the curves of a method; its areas are in the table."""
    columns = ("levels", "performance", "values", "low", "high")
    return {
        "name": name,
        "metrics": {
            metric: {column: to_json(getattr(curve, column)) for column in columns}
            for metric, curve in results.methods[name].metrics.items()
        },
    }


def _check(check: Check, results: Results) -> dict[str, JSON]:
    """Return the content about a check: its text, its table, and its steps for each method."""
    options = ", ".join(
        f"{name.replace('_', ' ')} {show_setting(value)}" for name, value in check.options.items() if value
    )
    ordered = results.best_first() if check.rows == "method" else check.methods
    methods = [name for name in ordered if name in check.methods]
    return {
        "name": check.name,
        "title": check.title,
        "question": check.question,
        "source": check.source,
        "reading": check.reading,
        "line": check.line,
        "rows": check.rows,
        "options": f"{check.samples} samples" + (f"; {options}" if options else ""),
        "table": to_json(check_table(check, methods)),
        "stepTable": None if check.ordered else to_json(check_steps_table(check)),
        "stepTitle": check.step_title,
        "courseTitle": check.course_title,
        "steps": to_json(check.steps),
        "notes": to_json(check.notes),
        "methods": [{"name": name, "course": to_json(check.methods[name].course)} for name in methods],
    }


def _facts(evaluation: StoredRun) -> list[tuple[str, str]]:
    """Return the settings of the run, as pairs of a heading and a text."""
    results, data = evaluation.results, evaluation.results.data
    skipped = f", {len(data.skipped)} skipped" if data.skipped else ""
    written = datetime.now(UTC) if evaluation.file is None else _written(evaluation.file)
    versions = evaluation.run.manifest.versions.items()
    identity = f"weights {results.model.digest[:8]}, data {data.digest[:8]}, seed {results.seed}"
    return [
        *([] if evaluation.query is None else [("Query", evaluation.query)]),
        ("Samples", f"{data.samples:,}{skipped}"),
        *([("Until", _stopping(results.stopping))] if results.stopping else []),
        *((name.capitalize(), f"{value} with nothing removed") for name, value in results.qualities()),
        *([("Features", f"segments, {data.segments}")] if data.segments else []),
        *([("Features", "channels of positions")] if data.feature_kind == "channels" and not data.segments else []),
        *([("Protocol", _protocols(results))] if results.settings.metrics else []),
        ("Imputation", _imputation(results)),
        ("Model calls", _calls(evaluation)),
        ("Date", f"{written.day} {written:%B %Y}, {written:%H:%M} UTC"),
        ("Versions", ", ".join(f"{package} {version}" for package, version in versions)),
        ("Identity", identity),
    ]


def _written(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _stopping(stopping: StoppingResults) -> str:
    return (
        f"{describe_stopping(stopping)} Intervals hold simultaneously for all looks: each has a confidence of "
        f"{stopping.confidence:.1%}, and {stopping.spent:.1%} of the 5% are spent."
    )


def _calls(evaluation: StoredRun) -> str:
    """Return how the model was called, and how well other precisions agreed with float32."""
    record = evaluation.run.manifest.execution
    precision = f"{record.precision}, compiled" if record.compiled else record.precision
    trials = "; ".join(trial.describe() for trial in record.trials)
    return f"{precision}, {record.batch_size} inputs each" + (f". Tried: {trials}" if trials else "")


def _protocols(results: Results) -> str:
    """Return protocol, performance and epsilon of soundness, and those of other metrics where they differ."""
    metrics, texts = results.settings.metrics, dict[str, list[str]]()
    for name in sorted(metrics, key=lambda name: "epsilon" not in metrics[name]):
        protocol, estimator = metrics[name]["protocol"], metrics[name].get("estimator")
        text = f"{protocol['name'] if isinstance(protocol, dict) else protocol}, by {performance_of(results, name)}"
        if not results.kind(name).needs_performance:
            text = f"{metrics[name]['steps']} steps, by log-odds"
        elif "epsilon" in metrics[name]:
            text += f", ε = {metrics[name]['epsilon']:g}"
            start = metrics[name].get("start_level")
            text += "" if start is None else f", judged above {start:g}"
            text += "" if estimator == "paper" else f", {str(estimator).replace('_', '-')}"
        elif any(other.startswith(f"{text}, ε") for other in texts):
            continue
        texts.setdefault(text, []).append(name_of(results, name))
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in texts.items())


def _imputation(results: Results) -> str:
    """Return the run's imputer, and those of metrics with another one."""
    main = dict(results.settings.imputer)
    others: dict[str, list[str]] = {}
    for name, metric in results.settings.metrics.items():
        if isinstance(own := metric["imputer"], dict) and own != main:
            others.setdefault(_imputer(own), []).append(name_of(results, name))
    return "; ".join([_imputer(main), *(f"{', '.join(names)}: {text}" for text, names in others.items())])


def _imputer(described: Mapping[str, JSON]) -> str:
    settings = [f"{key} {show_setting(value)}" for key, value in described.items() if key not in ("name", "source")]
    return str(described["name"]) + (f" ({', '.join(settings)})" if settings else "")
