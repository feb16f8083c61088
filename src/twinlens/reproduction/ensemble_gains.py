"""What do ensembles of integrated gradients, and of DeepSHAP, improve: soundness, completeness, or the order?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from twinlens.reproduction.claims import Claim, average, judge, list_values
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome, refuse_options
from twinlens.reproduction.method_comparison import (
    FEW_LEVELS,
    Areas,
    compare_methods,
    describe_areas,
    open_photographs,
    outcome_of,
    paper_options,
)
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress

METRICS = ("soundness", "completeness", "road_morf", "road_lerf", "deletion")
ORDER_BASED = METRICS[2:]
BASE, ENSEMBLES = "integrated_gradients", ("ig_sg", "ig_sq", "ig_var")
SHAP, SHAP_ENSEMBLES = "deepshap", ("deepshap_sg", "deepshap_sq", "deepshap_var")

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


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    model, samples = open_photographs(options)
    refuse_options(options, ["leave_out"], "it is about all of its methods")
    methods = {}
    for name, method in METHODS.items():
        own = paper_options(method["method"], model.module, options.noise)
        if not options.paper:  # our defaults, except for the noise
            own = {"variance": own["variance"]} if "variance" in own else {}
        methods[name] = {**method, **own, **(SMALL.get(name, {}) if options.embedded else {})}
    levels = FEW_LEVELS if options.embedded else None
    evaluation = compare_methods(model, samples, methods, METRICS, options, progress, levels=levels)
    cannot = "a dozen small photographs and a few noisy copies are too few" if options.embedded else ""
    return outcome_of(evaluation, _claims, figure="ensembles", cannot=cannot)


def gains(areas: Mapping[str, Estimate], base: str = BASE, ensembles: Sequence[str] = ENSEMBLES) -> list[Estimate]:
    """Return by how much each ensemble is better than its base, by area."""
    return [areas[name] - areas[base] for name in ensembles]


def _claims(areas: Areas, cannot: Mapping[str, str]) -> Iterator[Claim]:
    decide = partial(judge, cannot=cannot["soundness"])
    sound, complete = areas["soundness"], areas["completeness"]
    own = (BASE, *ENSEMBLES)
    yield decide(
        *gains(sound),
        text="All three ensembles are sounder than integrated gradients alone.",
        source="Section 5.3, Fig. 8a",
        measured=describe_areas({name: sound[name] for name in own}),
    )
    smooth, *others = gains(complete)
    yield judge(
        smooth,
        *(-other for other in others),
        text="Of the ensembles, only IG-SG is more complete than integrated gradients alone.",
        source="Section 5.3, Fig. 8b",
        measured=describe_areas({name: complete[name] for name in own}),
        cannot=cannot["completeness"],
    )
    mean = {metric: average(gains(own)) for metric, own in areas.items()}
    yield decide(
        *(mean["soundness"] - mean[metric] for metric in ORDER_BASED),
        text="The advantage of ensembles is larger in soundness than in ROAD, in either order, and in deletion.",
        source="Section 5.3, Fig. 8c and 8d, Fig. 15",
        measured=f"mean gain in area: {list_values(mean, '+z.3f')}",
    )
    yield decide(
        *gains(sound, SHAP, SHAP_ENSEMBLES),
        text="Ensembles of DeepSHAP are sounder than DeepSHAP alone, too.",
        source="Appendix B",
        measured=describe_areas({name: sound[name] for name in (SHAP, *SHAP_ENSEMBLES)}),
    )
    both = {
        base: {metric: average(gains(areas[metric], base, ensembles)) for metric in ("soundness", "completeness")}
        for base, ensembles in ((BASE, ENSEMBLES), (SHAP, SHAP_ENSEMBLES))
    }
    yield decide(
        *(gain["soundness"] - gain["completeness"] for gain in both.values()),
        text="What ensembles of either method gain in completeness is less than what they gain in soundness.",
        source="Appendix B: the gain in completeness is very marginal",
        measured="; ".join(f"{base}: {list_values(gain, '+z.3f')}" for base, gain in both.items()),
    )


EXPERIMENT = Experiment(
    title="What do ensembles of integrated gradients and of DeepSHAP gain?",
    source="Section 5.3, Fig. 8, Fig. 15, appendix G.4",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
