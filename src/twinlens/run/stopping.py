"""The rule of `until`: whether the samples of a round are enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twinlens.options import Until
from twinlens.run.manifest import Manifest
from twinlens.run.results import CONFIDENCE, Results, StoppingResults
from twinlens.statistics.verdicts import Comparison


def find_stopping(
    results: Results, compared: Comparison | None, manifest: Manifest, metrics: Sequence[str]
) -> StoppingResults | None:
    """Return whether the samples of a round are enough by these headline metrics; None for a run without rounds."""
    rounds, goal = manifest.rounds, results.settings.until
    if rounds is None or goal is None:
        return None
    until, samples = Until.read(goal), manifest.data.samples
    reaches = list(_comparisons(results, compared, metrics) if until.decided else _half_widths(results, metrics))
    widest, look = max(reaches, default=None), 1 + rounds.sizes.index(samples)
    return StoppingResults(
        until=goal,
        met=widest is not None and widest <= until.margin,
        widest=widest,
        samples=samples,
        of=rounds.sizes[-1],
        look=look,
        looks=len(rounds.sizes),
        confidence=manifest.looks.confidence(CONFIDENCE),
        spent=manifest.looks.spent(CONFIDENCE, look),
    )


def _half_widths(results: Results, metrics: Sequence[str]) -> Iterator[float]:
    """Yield the half-width of each area's interval."""
    for method in results.methods.values():
        for area in [method.metrics[metric].area for metric in metrics if metric in method.metrics]:
            if area.value is not None and area.interval is not None:
                low, high = area.interval
                yield max(area.value - low, high - area.value)  # one end may be clipped at the limit of a share


def _comparisons(results: Results, compared: Comparison | None, metrics: Sequence[str]) -> Iterator[float]:
    """Yield the largest difference that each comparison leaves possible: 0 where it is decided.

    Methods are compared with each other and, except for baselines, with their exchanged control.
    """
    differences = [pair.difference for pair in compared.pairs if pair.metric in metrics] if compared else []
    for name, method in results.methods.items():
        skills = [] if method.baseline else [results.skill(name, metric) for metric in metrics]
        differences += [skill for skill in skills if skill is not None]
    for difference in differences:
        if difference.interval is not None:
            low, high = difference.interval
            yield 0.0 if difference.decided else max(-low, high)
