"""Sources of the built-in suites: the same model and samples each time, and models that know their task."""

import numpy as np
import pytest
import torch

from twinlens.models.mnist_cnn import mnist_digits
from twinlens.probing.answers import find_logits
from twinlens.probing.tokens import pack_tokens
from twinlens.suites.definition import built_in_suites
from twinlens.suites.digit_vit import trained_vit
from twinlens.suites.small_transformers import GRAMMAR, SENTENCES, load_transformer, train_transformer
from twinlens.suites.task_sources import SOURCES

LANGUAGES = pytest.mark.parametrize("language", [SENTENCES, GRAMMAR], ids=lambda language: language.name)


def test_every_source_belongs_to_a_suite():
    used = {task.source for suite in built_in_suites().values() for task in suite.tasks.values()}
    assert used - {None} == set(SOURCES)


@pytest.mark.parametrize("name", ["wine/forest", "wine/boosting"])
def test_a_fitted_model_is_the_same_each_time_and_knows_its_rows(name):
    one, other = SOURCES[name](), SOURCES[name]()
    rows = np.stack([one.samples.read(k) for k in range(len(one.samples))])
    np.testing.assert_array_equal(one.model.predict_proba(rows), other.model.predict_proba(rows))
    assert (one.model.predict(rows) == one.samples.labels).mean() > 0.9


@LANGUAGES
def test_transformers_know_sentences_that_they_have_not_seen(language):
    tokens, labels = language.sentences(300, seed=10_000)
    with torch.no_grad():
        logits = find_logits(load_transformer(language)(pack_tokens(tokens)))[0]
    assert (logits.argmax(dim=1) == labels).double().mean() > 0.98


@LANGUAGES
def test_the_start_of_the_training_is_repeatable(language):
    import dataclasses

    short = dataclasses.replace(language, steps=2)
    one, other = train_transformer(short).state_dict(), train_transformer(short).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert load_transformer(language).model.state_dict().keys() == one.keys()


def test_the_transformer_of_digits_knows_held_out_digits():
    pixels, labels = mnist_digits(held_out=True)
    with torch.no_grad():
        logits = trained_vit()(torch.from_numpy(pixels).unsqueeze(1).float() / 255)
    assert (logits.argmax(dim=1).numpy() == labels).mean() > 0.94
