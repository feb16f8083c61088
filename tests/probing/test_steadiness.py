"""A model has one answer to an input, or a warning or an error with the size of the difference."""

import pytest
import torch
from torch import nn

from tests.small_runs import QUICK, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.probing.model_call import check_real
from twinlens.probing.steadiness import check_steady

INPUTS = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).double()


def logits(inputs):
    return inputs.double() @ WEIGHTS


def test_a_steady_model_passes():
    assert check_steady(logits, INPUTS, coarse=False) < 1e-6
    assert check_steady(logits, INPUTS[:1], coarse=False) < 1e-6


def counting():
    calls = []

    def ask(inputs):
        calls.append(1)
        return logits(inputs) + len(calls)

    return ask


UNSTEADY = {
    "dropout": (lambda x: nn.functional.dropout(logits(x), 0.5), "when asked again"),
    "counter": (counting(), "when asked again"),
    "batch": (lambda x: logits(x) - logits(x).mean(dim=0), "alone than in a batch"),
}


@pytest.mark.parametrize(("ask", "when"), UNSTEADY.values(), ids=UNSTEADY)
def test_models_whose_answers_vary_are_refused(ask, when):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=rf"`model` gives other answers .* {when}: they differ by [0-9.]+ of"):
        check_steady(ask, INPUTS, coarse=False)


def test_a_little_noise_is_a_warning_with_its_size():
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=r"they differ by 0\.0\d+ of its largest output"):
        size = check_steady(lambda x: logits(x) + 0.01 * torch.randn(len(x), 3), INPUTS, coarse=False)
    assert 1e-4 < size < 0.1


class Noisy(nn.Module):
    """Dropout that evaluation mode does not turn off."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()

    def forward(self, inputs):
        return nn.functional.dropout(self.inner(inputs), 0.5, training=True)


def test_an_evaluation_asks_before_the_work(tmp_path):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="`model` gives other answers"):
        evaluate(Noisy(), samples(), ["random"], out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()


def test_complex_outputs_are_refused(tmp_path):
    with pytest.raises(TypeError, match=r"`model` must return real numbers; got torch\.complex64"):
        check_real(torch.zeros(2, 3, dtype=torch.complex64))
    with pytest.raises(TypeError, match="`model` must return real numbers"):
        evaluate(lambda x: x[:, :, 0, 0].astype("complex64"), samples(), ["random"], out=tmp_path / "run", **QUICK)
