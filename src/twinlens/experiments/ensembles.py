"""What do ensembles of integrated gradients improve: soundness, completeness, or the order?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from twinlens.core.progress import Progress
from twinlens.experiments.comparing import compare_methods, describe_areas, draw_panels, numbers_of
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.subject import FEW_LEVELS, PHOTOGRAPHS, find_subject
from twinlens.running.run_reader import Evaluation

METRICS = ("soundness", "completeness", "road_morf", "road_lerf", "deletion")
ORDER_BASED = METRICS[2:]
BASE, ENSEMBLES = "integrated_gradients", ("ig_sg", "ig_sq", "ig_var")

SMALL: dict[str, Mapping[str, Any]] = {
    BASE: {"method": BASE, "steps": 16},
    **{name: {"method": name, "samples": 6, "steps": 8} for name in ENSEMBLES},
}
PAPER: dict[str, Mapping[str, Any]] = {name: {"method": name} for name in (BASE, *ENSEMBLES)}


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, PHOTOGRAPHS)
    methods, levels = (SMALL, FEW_LEVELS) if subject.embedded else (PAPER, None)
    evaluation = compare_methods(subject, methods, METRICS, levels, options, progress)
    return Outcome(
        numbers=numbers_of(evaluation),
        claims=tuple(_claims(evaluation)),
        figures={"ensembles": lambda figure: draw_panels(figure, evaluation, METRICS, columns=3, plane=False)},
    )


def gains(evaluation: Evaluation, metric: str) -> dict[str, float]:
    """Return by how much each ensemble is better than plain integrated gradients, by area."""
    areas = evaluation.results.areas(metric)
    sign = 1.0 if evaluation.results.about(metric).higher_is_better else -1.0
    return {name: sign * (areas[name] - areas[BASE]) for name in ENSEMBLES if name in areas and BASE in areas}


def _claims(evaluation: Evaluation) -> Iterator[Claim]:
    sound, complete = (gains(evaluation, metric) for metric in ("soundness", "completeness"))
    yield Claim(
        text="All three ensembles are sounder than integrated gradients alone.",
        source="Section 5.3, Fig. 7a",
        measured=describe_areas(evaluation.results.areas("soundness")),
        holds=min(sound.values()) > 0 if len(sound) == len(ENSEMBLES) else None,
    )
    yield Claim(
        text="Of the ensembles, only IG-SG is more complete than integrated gradients alone.",
        source="Section 5.3, Fig. 7b",
        measured=describe_areas(evaluation.results.areas("completeness")),
        holds=[name for name, gain in complete.items() if gain > 0] == ["ig_sg"],
    )
    by_order = {metric: float(np.mean(list(gains(evaluation, metric).values()))) for metric in ORDER_BASED}
    in_soundness = float(np.mean(list(sound.values()))) if sound else float("nan")
    listed = ", ".join(
        f"{evaluation.results.about(name).short.rstrip(' ↑↓')} {gain:+z.3f}" for name, gain in by_order.items()
    )
    yield Claim(
        text="The advantage of ensembles is larger in soundness than in ROAD, in either order, and in deletion.",
        source="Section 5.3, Fig. 7c and 7d, appendix on ensembles",
        measured=f"mean gain in area: soundness {in_soundness:+z.3f}, {listed}",
        holds=in_soundness > max(by_order.values()),
    )


EXPERIMENT = Experiment(
    title="What do ensembles of integrated gradients gain?",
    source="Section 5.3, Fig. 7, appendix on ensembles",
    run=run,
)
