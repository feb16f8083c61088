"""Text data as people have them: data sets of Hugging Face, lists of dicts, loaders that pad, texts."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import twinlens as tl
from twinlens.run.fingerprints import read_fingerprints

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "was"]
QUICK = {"metrics": ["soundness_rank"], "control": "none", "resamples": 50, "threads": 1, "batch_size": 64}
HOW = QUICK | {"imputer": tl.TokenImputer(3, special=(0, 1, 2)), "tokenizer": WORDS}
TEXTS = ["[CLS] the film was good [SEP]", "[CLS] bad film [SEP]", "[CLS] the good film was good [SEP]"]
IDS = [[WORDS.index(word) for word in text.split()] for text in TEXTS]
LABELS = [1, 0, 1]


class Counter(nn.Module):
    """Counts good and bad words, and reads no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Embedding(len(WORDS), 1)
        self.values.weight.data = torch.tensor([[float((w == "good") - (w == "bad"))] for w in WORDS])
        self.values.weight.data[0] = 100.0

    def forward(self, input_ids, attention_mask):
        total = (self.values(input_ids)[..., 0] * attention_mask).sum(dim=1)
        return SimpleNamespace(logits=torch.stack([-total, total], dim=1))


def rows(mask=True):
    more = [{"attention_mask": [1] * len(ids)} if mask else {} for ids in IDS]
    return [{"input_ids": ids, "label": label, **each} for ids, label, each in zip(IDS, LABELS, more, strict=True)]


def padded(items):
    """Pad a batch as DataCollatorWithPadding does."""
    longest = max(len(item["input_ids"]) for item in items)
    ids = torch.tensor([item["input_ids"] + [0] * (longest - len(item["input_ids"])) for item in items])
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.tensor([item["label"] for item in items]),
    }


class Listed:
    """A data set with a length and items, as torch and Hugging Face have them."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return self.items[k]


def hugging_face_set():
    return pytest.importorskip("datasets").Dataset.from_list(rows())


def named_set():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"input_ids": datasets.List(datasets.Value("int64")), "label": datasets.ClassLabel(names=["boo", "bravo"])}
    )
    return datasets.Dataset.from_list(rows(mask=False), features=features)


DATA = {
    "list of dicts": rows,
    "without masks": lambda: rows(mask=False),
    "data set of dicts": lambda: Listed(rows()),
    "data set of pairs": lambda: Listed([({"input_ids": r["input_ids"]}, r["label"]) for r in rows()]),
    "loader that pads": lambda: DataLoader(Listed(rows()), batch_size=2, collate_fn=padded),
    "Hugging Face": hugging_face_set,
    "Hugging Face with names": named_set,
    "arrays": lambda: ({key: value for key, value in padded(rows()).items() if key != "labels"}, LABELS),
}


@pytest.mark.parametrize("kind", DATA)
def test_tokens_are_taken_as_they_are(kind):
    found = tl.evaluate(Counter(), DATA[kind](), ["integrated_gradients", "random"], **HOW)
    assert found.results.accuracy == 1
    assert found.run.manifest.data.shape == (2, 7)
    assert found.curve("random", "soundness_rank").table.counts.tolist() == [4, 2, 5]
    maps = found.maps("integrated_gradients")
    assert maps.shape == (3, 7)
    assert maps[0].argmax() == IDS[0].index(WORDS.index("good"))
    assert bool((maps[1, 4:] == 0).all())  # padding
    if kind.endswith("names"):
        assert found.run.manifest.model.classes == ("boo", "bravo")


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series])
def test_texts_come_in_lists_arrays_and_columns(kind):
    def tokenizer(texts):
        return {"input_ids": [[WORDS.index(word) for word in text.split()] for text in texts]}

    tokenizer.convert_ids_to_tokens = lambda ids: [WORDS[number] for number in ids]
    found = tl.evaluate(Counter(), (kind(TEXTS), kind(LABELS)), ["random"], **HOW | {"tokenizer": tokenizer})
    assert found.results.accuracy == 1
    assert found.curve("random", "soundness_rank").table.counts.tolist() == [4, 2, 5]


def test_content_does_not_depend_on_padding():
    long = tl.evaluate(Counter(), rows(), ["random"], **HOW)
    short = tl.evaluate(Counter(), rows()[:2], ["random"], **HOW)
    assert read_fingerprints(short.run) == read_fingerprints(long.run)[:2]


def test_texts_in_dicts_need_a_tokenizer_that_reads():
    items = [{"text": "a good film", "label": 1}]
    with pytest.raises(tl.DataError, match="holds texts, and `model` Counter has no tokenizer"):
        tl.evaluate(Counter(), items, ["random"], **QUICK)
    with pytest.raises(tl.DataError, match=r"`tokenizer` must turn texts into 'input_ids'.* list fails"):
        tl.evaluate(Counter(), items, ["random"], **HOW)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0.5, 2.5]] * 3, r"got \[0\.5, 2\.5\]"),
        ([[-1, 2]] * 3, r"got \[-1, 2\]"),
        ([[1, 2]], "got 1 rows for 3 texts"),
        (["a"] * 3, "got 'a'"),
        ([10**25] * 3, "got 1000"),
    ],
)
def test_tokenizers_must_return_ids(ids, message):
    with pytest.raises(
        tl.DataError, match=r"`tokenizer` must turn texts into .*integers >= 0 for each text; " + message
    ):
        tl.evaluate(Counter(), (TEXTS, LABELS), ["random"], **HOW | {"tokenizer": lambda _: {"input_ids": ids}})


def test_a_tokenizer_may_not_end_the_program():
    with pytest.raises(tl.DataError, match=r"`tokenizer` called sys\.exit\(3\)"):
        tl.evaluate(Counter(), (TEXTS, LABELS), ["random"], **HOW | {"tokenizer": lambda _: sys.exit(3)})


def test_texts_that_are_not_unicode_are_named():
    with pytest.raises(tl.DataError, match=r"must be Unicode; the one at 1 is 'bad \\ud800 film'"):
        tl.evaluate(Counter(), ([TEXTS[0], "bad \ud800 film"], [1, 0]), ["random"], **HOW)


def test_functions_are_called_by_the_names_of_tokens():
    counter = Counter()

    def model(input_ids, attention_mask):
        return counter(input_ids, attention_mask).logits

    assert tl.evaluate(model, rows(), ["random"], **HOW).results.accuracy == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": [4.0, 5.0]}, "`input_ids` and `attention_mask` of sample '00001' must be integers"),
        ({"attention_mask": [0, 0, 0, 0]}, "and not all padding"),
        ({"label": "bravo"}, "Labels are names, such as 'bravo', and the classes of `model` have none"),
        ({"label": [1, 2]}, "Labels of `data` must be one number each; that of sample '00001'"),
    ],
)
def test_items_that_cannot_be_used(change, message):
    items = rows()
    items[1] |= change
    with pytest.raises(tl.DataError, match=message):
        tl.evaluate(Counter(), items, ["random"], **HOW)


def test_a_split_has_to_be_chosen():
    with pytest.raises(tl.DataError, match=r"holds several data sets, train, test. Pass one of them, as in data\['te"):
        tl.evaluate(Counter(), {"train": Listed(rows()), "test": Listed(rows())}, ["random"], **HOW)
