"""Smaller versions of the examples: the models train, and the conclusions hold."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import twinlens as tl

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
QUICK = {"metrics": ["soundness_rank"], "resamples": 50, "threads": 1, "batch_size": 256}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_text():
    text = load("text")
    tokens, labels = text.sentences(40, seed=0)
    words = [[text.WORDS[k] for k in sentence if k] for sentence in tokens["input_ids"].tolist()]
    for sentence, label in zip(words, labels.tolist(), strict=True):
        praises = any(word in text.GOOD for word in sentence)
        assert (praises != ("not" in sentence)) == bool(label)
    imputer = tl.TokenImputer(text.WORDS.index("[MASK]"), special=(0, 1, 2, 3))
    methods = {"leave_one_out": text.leave_one_out, "random": "random"}
    evaluation = tl.evaluate(text.train(steps=150), (tokens, labels), methods, imputer=imputer, **QUICK)
    assert not evaluation.failures
    value = evaluation.summary().set_index("method")["value"]
    assert value["leave_one_out"] > value["random"]


def test_agreement():
    """The exact map is nearly perfect, random is at chance, and the removal of tokens does not change that."""
    agreement = load("agreement")
    tokens, verbs, exact = agreement.sentences(40, seed=0)
    ids = tokens["input_ids"]
    subjects = [agreement.WORDS[k] for k in ids[exact > 0].tolist()]
    assert [word in agreement.PLURAL for word in subjects] == [agreement.WORDS[k] == "are" for k in verbs.tolist()]
    model = agreement.train(steps=150)
    for removal in agreement.REMOVALS:
        imputer = tl.TokenImputer(agreement.WORDS.index("[MASK]"), special=(0, 1), removal=removal)
        how = QUICK | {"imputer": imputer, "maps": {"exact": exact}, "control": "none"}
        value = tl.evaluate(model, (tokens, verbs), ["random"], **how).summary().set_index("method")["value"]
        assert value["exact"] > 0.9
        assert value["random"] == pytest.approx(0.5, abs=0.12)


def test_time_series():
    series = load("time_series")
    inputs, labels, starts = series.signals(40, seed=0)
    model = series.train()
    assert (model(inputs).argmax(dim=1) == labels).double().mean() > 0.95
    pieces = (torch.arange(series.LENGTH) // 6).expand(40, -1)
    methods = ["integrated_gradients", "random"]
    evaluation = tl.evaluate(model, (inputs, labels), methods, segments=pieces, **QUICK)
    best = evaluation.summary().set_index("method")
    assert best["skill_low"]["integrated_gradients"] > 0
    assert best["value"]["integrated_gradients"] > best["value"]["random"] + 0.2
    assert (evaluation.curve("random", "soundness_rank").table.counts == 16).all()
    assert starts.max() <= series.LENGTH - series.WAVE


def test_infilling():
    """Both in-filling imputers keep what is kept, do not see what is removed, and are better than a constant."""
    infilling = load("infilling")
    digits = infilling.digits(held_out=True)[:8]
    keep = torch.rand(8, 28, 28, generator=torch.Generator().manual_seed(0)) < 0.5
    with torch.inference_mode():  # as imputers are called
        model = infilling.trained(60)

    def denoise(inputs, keep):
        with torch.no_grad():
            return model(inputs, keep)

    blank = ((digits * keep[:, None]) ** 2).mean() - (digits**2).mean()
    for fill in (lambda x, keep: infilling.inpaint(x, keep, [0] * 8), denoise):
        filled = fill(digits, keep)
        assert torch.equal(filled[keep[:, None]], digits[keep[:, None]])
        assert ((filled - digits) ** 2).mean() < -blank / 2
        assert torch.equal(fill(torch.where(keep[:, None], digits, 0.5), keep), filled)


def test_colours():
    """The order of methods on a network set by hand is that of the truth."""
    frame = load("colours").measure(15, ("integrated_gradients", "occlusion", "random"))
    for name, truth in (("soundness", "its truth"), ("completeness", "its truth ")):
        assert frame[name].is_monotonic_decreasing
        assert frame[truth].is_monotonic_decreasing
    assert (frame["completeness"] - frame["its truth "]).abs().max() < 0.03


def test_findings():
    """Each present finding has a row, and its explanation lies on it and not on others."""
    findings = load("findings")
    images, present, where = findings.patients(12, seed=0)
    rows, labels = present.nonzero(as_tuple=True)
    assert len(rows) == present.sum() > 12
    how = QUICK | {"control": "none"}
    model = findings.train(steps=100)
    with pytest.warns(UserWarning, match="repeat the input of another with another label"):
        found = tl.evaluate(
            model, (images[rows], labels), ["integrated_gradients", "random"], output="multi_label", **how
        )
    assert found.results.accuracy > 0.8
    maps = found.maps("integrated_gradients")
    own, others = where[rows, labels], where[rows].any(dim=1) & ~where[rows, labels]
    assert (maps * own).sum() > 4 * (maps * others).sum()
    value = found.summary().set_index("method")["value"]
    assert value["integrated_gradients"] > value["random"] + 0.2


def test_volume():
    volume = load("volume")
    inputs, labels, where = volume.volumes(8, seed=0)
    model = volume.train(steps=40)
    found = tl.evaluate(model, (inputs, labels), ["integrated_gradients", "random"], **QUICK | {"control": "none"})
    maps = found.maps("integrated_gradients")
    assert (maps * where).sum() > 0.3 * maps.sum()
    value = found.summary().set_index("method")["value"]
    assert value["integrated_gradients"] > value["random"] + 0.2
