"""Models of transformers by their directory: what is loaded, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.checkpoints import save_classifier, transformers, word_pieces
from twinlens.models.loading import comes_from_a_library

EXAMPLE = torch.tensor([[[2, 5, 6, 3, 0, 0], [1, 1, 1, 1, 0, 0]]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    transformers()
    return save_classifier(tmp_path_factory.mktemp("hf") / "reviews")


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def change(path, **values):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | values))


def test_a_classifier_with_its_tokenizer_and_class_names(folder):
    model = tl.load_model(f"hf:{folder}")
    assert model.classes == ("negative", "positive")
    assert model.longest == 24
    assert model.tokenizer.mask_token == "[MASK]"
    own = transformers().AutoModelForSequenceClassification.from_pretrained(folder).eval()
    whole = own(input_ids=EXAMPLE[:, 0], attention_mask=EXAMPLE[:, 1]).logits
    assert torch.allclose(model.call(EXAMPLE).logits, whole, atol=1e-6)
    assert comes_from_a_library(f"hf:{folder}")  # data, not code
    assert not comes_from_a_library("hf:somebody/model")  # which would be fetched


def test_padding_at_the_end_is_not_computed(folder):
    model, lengths = tl.load_model(f"hf:{folder}"), []
    model.module.model.register_forward_pre_hook(
        lambda _, __, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    model.call(EXAMPLE)
    assert lengths == [4]


def test_a_copy_is_the_same_model_and_another_tokenizer_another(folder, copy):
    digest = tl.load_model(f"hf:{folder}").digest(EXAMPLE)
    assert tl.load_model(f"hf:{copy}").digest(EXAMPLE) == digest
    changed = json.loads((copy / "tokenizer.json").read_text())
    changed["model"]["vocab"] |= {"good": 8, "bad": 5}
    (copy / "tokenizer.json").write_text(json.dumps(changed))
    assert tl.load_model(f"hf:{copy}").digest(EXAMPLE) != digest


def test_images_are_prepared_as_by_the_processor(tmp_path):
    library = transformers()
    config = library.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=3
    )
    library.ViTForImageClassification(config).save_pretrained(tmp_path)
    processor = library.ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path)
    model = tl.load_model(f"hf:{tmp_path}")
    assert model.classes is None
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 40, 3), dtype=np.uint8))
    ours, theirs = model.preprocessing(image), processor(image, return_tensors="pt")["pixel_values"][0]
    assert (ours - theirs).abs().max() < 0.03  # of -1 to 1: a few grey values between two ways to resize
    assert model.call(ours[None]).logits.shape == (1, 3)


def test_weights_that_could_be_code_are_refused(copy):
    state = tl.load_model(f"hf:{copy}").module.model.state_dict()
    (copy / "model.safetensors").unlink()
    torch.save(state, copy / "pytorch_model.bin")
    with pytest.raises(tl.ModelError, match=r"has no weights as safetensors, and other files may hold code"):
        tl.load_model(f"hf:{copy}")


def test_code_that_comes_with_a_model_is_never_run(copy):
    (copy / "evil.py").write_text("raise SystemExit('this ran')")
    change(copy / "config.json", model_type="unheard-of", auto_map={"AutoConfig": "evil.Config"})
    with pytest.raises(tl.ModelError, match="needs code that comes with it, which is never run"):
        tl.load_model(f"hf:{copy}")


def test_a_configuration_names_no_implementation_on_the_hub(folder, copy):
    expected = tl.load_model(f"hf:{folder}").call(EXAMPLE).logits
    change(copy / "config.json", _attn_implementation="somebody/kernel", _experts_implementation="somebody/kernel")
    assert torch.allclose(tl.load_model(f"hf:{copy}").call(EXAMPLE).logits, expected, atol=1e-6)
    tl.load_model(f"hf:{copy}", weights="none")


def test_quantised_models_and_adapters_are_refused(copy):
    (copy / "adapter_config.json").write_text("{}")
    with pytest.raises(tl.ModelError, match=r"has an adapter beside its weights.* Merge it"):
        tl.load_model(f"hf:{copy}")
    (copy / "adapter_config.json").unlink()
    change(copy / "config.json", quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(tl.ModelError, match="is quantised, and what computes with its weights may be fetched as code"):
        tl.load_model(f"hf:{copy}")


def test_a_model_without_its_head_is_refused(folder, copy):
    body = transformers().BertModel.from_pretrained(folder)
    body.save_pretrained(copy)
    change(copy / "config.json", architectures=["BertForSequenceClassification"])
    with pytest.raises(tl.ModelError, match=r"lacks weights, such as 'classifier\.bias' \(2 of them\)"):
        tl.load_model(f"hf:{copy}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hf:", "must name a directory of save_pretrained"),
        ("hf:./nowhere", r"there is no directory '\./nowhere'"),
        ("hf:{empty}", r"the directory has no config\.json"),
        ("hf:someone/something", "neither a directory nor in the local cache.*offline, pass a directory"),
    ],
)
def test_what_is_not_there_is_named(spec, message, tmp_path, monkeypatch):
    transformers()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(tl.ModelError, match=message):
        tl.load_model(spec.format(empty=tmp_path))


def test_other_tasks_are_refused(copy):
    change(copy / "config.json", architectures=["BertForQuestionAnswering"])
    with pytest.raises(tl.ModelError, match=r"must be for sequence classification, image .* it is BertForQuestionAns"):
        tl.load_model(f"hf:{copy}")


def test_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(tl.ModelError, match=r'This needs transformers: pip install "\.\[hf\]"'):
        tl.load_model("hf:anything")


def test_special_tokens_are_no_words_but_unknown_words_are(folder):
    from twinlens.models.huggingface import special_tokens

    assert special_tokens(word_pieces()) == (0, 2, 3, 4)  # 1 is [UNK]
