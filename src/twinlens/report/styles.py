"""How a method is drawn, the same on the page and in figures: colour, dashes and symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinlens.run.stored_run import StoredRun
from twinlens.support.plotting import COLOURS

# The numbers of colours, dashes and symbols have few divisors in common, so that styles repeat late.
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
SYMBOLS = ("circle", "square", "triangle", "diamond", "wedge")
CONTROL_SYMBOLS = ("plus", "cross")
GREY = "#85858a"


@dataclass(frozen=True, kw_only=True)
class MethodStyle:
    """How one method is drawn."""

    colour: str
    """Colour of its line and symbol."""

    dash: tuple[int, ...]
    """Lengths of dashes and gaps; none for an unbroken line."""

    symbol: str
    """Name of its symbol."""

    control: bool
    """Whether it is a control; these are grey."""


def method_styles(evaluations: Sequence[StoredRun]) -> dict[str, MethodStyle]:
    """Return the style of every method, one for all runs; controls are grey, told apart by dashes and symbols."""
    names = sorted({method for evaluation in evaluations for method in evaluation.methods})
    found = [(name, result) for each in evaluations for name, result in each.results.methods.items()]
    controls = sorted({name for name, result in found if result.control})
    subjects = [name for name in names if name not in controls]
    styles = {
        name: MethodStyle(
            colour=COLOURS[k % len(COLOURS)],
            dash=DASHES[k % len(DASHES)],
            symbol=SYMBOLS[k % len(SYMBOLS)],
            control=False,
        )
        for k, name in enumerate(subjects)
    }
    for k, name in enumerate(controls):
        symbol = CONTROL_SYMBOLS[k % len(CONTROL_SYMBOLS)]
        styles[name] = MethodStyle(colour=GREY, dash=DASHES[(k + 2) % len(DASHES)], symbol=symbol, control=True)
    return {name: styles[name] for name in names}
