"""Tabular rows on the page: the name and value of each column, its attribution, and what was put there when removed.

Shapes: K levels, D columns, M columns that are shown.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from twinlens.report.packing import packed, short_number
from twinlens.report.scene import Scene, View
from twinlens.support.fields import JSON

_MOST, _FEWEST, _TOP = 200, 20, 3  # columns of a sample: shown at most, at least, and in its small picture


def view_table(scene: Scene, place: int, share: int) -> View:
    """Return the columns of one sample with most attribution, and what each method's map says about them."""
    values, total = scene.selected.inputs[place], scene.highest(place)
    most = min(max(share // (40 + 16 * len(scene.maps)), _FEWEST), _MOST)
    shown = total.topk(min(most, len(total))).indices.sort().values
    names = column_names(scene.selected.feature_names, shown.tolist())
    cells: list[JSON] = [short_number(value) for value in values[shown].tolist()]
    top: list[JSON] = total[shown].topk(min(_TOP, len(shown))).indices.tolist()
    view: JSON = {"names": [*names], "values": cells, "top": top, "of": len(values)}
    return view, {method: _marks(scene, place, method, shown) for method in scene.maps}


def column_names(names: tuple[str, ...] | None, shown: Iterable[int]) -> list[str]:
    """Return the names of columns, or their numbers."""
    return [f"column {k}" if names is None else names[k] for k in shown]


def _marks(scene: Scene, place: int, method: str, shown: Tensor) -> dict[str, JSON]:
    """Return a method's attribution of columns, at how many levels each is kept, and how it is filled in."""
    keep, strength = scene.keep_at_levels(place, method), scene.strength(place, method)
    frames, stays = scene.impute_at_levels(place, keep), keep.sum(dim=0)
    later = (
        1 if scene.schedule.order == "morf" else -1
    )  # of equal columns, those that stay longest are the first or last
    order = sorted(range(len(shown)), key=lambda k: (-strength[shown[k]].item(), later * stays[shown[k]].item()))
    return {
        "strength": packed(250 * strength[shown]),
        "false": packed(scene.false[method][place, shown]) if method in scene.false else None,
        "stays": packed(stays[shown]),
        "order": [*order],
        "filled": None if frames is None else [_filled(frames[:, k], keep[:, k]) for k in shown.tolist()],
    }


def _filled(values: Tensor, keep: Tensor) -> JSON:
    """Return what replaces a column (K,): one number, or one for each level if they differ."""
    if bool(keep.all()):
        return None
    removed = values[~keep]
    if torch.equal(removed, removed[:1].expand_as(removed)):
        return short_number(removed[0].item())
    return [short_number(value) for value in values.tolist()]
