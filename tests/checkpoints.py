"""Directories as `save_pretrained` writes them: tiny models of transformers with tokenizers, trained on the spot."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from twinlens.models.packages import import_package

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD, BAD = ["good", "great", "fine"], ["bad", "dull", "weak"]
OTHER = ["the", "film", "plot", "was", "and", "music", "very", "end", "##ly", "##ness"]
WORDS = [*SPECIAL, *GOOD, *BAD, *OTHER]
REVIEWS = [
    ("the film was good", "positive"),
    ("the plot was bad and very weak", "negative"),
    ("great music and the end was fine", "positive"),
    ("very dull", "negative"),
    ("the goodness was great", "positive"),
    ("the music and the plot was bad", "negative"),
    ("fine film and the very end was badly weak", "negative"),
    ("the end was greatly good", "positive"),
]


def transformers() -> Any:
    """Return the package, or skip the test where it is not installed."""
    pytest.importorskip("transformers")
    return import_package("transformers", "hf")


def word_pieces(words: list[str] = WORDS, *, frame: bool = True, **more: str) -> Any:
    """Return a tokenizer of words and pieces, with [CLS] and [SEP] around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if frame:
        ends = [("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", **more}
    if frame:
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return transformers().PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def classifier(names: tuple[str, str] | None = ("negative", "positive")) -> Any:
    """Return a BERT that counts good and bad words, nearly exactly."""
    library = transformers()
    named = {} if names is None else {"id2label": dict(enumerate(names))}
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = library.BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=24, num_labels=2, hidden_dropout_prob=0.0, **shape, **named
    )
    model = library.BertForSequenceClassification(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(120):
        ids = torch.randint(4, len(WORDS), (32, 8), generator=draw)  # masks among them
        ids[:, 0], ids[:, -1] = 2, 3
        values = torch.tensor([(word in GOOD) - (word in BAD) for word in WORDS]).float()[ids].sum(dim=1)
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(input_ids=ids).logits.diff(dim=1)[:, 0], (values > 0).float() / 2 + (values >= 0).float() / 2
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def save_classifier(folder: Path) -> Path:
    """Write the classifier with its tokenizer."""
    classifier().save_pretrained(folder)
    word_pieces().save_pretrained(folder)
    return folder


def write_reviews(path: Path, header: tuple[str, str] = ("text", "label"), rows: Any = REVIEWS) -> Path:
    """Write a table of texts and labels."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def toy_language_model(size: int = 9) -> Any:
    """Return a function in the style of a language model: each token determines the next."""
    table = nn.Embedding(size, size)
    return lambda input_ids, attention_mask: SimpleNamespace(logits=table(input_ids))


NOUNS = ["key", "dog", "cabinet", "door"]


def sentences() -> list[tuple[str, str]]:
    """Return prompts, and the verb that agrees with their first noun."""
    pairs = [(first, second) for first in NOUNS for second in NOUNS if first != second]
    return [
        (f"The {first}{one} near the {second}{other}", "are" if one else "is")
        for first, second in pairs
        for one in ("", "s")
        for other in ("", "s")
    ]


def byte_pairs() -> Any:
    """Return a byte-level tokenizer in the style of GPT-2, without a mask token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [f"{prompt} {verb} here." for prompt, verb in sentences()]
    tokenizer.train_from_iterator(
        20 * corpus,
        trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False),
    )
    end = "<|endoftext|>"
    return transformers().PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=end)


def save_language_model(folder: Path, steps: int = 60) -> Path:
    """Write a GPT-2 that learnt the agreement of verbs, and its tokenizer."""
    library, tokenizer = transformers(), byte_pairs()
    torch.manual_seed(0)
    config = library.GPT2Config(
        vocab_size=len(tokenizer), n_positions=24, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = library.GPT2LMHeadModel(config)
    model.train()
    rows = [tokenizer(f"{prompt} {verb}")["input_ids"] for prompt, verb in sentences()]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    # Only verbs are learnt: other words cannot be predicted.
    verbs = torch.tensor([[-100] * (len(row) - 1) + row[-1:] + [-100] * (longest - len(row)) for row in rows])
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=verbs).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
