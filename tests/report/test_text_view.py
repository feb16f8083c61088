"""Text on the page: pieces of words joined, special tokens apart, long texts as a part."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import twinlens as tl
from tests.report.kinds import WORDS, sentences, text_run, unpacked
from twinlens.data.word_pieces import JOINED, SPECIAL, join_pieces, style_of
from twinlens.report import write_report
from twinlens.report.explorer import describe_samples
from twinlens.report.scene import set_scene
from twinlens.report.text_view import FEATURE


def text(pieces):
    """What a reader sees."""
    marks = join_pieces(pieces, style_of(pieces))
    return "".join(("" if flags & JOINED else " ") + word for word, flags in marks).strip()


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        (["[CLS]", "un", "##believ", "##able", ".", "[SEP]", "[PAD]"], "[CLS] unbelievable . [SEP] [PAD]"),
        (["<s>", "▁un", "believ", "able", ".", "</s>", "<pad>"], "<s> unbelievable. </s> <pad>"),
        (["<s>", "Un", "believ", "able", "Ġfilm", "s", "</s>", "x"], "<s> Unbelievable films </s> x"),
        (["ĠcafÃ©", "Ċ", "Ġ", "na", "Ã", "¯"], "café↵ ␣na��"),
        (["<|endoftext|>", "ĠHi"], "<|endoftext|> Hi"),
        (["one", "two"], "one two"),
        (["##", "##a", "a"], "##a a"),
        (["▁", "x"], "␣x"),
    ],
)
def test_pieces_are_joined_to_words(pieces, seen):
    assert text(pieces) == seen


def test_special_tokens_are_told_from_words():
    special = ["[CLS]", "[MASK]", "[unused12]", "<s>", "</s>", "<pad>", "<|endoftext|>", "<extra_id_3>", "<mask>"]
    words = ["[UNK]", "<unk>", "<", "[", "[3]", "a<b>", "<a b>", "()", "Ġ<", "<>"]
    assert [bool(flags & SPECIAL) for _, flags in join_pieces(special, "")] == [True] * len(special)
    assert [bool(flags & SPECIAL) for _, flags in join_pieces(words, "")] == [False] * len(words)


@given(st.lists(st.text()), st.sampled_from(["", "##", "▁", "Ġ"]))
def test_any_text_becomes_short_printable_pieces(pieces, style):
    marks = join_pieces(pieces, style)
    assert len(marks) == len(pieces)
    for word, flags in marks:
        assert word.isprintable()
        assert 0 < len(word) <= 600
        assert not (flags & SPECIAL and flags & JOINED)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return text_run(tmp_path_factory.mktemp("text") / "run")


def test_words_with_their_attribution_and_when_they_go(run):
    shown, scene = describe_samples(run, budget=10**6), set_scene(run)
    assert (shown["kind"], shown["note"]) == ("text", "")
    inputs, table = scene.selected.inputs, run.curve("saliency", "soundness_rank").table
    for place, sample in enumerate(shown["samples"]):
        ids = [k for k in inputs[place, 0].tolist() if k]  # without padding
        view, flags = sample["input"], unpacked(sample["input"]["flags"])
        assert (view["first"], view["of"], len(view["texts"])) == (0, len(ids), len(ids))
        assert [word for word, flag in zip(view["texts"], flags, strict=True) if flag & SPECIAL] == ["[CLS]", "[SEP]"]
        assert [bool(flag & FEATURE) for flag in flags] == [k > 2 for k in ids]
        assert [bool(flag & JOINED) for flag in flags] == [
            WORDS[k] == "##ness" and ids[j - 1] > 2 for j, k in enumerate(ids)
        ]
        assert "\u202e" not in "".join(view["texts"])
        marks = sample["methods"]["saliency"]["view"]
        own = run.maps("saliency")[table.ids.index(sample["id"])][: len(ids)]
        own = own * torch.tensor([k > 2 for k in ids])  # what is no feature is not judged
        assert unpacked(marks["strength"]).tolist() == pytest.approx((100 * own / own.max()).tolist(), abs=0.51)
        keep = scene.keep_at_levels(place, "saliency")[:, : len(ids)]
        stays = unpacked(marks["stays"])
        for k, kept in enumerate(keep):
            assert (stays > k).tolist() == kept.tolist()
        removed = [int((stays <= k).sum()) for k in range(len(keep))]
        assert removed == sample["methods"]["saliency"]["removed"]
        assert marks["outside"] == 0
        assert set(unpacked(marks["false"])) <= {0, 1}


def test_ids_are_shown_where_nobody_has_words(tmp_path):
    shown = describe_samples(text_run(tmp_path / "run", tokenizer=None), budget=10**6)
    assert "pass `tokenizer` to see words" in shown["note"]
    assert shown["samples"][0]["input"]["texts"][0] == "1"


def test_long_texts_are_shown_where_the_attribution_is(tmp_path):
    """80,000 tokens: the page shows 2,000 of them, and says so."""
    ids = torch.randint(4, 12, (2, 80_000), generator=torch.manual_seed(0))

    def far(model, inputs, targets):
        maps = torch.zeros(len(inputs), 80_000)
        maps[:, 50_100], maps[:, 10] = 2.0, 1.0
        return maps

    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [0, 1]
    evaluation = text_run(tmp_path / "run", data, {"far": far})
    shown = describe_samples(evaluation, budget=10**6)
    view = shown["samples"][0]["input"]
    assert (len(view["texts"]), view["of"]) == (2000, 80_000)
    assert view["first"] <= 50_100 < view["first"] + 2000
    marks = shown["samples"][0]["methods"]["far"]["view"]
    assert unpacked(marks["strength"])[50_100 - view["first"]] == 100
    assert marks["outside"] == pytest.approx(1 / 3, abs=1e-3)


def test_many_samples_do_not_make_a_large_page(tmp_path):
    """Named samples come first; those for which there is no room are counted."""
    tokens, labels = sentences(90, length=400)
    show = [f"{k:05d}" for k in range(90)]
    options = {"methods": {f"random-{k}": {"method": "random"} for k in range(4)}, "show": show}
    evaluation = text_run(
        tmp_path / "run", (tokens, labels), metrics=[tl.Soundness(steps=4, estimator="rank")], **options
    )
    shown = describe_samples(evaluation, budget=150_000)
    assert len(json.dumps(shown["samples"])) <= 150_000
    assert 10 <= len(shown["samples"]) < 90
    assert shown["samples"][0]["id"] == "00000"
    assert f"The page has room for {len(shown['samples'])} of the 90 selected samples." in shown["note"]
    assert write_report([evaluation], tmp_path / "r.html").stat().st_size < 8_000_000
