"""Smoothness: how much does each metric change when the maps are blurred?

Blurring adds no knowledge of the model. A blurred copy of a noisy map may still be the better map; a metric for which
blurred random maps score higher rewards smoothness itself.
"""

from __future__ import annotations

from functools import partial

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.remeasuring import random_maps, remeasure
from twinlens.laboratory.mixing import blur_maps
from twinlens.metrics.curves import Curve
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.run.wording import listed
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.estimate import Estimate


@partial(
    CheckDefinition,
    title="Smoothness",
    source="Yang et al. 2023, Assessing perturbation-based explanation metrics",
    rows="metric",
    columns=(
        CheckColumn(title="methods", better="neither"),
        CheckColumn(title="random maps", better="neither"),
    ),
    step_title="method",
    course_title="how much better the blurred copy scores",
    ordered=False,
    options=("limit", "engine"),
)
def smoothness_check(run: CheckedRun) -> CheckResult:
    """How much does each metric change when the maps are blurred?

    How much better a copy of the map scores after a Gaussian blur of 3% of its side, below 0 where it scores worse: the
    mean over methods that are not baselines, and for random maps. Blurring adds no knowledge of the model. A blurred
    copy of a noisy map may be the better map, but a metric for which blurred random maps score higher rewards
    smoothness.
    """
    evaluation, samples = run.evaluation, run.samples
    if not evaluation.run.manifest.data.has_neighbours:
        raise ValueError("`name` smoothness blurs maps, and the features of this run have no neighbours.")
    results = evaluation.results
    metrics = {
        name: metric for name, metric in evaluation.metric_values.items() if getattr(metric, "evidence", "for") == "for"
    }
    inner = remeasure(run, "smoothness", metrics, maps={name: blur_maps(run.stored_maps(name)) for name in run.names})
    changes: dict[str, dict[str, Estimate]] = {}
    for name, metric in metrics.items():
        sign, high = (1.0 if results.about(name).higher_is_better else -1.0), results.soundness_up_to.get(name)

        def area(curve: Curve, high: float | None = high) -> Estimate:
            return bootstrap(curve, resamples=results.settings.resamples).compared_area(high=high).estimate

        changes[name] = {
            method: (area(inner.curve(method, name)) - area(evaluation.reader.curve(method, metric, ids=samples.ids)))
            * sign
            for method in run.names
        }
    evaluation.reader.forget()
    heads = {name: results.about(name).short.rstrip(" ↑↓") for name in metrics}
    reference, missing = random_maps(run)
    explaining = [method for method in run.names if method not in results.baselines]

    def row(own: dict[str, Estimate]) -> MethodCheck:
        none = Estimate(value=None, samples=len(samples))
        chosen = [own[method] for method in explaining]
        mean = sum(chosen[1:], chosen[0]) / len(chosen) if chosen else none
        return MethodCheck(values=(mean, none if missing else own[reference]), course=tuple(own.values()))

    return CheckResult(
        methods={heads[name]: row(own) for name, own in changes.items()},
        samples=len(samples),
        steps=run.names,
        notes=() if not missing else ("The checked methods have no random maps: evaluate random as well.",),
        line=_line({heads[name]: own for name, own in changes.items()}, None if missing else reference),
    )


def _line(changes: dict[str, dict[str, Estimate]], reference: str | None) -> str:
    """Return which metrics prefer blurred copies."""

    def higher(estimate: Estimate) -> bool:
        return estimate.decided and (estimate.value or 0.0) > 0

    counts = ", ".join(f"{name} {sum(map(higher, own.values()))}" for name, own in changes.items())
    line = (
        f"Blurred copies score clearly higher for this many of {len(next(iter(changes.values())))} methods: {counts}."
    )
    if reference is None:
        return line
    fooled = [name for name, own in changes.items() if higher(own[reference])]
    return f"{line} Blurred random maps score clearly higher by {listed(fooled) if fooled else 'no metric'}."
