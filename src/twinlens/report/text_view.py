"""Text on the page: the words of a sample, pieces of words joined, each with its attribution.

Shapes: T tokens of a sample, padding left out; M tokens that are shown; K levels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from twinlens.data.word_pieces import join_pieces, style_of
from twinlens.probing.tokens import token_ids
from twinlens.report.packing import packed
from twinlens.report.scene import Scene, View
from twinlens.run.sample_selection import SelectedSamples
from twinlens.support.fields import JSON

_MOST, _FEWEST = 2000, 50  # tokens of a sample
FEATURE = 4
"""Flag of a token, beside those of `join_pieces`: it can be removed."""


def view_text(scene: Scene, place: int, share: int) -> View:
    """Return the words of one sample, and of each method's map what it says about each of them."""
    own = token_positions(scene, place)
    window = _window(scene.density(place)[own], share // (16 + 5 * len(scene.maps)))
    shown = own[window]
    words, segments = text_of(scene.selected, place), scene.selected.segments
    pieces = [words[position] for position in shown.tolist()]
    removable = torch.ones(len(shown)) if segments is None else segments[place, shown] >= 0
    marks = join_pieces(pieces, style_of(words))
    flags = [mark + FEATURE * bool(feature) for (_, mark), feature in zip(marks, removable, strict=True)]
    view = {"texts": [text for text, _ in marks], "flags": packed(flags), "first": window.start, "of": len(own)}
    return view, {method: _marks(scene, place, method, own, shown) for method in scene.maps}


def token_positions(scene: Scene, place: int) -> Tensor:
    """Return the positions of one sample's tokens (T,), without padding."""
    tokens = scene.selected.inputs[place]
    return torch.arange(tokens.shape[-1]) if tokens.dim() == 1 else tokens[1].nonzero().flatten()


def text_of(selected: SelectedSamples, place: int) -> Sequence[str]:
    """Return one string per position: the words of a sample, or its token ids where nobody named them."""
    if selected.words is not None:
        return selected.words[place]
    return [str(number) for number in token_ids(selected.inputs[place : place + 1])[0].tolist()]


def _window(strength: Tensor, room: int) -> slice:
    """Return the tokens that are shown: all of them, or those in a row with most attribution."""
    most = min(max(room, _FEWEST), _MOST)
    if len(strength) <= most:
        return slice(0, len(strength))
    sums = torch.nn.functional.pad(strength.double().cumsum(dim=0), (1, 0))
    start = int((sums[most:] - sums[:-most]).argmax())
    return slice(start, start + most)


def _marks(scene: Scene, place: int, method: str, own: Tensor, shown: Tensor) -> dict[str, JSON]:
    """Return a method's attribution of tokens, and at how many levels each is kept."""
    strength, keep = scene.strength(place, method), scene.keep_at_levels(place, method)
    total = float(strength[own].sum())
    return {
        "strength": packed(100 * strength[shown]),
        "false": packed(scene.false[method][place, shown]) if method in scene.false else None,
        "stays": packed(keep[:, shown].sum(dim=0)),
        "outside": round(1 - float(strength[shown].sum()) / total, 3) if total else 0.0,
    }
