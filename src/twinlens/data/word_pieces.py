"""Words and their pieces, as tokenizers mark them: WordPiece, SentencePiece and byte-level BPE.

Shapes: N samples, T tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

import torch
from torch import Tensor

from twinlens.errors import printable_line

_LONGEST = 60  # characters of a token
_SPECIAL = re.compile(r"(?!\[UNK\]|<unk>)(\[[A-Za-z_]+\d*\]|<[|/]?\w[^\s<>]*>)")
_BREAKS = {"\n": "↵", "\r": "↵", "\t": "⇥"}
JOINED, SPECIAL = 1, 2
"""Flags of a token: it continues a word, it is no word."""


def number_words(texts: Sequence[Sequence[str]], tokens: Tensor) -> Tensor:
    """Return the number of the word (N, T) to which each token belongs; -1 where `tokens` (N, T) is negative.

    Example:
        >>> number_words([["[CLS]", "good", "##ness", "me", "[SEP]"]], torch.tensor([[-1, 0, 1, 2, -1]]))
        tensor([[-1,  0,  0,  1, -1]])
    """
    numbers = torch.full_like(tokens, -1)
    for row, pieces in enumerate(texts):
        word, after_feature = -1, False
        flags = [flag for _, flag in join_pieces(pieces, style_of(pieces))]
        for position, (flag, feature) in enumerate(zip(flags, (tokens[row] >= 0).tolist(), strict=True)):
            if feature:
                word += not (flag & JOINED and after_feature)
                numbers[row, position] = word
            after_feature = feature
    return numbers


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
