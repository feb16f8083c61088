"""Names of features for those who read samples: columns of a table, channels of a signal, words for token ids.

No number depends on them, and they are not part of a run's identity.

Shapes: N samples, C channels, S = spatial shape, D features of a tabular row, T tokens or time steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from twinlens.errors import DataError, first_line, short_repr
from twinlens.probing.tokens import are_tokens, token_ids

Words = Callable[[Sequence[int]], Sequence[str]]
"""From the token ids of one sample to its words, one string per token."""


@dataclass(frozen=True, kw_only=True)
class Naming:
    """How features are called; None where nobody said."""

    feature_names: tuple[str, ...] | None = None
    """Names of the D columns of tabular rows, or of the C channels of other inputs."""
    words: Words | None = None
    """The words of token ids."""
    sampling_rate: float | None = None
    """Time steps of a signal per second."""

    @staticmethod
    def of(
        feature_names: Sequence[str] | None = None, tokenizer: object = None, sampling_rate: float | None = None
    ) -> Naming:
        """Return names as a caller passes them; see `from_arrays`."""
        if sampling_rate is not None and not 0 < sampling_rate < math.inf:
            raise ValueError(f"`sampling_rate` must be a number of time steps per second; got {sampling_rate!r}.")
        return Naming(
            feature_names=None if feature_names is None else tuple(_text(name) for name in feature_names),
            words=None if tokenizer is None else find_words(tokenizer),
            sampling_rate=sampling_rate,
        )

    def over(self, other: Naming) -> Naming:
        """Return these names, and those of `other` where there are none here."""
        own = {name: value for name, value in vars(self).items() if value is not None}
        return dataclasses.replace(other, **own)

    def check(self, inputs: Tensor) -> None:
        """Refuse names that do not fit inputs (N, C, *S), (N, D) or token ids."""
        tokens, shape = are_tokens(inputs), tuple(inputs.shape)
        if self.feature_names is not None and (tokens or len(self.feature_names) != shape[1]):
            what = "the words of token ids come from `tokenizer`" if tokens else f"inputs have shape {shape}"
            raise DataError(
                "`feature_names` must name the columns of tabular rows or the channels of other inputs; got "
                f"{len(self.feature_names)} names, and {what}."
            )
        if self.words is not None and not tokens:
            raise DataError(f"`tokenizer` belongs to token ids, which are integers; inputs are {inputs.dtype}.")
        if self.sampling_rate is not None and (tokens or len(shape) != 3):
            raise DataError(f"`sampling_rate` belongs to signals (N, C, T); inputs have shape {shape}.")
        self.words_of(inputs)

    def words_of(self, inputs: Tensor) -> list[list[str]] | None:
        """Return the words of each sample of token ids (N, T) or (N, 2, T), one per token; None without a tokenizer."""
        if self.words is None:
            return None
        texts = []
        for ids in token_ids(inputs).tolist():
            try:
                words = [_text(word) for word in self.words(ids)]
            except Exception as error:  # code of others
                raise DataError(f"`tokenizer` fails on the ids {short_repr(ids)}: {first_line(error)}") from error
            if len(words) != len(ids):
                raise DataError(
                    f"`tokenizer` must return one string per token; got {len(words)} for {len(ids)} tokens. Words are "
                    "joined on the page."
                )
            texts.append(words)
        return texts


NAMELESS = Naming()


def _text(name: object) -> str:
    """Return a name as text that UTF-8 can encode."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def column_names(inputs: object) -> tuple[str, ...] | None:
    """Return the names of the columns of a data frame; None for arrays, and where columns are only numbered."""
    columns = list(getattr(inputs, "columns", ()))
    return tuple(map(_text, columns)) if any(isinstance(name, str) for name in columns) else None


def find_words(tokenizer: Any) -> Words:
    """Return how token ids become words.

    Args:
        tokenizer: an object with `convert_ids_to_tokens`, as those of transformers; a function from the ids of a
            sample to its words; or a vocabulary: words by id, or a mapping between both.

    Example:
        >>> find_words(["[PAD]", "good", "##ness"])([1, 2, 7]), find_words({"good": 1})([1])
        (['good', '##ness', '7'], ['good'])
    """
    if callable(convert := getattr(tokenizer, "convert_ids_to_tokens", None)):
        return convert  # type: ignore[no-any-return]
    if isinstance(tokenizer, Mapping):
        pairs = [(key, word) if isinstance(word, str) else (word, key) for key, word in tokenizer.items()]
        try:
            return partial(_look_up, {int(number): str(word) for number, word in pairs})
        except (TypeError, ValueError):
            raise TypeError(
                f"`tokenizer` must map words to ids, or ids to words; got {short_repr(tokenizer)}."
            ) from None
    if not isinstance(tokenizer, (str, bytes)) and hasattr(tokenizer, "__getitem__") and hasattr(tokenizer, "__len__"):
        return partial(_look_up, dict(enumerate(map(str, tokenizer))))
    if callable(tokenizer):
        return tokenizer  # type: ignore[no-any-return]
    raise TypeError(
        "`tokenizer` must have `convert_ids_to_tokens`, or be a function from token ids to words, or a vocabulary; got "
        f"{short_repr(tokenizer)}."
    )


def _look_up(vocabulary: Mapping[int, str], ids: Sequence[int]) -> list[str]:
    return [vocabulary.get(number, str(number)) for number in ids]
