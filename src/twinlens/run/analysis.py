"""Analysis: curves, intervals, comparison and warnings from the probe tables of a run, without calling the model.

Every table is read once and every curve resampled once.

Shapes: N samples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from twinlens.run.results import CONFIDENCE, CurveResults, MethodResults, Results
from twinlens.run.stopping import find_stopping
from twinlens.run.table_reader import TableReader
from twinlens.run.wording import find_warnings
from twinlens.statistics.advice import Advice, advise
from twinlens.statistics.bootstrap import Area, bootstrap
from twinlens.statistics.comparison import compare_areas
from twinlens.statistics.diagnostics import Finding, diagnose, diagnose_ties
from twinlens.statistics.sequential import Looks
from twinlens.statistics.skill import skill
from twinlens.statistics.verdicts import Comparison
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate

_LIMIT = 0.9  # of the performance on the original inputs, which nearly all maps reach before the last levels


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodAnalysis:
    """Analysis of one method, without its probes."""

    results: MethodResults
    """Its entry in results.json."""
    areas: Mapping[str, Area]
    """Its area by each metric, for the comparison with other methods."""
    false_share: Floats | None
    """(N,) the share of each sample's attribution that was judged false in the end; None without soundness."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """Analysis of a run."""

    results: Results
    """The content of results.json."""
    comparison: Comparison | None
    """How the methods compare; None where nothing was compared."""
    pairs: str
    """The content of pairs.csv."""
    false_share: Mapping[str, Floats]
    """For each method with soundness, its `false_share`."""


def analyse(
    reader: TableReader,
    metrics: Mapping[str, Metric],
    settings: Settings,
    analysed: Mapping[str, MethodAnalysis] | None = None,
    hear: Callable[[str, MethodResults], object] | None = None,
) -> Analysis:
    """Compute the results of all methods whose maps are complete; others may have `analysed` some of them already.

    `hear` receives the name and the results of each method as soon as it is analysed.
    """
    done, methods = analysed or {}, dict[str, MethodAnalysis]()
    for name in (name for name in reader.manifest.methods if reader.complete(name)):
        methods[name] = done.get(name) or analyse_method(reader, name, metrics, settings)
        if hear is not None:
            hear(name, methods[name].results)
    return combine(reader, metrics, settings, methods)


def analyse_method(
    reader: TableReader, method: str, metrics: Mapping[str, Metric], settings: Settings
) -> MethodAnalysis:
    """Analyse one method, independently of the others."""
    limits = area_limits(metrics, reader.original)
    maps = reader.run.load_maps(method, 0, signed=True)
    curves = {
        name: _analyse_curve(reader, method, metric, settings, limits.get(name), len(maps))
        for name, metric in metrics.items()
        if reader.readable(method, metric.sweeps(reader.features))
    }
    reader.forget()
    names = [name for name, each in curves.items() if each.false_share is not None] or list(curves)[:1]
    if names and not metrics[names[0]].by_predictive_level:  # the paper's soundness, if any, is not the headline
        names = names[:1]
    judged = [curves[name] for name in names]
    return MethodAnalysis(
        results=MethodResults(
            baseline=reader.manifest.methods[method].method in BASELINES,
            sign=reader.manifest.methods[method].sign,
            metrics={name: each.results for name, each in curves.items()},
            diagnostics=_diagnostics(judged, maps) if judged else (),
            properties=reader.describe_maps(method),
        ),
        areas={name: each.area for name, each in curves.items()},
        false_share=judged[0].false_share if judged else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _CurveAnalysis:
    """Analysis of one curve of one method."""

    results: CurveResults
    area: Area
    findings: tuple[Finding, ...]
    head: ProbeTable
    """The probes of the first shard."""
    false_share: Floats | None
    """(N,) for soundness."""


def _analyse_curve(
    reader: TableReader, method: str, metric: Metric, settings: Settings, high: float | None, head: int
) -> _CurveAnalysis:
    """Describe a curve, its exchanged control and its skill.

    Skill is measured on the samples of the control. The control's area on all samples is estimated from the difference:
    area, control and skill add up.
    """
    curve, confidence = reader.curve(method, metric), reader.manifest.looks.confidence(CONFIDENCE)
    resampled = bootstrap(curve, resamples=settings.resamples)
    area = resampled.compared_area(confidence, high=high)
    low, upper = resampled.band(confidence)
    own_skill, control = _skill(reader, method, metric, settings, high), None
    if own_skill is not None and (value := area.estimate.value) is not None:
        sign, size = (1.0 if curve.higher_is_better else -1.0), own_skill.value
        control = Estimate(value=None if size is None else value - sign * size, samples=own_skill.samples)
    return _CurveAnalysis(
        results=CurveResults(
            area=area.estimate,
            control=control,
            skill=None if control is None else own_skill,
            levels=_numbers(curve.levels),
            performance=_numbers(curve.performance),
            values=_numbers(curve.values),
            low=_numbers(low),
            high=_numbers(upper),
        ),
        area=area,
        findings=diagnose(curve),
        head=curve.table.take(range(head)),
        false_share=curve.false_share,
    )


def combine(
    reader: TableReader, metrics: Mapping[str, Metric], settings: Settings, methods: Mapping[str, MethodAnalysis]
) -> Analysis:
    """Compare the methods, and collect the results of the run."""
    manifest = reader.manifest
    results = Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        settings=settings,
        accuracy=float(reader.original.correct.mean()) if reader.original.task == CLASSIFICATION else math.nan,
        quality=_quality(reader.original, manifest.model),
        soundness_up_to=area_limits(metrics, reader.original),
        methods={name: method.results for name, method in methods.items()},
        incomplete=reader.incomplete(metrics),
    )
    areas = {name: method.areas for name, method in methods.items()}
    compared = _compare(areas, metrics, results.never_best, manifest.looks)
    pairs = "" if compared is None else pairs_text(compared.pairs)
    if compared is not None:
        results = dataclasses.replace(
            results,
            ranking=compared.ranking,
            front=compared.pareto,
            pairs_digest=pairs_digest(pairs),
        )
    results = dataclasses.replace(
        results,
        advice=_advice(results, compared),
        warnings=tuple(find_warnings(results)),
        stopping=find_stopping(results, compared, manifest, headline(metrics)),
    )
    shares = {name: method.false_share for name, method in methods.items() if method.false_share is not None}
    return Analysis(results=results, comparison=compared, pairs=pairs, false_share=shares)


def _quality(untouched: ProbeTable, model: ModelRecord) -> dict[str, float]:
    """Return the quality of a regression model with nothing removed."""
    if untouched.task == CLASSIFICATION:
        return {}
    values = untouched.predicted[:, 0]
    if model.target is not None or np.ptp(untouched.labels) == 0:
        return {"mean score": float(values.mean())}
    error, spread = np.mean((values - untouched.labels) ** 2), np.var(untouched.labels)
    return {"R²": float(1 - error / spread)}


def area_limits(metrics: Mapping[str, Metric], untouched: ProbeTable) -> dict[str, float]:
    """Return, by metric, the predictive level up to which areas of the paper's soundness are taken.

    It is nine tenths of the performance on the original inputs, and does not depend on the compared methods.
    """
    limits = {}
    for name, metric in metrics.items():
        if metric.by_predictive_level:
            whole = measure(untouched, metric.performance, find_protocol(metric.protocol)).mean[0]
            if whole > 0:  # some measures start below zero
                limits[name] = float(_LIMIT * whole)
    return limits


def _skill(reader: TableReader, method: str, metric: Metric, settings: Settings, high: float | None) -> Estimate | None:
    """Compare a method's own maps with exchanged ones, on the samples probed with both."""
    sweeps = settings.exchanged(metric, reader.features)
    if settings.control == "none" or not reader.readable(method, sweeps):
        return None
    pair = (
        reader.curve(method, metric, ids=reader.controlled_ids(settings.control_share)),
        reader.curve(method, metric, sweeps),
    )
    looks, groups = reader.manifest.looks, reader.exchange_groups
    confidence, resamples = looks.confidence(CONFIDENCE), settings.resamples
    estimate = skill(*pair, confidence=confidence, high=high, resamples=resamples, groups=groups)
    return dataclasses.replace(estimate, p=None if estimate.p is None else looks.p_value(estimate.p))


def _compare(
    areas: Mapping[str, Mapping[str, Area]], metrics: Iterable[str], never_best: Collection[str], looks: Looks
) -> Comparison | None:
    """Compare the methods by the metrics that all of them have."""
    common = [metric for metric in metrics if areas and all(metric in own for own in areas.values())]
    if len(areas) < 2 or not common:
        return None
    by_metric = {metric: {name: own[metric] for name, own in areas.items()} for metric in common}
    return compare_areas(by_metric, confidence=CONFIDENCE, baselines=never_best, looks=looks)


def _advice(results: Results, compared: Comparison | None) -> dict[str, Advice]:
    """Return the advice by each headline metric."""
    advice = {}
    for metric in results.sides:
        curves = {name: each.metrics[metric] for name, each in results.methods.items() if metric in each.metrics}
        own = advise(
            {name: curve.area for name, curve in curves.items()},
            {name: curve.skill for name, curve in curves.items() if curve.skill is not None},
            [pair for pair in compared.pairs if pair.metric == metric] if compared else [],
            baselines=results.baselines,
            higher_is_better=results.about(metric).higher_is_better,
        )
        if own is not None:
            advice[metric] = own
    return advice


def _diagnostics(judged: Sequence[_CurveAnalysis], maps: torch.Tensor) -> tuple[Finding, ...]:
    """Collect the diagnostics of a method: those of its soundness curves, or else of its first curve.

    Zeros and ties are counted in the maps of the first shard, to keep memory small.
    """
    findings = [finding for each in judged for finding in each.findings]
    if not judged[0].head.settings.segmented:  # positions of a segment always share their value
        findings += diagnose_ties(judged[0].head, maps)
    # A finding of several curves is reported once, as a warning if it is one for any of them.
    last = {f.kind: f for f in sorted(findings, key=lambda finding: finding.message is not None)}
    kinds = dict.fromkeys(f.kind for f in findings)
    return tuple(dataclasses.replace(last[kind], value=_number(last[kind].value)) for kind in kinds)


def _numbers(array: Floats) -> tuple[float | None, ...]:
    return tuple(_number(value) for value in array.tolist())


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
