"""Text models as people have them: a directory of `save_pretrained` and a table of texts, or objects in Python."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import torch

import twinlens as tl
from tests.checkpoints import REVIEWS, classifier, save_classifier, transformers, word_pieces, write_reviews
from twinlens.cli.main import main
from twinlens.run.reopening import reopen
from twinlens.run.sample_selection import read_selection

QUICK = {"metrics": "headline", "resamples": 50, "threads": 1, "batch_size": 64}
TEXTS, NAMES = zip(*REVIEWS, strict=True)
LABELS = [int(name == "positive") for name in NAMES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    transformers()
    return save_classifier(tmp_path_factory.mktemp("hf") / "reviews")


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    data = write_reviews(out.parent / "reviews.csv")
    methods = "integrated_gradients,saliency,random"
    flags = ["--model", f"hf:{folder}", "--data", str(data), "--methods", methods, "--out", str(out), "--quiet"]
    assert main(["evaluate", *flags, "--resamples", "50", "--threads", "1"]) == 0
    return tl.open_evaluation(out)


def test_one_command_from_a_directory_and_a_table_to_a_page_with_words(run):
    assert run.results.accuracy == 1
    values = run.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
    assert values["integrated_gradients"] > 0.7 > values["random"]
    selection = read_selection(run.run)
    texts = {" ".join(word for word in words if word != "[PAD]") for words in selection.words}
    assert "[CLS] the film was good [SEP]" in texts
    assert "[CLS] the good ##ness was great [SEP]" in texts
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert '"goodness"' not in page  # pieces are joined by the page
    assert "positive" in page
    imputer = run.run.manifest.settings.imputer
    assert (imputer["mask_id"], imputer["removal"]) == (4, "mask")
    assert run.curve("random", "road_morf").table.counts.tolist() == [4, 7, 7, 2, 5, 7, 10, 6]  # no special tokens


def test_the_default_methods_explain_texts(folder, tmp_path):
    data = write_reviews(tmp_path / "reviews.csv")
    out = tmp_path / "run"
    flags = ["--model", f"hf:{folder}", "--data", str(data), "--out", str(out), "--metrics", "headline", "--quiet"]
    assert main(["evaluate", *flags, "--resamples", "50", "--threads", "1"]) == 0
    found = tl.open_evaluation(out)
    assert sorted(found.methods) == ["integrated_gradients", "occlusion", "random", "saliency"]


def test_a_run_of_texts_opens_again(run):
    model, samples = reopen(run)
    assert model.classes == ("negative", "positive")
    assert samples.read(0).shape == run.run.manifest.data.shape


def test_a_changed_tokenizer_is_another_run(run, folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "model")
    content = json.loads((other / "tokenizer.json").read_text())
    content["model"]["unk_token"] = "[MASK]"  # which no text here needs: the ids stay the same
    (other / "tokenizer.json").write_text(json.dumps(content))
    out = shutil.copytree(run.path, tmp_path / "run")
    data = run.run.manifest.source.data
    with pytest.raises(tl.RunError, match=r"holds another run: .*model\.digest is"):
        tl.evaluate(f"hf:{other}", data, ["random"], out=out, **QUICK)


def test_texts_with_a_tokenizer_give_the_same_as_the_table(run, folder):
    library = transformers()
    model = library.AutoModelForSequenceClassification.from_pretrained(folder)
    found = tl.evaluate(model, (list(TEXTS), LABELS), ["integrated_gradients"], tokenizer=word_pieces(), **QUICK)
    ours, theirs = (
        each.summary().query("method == 'integrated_gradients'").set_index("metric")["value"] for each in (found, run)
    )
    assert ours["soundness_rank"] == pytest.approx(theirs["soundness_rank"])


def forms_of_texts(tokenizer):
    """Return the same texts and labels in every form that people have."""
    from datasets import Dataset
    from torch.utils.data import DataLoader

    ids, lines = tokenizer(list(TEXTS)), [{"text": text, "label": label} for text, label in REVIEWS]
    numbers = [{"input_ids": row, "label": label} for row, label in zip(ids["input_ids"], LABELS, strict=True)]
    collate = transformers().DataCollatorWithPadding(tokenizer)
    return {
        "names of classes": (list(TEXTS), list(NAMES)),
        "a data frame": pd.DataFrame(lines),
        "columns of a data frame": (pd.DataFrame(lines)["text"], pd.DataFrame(lines)["label"]),
        "dicts": lines,
        "dicts of ids": numbers,
        "ids of several lengths": (ids, LABELS),
        "padded tensors": (tokenizer(list(TEXTS), padding=True, return_tensors="pt"), LABELS),
        "a data set": Dataset.from_list(lines),
        "a data set of ids": Dataset.from_list(numbers),
        "a loader that pads": DataLoader(Dataset.from_list(numbers), batch_size=3, collate_fn=collate),
    }


def test_every_form_of_texts_gives_the_same_numbers(folder):
    pytest.importorskip("datasets")
    model, tokenizer = classifier(), word_pieces()
    expected = None
    for form, data in forms_of_texts(tokenizer).items():
        found = tl.evaluate(model, data, ["saliency"], tokenizer=tokenizer, **QUICK).summary()["value"].tolist()
        expected = found if expected is None else expected
        assert found == pytest.approx(expected), form


def test_other_data_frames_are_refused():
    frame = pd.DataFrame({"age": [1.0, 2.0], "label": [0, 1]})
    with pytest.raises(TypeError, match=r"data frame with 2 rows and the columns age, label\. Pass inputs and labels"):
        tl.evaluate(torch.nn.Linear(1, 2), frame, ["random"], **QUICK)


def test_a_module_of_transformers_brings_its_limit(folder):
    texts = ["the film was good " * 8, "very dull"]
    with pytest.warns(match="1 of 2 texts of texts have more than 24 tokens"):
        tl.evaluate(classifier(), (texts, ["positive", "negative"]), ["random"], tokenizer=word_pieces(), **QUICK)


def test_padded_ids_without_a_mask_are_a_warning():
    tokenizer = word_pieces()
    ids = tokenizer(list(TEXTS), padding=True, return_tensors="pt")["input_ids"]
    with pytest.warns(match="come without an attention mask: the model reads padding as text"):
        tl.evaluate(classifier(), (ids, LABELS), ["random"], tokenizer=tokenizer, **QUICK)


def test_classes_that_are_numbered_in_another_order_are_refused(folder):
    data = tl.data.from_arrays(word_pieces()(list(TEXTS), padding=True), LABELS, classes=["Positive", "Negative"])
    with pytest.raises(tl.DataError, match="calls class 0 'Positive', and the model calls it 'negative'"):
        tl.evaluate(f"hf:{folder}", data, ["random"], **QUICK)


def test_functions_take_what_a_tokenizer_returns():
    model, tokens = classifier(), word_pieces()(list(TEXTS), padding=True, return_tensors="pt")
    maps = tl.attribute(model, tokens, LABELS, "integrated_gradients")
    assert maps.shape == tokens["input_ids"].shape
    assert float(maps[tokens["attention_mask"] == 0].sum()) == 0
    curve = tl.soundness(model, tokens, LABELS, maps, imputer=tl.TokenImputer(4, special=(0, 2, 3)))
    assert not curve.false_features(maps)[tokens["attention_mask"] == 0].any()
    with pytest.raises(TypeError, match=r"Let the tokenizer pad: padding=True\."):
        tl.attribute(model, word_pieces()(list(TEXTS)), LABELS, "integrated_gradients")


def test_removed_tokens_are_masked_hidden_deleted_or_averaged(folder):
    model = tl.load_model(f"hf:{folder}")
    texts = ["the film was bad and good", "the film was bad"]
    whole, short = (torch.tensor(model.tokenizer(text)["input_ids"]) for text in texts)
    packed, keep = torch.stack([whole, torch.ones_like(whole)])[None], torch.ones(1, len(whole), dtype=torch.bool)
    keep[0, 5:7] = False  # "and good"
    removed = {
        removal: tl.TokenImputer(4, special=(2, 3), removal=removal)(packed, keep, streams=[0])
        for removal in ("mask", "pad", "delete", "mean")
    }
    answers = {removal: model.call(tokens).logits for removal, tokens in removed.items()}
    own = model.module.model
    assert torch.allclose(answers["delete"], own(input_ids=short[None]).logits, atol=1e-5)
    hidden = own(input_ids=whole[None], attention_mask=keep.long()).logits
    assert torch.allclose(answers["pad"], hidden, atol=1e-5)
    masked = own(input_ids=torch.where(keep, whole, 4)).logits
    assert torch.allclose(answers["mask"], masked, atol=1e-5)
    table = own.get_input_embeddings().weight
    averaged = torch.where(keep[..., None], table[whole], table.mean(dim=0))
    assert torch.allclose(answers["mean"], own(inputs_embeds=averaged).logits, atol=1e-5)
    assert len({round(float(each[0, 0]), 6) for each in answers.values()}) == 4


def test_words_are_features_instead_of_their_pieces(folder):
    how = QUICK | {"segments": "words"}
    found = tl.evaluate(f"hf:{folder}", (list(TEXTS), list(NAMES)), ["kernel_shap", "random"], **how)
    assert found.curve("random", "soundness_rank").table.counts.tolist() == [len(text.split()) for text in TEXTS]
    values = found.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
    assert values["kernel_shap"] > 0.7 > values["random"]


def test_words_need_texts():
    with pytest.raises(tl.DataError, match="`segments` 'words' needs token ids and a tokenizer: pass texts"):
        tl.evaluate(torch.nn.Linear(3, 2), (torch.rand(4, 3), [0, 1, 0, 1]), ["random"], segments="words", **QUICK)


@pytest.mark.parametrize("removal", ["mask", "pad", "delete", "mean"])
def test_a_removal_is_chosen_by_name(folder, tmp_path, removal):
    data = write_reviews(tmp_path / "reviews.csv")
    imputer = {"name": "token", "removal": removal, "mask_id": 4}
    found = tl.evaluate(f"hf:{folder}", str(data), ["random"], imputer=imputer, **QUICK)
    assert found.run.manifest.settings.imputer["removal"] == removal
    assert found.run.manifest.settings.imputer["special"] == [0, 2, 3, 4]


def test_texts_that_are_too_long_are_cut_with_a_warning(folder, tmp_path):
    rows = [("the film was good " * 8, "positive"), ("very dull", "negative")]
    data = write_reviews(tmp_path / "reviews.csv", rows=rows)
    with pytest.warns(match="1 of 2 texts of csv:reviews.csv have more than 24 tokens.* lose their end"):
        found = tl.evaluate(f"hf:{folder}", str(data), ["random"], **QUICK)
    assert found.run.manifest.data.shape == (2, 24)
    assert found.curve("random", "soundness_rank").table.counts.tolist() == [22, 2]  # [CLS] and [SEP] stay


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("the film was good", "wonderful")], "Labels must be classes of `model`, such as negative, positive; one is"),
        ([("the film was good", "7")], "has label 7"),
        ([("", "positive")], "must have a text in each line; line 2 has none"),
        ([], "must list at least one text"),
    ],
)
def test_tables_of_texts_that_cannot_be_used(folder, tmp_path, rows, message):
    data = write_reviews(tmp_path / "reviews.csv", rows=rows)
    with pytest.raises(tl.DataError, match=message):
        tl.evaluate(f"hf:{folder}", str(data), ["random"], **QUICK)


def test_texts_without_labels_need_a_language_model(folder, tmp_path):
    data = write_reviews(tmp_path / "reviews.csv", header=("text",), rows=[("the film was good",)])
    with pytest.raises(tl.DataError, match=r"`labels` are missing\. Only a language model finds its own"):
        tl.evaluate(f"hf:{folder}", str(data), ["random"], **QUICK)


def test_texts_need_a_tokenizer(tmp_path):
    data = write_reviews(tmp_path / "reviews.csv", rows=[("the film was good", "1")])
    with pytest.raises(tl.DataError, match=r"holds texts, and `model` .* has no tokenizer\. Pass `tokenizer`"):
        tl.evaluate("mnist-cnn", str(data), ["random"], **QUICK)
