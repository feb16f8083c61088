"""Analysis: from the probe tables of a run to curves, intervals, comparison and warnings. No model is called.

Every table is read once and every curve resampled once, however many numbers come from it.

Shapes: N samples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from twinlens.attribution import BASELINES
from twinlens.metrics.catalogue import headline
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import measure
from twinlens.metrics.protocols import find_protocol
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.manifest import ModelRecord, Settings
from twinlens.run.pairs_table import pairs_digest, pairs_text
from twinlens.run.results import CONFIDENCE, ControlResults, CurveResults, Diagnostic, MethodResults, Results
from twinlens.run.stopping import find_stopping
from twinlens.run.table_reader import TableReader
from twinlens.run.wording import find_warnings
from twinlens.statistics.bootstrap import Bootstrap, Score, bootstrap
from twinlens.statistics.comparison import compare_scores
from twinlens.statistics.diagnostics import Finding, diagnose, diagnose_ties
from twinlens.statistics.sequential import Looks
from twinlens.statistics.skill import Skill, skill
from twinlens.statistics.verdicts import Comparison
from twinlens.support.arrays import Floats

_LIMIT = 0.9  # of the untouched inputs' performance, which nearly all maps reach before the last levels


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodAnalysis:
    """One method by itself. It is small, whatever the number of levels: probes are read and forgotten."""

    results: MethodResults
    """What results.json holds of it."""

    scores: Mapping[str, Score]
    """By metric, what the comparison with other methods needs."""

    false_share: Floats | None
    """(N,) the share of each sample's attribution that was judged false in the end; None without soundness."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What was found, and what was seen on the way."""

    results: Results
    """What results.json holds."""

    comparison: Comparison | None
    """How the methods compare; None where nothing was compared."""

    pairs: str
    """What pairs.csv holds; empty where nothing was compared."""

    false_share: Mapping[str, Floats]
    """(N,) of each method with soundness, the share of each sample's attribution that was judged false in the end."""


def analyse(
    reader: TableReader,
    metrics: Mapping[str, Metric],
    question: Settings,
    known: Mapping[str, MethodAnalysis] | None = None,
) -> Analysis:
    """Compute the results of all methods that have maps.

    Args:
        reader: of the run.
        metrics: by name, each with its imputer.
        question: the same metrics as they are stored, the control, and the number of resamples.
        known: methods that were analysed already, elsewhere.
    """
    known = known or {}
    names = [name for name in reader.manifest.methods if reader.complete(name)]
    methods = {name: known.get(name) or analyse_method(reader, name, metrics, question) for name in names}
    return combine(reader, metrics, question, methods)


def analyse_method(
    reader: TableReader, method: str, metrics: Mapping[str, Metric], question: Settings
) -> MethodAnalysis:
    """Compute what can be said of one method whatever the others are."""
    limits = area_limits(metrics, reader.original)
    maps = reader.run.load_maps(method, 0)
    found = {
        name: _analyse_curve(reader, method, metric, question, limits.get(name), len(maps))
        for name, metric in metrics.items()
        if reader.readable(method, metric.sweeps(reader.features))
    }
    reader.forget()
    judged = [each for each in found.values() if each.false_share is not None] or list(found.values())[:1]
    return MethodAnalysis(
        results=MethodResults(
            control=reader.manifest.methods[method].method in BASELINES,
            metrics={name: each.results for name, each in found.items()},
            diagnostics=_diagnostics(judged, maps) if judged else (),
            properties=reader.describe_maps(method),
        ),
        scores={name: each.score for name, each in found.items()},
        false_share=judged[0].false_share if judged else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurveAnalysis:
    """One curve of one method; its probes are forgotten."""

    results: CurveResults
    score: Score
    findings: tuple[Finding, ...]
    head: ProbeTable
    """The probes of the first samples."""
    false_share: Floats | None
    """(N,) for soundness."""


def _analyse_curve(
    reader: TableReader, method: str, metric: Metric, question: Settings, high: float | None, head: int
) -> _CurveAnalysis:
    curve = reader.curve(method, metric)
    drawn = bootstrap(curve, resamples=question.resamples)
    return _CurveAnalysis(
        results=_curve_results(drawn, high, _skill(reader, method, metric, question, high), reader.manifest.looks),
        score=drawn.score(high),
        findings=diagnose(curve),
        head=curve.table.take(range(head)),
        false_share=curve.false_share,
    )


def combine(
    reader: TableReader, metrics: Mapping[str, Metric], question: Settings, methods: Mapping[str, MethodAnalysis]
) -> Analysis:
    """Compare the methods, and put everything together."""
    manifest = reader.manifest
    results = Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        settings=question,
        accuracy=float(reader.original.correct.mean()) if reader.original.task == CLASSIFICATION else math.nan,
        quality=_quality(reader.original, manifest.model),
        soundness_up_to=area_limits(metrics, reader.original),
        methods={name: found.results for name, found in methods.items()},
        incomplete=reader.incomplete(metrics),
    )
    scores = {name: found.scores for name, found in methods.items()}
    compared = _compare(scores, metrics, results.beside, manifest.looks)
    pairs = "" if compared is None else pairs_text(compared.pairs)
    if compared is not None:
        results = dataclasses.replace(
            results,
            ranking=compared.standings,
            rivals={metric: _rivals(results, metric, compared) for metric in {p.metric: None for p in compared.pairs}},
            front=compared.pareto,
            pairs_digest=pairs_digest(pairs),
        )
    results = dataclasses.replace(
        results,
        warnings=tuple(find_warnings(results)),
        stopping=find_stopping(results, compared, manifest, headline(metrics)),
    )
    shares = {name: found.false_share for name, found in methods.items() if found.false_share is not None}
    return Analysis(results=results, comparison=compared, pairs=pairs, false_share=shares)


def _quality(untouched: ProbeTable, model: ModelRecord) -> dict[str, float]:
    """Return how well a regression model does with nothing removed."""
    if untouched.task == CLASSIFICATION:
        return {}
    values = untouched.predicted[:, 0]
    if model.target is not None or np.ptp(untouched.labels) == 0:
        return {"mean score": float(values.mean())}
    error, spread = np.mean((values - untouched.labels) ** 2), np.var(untouched.labels)
    return {"R²": float(1 - error / spread)}


def area_limits(metrics: Mapping[str, Metric], untouched: ProbeTable) -> dict[str, float]:
    """Return, by metric, the predictive level up to which areas of the paper's soundness are taken.

    It comes from the model and the data alone, so that a method's number is the same whatever it is compared with:
    nine tenths of the performance on the untouched inputs.
    """
    limits = {}
    for name, metric in metrics.items():
        if metric.by_predictive_level:
            whole = measure(untouched, metric.performance, find_protocol(metric.protocol)).mean[0]
            if whole > 0:  # measures that start below zero have no such range
                limits[name] = float(_LIMIT * whole)
    return limits


def _skill(reader: TableReader, method: str, metric: Metric, question: Settings, high: float | None) -> Skill | None:
    """Compare a method's own maps with exchanged ones, on the samples that were probed by both."""
    sweeps = question.exchanged(metric, reader.features)
    if question.control == "none" or not reader.readable(method, sweeps):
        return None
    pair = (
        reader.curve(method, metric, ids=reader.controlled_ids(question.control_share)),
        reader.curve(method, metric, sweeps),
    )
    confidence = reader.manifest.looks.confidence(CONFIDENCE)
    return skill(*pair, confidence=confidence, high=high, resamples=question.resamples)


def _compare(
    scores: Mapping[str, Mapping[str, Score]], metrics: Iterable[str], beside: Collection[str], looks: Looks
) -> Comparison | None:
    """Compare the methods by the metrics that all of them have; those beside the others are never on the front."""
    common = [metric for metric in metrics if scores and all(metric in own for own in scores.values())]
    if len(scores) < 2 or not common:
        return None
    chosen = {metric: {name: own[metric] for name, own in scores.items()} for metric in common}
    return compare_scores(chosen, confidence=CONFIDENCE, controls=beside, looks=looks)


def _rivals(results: Results, metric: str, compared: Comparison) -> tuple[str, ...]:
    """List the methods that may be called best, and that the one with the best area is not clear of."""
    best = results.highest(metric)
    open_pairs = [pair for pair in compared.pairs if pair.metric == metric and not pair.decided]
    close = {name for pair in open_pairs if best in (pair.first, pair.second) for name in (pair.first, pair.second)}
    return tuple(name for name in results.candidates(metric) if name in close - {best})


def _curve_results(drawn: Bootstrap, high: float | None, skill: Skill | None, looks: Looks) -> CurveResults:
    curve, confidence = drawn.curve, looks.confidence(CONFIDENCE)
    low, upper = drawn.interval(confidence)
    area = drawn.area_interval(confidence, high=high)
    better = curve.higher_is_better
    return CurveResults(
        area=_number(area.value),
        area_interval=None if math.isnan(area.low) or math.isnan(area.high) else (area.low, area.high),
        control=None if skill is None or area.value is None else _control(area.value, skill, better, looks),
        levels=_numbers(curve.levels),
        performance=_numbers(curve.performance),
        values=_numbers(curve.values),
        low=_numbers(low),
        high=_numbers(upper),
    )


def _control(area: float, skill: Skill, higher_is_better: bool, looks: Looks) -> ControlResults:
    """Describe the control of a curve.

    Skill is measured on the samples of the control; what the exchanged maps score on all samples is estimated by the
    difference, so that value, control and skill of a table add up.
    """
    return ControlResults(
        value=_number(area - skill.value if higher_is_better else area + skill.value),
        skill=_number(skill.value),
        low=_number(skill.low),
        high=_number(skill.high),
        p=_number(looks.p_value(skill.p_value)),
        samples=skill.samples,
    )


def _diagnostics(judged: Sequence[_CurveAnalysis], maps: torch.Tensor) -> tuple[Diagnostic, ...]:
    """Collect what speaks against a method's results, in every curve of soundness where there is one.

    Zeros and ties are counted in the maps of the first shard, so that the maps of all samples are never in memory at
    once.
    """
    findings = [finding for each in judged for finding in each.findings]
    if not judged[0].head.settings.segmented:  # whose places share their value with others by nature
        findings += diagnose_ties(judged[0].head, maps)
    # What several curves have found is reported once, as a warning if it is one for any of them.
    found = {f.kind: f for f in sorted(findings, key=lambda finding: finding.message is not None)}
    kinds = dict.fromkeys(f.kind for f in findings)
    return tuple(Diagnostic(kind=k, value=_number(found[k].value), message=found[k].message) for k in kinds)


def _numbers(array: Floats) -> tuple[float | None, ...]:
    return tuple(_number(value) for value in array.tolist())


def _number(value: float | None) -> float | None:
    """Return None for what is undefined, since JSON has no NaN."""
    return None if value is None or math.isnan(value) else float(value)
