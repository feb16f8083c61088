"""What do ensembles of integrated gradients, and of DeepSHAP, improve: soundness, completeness, or the order?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from twinlens.reproduction.claims import Estimate, average, judge
from twinlens.reproduction.experiment_setup import FEW_LEVELS, PHOTOGRAPHS, find_subject, paper_options, refuse_options
from twinlens.reproduction.method_comparison import areas_of, compare_methods, describe_areas, draw_panels, numbers_of
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.support.progress import Progress

METRICS = ("soundness", "completeness", "road_morf", "road_lerf", "deletion")
ORDER_BASED = METRICS[2:]
BASE, ENSEMBLES = "integrated_gradients", ("ig_sg", "ig_sq", "ig_var")

_PARTS = {"ig_sg": "sg", "ig_sq": "sq", "ig_var": "var"}
SHAP, SHAP_ENSEMBLES = "deepshap", tuple(f"deepshap_{part}" for part in _PARTS.values())

METHODS: dict[str, Mapping[str, Any]] = {
    **{name: {"method": name} for name in (BASE, *ENSEMBLES, SHAP)},
    **{f"deepshap_{part}": {"method": SHAP, "ensemble": part} for part in _PARTS.values()},
}
SMALL: dict[str, Mapping[str, Any]] = {
    BASE: {"steps": 16},
    **{name: {"samples": 4, "steps": 8} for name in ENSEMBLES},
    **{name: {"samples": 4} for name in SHAP_ENSEMBLES},
}
"""The options of the smoke run."""


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, PHOTOGRAPHS)
    refuse_options(options, ["leave_out"], "it is about all of its methods")
    methods, levels = {}, FEW_LEVELS if subject.embedded else None
    for name, method in METHODS.items():
        own = paper_options(method["method"], subject.model.module, options.noise)
        if not options.paper:  # our defaults, but for the noise
            own = {"variance": own["variance"]} if "variance" in own else {}
        methods[name] = {**method, **own, **(SMALL.get(name, {}) if subject.embedded else {})}
    evaluation = compare_methods(subject, methods, METRICS, levels, options, progress)
    areas = {metric: areas_of(evaluation, metric) for metric in METRICS}
    cannot = "a dozen small photographs and a few noisy copies are too few" if subject.embedded else ""
    return Outcome(
        numbers=numbers_of(evaluation),
        claims=tuple(_claims(areas, cannot)),
        figures={"ensembles": lambda figure: draw_panels(figure, evaluation, METRICS, columns=3, plane=False)},
    )


def gains(areas: Mapping[str, Estimate], base: str = BASE, ensembles: Sequence[str] = ENSEMBLES) -> list[Estimate]:
    """Return by how much each ensemble is better than its base, by area."""
    return [areas[name] - areas[base] for name in ensembles]


def _claims(areas: Mapping[str, Mapping[str, Estimate]], cannot: str) -> Iterator[Claim]:
    judged = partial(judge, cannot=cannot)
    sound, complete = areas["soundness"], areas["completeness"]
    own = (BASE, *ENSEMBLES)
    yield judged(
        *gains(sound),
        text="All three ensembles are sounder than integrated gradients alone.",
        source="Section 5.3, Fig. 8a",
        measured=describe_areas({name: sound[name] for name in own}),
    )
    smooth, *others = gains(complete)
    yield judged(
        smooth,
        *(-other for other in others),
        text="Of the ensembles, only IG-SG is more complete than integrated gradients alone.",
        source="Section 5.3, Fig. 8b",
        measured=describe_areas({name: complete[name] for name in own}),
    )
    mean = {metric: average(gains(own)) for metric, own in areas.items()}
    yield judged(
        *(mean["soundness"] - mean[metric] for metric in ORDER_BASED),
        text="The advantage of ensembles is larger in soundness than in ROAD, in either order, and in deletion.",
        source="Section 5.3, Fig. 8c and 8d, Fig. 15",
        measured="mean gain in area: " + ", ".join(f"{metric} {gain.value:+z.3f}" for metric, gain in mean.items()),
    )
    by_shap = gains(sound, SHAP, SHAP_ENSEMBLES)
    yield judged(
        *by_shap,
        text="Ensembles of DeepSHAP are sounder than DeepSHAP alone, too.",
        source="Appendix B",
        measured=describe_areas({name: sound[name] for name in (SHAP, *SHAP_ENSEMBLES)}),
    )
    pairs = [(gains(own), gains(own, SHAP, SHAP_ENSEMBLES)) for own in (sound, complete)]
    yield judged(
        *(one - other for one, other in zip(map(average, pairs[0]), map(average, pairs[1]), strict=True)),
        text="What ensembles of either method gain in completeness is less than what they gain in soundness.",
        source="Appendix B: the gain in completeness is very marginal",
        measured="; ".join(
            f"{base}: soundness {average(s).value:+z.3f}, completeness {average(c).value:+z.3f}"
            for base, s, c in zip((BASE, SHAP), *pairs, strict=True)
        ),
    )


EXPERIMENT = Experiment(
    title="What do ensembles of integrated gradients and of DeepSHAP gain?",
    source="Section 5.3, Fig. 8, Fig. 15, appendix G.4",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
