"""How far probes are from what a model knows: against direct calls, and sentences by hand."""

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.checks.conftest import content_of_run
from tests.report.runs import content_of
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.checks.probe_distribution import ProbeDistribution, probe_distribution

LEVELS = (0.0, 0.25, 0.5, 0.75)


class Line(nn.Module):
    """A classifier of six features, with logits or one logit."""

    def __init__(self, outputs):
        super().__init__()
        self.layer = nn.Linear(6, outputs)
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(outputs, 6, generator=draw) * 2)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize(
    ("outputs", "output"), [(3, "logits"), (1, "logits"), (3, "probabilities"), (1, "probabilities")]
)
def test_answers_are_those_of_direct_calls(outputs, output):
    x, line = torch.randn(30, 6, generator=torch.Generator().manual_seed(1)), Line(outputs)
    head = nn.Sigmoid() if outputs == 1 else nn.Softmax(dim=1)
    model = nn.Sequential(line, head) if output == "probabilities" else line
    seen = []

    def zero(inputs, keep, streams):
        seen.append(inputs * keep)
        return seen[-1]

    labels = torch.arange(30) % max(outputs, 2)
    found = probe_distribution(model, x, labels, levels=LEVELS[1:], imputer=zero, output=output, batch_size=7)
    assert found.levels == LEVELS
    imputed = torch.cat(seen).reshape(30, 4, 6)  # sample by sample
    # The same features in another order: 6 · ¼ and 6 · ¾ round to 2 and 4.
    assert ((imputed != 0).sum(dim=2) == torch.tensor([6, 4, 3, 2])).all()
    chances = head(line(imputed.reshape(-1, 6))).detach().double()
    if outputs == 1:
        chances = torch.cat([1 - chances, chances], dim=1)
    chances = chances.reshape(30, 4, -1)
    np.testing.assert_allclose(found.confidence, chances.amax(dim=2).numpy(), atol=1e-6)
    np.testing.assert_array_equal(found.predicted, chances.argmax(dim=2).numpy())
    np.testing.assert_array_equal(found.correct, (chances.argmax(dim=2) == labels[:, None]).numpy())
    shares = found.shares
    assert [each.value for each in shares["accuracy"]] == pytest.approx(found.correct.mean(axis=0))
    counts = [np.bincount(found.predicted[:, k]).max() / 30 for k in range(4)]
    assert [each.value for each in shares["most frequent answer"]] == pytest.approx(counts)


def removal_of(correct, confidence, predicted, samples=10):
    rows = np.arange(samples)
    return ProbeDistribution(
        levels=(0.0, 0.5, 0.9),
        confidence=np.tile(confidence, (samples, 1)),
        correct=rows[:, None] < np.array(correct)[None] * samples,
        predicted=np.stack([np.where(rows < share * samples, 1, 2 + rows % 3) for share in predicted], axis=1),
        ids=tuple(map(str, rows)),
    )


def test_a_sentence_names_overconfidence_and_collapse():
    far = removal_of([0.9, 0.6, 0.2], [0.9, 0.65, 0.95], [0.3, 0.4, 0.8], samples=200)
    assert far.collapse == 0.9
    assert [each.value for each in far.excess] == pytest.approx([0.0, 0.05, 0.75])
    start = (
        "Under blur, accuracy is 90.0% with nothing and 60.0% with 50% of the features removed at random; confidence "
        "exceeds it most with 90% removed, 95.0% against 20.0%, a difference of "
    )
    assert far.describe("blur").startswith(start)
    assert far.describe("blur").endswith("; one class gets more than half of the answers from 90% on.")
    low, high = far.excess[2].interval
    assert f"{start}{low:.1%} to {high:.1%}; " in far.describe("blur")
    near = removal_of([0.9, 0.6, 0.3], [0.9, 0.6, 0.35], [0.3, 0.4, 0.5], samples=200)
    assert "; confidence nowhere clearly exceeds it (most with 90% removed, 35.0% against 30.0%" in near.describe(
        "mean"
    )
    assert near.describe("mean").endswith("; no class clearly gets more than half of the answers.")
    # One class has most answers from the start: not a collapse.
    assert removal_of([0.9, 0.6, 0.3], [0.9, 0.6, 0.35], [0.6, 0.7, 0.9], samples=200).collapse is None


def test_few_samples_show_neither():
    """Twelve samples, three quarters of them alike: an interval that reaches below one half."""
    few = removal_of([0.9, 0.6, 0.3], [0.9, 0.6, 0.35], [0.3, 0.4, 0.75], samples=12)
    assert few.collapse is None
    assert "nowhere clearly" in few.describe("mean")
    none = removal_of([0.9, 0.6, 0.3], [0.9, 0.6, 0.9], [0.3, 0.4, 1.0], samples=5)  # no intervals at all
    assert none.collapse is None
    assert none.describe("mean").endswith(
        "(most with 90% removed, 90.0% against 40.0%); no class clearly gets more than half of the answers."
    )


def test_excess_and_its_intervals_are_those_of_a_loop():
    draw = np.random.default_rng(0)
    found = ProbeDistribution(
        levels=(0.0, 0.5), confidence=draw.random((40, 2)), correct=draw.random((40, 2)) < 0.5,
        predicted=np.zeros((40, 2), dtype=np.int64), ids=tuple(map(str, range(40))),
    )  # fmt: skip
    differences = found.confidence - found.correct
    drawn = [draw.integers(40, size=40) for _ in range(4000)]
    farthest = np.array([np.abs(differences[rows].mean(axis=0) - differences.mean(axis=0)) for rows in drawn])
    scale = np.sqrt((farthest**2).mean(axis=0))
    reach = np.quantile((farthest / scale).max(axis=1), 0.95)  # both levels together
    for k, each in enumerate(found.excess):
        assert each.value == pytest.approx(differences[:, k].mean())
        assert (each.high - each.low) / 2 == pytest.approx(reach * scale[k], rel=0.12)


def test_every_imputer_of_the_run_has_its_rows(measured):
    run, spec = measured
    data = tl.open_evaluation(run).manifest.source.data
    tl.evaluate(
        spec, data, ["random"], metrics=["insertion"], out=run, batch_size=16, memory_format="contiguous",
        resamples=50, control="none",
    )  # fmt: skip
    before = content_of_run(run)
    check = run_check(tl.open_evaluation(run), "distribution", options=CheckOptions(levels=(0.5, 0.9)), model=spec)
    assert content_of_run(run) == before
    assert {name.split(":")[0] for name in check.methods} == {"blur", "linear"}
    assert check.steps == ("0%", "50%", "90%")
    first, half, _ = check.methods["linear: accuracy"].values
    assert first.value == tl.open_evaluation(run).results.accuracy
    assert half == check.methods["linear: accuracy"].course[1]
    assert len(check.notes) == 1
    content = content_of(tl.write_report([tl.open_evaluation(run)], run / "page.html"))
    assert content["runs"][0]["checks"][0]["stepTable"] is None
    assert check.methods.keys() <= content["styles"].keys()  # each is a line of the chart
    assert check.line.split(",")[0] in ("Under linear", "Under blur")


def test_a_regression_model_has_no_confidence():
    x = torch.randn(8, 6)
    with pytest.raises(ValueError, match="`labels` must be integers"):
        probe_distribution(Line(1), x, x.sum(dim=1), imputer=tl.ConstantImputer(0.0))
