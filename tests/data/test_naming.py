"""Names of columns, channels and tokens: where they come from, and what is refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression, Ridge

import twinlens as tl
from twinlens.data.naming import NAMELESS, Naming, find_words
from twinlens.data.samples import from_arrays
from twinlens.errors import DataError
from twinlens.options import Options
from twinlens.run.setup import open_setup

WORDS = ["[PAD]", "good", "bad"]


def names_of(model, data, **options):
    return open_setup(model, data, Options(**options), device=None).samples.naming.feature_names


class Tokenizer:
    """What those of transformers have."""

    def convert_ids_to_tokens(self, ids):
        assert isinstance(ids, list)
        return [WORDS[k] for k in ids]


@pytest.mark.parametrize(
    "tokenizer",
    [
        Tokenizer(),
        WORDS,
        np.array(WORDS),
        dict(enumerate(WORDS)),
        {word: k for k, word in enumerate(WORDS)},
        Tokenizer().convert_ids_to_tokens,
    ],
)
def test_words_come_from_what_people_have(tokenizer):
    tokens = {"input_ids": [[1, 2, 0]], "attention_mask": [[1, 1, 0]]}
    samples = from_arrays(tokens, [0], tokenizer=tokenizer)
    inputs = torch.from_numpy(samples.read(0))[None]
    assert samples.naming.words_of(inputs) == [["good", "bad", "[PAD]"]]
    assert samples.tokenized
    assert pickle.loads(pickle.dumps(samples)).naming.words_of(inputs) == [["good", "bad", "[PAD]"]]
    assert Naming.of(tokenizer=WORDS).words_of(torch.tensor([[2, 9]])) == [["bad", "9"]]  # ids that nobody named
    assert NAMELESS.words_of(inputs) is None


@pytest.mark.parametrize(
    ("naming", "inputs", "message"),
    [
        ({"feature_names": ["a"]}, torch.zeros(2, 3), r"got 1 names, and inputs have shape \(2, 3\)"),
        (
            {"feature_names": ["a"]},
            torch.zeros(2, 3, dtype=torch.int64),
            "the words of token ids come from `tokenizer`",
        ),
        ({"tokenizer": WORDS}, torch.zeros(2, 3), "`tokenizer` belongs to token ids, which are integers"),
        ({"sampling_rate": 5.0}, torch.zeros(2, 3), r"`sampling_rate` belongs to signals \(N, C, T\)"),
        ({"tokenizer": lambda ids: "ab"}, torch.ones(1, 3).long(), "one string per token; got 2 for 3 tokens"),
        ({"tokenizer": lambda ids: 1 / 0}, torch.ones(1, 2).long(), r"fails on the ids \[1, 1\]: division by zero"),
    ],
)
def test_names_that_do_not_fit_are_refused(naming, inputs, message):
    with pytest.raises(DataError, match=message):
        Naming.of(**naming).check(inputs)


def test_what_names_nothing_is_refused():
    for rate in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="`sampling_rate` must be a number of time steps per second"):
            Naming.of(sampling_rate=rate)
    for tokenizer in (3, "words"):
        with pytest.raises(TypeError, match="`tokenizer` must have `convert_ids_to_tokens`"):
            find_words(tokenizer)


def test_columns_are_named_by_the_first_who_knows():
    bunch = load_wine()
    names = tuple(bunch.feature_names)
    frame = pd.DataFrame(bunch.data, columns=names)
    plain = LogisticRegression(max_iter=5000).fit(bunch.data, bunch.target)
    fitted = LogisticRegression(max_iter=5000).fit(frame, bunch.target)
    assert names_of(plain, (bunch.data, bunch.target)) is None
    assert names_of(plain, (pd.DataFrame(bunch.data), bunch.target)) is None  # numbered columns
    assert names_of(plain, (frame, bunch.target)) == names
    assert names_of(plain, bunch) == names
    assert names_of(fitted, (bunch.data, bunch.target)) == names
    own = tuple("abcdefghijklm")
    assert names_of(fitted, (frame, bunch.target), feature_names=own) == own
    assert names_of(fitted, from_arrays(bunch.data, bunch.target, feature_names=own)) == own
    with pytest.raises(DataError, match=r"`feature_names` must name the columns .*; got 1 names"):
        names_of(plain, (frame, bunch.target), feature_names=("a",))


def test_a_data_set_of_scikit_learn_is_taken_as_it_is():
    bunch = load_breast_cancer()
    model = LogisticRegression(max_iter=10000).fit(bunch.data, bunch.target)
    setup = open_setup(model, bunch, Options(limit=20), device=None)
    assert (setup.samples.name, setup.samples.classes) == ("Bunch", ("malignant", "benign"))
    # An estimator that was fitted to names has them in another order.
    by_name = LogisticRegression(max_iter=10000).fit(bunch.data, bunch.target_names[bunch.target])
    setup = open_setup(by_name, bunch, Options(limit=20), device=None)
    assert setup.samples.classes == ("benign", "malignant")
    assert [setup.samples.classes[k] for k in setup.samples.labels] == [
        bunch.target_names[bunch.target[int(name)]] for name in setup.samples.ids
    ]
    values = load_diabetes()
    regression = Ridge().fit(values.data, values.target)
    setup = open_setup(regression, values, Options(limit=20, performance="r2", metrics=[]), device=None)
    assert setup.task == "regression"
    assert setup.samples.naming.feature_names == tuple(values.feature_names)


def test_samples_of_a_tokenizer_are_called_by_name():
    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(9, 2)

        def forward(self, input_ids, attention_mask):
            return (self.table(input_ids) * attention_mask[..., None]).sum(dim=1)

    tokens = {"input_ids": torch.tensor([[1, 2], [3, 4], [1, 4]]), "attention_mask": torch.ones(3, 2).long()}
    samples = tl.data.from_arrays(tokens, [0, 1, 0], tokenizer=[*"abcdefghi"])
    found = tl.evaluate(Classifier(), samples, ["random"], metrics=[], imputer=tl.TokenImputer(0))
    assert len(found.ids()) == 3
