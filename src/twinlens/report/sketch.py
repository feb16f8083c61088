"""A small drawing of a curve, as SVG that stands by itself, for notebooks."""

from __future__ import annotations

import html

import numpy as np

from twinlens.curves import CompletenessCurve, Curve, SoundnessCurve
from twinlens.table import Floats

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 360, 200, 44, 40


def sketch_curve(curve: Curve) -> str:
    """Draws a curve: soundness against performance, all others against their levels.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.linspace(-1, 1, 40).reshape(20, 2)
        >>> curve = tl.completeness(lambda x: torch.stack([x[:, 0], -x[:, 0]], dim=1), x, [0] * 20, x.abs() + 0.1,
        ...                         imputer=tl.ConstantImputer(-1.0))
        >>> sketch_curve(curve)[:4]
        '<svg'
    """
    sound = isinstance(curve, SoundnessCurve)
    x, y = (curve.performance if sound else curve.levels), curve.values
    title = f"predictive level ({curve.measure})" if sound else _axis(curve)
    across = _scale(x, _LEFT, _WIDTH - 12, flipped=isinstance(curve, CompletenessCurve))
    along = _scale(y, _HEIGHT - _BOTTOM, 12)
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(across, along, strict=True) if np.isfinite(b)]
    dots = "".join(f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="2"/>' for point in points)
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    value = "soundness" if sound else f"loss of {curve.measure}"
    base = _HEIGHT - _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{html.escape(value)}" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
        f'<path d="M{_LEFT} 8V{base}H{_WIDTH - 8}" fill="none" stroke="currentColor" stroke-opacity="0.35"/>'
        f'{_ends(x, y, flipped=isinstance(curve, CompletenessCurve))}{line}<g fill="#0072b2">{dots}</g>'
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{html.escape(title)}</text>'
        f'<text x="12" y="{base / 2}" text-anchor="middle" transform="rotate(-90 12 {base / 2})">'
        f"{html.escape(value)}</text>"
        "</svg>"
    )


def _axis(curve: Curve) -> str:
    return "attribution threshold" if isinstance(curve, CompletenessCurve) else "share of features removed"


def _limits(values: Floats) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    low, high = (min(0.0, float(known.min())), max(1.0, float(known.max()))) if len(known) else (0.0, 1.0)
    return low, high


def _scale(values: Floats, start: float, end: float, *, flipped: bool = False) -> Floats:
    low, high = _limits(values)
    share = (values - low) / (high - low)
    return np.asarray(start + (end - start) * (1 - share if flipped else share))


def _ends(x: Floats, y: Floats, *, flipped: bool) -> str:
    base = _HEIGHT - _BOTTOM
    left, right = _limits(x)[::-1] if flipped else _limits(x)
    bottom, top = _limits(y)
    marks = (
        (_LEFT, base + 14, "middle", left),
        (_WIDTH - 12, base + 14, "middle", right),
        (_LEFT - 6, base, "end", bottom),
        (_LEFT - 6, 16, "end", top),
    )
    return "".join(f'<text x="{a}" y="{b}" text-anchor="{anchor}">{value:.3g}</text>' for a, b, anchor, value in marks)
