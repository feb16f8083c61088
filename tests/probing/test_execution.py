import logging
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.tiny import ViewedCNN, tiny_model
from twinlens.probing import execution
from twinlens.probing.execution import (
    Agreement,
    Execution,
    Prepared,
    choose_batch,
    choose_execution,
    count_operations,
    native_precisions,
)

EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def agreeing(predictions=1.0, probabilities=0.0):
    return lambda way: Agreement(
        precision=way.precision,
        compiled=way.compiled,
        probes=256,
        predictions=predictions,
        probabilities=probabilities,
    )


def chosen(model=None, **options):
    return choose_execution(model or tiny_model(), EXAMPLE, **options)[0]


def test_the_choice_follows_a_rule(monkeypatch):
    """Nothing may depend on a clock: two runs of one command give the same bytes."""
    monkeypatch.setattr(execution, "second_level_cache", lambda: 2**20)
    expected = Execution(batch_size=1024, memory_format="channels_last", threads=torch.get_num_threads())
    assert chosen() == chosen() == expected
    fixed = chosen(batch_size=5, memory_format="contiguous", threads=3)
    assert fixed == Execution(batch_size=5, memory_format="contiguous", threads=3)


@pytest.mark.parametrize(
    ("shape", "cpu", "kept", "elsewhere"),
    [
        ((3, 32, 32), 64, 64, 1024),
        ((3, 96, 96), 16, 16, 128),
        ((3, 224, 224), 3, 16, 32),
        ((3, 700, 700), 1, 1, 3),
        ((30,), 4096, 4096, 4096),
        ((2, 10**7), 1, 1, 1),
    ],
)
def test_batches_suit_the_device(monkeypatch, shape, cpu, kept, elsewhere):
    monkeypatch.setattr(execution, "second_level_cache", lambda: 2**20)
    example = torch.empty(shape, device="meta")
    assert choose_batch(example, torch.device("cpu")) == cpu
    assert choose_batch(example, torch.device("cpu"), kept=True) == kept
    assert choose_batch(example, torch.device("cuda"), kept=True) == elsewhere


def test_small_inputs_fill_the_cache_that_the_machine_reports(monkeypatch):
    example = torch.empty(3, 32, 32)
    for size, rows in ((2**18, 16), (2**20, 64), (2**21, 128)):
        monkeypatch.setattr(execution, "second_level_cache", lambda size=size: size)
        assert choose_batch(example) == rows


def test_a_token_counts_as_its_embedding(monkeypatch):
    monkeypatch.setattr(execution, "second_level_cache", lambda: 2**20)
    assert choose_batch(torch.zeros(1, 128, dtype=torch.int64)) == 8


def test_rows_have_one_format():
    assert choose_execution(nn.Linear(4, 2), torch.randn(1, 4))[0].memory_format == "contiguous"


def test_a_model_that_views_its_features_keeps_the_usual_format():
    assert chosen(ViewedCNN()).memory_format == "contiguous"
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        chosen(ViewedCNN(), memory_format="channels_last")


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_answers_are_the_models_own(memory_format):
    model, inputs = tiny_model(), torch.randn(5, 3, 8, 8)
    prepared = Prepared(model, Execution(batch_size=4, memory_format=memory_format))
    torch.testing.assert_close(prepared(inputs), model(inputs))


def test_a_lower_precision_is_that_of_autocast():
    model, inputs = tiny_model(), torch.randn(5, 3, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(inputs)
    answer = Prepared(model, Execution(batch_size=4, precision="bfloat16"))(inputs)
    assert answer.dtype == torch.bfloat16
    assert torch.equal(answer, expected)
    assert not torch.equal(answer.float(), model(inputs))


@pytest.mark.parametrize(
    ("found", "precision"),
    [
        ((1.0, 0.0), "float16"),
        ((0.995, 0.02), "float16"),
        ((0.994, 0.0), "float32"),
        ((1.0, 0.021), "float32"),
    ],
)
def test_a_lower_precision_has_to_agree(monkeypatch, found, precision):
    monkeypatch.setattr(execution, "native_precisions", lambda _: ("float16", "bfloat16"))
    monkeypatch.setattr(execution, "count_operations", lambda *_: 10**9)
    way, trials = choose_execution(tiny_model(), EXAMPLE, precision="auto", rows=10_000, agreement=agreeing(*found))
    assert way.precision == precision
    assert [trial.precision for trial in trials] == (["float16"] if precision == "float16" else ["float16", "bfloat16"])
    assert f"float16: {found[0]:.2%} of 256 trial probes predicted as in float32" in trials[0].describe()


def test_small_models_and_short_runs_stay_in_float32(monkeypatch):
    monkeypatch.setattr(execution, "native_precisions", lambda _: ("bfloat16",))
    assert chosen(precision="auto", rows=10**6, agreement=agreeing()).precision == "float32"
    monkeypatch.setattr(execution, "count_operations", lambda *_: 10**9)
    assert chosen(precision="auto", rows=0, agreement=agreeing()).precision == "float32"
    assert chosen(precision="auto", rows=10_000, agreement=agreeing()).precision == "bfloat16"


def test_a_precision_that_is_asked_for_is_taken_and_tried():
    way, trials = choose_execution(
        tiny_model(), EXAMPLE, precision="bfloat16", rows=10_000, agreement=agreeing(0.9, 0.3)
    )
    assert way.precision == "bfloat16"
    assert [trial.predictions for trial in trials] == [0.9]


def test_a_precision_that_is_asked_for_is_taken_without_a_trial(caplog):
    assert chosen(precision="bfloat16").precision == "bfloat16"
    assert not caplog.text


def test_a_model_that_cannot_take_a_precision_is_called_in_float32(caplog):
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(192, 3)

        def forward(self, x):
            first = self.head(x.flatten(1))
            if first.dtype != torch.float32:
                raise RuntimeError("expected Float\nand a long story")
            return first

    with caplog.at_level(logging.WARNING):
        assert chosen(Picky(), precision="bfloat16").precision == "float32"
    assert "cannot be called in bfloat16 and runs unchanged: expected Float" in caplog.text


@pytest.mark.parametrize(
    ("capability", "expected"), [((9, 0), ("float16", "bfloat16")), ((7, 5), ("float16",)), ((6, 1), ())]
)
def test_devices_say_what_they_compute_in(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert native_precisions(torch.device("cuda")) == expected
    assert native_precisions(torch.device("mps")) == ()
    for supported in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda supported=supported: supported)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert native_precisions(torch.device("cpu")) == (("bfloat16",) if supported else ())


def test_operations_are_counted_where_they_can_be():
    assert count_operations(tiny_model(), EXAMPLE) == 2 * (8 * 8 * 6 * 27 + 6 * 3)
    assert count_operations(tiny_model(), torch.zeros(1, 5)) == 0


def fake_compile(monkeypatch, answer=lambda module: module):
    calls = []

    def compile_(module, dynamic):
        assert dynamic is False
        return lambda x: calls.append(x.shape) or answer(module)(x)

    monkeypatch.setattr(torch, "compile", compile_)
    return calls


def test_a_compiled_model_sees_one_shape(monkeypatch):
    shapes = fake_compile(monkeypatch)
    model, inputs = tiny_model(), torch.randn(3, 3, 8, 8)
    prepared = Prepared(model, Execution(batch_size=4, compiled=True))
    torch.testing.assert_close(prepared(inputs), model(inputs))
    assert shapes == [(4, 3, 8, 8)]


@pytest.mark.parametrize("problem", ["raises", "differs"])
def test_a_model_that_cannot_be_compiled_is_called_as_it_is(monkeypatch, caplog, problem):
    def answer(module):
        if problem == "raises":
            raise RuntimeError("no compiler\nand a long story")
        return lambda x: module(x) + 1

    fake_compile(monkeypatch, answer)
    with caplog.at_level(logging.WARNING):
        way = chosen(batch_size=2, memory_format="contiguous", threads=1, compiled=True)
    assert way == Execution(batch_size=2, compiled=False, threads=1)
    reason = "no compiler" if problem == "raises" else "the compiled model gives other answers"
    assert f"cannot be compiled and runs unchanged: {reason}" in caplog.text


def test_a_model_is_compiled_on_request_only(monkeypatch):
    fake_compile(monkeypatch)
    monkeypatch.setattr(execution, "count_operations", lambda *_: 10**9)
    assert not chosen(rows=10**9).compiled
    assert chosen(compiled=True).compiled


@pytest.mark.parametrize(("agree", "compiled"), [((1.0, 0.0), True), ((0.9, 0.0), False)])
def test_a_compiled_model_is_tried_on_probes(monkeypatch, agree, compiled):
    fake_compile(monkeypatch)
    way, trials = choose_execution(tiny_model(), EXAMPLE, compiled=True, agreement=agreeing(*agree))
    assert way.compiled == compiled
    assert [trial.compiled for trial in trials] == [True]


@pytest.mark.slow
def test_commands_wait_without_spinning():
    code = "import os, sys; from twinlens.cli.main import main; main(['methods']); print(os.environ['OMP_WAIT_POLICY'])"
    for before, expected in ({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"):
        kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=kept | before, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == expected
