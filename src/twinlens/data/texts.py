"""Texts: samples that a tokenizer turns into token ids, and token ids of several lengths.

Shapes: N samples, T tokens of the longest, t tokens of one sample.
"""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from twinlens.data.naming import Naming
from twinlens.data.samples import Samples, hash_array, is_text, make_samples
from twinlens.errors import DataError, first_line, short_repr
from twinlens.probing.model_call import Labels, refusing_exit
from twinlens.probing.tokens import IDS, MASK
from twinlens.support.arrays import as_array

TEXT_NAMES = ("text", "sentence", "review", "prompt")
"""Names of columns and fields that hold texts."""
NO_LABELS = (
    "`labels` are missing. Only a language model finds its own, the tokens that it expects next: hf:DIR, or "
    "tl.probing.NextToken(model)."
)


def are_texts(inputs: Any) -> TypeGuard[Sequence[str]]:
    """Return whether inputs are a list of texts, or a one-dimensional array or column of them."""
    listed = isinstance(inputs, (list, tuple)) or getattr(inputs, "ndim", 0) == 1
    return listed and len(inputs) > 0 and all(isinstance(text, str) for text in inputs)


class TextInputs:
    """Texts by position."""

    def __init__(self, texts: Sequence[str], ids: Sequence[str | int]) -> None:
        self.texts, self.ids = texts, ids

    def reader(self, position: int) -> str:
        """Return one text."""
        return self.texts[position]

    def fingerprint(self, position: int) -> bytes:
        """Hash the content of one sample."""
        return hashlib.blake2b(self.texts[position].encode("utf-8", "backslashreplace"), digest_size=32).digest()


class TokenInputs:
    """Ids and attention masks (2, t) by position, padded to the longest; a hash does not depend on other samples."""

    def __init__(self, rows: Sequence[NDArray[np.int64]], padding: int = 0) -> None:
        self.rows, self.padding = rows, padding
        self.longest = max(row.shape[1] for row in rows)

    def reader(self, position: int) -> NDArray[np.int64]:
        """Return ids and attention mask (2, T)."""
        row = self.rows[position]
        padded = np.zeros((2, self.longest), dtype=np.int64)
        padded[0] = self.padding
        padded[:, : row.shape[1]] = row
        return padded

    def fingerprint(self, position: int) -> bytes:
        """Hash the content of one sample."""
        return hash_array(self.rows[position])


def from_texts(
    texts: Sequence[str],
    labels: Labels | None,
    *,
    ids: Sequence[str | int] | None = None,
    classes: tuple[str, ...] | None = None,
    name: str = "texts",
) -> Samples:
    """Open texts as samples; without labels, a language model finds its own."""
    for position, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip() or not is_text(text):
            raise DataError(
                f"Texts must not be empty, and must be Unicode; the one at {position} is {short_repr(text)}. Leave it "
                "out."
            )
    names = [f"{k:05d}" for k in range(len(texts))] if ids is None else ids
    targets = np.zeros(len(texts), dtype=np.int64) if labels is None else as_array(labels, "labels").reshape(-1)
    if len(targets) != len(texts) or targets.dtype.kind not in "iuf":
        raise DataError(
            f"`labels` must hold one number for each of the {len(texts)} texts; got {len(targets)} of {targets.dtype}."
        )
    samples = make_samples(name, names, targets, classes, TextInputs(texts, names))
    return dataclasses.replace(samples, text=True, unlabelled=labels is None)


def from_token_rows(
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[Any] | NDArray[Any] | None,
    *,
    classes: tuple[str, ...] | None = None,
    name: str = "tokens",
) -> Samples:
    """Open tokens of several lengths as samples: mappings with `input_ids` and, optionally, `attention_mask`."""
    names = [f"{k:05d}" for k in range(len(rows))]
    tokens = [_row(row, sample) for row, sample in zip(rows, names, strict=True)]
    targets = np.zeros(len(tokens), dtype=np.int64) if labels is None else np.asarray(labels)
    samples = make_samples(name, names, targets, classes, TokenInputs(tokens))
    return dataclasses.replace(samples, tokenized=True, unlabelled=labels is None)


def _row(row: Mapping[str, Any], sample: str) -> NDArray[np.int64]:
    """Return ids and attention mask (2, t) of one sample, without padding at the end."""
    ids = as_array(row[IDS], IDS)
    mask = as_array(row[MASK], MASK) if row.get(MASK) is not None else np.ones_like(ids)
    if ids.ndim != 1 or mask.shape != ids.shape or not ids.size or ids.dtype.kind not in "iu" or not mask.any():
        raise DataError(
            f"`{IDS}` and `{MASK}` of sample '{sample}' must be integers of one length, and not all padding; got "
            f"{ids.dtype} of shape {ids.shape}, and shape {mask.shape}."
        )
    end = int(np.flatnonzero(mask)[-1]) + 1
    return np.stack([ids[:end], mask[:end]]).astype(np.int64)


def tokenize(samples: Samples, tokenizer: Any, *, longest: int | None = None, keep_end: bool = False) -> Samples:
    """Turn texts into token ids.

    Args:
        samples: the texts.
        tokenizer: of transformers, or of the tokenizers library.
        longest: the most tokens that the model reads; longer texts are cut, with a warning.
        keep_end: cut the beginning of a text, as for a model that continues it.
    """
    texts = [samples.read(k) for k in range(len(samples))]
    rows = _encode(texts, tokenizer, None)
    if longest is not None and (cut := [k for k, ids in enumerate(rows) if len(ids) > longest]):
        warnings.warn(
            f"{len(cut)} of {len(rows)} texts of {samples.name} have more than {longest} tokens, the most that the "
            f"model reads, and lose their {'beginning' if keep_end else 'end'}.",
            stacklevel=2,
        )
        short = [rows[k][-longest:] for k in cut] if keep_end else _encode([texts[k] for k in cut], tokenizer, longest)
        for k, ids in zip(cut, short, strict=True):
            rows[k] = ids
    for name, ids in zip(samples.ids, rows, strict=True):
        if not ids.size:
            raise DataError(f"`tokenizer` finds no token in sample '{name}'. Leave it out.")
    padding = getattr(tokenizer, "pad_token_id", None)
    source = TokenInputs([np.stack([ids, np.ones_like(ids)]) for ids in rows], 0 if padding is None else int(padding))
    return dataclasses.replace(
        samples,
        positions=np.arange(len(samples)),
        reader=source.reader,
        fingerprint=source.fingerprint,
        naming=samples.naming.over(Naming.of(tokenizer=tokenizer)),
        text=False,
        tokenized=True,
    )


def _encode(texts: Sequence[str], tokenizer: Any, longest: int | None) -> list[NDArray[np.int64]]:
    """Return the token ids of each text, the first `longest` of them with their special tokens."""
    try:
        with refusing_exit("tokenizer"):
            if callable(tokenizer):
                how = {} if longest is None else {"truncation": True, "max_length": longest}
                rows = [np.asarray(ids) for ids in tokenizer(list(texts), **how)[IDS]]
            else:
                rows = [np.asarray(encoding.ids[:longest]) for encoding in tokenizer.encode_batch(list(texts))]
        wrong = [
            k
            for k, ids in enumerate(rows)
            if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0)
        ]
        if len(rows) != len(texts) or wrong:
            got = f"{len(rows)} rows for {len(texts)} texts" if not wrong else short_repr(rows[wrong[0]].tolist())
            raise ValueError(f"ids must be a row of integers >= 0 for each text; got {got}")
        return [ids.astype(np.int64) for ids in rows]
    except Exception as error:  # code of others
        raise DataError(
            f"`tokenizer` must turn texts into {IDS!r}, as those of transformers do; {type(tokenizer).__name__} fails: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
