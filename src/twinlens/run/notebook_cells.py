"""Cells of the table that an evaluation shows in a notebook: HTML without style sheets, which notebooks take away."""

from __future__ import annotations

from twinlens.run.check_records import CheckValue
from twinlens.run.results import Results

_SKILLS = {"better": ("green", "▲ "), "worse": ("red", "▼ "), "undecided": ("inherit", "≈ "), None: ("inherit", "")}


def value_cell(results: Results, method: str, metric: str) -> str:
    """Return a method's value by a metric with its interval; the best one is bold."""
    curve = results.methods[method].metrics.get(metric)
    if curve is None or curve.area is None:
        return "–"
    number = f"<b>{curve.area:z.3f}</b>" if method == results.best(metric) else f"{curve.area:z.3f}"
    ends = curve.area_interval
    return number + (f"<br><small>{ends[0]:z.3f} to {ends[1]:z.3f}</small>" if ends else "")


def skill_cell(results: Results, method: str, metric: str) -> str:
    """Return what a method knows of the input, with its interval; without one, no sign says more than the number."""
    control = results.control(method, metric)
    if control is None or control.skill is None:
        return "–"
    colour, sign = _SKILLS[control.direction]
    ends = "" if control.low is None else f"<br><small>{control.low:+z.3f} to {control.high:+z.3f}</small>"
    return f"<span style='color:{colour}'>{sign}{control.skill:+z.3f}</span>{ends}"


def check_cell(found: CheckValue | None) -> str:
    """Return what a check found of a method, with its interval."""
    if found is None or found.value is None:
        return "–"
    ends = "" if found.low is None else f"<br><small>{found.low:z.3f} to {found.high:z.3f}</small>"
    return f"{found.value:z.3f}{ends}"
