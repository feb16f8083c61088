"""Texts and tokens of a run: how texts become tokens, which one a language model expects next, how they are removed."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from torch import Tensor

from twinlens.data.inputs import load_inputs
from twinlens.data.naming import Naming
from twinlens.data.samples import Samples
from twinlens.data.texts import NO_LABELS, tokenize
from twinlens.errors import DataError
from twinlens.imputation.imputers import Imputer, TokenImputer
from twinlens.models.huggingface import special_tokens
from twinlens.models.loading import LoadedModel
from twinlens.options import ModelDataOptions
from twinlens.probing.answers import Target, find_logits
from twinlens.probing.model_call import blaming
from twinlens.probing.tokens import are_tokens


def fit_texts(samples: Samples, model: LoadedModel, tokenizer: Any = None) -> Samples:
    """Turn texts into token ids, by the model's tokenizer or another one."""
    own = model.tokenizer if tokenizer is None else tokenizer
    if not samples.text:
        words = Naming() if own is None or not samples.tokenized else Naming.of(tokenizer=own)
        return dataclasses.replace(samples, naming=samples.naming.over(words))
    if own is None:
        raise DataError(
            f"`data` {samples.name} holds texts, and `model` {model.name} has no tokenizer. Pass `tokenizer`, or a "
            "model of transformers: hf:DIR."
        )
    return tokenize(samples, own, longest=model.longest, keep_end=model.continues_text)


def fit_labels(samples: Samples, model: LoadedModel, target: Target | None = None) -> Samples:
    """Let a language model find missing labels: for each prompt, the token that it expects next."""
    if not samples.unlabelled or target is not None:
        return samples
    if not model.continues_text:
        raise DataError(NO_LABELS)
    # One at a time: an answer must not depend on other prompts, or the labels of a run could not be found again.
    rows = (load_inputs(samples.take([k]), model, workers=1) for k in range(len(samples)))
    with blaming("model"):
        labels = [int(find_logits(model.call(row))[0].argmax()) for row in rows]
    return dataclasses.replace(samples, labels=np.array(labels, dtype=np.int64), unlabelled=False)


def warn_of_padding(inputs: Tensor, tokenizer: Any) -> None:
    """Warn of ids that end in padding, without a mask that tells the model so."""
    padding = getattr(tokenizer, "pad_token_id", None)
    if not are_tokens(inputs) or inputs.dim() != 2 or padding is None:
        return
    # One id at the beginning may be that of a language model's first token.
    if bool((inputs[:, -1] == padding).any() or (inputs[:, :2] == padding).all(dim=1).any()):
        warnings.warn(
            "Token ids are padded, and come without an attention mask: the model reads padding as text. Pass what the "
            "tokenizer returns, with its attention_mask.",
            stacklevel=4,
        )


def find_tokenizer(model: LoadedModel, options: ModelDataOptions) -> Any:
    """Return the tokenizer of transformers that the options or the model bring; None for vocabularies and functions."""
    own = model.tokenizer if options.tokenizer is None else options.tokenizer
    return own if hasattr(own, "all_special_ids") else None


def token_imputer(tokenizer: Any) -> TokenImputer | None:
    """Return how tokens are removed by default: by the mask token if there is one, or by the mean embedding."""
    return None if tokenizer is None else with_tokenizer(TokenImputer(), tokenizer)


def with_tokenizer(imputer: Imputer, tokenizer: Any) -> Any:
    """Complete an imputer of tokens with what the tokenizer knows: its mask token and its special tokens."""
    if tokenizer is None or not isinstance(imputer, TokenImputer):
        return imputer
    mask, special = tokenizer.mask_token_id, special_tokens(tokenizer)
    changes: dict[str, Any] = {"special": imputer.special or special}
    if imputer.mask_id is None and imputer.removal == "auto":
        changes |= {"mask_id": mask, "removal": "mean" if mask is None else "mask"}
    return dataclasses.replace(imputer, **changes)
