"""How a method is drawn, the same in every figure and on every page: colour, dashes and symbol.

Built-in methods have a fixed style. Their symbol is that of their family, and the methods of a family differ in colour.
Other names get a style that depends on the name, and on others of the same figure only where colours would collide.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from twinlens.support.plotting import COLOURS

if TYPE_CHECKING:
    from twinlens.run.stored_run import StoredRun

SOLID, DASHED, DOTTED, MIXED = DASHES = ((), (7, 3), (2, 3), (9, 3, 2, 3))
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


_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _VIOLET, _BROWN = COLOURS
_FAMILIES: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
    "triangle": {  # gradients
        "saliency": (_VIOLET, SOLID),
        "guided_backprop": (_GREEN, SOLID),
        "input_x_gradient": (_BROWN, DASHED),
        "smoothgrad": (_PINK, DASHED),
    },
    "circle": {  # gradients along a path
        "integrated_gradients": (_BLUE, SOLID),
        "ig_sg": (_PINK, SOLID),
        "ig_sq": (_VIOLET, DASHED),
        "ig_var": (_SKY, DASHED),
        "gradient_shap": (_GREEN, DOTTED),
    },
    "wedge": {  # propagation of relevance
        "deeplift": (_ORANGE, SOLID),
        "deepshap": (_BROWN, SOLID),
        "lrp": (_VIOLET, DOTTED),
        "excitation_backprop": (_BLUE, DASHED),
        "attn_lrp": (_SKY, DOTTED),
    },
    "square": {  # hidden layers
        "gradcam": (_VERMILION, SOLID),
        "cam": (_ORANGE, DOTTED),
        "attention_rollout": (_GREEN, MIXED),
        "gradient_attention": (_PINK, MIXED),
    },
    "diamond": {  # perturbed inputs and bottlenecks
        "occlusion": (_SKY, SOLID),
        "rise": (_PINK, DOTTED),
        "extremal_perturbation": (_ORANGE, DASHED),
        "iba": (_GREEN, DASHED),
        "input_iba": (_BROWN, DOTTED),
        "kernel_shap": (_VERMILION, DASHED),
    },
    "plus": {"random": (GREY, DOTTED), "centre": (GREY, DASHED), "pooling": (GREY, SOLID)},
    "cross": {"sobel": (GREY, MIXED), "rect": (GREY, DASHED)},
}
"""Colour and dashes of every built-in method, by symbol; methods that are often compared differ in colour."""

BUILT_IN = {
    name: MethodStyle(colour=colour, dash=dash, symbol=symbol, baseline=colour == GREY)
    for symbol, family in _FAMILIES.items()
    for name, (colour, dash) in family.items()
}
"""The styles of built-in methods."""


def method_styles(evaluations: Sequence[StoredRun]) -> dict[str, MethodStyle]:
    """Return the style of every method, the same in all runs."""
    names = {method for evaluation in evaluations for method in evaluation.methods}
    return styles_of(names, {name for evaluation in evaluations for name in evaluation.results.baselines})


def row_styles(evaluations: Sequence[StoredRun]) -> dict[str, MethodStyle]:
    """Return the style of every row of the runs' checks that is not a method and is drawn as a line."""
    checks = [
        check
        for evaluation in evaluations
        for check in evaluation.checks().values()
        if check.rows != "method" and check.ordered and check.steps
    ]
    return {name: style for check in checks for name, style in styles_of(check.methods).items()}


def styles_of(names: Collection[str], baselines: Collection[str] = ()) -> dict[str, MethodStyle]:
    """Return the style of each method of a figure, sorted by name; `baselines` are those that are baseline methods.

    Example:
        >>> styles_of(["gradcam", "mine"])["gradcam"] == styles_of(["gradcam", "occlusion"])["gradcam"]
        True
    """
    ordered = sorted(names)
    fixed = {name: BUILT_IN[name] for name in ordered if name in BUILT_IN and _fits(name, baselines)}
    uses: Counter[object] = Counter()
    for style in fixed.values():
        uses.update(_parts(style))
    styles = dict(fixed)
    for name in ordered:
        if name not in fixed:
            styles[name] = style = _style_by_name(name, uses, baseline=name in baselines)
            uses.update(_parts(style))
    return {name: styles[name] for name in ordered}


def _fits(name: str, baselines: Collection[str]) -> bool:
    """Return whether a built-in style says the right thing: your own method may be called "random"."""
    return BUILT_IN[name].baseline == (name in baselines)


def _style_by_name(name: str, uses: Counter[object], *, baseline: bool) -> MethodStyle:
    """Return the first style, in an order that the name determines, whose colour and dashes are used least."""
    colours, symbols = ((GREY,), BASELINE_SYMBOLS) if baseline else (COLOURS, SYMBOLS)
    styles = [
        MethodStyle(colour=colour, dash=dash, symbol=symbol, baseline=baseline)
        for colour, dash, symbol in product(colours, DASHES, symbols)
    ]
    start = zlib.crc32(name.encode()) % len(styles)
    return min(styles[start:] + styles[:start], key=lambda style: [uses[part] for part in _parts(style)])


def _parts(style: MethodStyle) -> tuple[object, ...]:
    """Return what tells methods apart, the most visible first."""
    return style.colour, (style.colour, style.dash), (style.colour, style.dash, style.symbol)
