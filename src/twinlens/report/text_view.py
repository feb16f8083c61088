"""Text on the page: the words of a sample, pieces of words joined, each with its attribution.

Shapes: T tokens of a sample, padding left out; M tokens that are shown; K levels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

import torch
from torch import Tensor

from twinlens.errors import printable_line
from twinlens.probing.tokens import token_ids
from twinlens.report.packing import packed
from twinlens.report.scene import Scene, View
from twinlens.run.sample_selection import SelectedSamples
from twinlens.support.fields import JSON

_MOST, _FEWEST = 2000, 50  # tokens of a sample
_LONGEST = 60  # characters of a token
_SPECIAL = re.compile(r"(?!\[UNK\]|<unk>)(\[[A-Za-z_]+\d*\]|<[|/]?\w[^\s<>]*>)")
_BREAKS = {"\n": "↵", "\r": "↵", "\t": "⇥"}
JOINED, SPECIAL, FEATURE = 1, 2, 4
"""Flags of a token: it continues a word, it is no word, it can be removed."""


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


def style_of(words: Collection[str]) -> str:
    """Return how a tokenizer marks pieces of words: by what starts a word, or by what continues it.

    Example:
        >>> style_of(["Ġgood", "ness"]), style_of(["▁good", "ness"]), style_of(["good", "##ness"]), style_of(["good"])
        ('Ġ', '▁', '##', '')
    """
    return next((start for start in ("▁", "Ġ", "##") if any(word.startswith(start) for word in words)), "")


def join_pieces(pieces: Sequence[str], style: str) -> list[tuple[str, int]]:
    """Return the text of each token, and its flags.

    Example:
        >>> join_pieces(["[CLS]", "good", "##ness"], "##")
        [('[CLS]', 2), ('good', 0), ('ness', 1)]
        >>> join_pieces(["<s>", "ĠcafÃ©", "s", "Ċ"], "Ġ")
        [('<s>', 2), ('café', 0), ('s', 1), ('↵', 1)]
    """
    marks, after_word = [], False
    for piece in pieces:
        special = _SPECIAL.fullmatch(piece) is not None
        if style == "##":
            continues, text = piece.startswith("##") and len(piece) > 2, piece.removeprefix("##") or piece
        else:
            continues, text = bool(style) and not piece.startswith(style), piece.removeprefix(style)
            text = _decoded(text) if style == "Ġ" and not special else text
        text = "".join(_BREAKS.get(sign, sign) for sign in text[:_LONGEST])
        joined = continues and after_word and not special
        marks.append((printable_line(text) or "␣", JOINED * joined + SPECIAL * special))
        after_word = not special
    return marks


def _decoded(piece: str) -> str:
    """Return the text of a byte-level token, which writes each byte as a visible character."""
    table = _bytes()
    return bytes(table[sign] for sign in piece).decode(errors="replace") if table.keys() >= set(piece) else piece


@cache
def _bytes() -> dict[str, int]:
    """Return the byte for each character of GPT-2's vocabulary: visible ones are themselves, others come after 255."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + k): byte for k, byte in enumerate(hidden)}
