"""How a method is drawn, the same on the page and in figures: colour, dashes and symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinlens.support.plotting import COLOURS

if TYPE_CHECKING:
    from twinlens.run.stored_run import StoredRun

# The numbers of colours, dashes and symbols share few divisors, which makes styles repeat late.
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
SYMBOLS = ("circle", "square", "triangle", "diamond", "wedge")
BASELINE_SYMBOLS = ("plus", "cross")
MARKERS = {
    "circle": "o", "square": "s", "triangle": "^", "diamond": "D", "wedge": "v", "plus": "P", "cross": "X",
}  # fmt: skip
"""Each symbol in matplotlib."""
GREY = "#85858a"


@dataclass(frozen=True, kw_only=True)
class MethodStyle:
    """How one method is drawn."""

    colour: str
    dash: tuple[int, ...]
    """Lengths of dashes and gaps; empty for a solid line."""
    symbol: str
    baseline: bool
    """Whether it is a baseline method; these are grey."""


def method_styles(evaluations: Sequence[StoredRun]) -> dict[str, MethodStyle]:
    """Return the style of every method, the same in all runs; baselines are grey and differ in dashes and symbols."""
    names = sorted({method for evaluation in evaluations for method in evaluation.methods})
    baselines = sorted({name for evaluation in evaluations for name in evaluation.results.baselines})
    styles = {
        name: MethodStyle(
            colour=COLOURS[k % len(COLOURS)],
            dash=DASHES[k % len(DASHES)],
            symbol=SYMBOLS[k % len(SYMBOLS)],
            baseline=False,
        )
        for k, name in enumerate(name for name in names if name not in baselines)
    }
    for k, name in enumerate(baselines):
        symbol = BASELINE_SYMBOLS[k % len(BASELINE_SYMBOLS)]
        styles[name] = MethodStyle(colour=GREY, dash=DASHES[(k + 2) % len(DASHES)], symbol=symbol, baseline=True)
    return {name: styles[name] for name in names}
