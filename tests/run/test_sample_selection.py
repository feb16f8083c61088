import shutil

import numpy as np
import pytest
import torch

from tests.report.kinds import COLUMNS, WORDS, signal_run, table_run, text_run
from tests.report.runs import METHODS, OPTIONS, image_samples, loaded, make_run, shared_run
from twinlens.evaluation import evaluate
from twinlens.outcome import open_evaluation
from twinlens.run.analysis import TableReader, analyse
from twinlens.run.sample_selection import (
    FILE,
    agreement_of_methods,
    read_selection,
    select_samples,
    write_selection,
)
from twinlens.run.work import EvaluationWork
from twinlens.support.tensor_files import load_tensors, save_tensors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return shared_run(tmp_path_factory.getbasetemp())


def work_of(evaluation, model, samples):
    return EvaluationWork(
        run=evaluation.run, model=model, samples=samples, pool=samples, methods={}, sweeps=[], workers=1
    )


def false_share(evaluation):
    analysis = analyse(TableReader(evaluation.run), evaluation.metric_values, evaluation.results.settings)
    return analysis.false_share


def test_the_most_telling_samples_are_selected(run):
    ids = image_samples().ids
    likeness, shares = agreement_of_methods(run.run, len(ids)), false_share(run)
    assert list(shares) == list(METHODS)
    np.testing.assert_array_equal(shares["sobel"], run.curve("sobel", "soundness_rank").false_share)
    false = np.nanmean(list(shares.values()), axis=0)
    chosen = select_samples(run.run, ids, shares)
    assert len(chosen) == 8
    reasons = {reason: [p for p, r in chosen.items() if r == reason] for reason in dict.fromkeys(chosen.values())}
    assert list(reasons) == ["Methods disagree", "High false attribution", "Methods agree"]
    assert reasons["Methods disagree"][0] == likeness.argmin()
    worst = next(p for p in np.argsort(-false, kind="stable") if p != reasons["Methods disagree"][0])
    assert false[reasons["High false attribution"][0]] == pytest.approx(false[worst])
    taken = {reasons["Methods disagree"][0], reasons["High false attribution"][0]}
    assert reasons["Methods agree"][0] == next(p for p in np.argsort(-likeness) if p not in taken)


def test_agreement_is_a_rank_correlation(tmp_path):
    def ramp(sign):
        def method(model, inputs, targets, *, ids=None, seed=0):
            line = torch.arange(inputs[0, 0].numel(), dtype=torch.float32).reshape(inputs.shape[2:])
            return (line if sign > 0 else line.max() - line).exp2().log1p().expand(len(inputs), *line.shape)

        return method

    evaluation = make_run(tmp_path / "same", methods={"a": ramp(1), "b": ramp(1)}, metrics=[])
    np.testing.assert_allclose(agreement_of_methods(evaluation.run, 10), 1.0)
    evaluation = make_run(tmp_path / "opposite", methods={"a": ramp(1), "b": ramp(-1)}, metrics=[])
    np.testing.assert_allclose(agreement_of_methods(evaluation.run, 10), -1.0)


def test_the_selection_is_the_same_bytes_and_named_samples_come_first(run, tmp_path):
    samples, model = image_samples(), loaded()
    path = run.path / "selected.safetensors"
    before = path.read_bytes()
    write_selection(work_of(run, model, samples), false_share(run))
    assert path.read_bytes() == before
    shutil.copytree(run.path, tmp_path / "run")
    copy = open_evaluation(tmp_path / "run")
    write_selection(work_of(copy, model, samples), false_share(copy), named=["00007", "00001", "00007"])
    stored = read_selection(copy.run)
    assert [(s.id, s.reason) for s in stored.samples[:2]] == [
        ("00007", "Asked for by name"),
        ("00001", "Asked for by name"),
    ]
    assert len({s.id for s in stored.samples}) == len(stored.samples) == 8
    torch.testing.assert_close(stored.inputs[0], model.preprocessing(samples.read(7)))


def test_samples_that_do_not_exist_are_refused_before_any_work(tmp_path):
    with pytest.raises(ValueError, match="`show` must hold ids of samples of this run, such as '00000'; got 'cat'"):
        evaluate(loaded(), image_samples(), ["random"], out=tmp_path / "run", show=["cat"], **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_names_and_words_are_stored_with_the_samples(tmp_path):
    table = read_selection(table_run(tmp_path / "table").run)
    assert (table.feature_names, table.words, table.sampling_rate) == (COLUMNS, None, None)
    signal = read_selection(signal_run(tmp_path / "signal", feature_names=["left", "right"], sampling_rate=50.0).run)
    assert (signal.feature_names, signal.sampling_rate) == (("left", "right"), 50.0)
    evaluation = text_run(tmp_path / "text")
    text = read_selection(evaluation.run)
    assert [list(words) for words in text.words] == [[WORDS[k] for k in ids] for ids in text.inputs[:, 0].tolist()]
    # Names are no part of what a run is: others, or none, resume it.
    again = text_run(tmp_path / "text", tokenizer=None)
    assert read_selection(again.run).words is None
    assert (tmp_path / "text" / "results.json").read_text() == (evaluation.path / "results.json").read_text()


def test_a_selection_from_before_names_were_stored_is_read(tmp_path):
    run = table_run(tmp_path / "run").run
    tensors, about = load_tensors(run.path / FILE)
    old = {key: about[key] for key in ("images", "samples")}
    save_tensors(run.path / FILE, tensors, about=old)
    assert read_selection(run).feature_names is None
