"""Sensitivity of soundness to its settings: epsilon, start level, protocol, measure and estimator, one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pandas as pd

from twinlens.metrics.performance import Performance
from twinlens.metrics.protocols import Protocol, find_protocol
from twinlens.metrics.soundness import soundness_from_probes
from twinlens.probing.probe_table import ProbeTable
from twinlens.support.arguments import checked


@checked
def sensitivity(
    table: ProbeTable,
    *,
    epsilons: Sequence[float] = (0.0, 0.005, 0.01, 0.02, 0.05),
    start_levels: Sequence[float | None] = (None, 0.04, 0.1),
    protocols: Sequence[str | Protocol] = ("paper", "soco"),
    performances: Sequence[Performance] = ("accuracy", "balanced_accuracy", "probability", "logit"),
    level: float | None = None,
    opposite: ProbeTable | None = None,
) -> pd.DataFrame:
    """Measure how soundness moves with its settings, one at a time, from one probe table.

    Args:
        table: a soundness sweep.
        epsilons: gains below which a step is false; the paper's 0.01 is the point of departure.
        start_levels: mean performances up to which no step is judged.
        protocols: "paper", "soco", or `Protocol`s.
        performances: measures of performance; name those for regression models yourself.
        level: a predictive level, at which soundness is listed too.
        opposite: probes by `twinlens.opposite_schedule`; with them, the two-sided estimator is listed too.

    Returns:
        One row per setting: what was varied, to what, the area, the soundness at the last level, at `level`, and the
        highest performance. The first row is the point of departure.
    """
    paper = find_protocol("paper")
    if not performances:
        raise ValueError("`performances` must name at least one measure; got none.")
    first = performances[0]
    curves = [("none", "", soundness_from_probes(table, performance=first))]
    for epsilon in epsilons:
        curves.append(("epsilon", f"{epsilon:g}", soundness_from_probes(table, performance=first, epsilon=epsilon)))
    for start in start_levels:
        rules = dataclasses.replace(paper, start_level=start)
        curves.append(("start level", str(start), soundness_from_probes(table, performance=first, protocol=rules)))
    for protocol in protocols:
        name = find_protocol(protocol).name
        curves.append(("protocol", name, soundness_from_probes(table, performance=first, protocol=protocol)))
    for performance in performances:
        curve = soundness_from_probes(table, performance=performance)
        curves.append(("performance", curve.measure, curve))
    if opposite is not None:
        curve = soundness_from_probes(table, performance=first, estimator="two_sided", opposite=opposite)
        curves.append(("estimator", "two_sided", curve))
    rows = []
    for varied, to, curve in curves:
        row = {"varied": varied, "to": to, "area": curve.area(), "last": curve.values[-1]}
        row |= {} if level is None else {f"at {level:g}": curve.at(level)}
        rows.append(row | {"highest performance": curve.performance.max()})
    return pd.DataFrame(rows)
