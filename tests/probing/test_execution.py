import logging

import pytest
import torch
from torch import nn

from tests.tiny import ViewedCNN, tiny_model
from twinlens.probing.execution import Execution, Prepared, tune


def test_the_trial_chooses_among_what_is_left_open():
    example = torch.randn(1, 3, 8, 8)
    chosen = tune(tiny_model(), example)
    assert chosen.batch_size in (8, 16, 32, 64, 128, 256, 512, 1024)
    assert chosen.memory_format in ("contiguous", "channels_last")
    assert tune(tiny_model(), example, batch_size=5).batch_size == 5
    fixed = tune(tiny_model(), example, batch_size=5, memory_format="channels_last")
    assert fixed == Execution(batch_size=5, memory_format="channels_last")
    with pytest.raises(ValueError, match="`batch_size` must be at least 1; got 0"):
        tune(tiny_model(), example, batch_size=0)


def test_large_inputs_are_not_tried_in_large_batches():
    calls = []

    class Counting(nn.Module):
        def forward(self, x):
            calls.append(len(x))
            return x.flatten(1)[:, :3]

    tune(Counting(), torch.zeros(1, 3, 700, 700))
    assert max(calls) <= 4


def test_rows_are_tried_in_one_format():
    assert tune(nn.Linear(4, 2), torch.randn(1, 4)).memory_format == "contiguous"


def test_a_model_that_views_its_features_keeps_the_usual_format():
    example = torch.randn(1, 3, 8, 8)
    assert tune(ViewedCNN(), example).memory_format == "contiguous"
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        tune(ViewedCNN(), example, memory_format="channels_last")


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_answers_are_the_models_own(memory_format):
    model, inputs = tiny_model(), torch.randn(5, 3, 8, 8)
    prepared = Prepared(model, Execution(batch_size=4, memory_format=memory_format))
    torch.testing.assert_close(prepared(inputs), model(inputs))


def test_a_compiled_model_sees_one_shape(monkeypatch):
    shapes = []

    def compile_(module, dynamic):
        assert dynamic is False
        return lambda x: shapes.append(x.shape) or module(x)

    monkeypatch.setattr(torch, "compile", compile_)
    model, inputs = tiny_model(), torch.randn(3, 3, 8, 8)
    prepared = Prepared(model, Execution(batch_size=4, compiled=True))
    torch.testing.assert_close(prepared(inputs), model(inputs))
    assert shapes == [(4, 3, 8, 8)]


@pytest.mark.parametrize("problem", ["raises", "differs"])
def test_a_model_that_cannot_be_compiled_is_called_as_it_is(monkeypatch, caplog, problem):
    def compile_(module, dynamic):
        if problem == "raises":
            raise RuntimeError("no compiler\nand a long story")
        return lambda x: module(x) + 1

    monkeypatch.setattr(torch, "compile", compile_)
    with caplog.at_level(logging.WARNING):
        chosen = tune(tiny_model(), torch.randn(1, 3, 8, 8), batch_size=2, compiled=True)
    assert chosen == Execution(batch_size=2, compiled=False)
    reason = "no compiler" if problem == "raises" else "the compiled model gives other answers"
    assert f"cannot be compiled and is called as it is: {reason}" in caplog.text


@pytest.mark.parametrize(("slow", "chosen"), [(4, 1), (1, 4)])
def test_one_thread_is_chosen_where_it_is_faster(monkeypatch, slow, chosen):
    state = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: state[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: state.__setitem__(0, n))
    monkeypatch.setattr("twinlens.probing.execution._seconds_per_input", lambda *_: 2.0 if state[0] == slow else 1.0)
    assert tune(tiny_model(), torch.randn(1, 3, 8, 8)).threads == chosen
    assert state == [4]  # as it was before
    state[0] = 1
    assert tune(tiny_model(), torch.randn(1, 3, 8, 8)).threads is None
