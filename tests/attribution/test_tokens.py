"""Methods on token ids: by hiding tokens, or by their embeddings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import twinlens as tl
from tests.checkpoints import classifier, save_language_model, transformers
from twinlens.probing.tokens import TokenModel

TOKENS = torch.tensor([[[4, 5, 6, 0], [1, 1, 1, 0]], [[7, 4, 6, 5], [1, 1, 1, 1]]])


class Adding(nn.Module):
    """Adds up the values of tokens that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Embedding(8, 1)
        self.values.weight.data = torch.tensor([0.0, 0, 0, 0, 3, 2, -1, 4]).reshape(-1, 1)  # 1 on average

    def forward(self, input_ids, attention_mask):
        total = (self.values(input_ids)[..., 0] * attention_mask).sum(dim=1)
        return torch.stack([-total, total], dim=1)


class Plain(nn.Module):
    """Reads ids without an attention mask."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Adding()

    def forward(self, ids):
        return self.inner(ids, torch.ones_like(ids))


@pytest.mark.parametrize("method", ["occlusion", "kernel_shap"])
def test_a_hidden_token_has_the_mean_embedding(method):
    expected = torch.tensor([[2.0, 1, -2, 0], [3, 2, -2, 1]])
    maps = tl.attribute(TokenModel(Adding()), TOKENS, [1, 1], method, sign="signed")
    assert torch.allclose(maps, expected, atol=1e-4)
    plain = tl.attribute(Plain(), TOKENS[1:, 0], [1], method, sign="signed")
    assert torch.allclose(plain, expected[1:], atol=1e-4)


def test_rise_finds_the_same_order():
    maps = tl.attribute(TokenModel(Adding()), TOKENS, [1, 1], "rise", masks=2000, sign="signed")
    assert maps[1].argsort().tolist() == [2, 3, 1, 0]
    assert abs(float(maps[0, 3])) < 0.1 * float(maps[0, 0])  # padding


def test_hiding_needs_an_embedding_and_whole_numbers():
    class Casting(nn.Linear):
        def forward(self, ids):
            return super().forward(ids.float())

    with pytest.raises(ValueError, match=r"must read token ids with an nn\.Embedding"):
        tl.attribute(Casting(4, 2), TOKENS[:, 0], [1, 1], "occlusion")
    with pytest.raises(ValueError, match="must be in float32 for rise on token ids"):
        tl.attribute(TokenModel(Adding().half()), TOKENS, [1, 1], "rise")


def test_methods_of_images_say_which_others_explain_tokens():
    with pytest.raises(ValueError, match="token ids, which gradcam cannot explain; saliency, integrated_gradients and"):
        tl.attribute(TokenModel(Adding()), TOKENS, [1, 1], "gradcam")


METHODS = {
    "attn_lrp": {"gamma": 0.0},
    "lrp": {},
    "attention_rollout": {},
    "gradient_attention": {},
    "kernel_shap": {},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    transformers()
    folder = save_language_model(tmp_path_factory.mktemp("hf"))
    return {"bert": TokenModel(classifier()), "gpt2": tl.load_model(f"hf:{folder}").module}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_transformers_are_explained_and_padding_is_not(models, name, method):
    """Relevance is conserved here, too: lrp and attn_lrp refuse a model for which it is not."""
    ids = torch.tensor([[2, 8, 5, 3, 0, 0], [2, 6, 9, 7, 5, 3]])
    tokens = torch.stack([ids, torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])], dim=1)
    maps = tl.attribute(models[name], tokens, [1, 1], method, sign="signed", **METHODS[method])
    assert maps.shape == (2, 6)
    assert float(maps[0, 4:].abs().max()) < 1e-4 < float(maps[0, :4].abs().max())
    alone = tl.attribute(models[name], tokens[:1, :, :4], [1], method, sign="signed", ids=["0"], **METHODS[method])
    assert torch.allclose(maps[:1, :4], alone, atol=1e-3, rtol=1e-3)
