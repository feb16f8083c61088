"""Small runs in growing rounds: two methods and random maps on a sum of six features."""

import torch

import twinlens as tl
from twinlens.evaluation import evaluate

WEIGHTS = torch.tensor([2.0, 1.0, 0.5, 0.0, 0.0, 0.0])
SAMPLES, SIZES = 260, (64, 128, 192, 260)
INPUTS = torch.randn(SAMPLES, 6, generator=torch.manual_seed(0))
LABELS = (INPUTS @ WEIGHTS > 0).long()
OPTIONS = {
    "metrics": {
        "soundness_rank": tl.Soundness(estimator="rank", steps=4),
        "completeness": tl.Completeness(thresholds=(0.8, 0.4), performance="probability"),
    },
    "imputer": tl.ConstantImputer(0.0),
    "batch_size": 64,
    "threads": 1,
    "resamples": 500,
    "progress": False,
}


class Model(torch.nn.Module):
    """A sum of features, which remembers how many inputs it was asked about."""

    def __init__(self):
        super().__init__()
        self.weights, self.asked = torch.nn.Parameter(WEIGHTS.clone()), 0

    def forward(self, x):
        self.asked += len(x)
        return torch.stack([-(x @ self.weights), x @ self.weights], dim=1)


def good(model, inputs, targets):
    return (inputs * WEIGHTS * (2 * targets[:, None] - 1)).clamp(min=0)


def blurred(model, inputs, targets):
    return good(model, inputs, targets) + 0.3


METHODS = {"good": good, "blurred": blurred, "random": "random"}


def run(until, out=None, *, model=None, methods=METHODS, **options):
    return evaluate(model or Model(), (INPUTS, LABELS), methods, until=until, out=out, **{**OPTIONS, **options})
