"""Blurred copies of the maps of a run: against the self-test, which measures them by another way."""

import re

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.checks.conftest import content_of_run
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.data.inputs import load_inputs
from twinlens.run.reopening import reopen


def test_changes_are_those_of_the_selftest(measured):
    run, spec = measured
    evaluation = tl.open_evaluation(run)
    before = content_of_run(run)
    check = run_check(evaluation, "smoothness", model=spec)
    assert content_of_run(run) == before
    assert check.steps == ("saliency", "integrated_gradients", "sobel", "random")
    model, samples = reopen(evaluation, model=spec)
    rows = tl.laboratory.selftest(
        model.module, load_inputs(samples, model, 1), samples.labels, evaluation.maps("saliency"),
        metrics=evaluation.metric_values, ids=samples.ids, resamples=50,
    )  # fmt: skip
    for (name, own), (_, expected) in zip(check.methods.items(), rows.iterrows(), strict=True):
        assert own.course[0].value == pytest.approx(expected["blurred"], abs=1e-5), name
        assert own.course[0].low == pytest.approx(expected["blurred_low"], abs=1e-5)
        assert own.values[0].value == pytest.approx(np.mean([each.value for each in own.course[:2]]))  # no baselines
        assert own.values[1] == own.course[3]
    assert check.line.startswith("Blurred copies score clearly higher for this many of 4 methods: soundness ")
    assert re.search(r" Blurred random maps score clearly higher by [a-z]", check.line)
    without = run_check(evaluation, "smoothness", methods=("saliency",), options=CheckOptions(limit=11), model=spec)
    assert without.methods["soundness"].values[1].value is None
    assert "evaluate random as well" in without.notes[0]


def test_rows_of_a_table_have_no_neighbours(tmp_path):
    tl.evaluate(
        torch.nn.Linear(5, 3), (torch.randn(12, 5), [0, 1, 2] * 4), ["saliency"], metrics=["deletion"],
        out=tmp_path / "run", batch_size=6, memory_format="contiguous", resamples=50,
    )  # fmt: skip
    evaluation = tl.open_evaluation(tmp_path / "run")
    with pytest.raises((ValueError, tl.RunError), match=r"no neighbours|Python objects"):
        run_check(evaluation, "smoothness")
