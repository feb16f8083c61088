"""Analysis: from the probe tables of a run to curves, intervals, comparison and warnings. No model is called.

Every table is read once and every curve resampled once, however many numbers come from it.

Shapes: N samples.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from twinlens.attribution import CONTROLS
from twinlens.core.arrays import Floats
from twinlens.core.probe_table import ProbeTable
from twinlens.metrics.catalogue import Metric
from twinlens.metrics.performance import measure
from twinlens.metrics.protocols import find_protocol
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.running.manifest import Question
from twinlens.running.results import CONFIDENCE, ControlResults, CurveResults, Diagnostic, MethodResults, Results
from twinlens.running.table_reader import TableReader
from twinlens.running.wording import find_warnings
from twinlens.statistics.bootstrap import Bootstrap, bootstrap
from twinlens.statistics.comparison import compare_bootstraps
from twinlens.statistics.controls import Skill, skill
from twinlens.statistics.diagnostics import diagnose, diagnose_ties
from twinlens.statistics.verdicts import Comparison

_LIMIT = 0.9  # of the untouched inputs' performance, which nearly all maps reach before the last levels


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What was found, and what was seen on the way."""

    results: Results
    """What results.json holds."""

    false_share: Mapping[str, Floats]
    """(N,) of each method with soundness, the share of each sample's attribution that was judged false in the end."""


def analyse(reader: TableReader, metrics: Mapping[str, Metric], question: Question) -> Analysis:
    """Compute the results of all methods that have maps.

    Args:
        reader: of the run.
        metrics: by name, each with its imputer.
        question: the same metrics as they are stored, the control, and the number of resamples.
    """
    manifest, limits = reader.manifest, area_limits(metrics, reader.untouched)
    drawn: dict[str, dict[str, Bootstrap]] = {}
    skills: dict[str, dict[str, Skill]] = {}
    for method in (name for name in manifest.methods if reader.complete(name)):
        readable = {
            name: metric for name, metric in metrics.items() if reader.readable(method, metric.sweeps(reader.features))
        }
        curves = {name: reader.curve(method, metric) for name, metric in readable.items()}
        drawn[method] = {name: bootstrap(curve, resamples=question.resamples) for name, curve in curves.items()}
        skills[method] = {
            name: found
            for name, metric in readable.items()
            if (found := _skill(reader, method, metric, question, limits.get(name))) is not None
        }
        reader.forget()
    controls = frozenset(name for name in drawn if manifest.methods[name].method in CONTROLS)
    compared = _compare(drawn, list(metrics), limits, {*controls, *_without_skill(skills, metrics)})
    methods = {
        name: MethodResults(
            control=name in controls,
            metrics={
                metric: _curve_results(each, limits.get(metric), skills[name].get(metric))
                for metric, each in own.items()
            },
            diagnostics=_diagnostics(own, reader.run.load_maps(name, 0)) if own else (),
        )
        for name, own in drawn.items()
    }
    results = Results(
        model=manifest.model,
        data=manifest.data,
        seed=manifest.seed,
        question=question,
        accuracy=float(reader.untouched.correct.mean()),
        soundness_up_to=limits,
        methods=methods,
        incomplete=reader.incomplete(metrics),
        warnings=(),
        ranking=compared.standings if compared else (),
        pairs=compared.pairs if compared else (),
        front=compared.pareto if compared else {},
        verdicts=compared.verdicts if compared else (),
    )
    results = dataclasses.replace(results, warnings=tuple(find_warnings(results)))
    return Analysis(results=results, false_share={name: _false_share(own) for name, own in drawn.items() if own})


def area_limits(metrics: Mapping[str, Metric], untouched: ProbeTable) -> dict[str, float]:
    """Return, by metric, the predictive level up to which areas of the paper's soundness are taken.

    It comes from the model and the data alone, so that a method's number is the same whatever it is compared with:
    nine tenths of the performance on the untouched inputs.
    """
    limits = {}
    for name, metric in metrics.items():
        if isinstance(metric, Soundness) and metric.estimator == "paper":
            whole = measure(untouched, metric.performance, find_protocol(metric.protocol)).mean[0]
            if whole > 0:  # measures that start below zero have no such range
                limits[name] = float(_LIMIT * whole)
    return limits


def _skill(reader: TableReader, method: str, metric: Metric, question: Question, high: float | None) -> Skill | None:
    """Compare a method's own maps with exchanged ones, on the samples that were probed by both."""
    sweeps = question.exchanged(metric, reader.features)
    if question.control == "none" or not reader.readable(method, sweeps):
        return None
    pair = (
        reader.part(method, metric, reader.controlled(question.control_share)),
        reader.curve(method, metric, sweeps),
    )
    return skill(*pair, confidence=CONFIDENCE, high=high, resamples=question.resamples)


def _without_skill(skills: Mapping[str, Mapping[str, Skill]], metrics: Mapping[str, Metric]) -> list[str]:
    """List the methods that know nothing of the input: by no metric of either side do own maps beat exchanged ones."""
    ends = {
        method: [s.low for name, s in own.items() if isinstance(metrics[name], Soundness | Completeness)]
        for method, own in skills.items()
    }
    known = {method: [low for low in each if math.isfinite(low)] for method, each in ends.items()}
    return [method for method, each in known.items() if each and max(each) <= 0]


def _compare(
    drawn: Mapping[str, Mapping[str, Bootstrap]],
    metrics: Iterable[str],
    limits: Mapping[str, float],
    beside: Collection[str],
) -> Comparison | None:
    """Compare the methods by the metrics that all of them have; those beside the others are never on the front."""
    common = [metric for metric in metrics if drawn and all(metric in own for own in drawn.values())]
    if len(drawn) < 2 or not common:
        return None
    chosen = {metric: {name: own[metric] for name, own in drawn.items()} for metric in common}
    return compare_bootstraps(chosen, confidence=CONFIDENCE, high=limits, controls=beside)


def _curve_results(drawn: Bootstrap, high: float | None, skill: Skill | None) -> CurveResults:
    curve = drawn.curve
    low, upper = drawn.interval(CONFIDENCE)
    area = drawn.area_interval(CONFIDENCE, high=high)
    return CurveResults(
        area=_number(area.value),
        area_interval=None if math.isnan(area.low) or math.isnan(area.high) else (area.low, area.high),
        control=None if skill is None or area.value is None else _control(area.value, skill, curve.higher_is_better),
        levels=_numbers(curve.levels),
        performance=_numbers(curve.performance),
        values=_numbers(curve.values),
        low=_numbers(low),
        high=_numbers(upper),
    )


def _control(area: float, skill: Skill, higher_is_better: bool) -> ControlResults:
    """Describe the control of a curve.

    Skill is measured on the samples of the control; what the exchanged maps score on all samples is estimated by the
    difference, so that value, control and skill of a table add up.
    """
    return ControlResults(
        value=_number(area - skill.value if higher_is_better else area + skill.value),
        skill=_number(skill.value),
        low=_number(skill.low),
        high=_number(skill.high),
        p=_number(skill.p_value),
        samples=skill.samples,
    )


def _diagnostics(drawn: Mapping[str, Bootstrap], maps: torch.Tensor) -> tuple[Diagnostic, ...]:
    """Look for what speaks against a method's results, in every curve of soundness where there is one.

    Zeros and ties are counted in the maps of the first shard, so that the maps of all samples are never in memory at
    once.
    """
    curves = [each.curve for each in drawn.values()]
    judged = [curve for curve in curves if isinstance(curve, SoundnessCurve)] or curves[:1]
    findings = [finding for curve in judged for finding in diagnose(curve)]
    findings += diagnose_ties(judged[0].table.take(range(len(maps))), maps)
    # What several curves have found is reported once, as a warning if it is one for any of them.
    found = {f.kind: f for f in sorted(findings, key=lambda finding: finding.message is not None)}
    kinds = dict.fromkeys(f.kind for f in findings)
    return tuple(Diagnostic(kind=k, value=_number(found[k].value), message=found[k].message) for k in kinds)


def _false_share(drawn: Mapping[str, Bootstrap]) -> Floats:
    curve = next((each.curve for each in drawn.values() if isinstance(each.curve, SoundnessCurve)), None)
    if curve is None:
        return np.full(len(next(iter(drawn.values())).curve.table), np.nan)
    return curve.false_share


def _numbers(array: Floats) -> tuple[float | None, ...]:
    return tuple(_number(value) for value in array.tolist())


def _number(value: float | None) -> float | None:
    """Return None for what is undefined, since JSON has no NaN."""
    return None if value is None or math.isnan(value) else float(value)
