"""Causal language models: the next token is the class, and the tokens of the prompt are the features."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import twinlens as tl
from tests.checkpoints import save_language_model, sentences, toy_language_model, transformers, write_reviews
from twinlens.cli.main import main
from twinlens.run.reopening import reopen
from twinlens.run.sample_selection import read_selection

QUICK = {"metrics": "headline", "resamples": 50, "threads": 1, "batch_size": 64}
PROMPTS, VERBS = zip(*sentences(), strict=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    transformers()
    return save_language_model(tmp_path_factory.mktemp("hf") / "agreement")


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    data = write_reviews(out.parent / "prompts.csv", header=("prompt", "label"), rows=sentences())
    flags = ["--model", f"hf:{folder}", "--data", str(data), "--methods", "integrated_gradients,random", "--quiet"]
    assert main(["evaluate", *flags, "--out", str(out), "--resamples", "50", "--threads", "1"]) == 0
    return tl.open_evaluation(out)


def test_one_command_from_prompts_to_a_page(run):
    assert run.results.accuracy > 0.9
    selection = read_selection(run.run)
    assert "ĠThe" not in selection.words[0]
    assert selection.next_words[selection.samples[0].label] in ("Ġis", "Ġare")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert '"label": "are"' in page or '"label":"are"' in page
    assert run.run.manifest.settings.imputer["removal"] == "mean"  # there is no mask token
    assert run.run.manifest.model.classes is None  # a vocabulary would fill run.json


def test_every_token_of_a_prompt_is_a_feature(run, folder):
    maps, model = run.maps("integrated_gradients"), tl.load_model(f"hf:{folder}")
    values = run.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
    assert values["integrated_gradients"] > values["random"]
    row = PROMPTS.index("The keys near the cabinet")
    words = model.tokenizer.convert_ids_to_tokens(model.tokenizer(PROMPTS[row])["input_ids"])
    counts = run.curve("random", "soundness_rank").table.counts
    assert counts[row] == len(words)
    assert maps.shape[1] == max(counts)


def test_the_model_may_choose_the_next_token(folder, tmp_path):
    data = write_reviews(tmp_path / "prompts.csv", header=("prompt",), rows=[(prompt,) for prompt in PROMPTS[:4]])
    found = tl.evaluate(f"hf:{folder}", str(data), ["random"], out=tmp_path / "run", **QUICK)
    assert found.results.accuracy == 1  # by its own answers
    model, samples = reopen(found)
    assert [model.tokenizer.decode([label]) for label in samples.labels.tolist()] == [f" {verb}" for verb in VERBS[:4]]


def test_objects_in_python(folder):
    library = transformers()
    model = library.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    texts = list(PROMPTS[:6])
    how = QUICK | {"tokenizer": tokenizer}
    found = tl.evaluate(tl.probing.NextToken(model), (texts, None), ["integrated_gradients"], **how)
    alone = tl.evaluate(tl.probing.NextToken(model), texts, ["integrated_gradients"], **how)
    named = tl.evaluate(tl.probing.NextToken(model), (texts, list(VERBS[:6])), ["integrated_gradients"], **how)
    for each in (alone, named):
        assert torch.equal(found.maps("integrated_gradients"), each.maps("integrated_gradients"))
    tokenizer.pad_token = tokenizer.eos_token
    padded = tokenizer(texts, padding=True, return_tensors="pt")
    again = tl.evaluate(tl.probing.NextToken(model), (padded, None), ["integrated_gradients"], **how)
    assert torch.allclose(found.maps("integrated_gradients"), again.maps("integrated_gradients"), atol=1e-5)


def test_padding_before_the_prompt_changes_nothing(folder):
    model = tl.load_model(f"hf:{folder}").module
    prompt = torch.tensor([[[5, 6, 7, 8], [1, 1, 1, 1]]])
    before, behind = (nn.functional.pad(prompt, pad) for pad in ((3, 0), (0, 3)))
    with torch.no_grad():
        alone = model(prompt)
        assert torch.allclose(model(before), alone, atol=1e-5)
        assert torch.allclose(model(behind), alone, atol=1e-5)


def test_prompts_that_are_too_long_keep_their_end(folder):
    long = "The dog near the door is here. " * 6 + "The keys near the door"
    with pytest.warns(match="1 of 2 texts of texts have more than 24 tokens.* lose their beginning"):
        found = tl.evaluate(f"hf:{folder}", ([long, PROMPTS[0]], None), ["random"], **QUICK)
    assert found.curve("random", "soundness_rank").table.counts[0] == 24


@pytest.mark.parametrize(
    ("label", "message"),
    [("elephantine", "The label 'elephantine' must be one token.* the tokenizer makes"), ("40000", "has label 40000")],
)
def test_labels_must_be_tokens(folder, tmp_path, label, message):
    data = write_reviews(tmp_path / "prompts.csv", header=("prompt", "label"), rows=[(PROMPTS[0], label)])
    with pytest.raises(tl.DataError, match=message):
        tl.evaluate(f"hf:{folder}", str(data), ["random"], **QUICK)


def test_logits_of_every_position_tell_the_way():
    model, tokens = toy_language_model(), {"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}
    advice = r"shape \(\d+, 3, 9\).* pass tl\.probing\.NextToken\(model\)"
    imputer = tl.TokenImputer(0)
    with pytest.raises(TypeError, match=advice):
        tl.evaluate(model, (tokens, [1, 2]), ["random"], imputer=imputer, **QUICK)
    with pytest.raises(ValueError, match=advice):
        tl.road(model, tokens, [1, 2], torch.rand(2, 3), imputer=imputer)
    with pytest.raises(ValueError, match=advice.replace("shape ", "")):
        tl.attribute(model, tokens, [1, 2], "occlusion")
    fixed = tl.evaluate(tl.probing.NextToken(model), (tokens, None), ["random"], imputer=imputer, **QUICK)
    assert fixed.results.accuracy == 1
