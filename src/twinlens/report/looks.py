"""How a method is drawn, the same on the page and in figures: colour, dashes and symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twinlens.report.content import is_control
from twinlens.results import Evaluation

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; without the yellow one, which
# vanishes on white. The numbers of colours, dashes and symbols have few divisors in common, so that looks repeat late.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
SYMBOLS = ("circle", "square", "triangle", "diamond", "wedge")
CONTROL_SYMBOLS = ("plus", "cross")
GREY = "#85858a"


@dataclass(frozen=True, kw_only=True)
class Look:
    """How one method is drawn."""

    colour: str
    """Colour of its line and symbol."""

    dash: tuple[int, ...]
    """Lengths of dashes and gaps; none for an unbroken line."""

    symbol: str
    """Name of its symbol."""

    control: bool
    """Whether it is a control; these are grey."""


def method_looks(evaluations: Sequence[Evaluation]) -> dict[str, Look]:
    """Gives the look of every method, one for all runs; controls are grey, and tell apart by dashes and symbols."""
    names = sorted({method for evaluation in evaluations for method in evaluation.methods})
    controls = [name for name in names if any(name in each.methods and is_control(each, name) for each in evaluations)]
    subjects = [name for name in names if name not in controls]
    looks = {
        name: Look(
            colour=COLOURS[k % len(COLOURS)],
            dash=DASHES[k % len(DASHES)],
            symbol=SYMBOLS[k % len(SYMBOLS)],
            control=False,
        )
        for k, name in enumerate(subjects)
    }
    for k, name in enumerate(controls):
        symbol = CONTROL_SYMBOLS[k % len(CONTROL_SYMBOLS)]
        looks[name] = Look(colour=GREY, dash=DASHES[(k + 2) % len(DASHES)], symbol=symbol, control=True)
    return {name: looks[name] for name in names}
