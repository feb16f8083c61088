"""When samples are enough: the rule of `until`, judged by the results of a round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from twinlens.options import Until
from twinlens.run.manifest import Manifest
from twinlens.run.results import CONFIDENCE, Results, StoppingResults
from twinlens.statistics.verdicts import Comparison


def find_stopping(
    results: Results, compared: Comparison | None, manifest: Manifest, metrics: Sequence[str]
) -> StoppingResults | None:
    """Judge whether the samples of a round are enough; None for a run without rounds.

    Args:
        results: of the round.
        compared: how its methods compare.
        manifest: of the run, with its rounds.
        metrics: the headline, whose intervals decide.
    """
    rounds, asked = manifest.rounds, results.settings.until
    if rounds is None or asked is None:
        return None
    until, samples = Until.read(asked), manifest.data.samples
    reaches = list(_comparisons(results, compared, metrics) if until.decided else _half_widths(results, metrics))
    widest, look = max(reaches, default=None), 1 + rounds.sizes.index(samples)
    return StoppingResults(
        until=asked,
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
    """Yield how far the interval of each area reaches; what is not defined has none."""
    for found in results.methods.values():
        for metric in metrics:
            curve = found.metrics.get(metric)
            if curve is not None and curve.area is not None and curve.area_interval is not None:
                low, high = curve.area_interval
                yield max(curve.area - low, high - curve.area)  # one end may be cut off at the limit of a share


def _comparisons(results: Results, compared: Comparison | None, metrics: Sequence[str]) -> Iterator[float]:
    """Yield the largest difference that each comparison leaves possible: 0 where it is decided.

    Methods are compared with each other, and with their own maps exchanged between the samples; of controls nobody
    claims that they know the input.
    """
    for pair in compared.pairs if compared else ():
        if pair.metric in metrics:
            yield from _open(pair.low, pair.high)
    for method, found in results.methods.items():
        for metric in metrics if not found.control else ():
            if control := results.control(method, metric):
                yield from _open(control.low, control.high)


def _open(low: float | None, high: float | None) -> Iterator[float]:
    if low is not None and high is not None and math.isfinite(low + high):
        yield 0.0 if low > 0 or high < 0 else max(-low, high)
