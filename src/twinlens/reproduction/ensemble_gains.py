"""What do ensembles of integrated gradients, and of DeepSHAP, improve: soundness, completeness, or the order?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twinlens.data.samples import Samples
from twinlens.models.loading import LoadedModel
from twinlens.reproduction.claims import Claim, average, judge, list_values
from twinlens.reproduction.comparison_figures import draw_families, draw_maps, paper_name
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome, refuse_options
from twinlens.reproduction.map_readings import PAPER, MapReading, Readings, list_readings
from twinlens.reproduction.method_comparison import (
    FEW_LEVELS,
    Judged,
    compare_methods,
    describe_areas,
    judge_all,
    numbers_of,
    open_photographs,
    paper_options,
    with_start,
)
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress
from twinlens.support.randomness import drawn_order

METRICS = ("soundness", "completeness", "road_morf", "road_lerf", "deletion")
ORDER_BASED = METRICS[2:]
_NAMES = {"road_morf": "ROAD (most relevant first)", "road_lerf": "ROAD (least relevant first)"}
HEADLINE = ("soundness_rank", "completeness_share")
"""Our own pair of metrics, measured beside the paper's."""
BASE, ENSEMBLES = "integrated_gradients", ("ig_sg", "ig_sq", "ig_var")
SHAP, SHAP_ENSEMBLES = "deepshap", ("deepshap_sg", "deepshap_sq", "deepshap_var")
FAMILIES = {"IG": (BASE, *ENSEMBLES), "DeepSHAP": (SHAP, *SHAP_ENSEMBLES)}

METHODS: dict[str, Mapping[str, Any]] = {
    **{name: {"method": name} for name in (BASE, *ENSEMBLES, SHAP)},
    **{name: {"method": SHAP, "ensemble": name.removeprefix("deepshap_")} for name in SHAP_ENSEMBLES},
}
SMALL: dict[str, Mapping[str, Any]] = {
    BASE: {"steps": 16},
    **{name: {"samples": 4, "steps": 8} for name in ENSEMBLES},
    **{name: {"samples": 4} for name in SHAP_ENSEMBLES},
}
"""The options of the smoke run."""

_TOGETHER = 50
"""Images whose attributions are one run. Ensembles take seconds for an image; in this order, a larger `limit` in a copy
of the directory finds those of a smaller one."""


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    model, samples = open_photographs(options)
    refuse_options(options, ["leave_out"], "it is about all of its methods")
    readings = list_readings(options)
    stored = _attributions(model, samples, readings, options, progress)
    levels = FEW_LEVELS if options.embedded else None
    evaluations = {}
    for reading in readings:
        names = {name: _stored_name(name, reading.noise) for name in METHODS}
        metrics = with_start((*METRICS, *HEADLINE), levels) if reading.protocol == PAPER else list(METRICS)
        evaluations[reading.words if len(readings) > 1 else ""] = compare_methods(
            model, samples, stored.methods(names, reading), metrics, options, progress,
            folder=reading.folder, levels=levels, protocol=reading.protocol,
        )  # fmt: skip
    cannot = "a dozen small photographs and a few noisy copies are too few" if options.embedded else ""
    [first, *_] = evaluations.values()
    return Outcome(
        numbers=numbers_of(evaluations),
        claims=judge_all(evaluations, _claims, cannot=cannot),
        figures={
            "ensembles": lambda figure: draw_families(figure, first, FAMILIES, METRICS),
            "ensemble-maps": lambda figure: draw_maps(figure, first, model, samples, sum(FAMILIES.values(), ())),
        },
    )


def _attributions(
    model: LoadedModel,
    samples: Samples,
    readings: Sequence[MapReading],
    options: ExperimentOptions,
    progress: Progress,
) -> Readings:
    """Store the attributions of all methods, with their signs and channels, some images after the other."""
    methods, order = _attributed(model, options, readings), drawn_order(samples.ids, seed=options.seed)
    parts = [sorted(order[start : start + _TOGETHER]) for start in range(0, len(order), _TOGETHER)]
    return Readings(
        *(
            compare_methods(
                model, samples.take(part), methods, [], options, progress, folder=f"attributions/{number:03d}",
                features="channels", sign="signed",
            )
            for number, part in enumerate(parts)
        )
    )  # fmt: skip


def _stored_name(name: str, noise: str) -> str:
    return name if name in (BASE, SHAP) else f"{name}_{noise}"


def _attributed(
    model: LoadedModel, options: ExperimentOptions, readings: Sequence[MapReading]
) -> dict[str, Mapping[str, Any]]:
    """Return the methods whose attributions are stored: those with noise once for each reading of it."""
    methods: dict[str, Mapping[str, Any]] = {}
    for noise in dict.fromkeys(reading.noise for reading in readings):
        for name, method in METHODS.items():
            own = paper_options(method["method"], model.module, noise)
            if not options.paper:  # our defaults, except for the noise
                own = {"variance": own["variance"]} if "variance" in own else {}
            if name in (BASE, SHAP):
                own.pop("variance", None)
            small = SMALL.get(name, {}) if options.embedded else {}
            methods[_stored_name(name, noise)] = {**method, **own, **small}
    return methods


def gains(areas: Mapping[str, Estimate], base: str = BASE, ensembles: Sequence[str] = ENSEMBLES) -> list[Estimate]:
    """Return by how much each ensemble is better than its base, by area."""
    return [areas[name] - areas[base] for name in ensembles]


def _claims(judged: Judged) -> Iterator[Claim]:
    yield from _pair(judged, *METRICS[:2])
    order = {metric: average(gains(judged[metric])) for metric in METRICS}
    yield judge(
        *(order["soundness"] - order[metric] for metric in ORDER_BASED),
        text="The advantage of ensembles is larger in soundness than in ROAD, in either order, and in deletion.",
        source="Section 5.3, Fig. 8c and 8d, Fig. 15",
        measured=f"mean gain in area: {_list_gains(order)}",
        cannot=judged.cannot["soundness"],
    )
    both = {
        base: {metric: average(gains(judged[metric], base, ensembles)) for metric in METRICS[:2]}
        for base, *ensembles in FAMILIES.values()
    }
    yield judge(
        *(gain["soundness"] - gain["completeness"] for gain in both.values()),
        text="What ensembles of either method gain in completeness is less than what they gain in soundness.",
        source="Appendix B: the gain in completeness is very marginal",
        measured="; ".join(f"{paper_name(base)}: {_list_gains(gain)}" for base, gain in both.items()),
        cannot=judged.cannot["soundness"],
    )
    if HEADLINE[0] in judged.areas:
        yield from _pair(judged, *HEADLINE)


def _list_gains(gains: Mapping[str, Estimate]) -> str:
    return list_values({_NAMES.get(metric, metric): gain for metric, gain in gains.items()}, "+z.3f")


def _pair(judged: Judged, soundness: str, completeness: str) -> Iterator[Claim]:
    """Judge the paper's claims about soundness and completeness, by its own metrics or by ours."""
    ours = soundness != METRICS[0]
    by = (", by soundness as a rank", ", by completeness as a share") if ours else ("", "")
    sound, complete = judged[soundness], judged[completeness]
    yield judge(
        *gains(sound),
        text=f"All three ensembles are sounder than integrated gradients alone{by[0]}.",
        source="Section 5.3, Fig. 8a",
        measured=describe_areas({name: sound[name] for name in (BASE, *ENSEMBLES)}),
        ours=ours,
        cannot=judged.cannot[soundness],
    )
    smooth, *others = gains(complete)
    yield judge(
        smooth,
        *(-other for other in others),
        text=f"Of the ensembles, only IG-SG is more complete than integrated gradients alone{by[1]}.",
        source="Section 5.3, Fig. 8b",
        measured=describe_areas({name: complete[name] for name in (BASE, *ENSEMBLES)}),
        ours=ours,
        cannot=judged.cannot[completeness],
    )
    yield judge(
        *gains(sound, SHAP, SHAP_ENSEMBLES),
        text=f"Ensembles of DeepSHAP are sounder than DeepSHAP alone, too{by[0]}.",
        source="Appendix B",
        measured=describe_areas({name: sound[name] for name in (SHAP, *SHAP_ENSEMBLES)}),
        ours=ours,
        cannot=judged.cannot[soundness],
    )


EXPERIMENT = Experiment(
    title="What do ensembles of integrated gradients and of DeepSHAP gain?",
    source="Section 5.3, Fig. 8, Fig. 15, appendix G.4",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
