import pytest
import torch
from torch import nn

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.probing.agreement import LEVELS, SAMPLES, AgreementTrial, draw_maps, worth_trying
from twinlens.probing.execution import Execution
from twinlens.probing.probe import Prober


class Counting(nn.Module):
    """A tiny model that counts its inputs, and answers otherwise where autocast is on."""

    def __init__(self, shift=0.0, flip=False):
        super().__init__()
        self.model, self.rows, self.shift, self.flip = tiny_model(), 0, shift, flip

    def forward(self, x):
        self.rows += len(x)
        with torch.autocast("cpu", enabled=False):
            answer = self.model(x.float())
        if torch.is_autocast_enabled("cpu"):
            answer = answer.roll(1, dims=1) if self.flip else answer + self.shift * torch.tensor([1.0, 0.0, 0.0])
        return answer


def trial_of(module, labels=None, imputer=None):
    inputs = torch.randn(SAMPLES, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(SAMPLES) % 3 if labels is None else labels

    def prober(model, samples):
        return Prober(model, inputs[:samples], labels[:samples], batch_size=16)

    return AgreementTrial(module, prober, imputer or tl.ConstantImputer(0.0), seed=0)


LOWER = Execution(batch_size=16, precision="bfloat16")


def test_what_answers_alike_agrees():
    found = trial_of(Counting())(LOWER)
    assert (found.precision, found.compiled, found.probes) == ("bfloat16", False, SAMPLES * len(LEVELS))
    assert (found.predictions, found.probabilities) == (1.0, 0.0)
    assert found.enough


def test_moved_probabilities_are_found_by_the_first_look():
    model = Counting(shift=0.5)
    found = trial_of(model)(LOWER)
    assert found.probes == 2 * len(LEVELS)
    assert found.probabilities > 0.02
    assert not found.enough
    assert model.rows == 2 * found.probes


def test_other_predictions_are_counted():
    found = trial_of(Counting(flip=True))(LOWER)
    assert found.predictions < 0.995
    assert not found.enough


def test_plain_answers_are_asked_once():
    model = Counting()
    trial = trial_of(model)
    trial(LOWER)
    asked = model.rows
    assert trial(LOWER) == trial(LOWER)
    assert model.rows == 2 * asked  # each again in the lower precision alone


def test_values_have_no_predictions():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    assert trial_of(model, labels=torch.rand(SAMPLES))(LOWER) is None


def test_real_bfloat16_is_close_but_not_equal():
    found = trial_of(tiny_model(), imputer=tl.LinearImputer())(LOWER)
    assert 0 < found.probabilities < 0.02


@pytest.mark.parametrize("spatial", [(30,), (8, 9), (4, 5, 6), (2, 2, 2, 2)])
def test_maps_are_drawn_by_the_seed(spatial):
    maps = draw_maps(4, spatial, seed=0)
    assert maps.shape == (4, *spatial)
    assert torch.equal(maps, draw_maps(4, spatial, seed=0))
    assert not torch.equal(maps, draw_maps(4, spatial, seed=1))
    assert bool((maps >= 0).all())


def test_short_runs_are_not_worth_a_trial():
    assert not worth_trying(3999)
    assert worth_trying(4000)
