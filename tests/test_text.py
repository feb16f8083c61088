"""Text: features are tokens, special ones stay, classifiers in the style of transformers are called as they want."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl

PAD, CLS, SEP, MASK = 0, 1, 2, 3
IMPUTER = tl.TokenImputer(MASK, special=(PAD, CLS, SEP))
QUICK = {"metrics": ["soundness_rank", "completeness"], "resamples": 50, "threads": 1, "batch_size": 64}


class Classifier(nn.Module):
    """Adds up what each token says; positions weigh differently, and padding is not read."""

    def __init__(self, tokens: int = 12, length: int = 8) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embeddings, self.positions = nn.Embedding(tokens, 6), nn.Embedding(length, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, input_ids, attention_mask=None):
        places = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        assert (input_ids[seen == 0] == PAD).all()  # padding is never replaced
        states = (self.embeddings(input_ids) * (1 + self.positions(places))).tanh() * seen[..., None]
        return SimpleNamespace(logits=self.head(states.sum(dim=1)))


@pytest.fixture(scope="module")
def model() -> Classifier:
    return Classifier().eval()


@pytest.fixture(scope="module")
def tokens() -> dict[str, torch.Tensor]:
    ids = torch.randint(4, 12, (10, 8), generator=torch.manual_seed(0))
    mask = torch.ones_like(ids)
    for sample, length in enumerate([8, 8, 7, 7, 6, 6, 5, 5, 4, 4]):
        ids[sample, 0], ids[sample, length - 1] = CLS, SEP
        ids[sample, length:], mask[sample, length:] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(scope="module")
def labels(model, tokens) -> torch.Tensor:
    return model(**tokens).logits.argmax(dim=1)


def test_what_a_tokenizer_returns(model, tokens, labels, tmp_path):
    methods = ["integrated_gradients", "input_x_gradient", "saliency", "random"]
    found = tl.evaluate(model, (tokens, labels), methods, imputer=IMPUTER, out=tmp_path / "run", **QUICK)
    assert not found.failures
    assert found.results.accuracy == 1
    table = found.curve("random", "completeness").table
    assert table.counts.tolist() == [6, 6, 5, 5, 4, 4, 3, 3, 2, 2]  # without first, last and padding
    maps = found.maps("integrated_gradients")
    direct = tl.completeness(model, tokens, labels, maps, imputer=IMPUTER, ids=found.ids())
    assert np.array_equal(direct.values, found.curve("integrated_gradients", "completeness").values)
    best = found.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
    assert best["integrated_gradients"] > best["random"]
    assert (tmp_path / "run" / "report.html").exists()
    again = tl.evaluate(model, (tokens, labels), methods, imputer=IMPUTER, out=tmp_path / "run", **QUICK)
    assert again.summary().equals(found.summary())


def test_removed_tokens_are_replaced_and_special_ones_stay(model, tokens, labels):
    seen = []

    def watched(input_ids, attention_mask):
        seen.append((input_ids.clone(), attention_mask.clone()))
        return model(input_ids, attention_mask)

    maps = torch.rand(10, 8, generator=torch.manual_seed(0))
    tl.road(watched, tokens, labels, maps, imputer=IMPUTER, levels=(0.5, 1.0))
    last = torch.cat([ids for ids, _ in seen]).reshape(10, 3, 8)[:, -1]  # all features removed
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    special = (ids <= SEP) | (mask == 0)
    assert torch.equal(last, torch.where(special, ids, MASK))
    assert all(torch.isin(given, mask).all() for _, given in seen)


def test_what_is_falsely_marked_is_found_among_the_tokens(model, tokens, labels):
    maps = torch.rand(10, 8, generator=torch.manual_seed(0))
    curve = tl.soundness(model, tokens, labels, maps, imputer=IMPUTER)
    false = curve.false_features(maps)
    assert false.shape == maps.shape
    assert bool(false.any())
    assert not bool(false[(tokens["input_ids"] <= SEP)].any())  # special tokens and padding are not judged
    assert torch.equal(false, curve.false_features(maps, segments=IMPUTER.segments(tokens["input_ids"])))


def test_metrics_that_are_the_same_for_tokens_are_measured_once(model, tokens, labels):
    found = tl.evaluate(model, (tokens, labels), ["random"], imputer=IMPUTER, **QUICK | {"metrics": "all"})
    assert {"road_morf", "road_lerf"} <= set(found.metrics)
    assert not {"deletion", "insertion"} & set(found.metrics)
    asked = tl.evaluate(model, (tokens, labels), ["random"], imputer=IMPUTER, **QUICK | {"metrics": ["deletion"]})
    assert set(asked.metrics) == {"deletion"}


def test_ids_without_a_mask(model, tokens):
    ids = tokens["input_ids"][:2]
    found = tl.evaluate(model, (ids, [0, 1]), {"mine": lambda *_: torch.rand(2, 8)}, imputer=IMPUTER, **QUICK)
    assert found.curve("mine", "completeness").table.counts.tolist() == [6, 6]


def test_gradients_are_those_of_the_embeddings(model, tokens, labels):
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    embedded = model.embeddings(ids).detach().requires_grad_()
    places = torch.arange(8).expand_as(ids)
    states = (embedded * (1 + model.positions(places))).tanh() * mask[..., None]
    model.head(states.sum(dim=1)).gather(1, labels[:, None]).sum().backward()
    packed = torch.stack([ids, mask], dim=1)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x[:, 0], x[:, 1]).logits

    by_input = (embedded * embedded.grad).sum(dim=2).clamp(min=0)
    assert torch.allclose(tl.attribute(Packed(), packed, labels, "input_x_gradient"), by_input, atol=1e-6)
    assert torch.allclose(
        tl.attribute(Packed(), packed, labels, "saliency"), embedded.grad.abs().amax(dim=2), atol=1e-6
    )


def test_integrated_gradients_are_complete_and_equal_those_of_captum(model, tokens, labels):
    captum = pytest.importorskip("captum.attr")
    forward = lambda ids, mask: model(ids, mask).logits  # noqa: E731
    zero = torch.zeros(1, 8, 6)

    class ZeroEmbedding(captum.LayerIntegratedGradients):
        """Starts from embeddings of zero, as ours does."""

    layer = ZeroEmbedding(forward, model.embeddings)
    methods = {"captum": {"method": layer, "n_steps": 400}, "ours": "integrated_gradients"}
    found = tl.evaluate(model, (tokens, labels), methods, imputer=IMPUTER, **QUICK)
    # Captum starts from the embedding of token 0, which is made zero here.
    with torch.no_grad():
        kept = model.embeddings.weight[PAD].clone()
        model.embeddings.weight[PAD] = zero[0, 0]
    try:
        found = tl.evaluate(model, (tokens, labels), methods, imputer=IMPUTER, **QUICK)
        assert torch.allclose(found.maps("captum"), found.maps("ours"), atol=2e-3)
    finally:
        with torch.no_grad():
            model.embeddings.weight[PAD] = kept


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"imputer": None}, ValueError, r"need a `tokenizer` of transformers, or imputer=tl\.TokenImputer"),
        ({"methods": ["gradcam"]}, tl.RunError, "`inputs` are token ids, which gradcam cannot explain; saliency"),
        ({"imputer": tl.ConstantImputer(0.0)}, ValueError, r"imputer=tl\.TokenImputer\(mask_id\)"),
        ({"metrics": [tl.Deletion(imputer="blur")]}, tl.RunError, r"pass imputer=tl\.TokenImputer\(mask_id\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fails and is left out")
def test_what_does_not_fit_text_is_refused(model, tokens, labels, change, error, message):
    asked = QUICK | {"methods": ["random"], "imputer": IMPUTER} | change
    with pytest.raises(error, match=message):
        tl.evaluate(model, (tokens, labels), **asked)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": torch.ones(2, 3)}, "must hold 'input_ids' and 'attention_mask'"),
        ({"input_ids": torch.ones(2, 3)}, "must be integers of one shape"),
        ({"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(2, 2).long()}, "padding=True"),
    ],
)
def test_tokens_that_cannot_be_used_are_refused(model, given, message):
    with pytest.raises(ValueError, match=message):
        tl.completeness(model, given, [0, 1], torch.rand(2, 3), imputer=IMPUTER)


def test_models_without_an_embedding_say_so(tokens):
    model = nn.Sequential(nn.Linear(8, 2))
    wrapped = lambda x: model(x.float())  # noqa: E731
    with (
        pytest.raises(tl.RunError, match=r"must read token ids with an nn\.Embedding"),
        pytest.warns(match="saliency fails"),
    ):
        tl.evaluate(wrapped, (tokens["input_ids"], [0] * 10), ["saliency"], imputer=IMPUTER, **QUICK)
