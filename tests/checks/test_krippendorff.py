"""Krippendorff's alpha: against a published example, a loop, and rankings whose agreement is known."""

from itertools import permutations

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.checks.conftest import content_of_run
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.krippendorff import krippendorff, metric_agreement
from twinlens.cli.main import main

ZERO = tl.ConstantImputer(0.0)
# Krippendorff 2011, Computing Krippendorff's alpha-reliability: four observers, twelve units.
PUBLISHED = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""


def by_hand(ratings):
    """Loops over all pairs of ratings."""
    observed, every = 0.0, []
    for unit in ratings.T:
        values = unit[np.isfinite(unit)]
        if len(values) > 1:
            every += list(values)
            observed += sum((a - b) ** 2 for a, b in permutations(values, 2)) / (len(values) - 1)
    expected = sum((a - b) ** 2 for a, b in permutations(every, 2)) / (len(every) - 1)
    return 1 - observed / expected


def test_the_published_example():
    rows = [[np.nan if word == "." else float(word) for word in line.split()] for line in PUBLISHED.split("\n") if line]
    assert krippendorff(np.array(rows)) == pytest.approx(0.849, abs=5e-4)
    assert krippendorff(np.array(rows)) == pytest.approx(by_hand(np.array(rows)))


@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_that_of_a_loop(seed):
    draw = np.random.default_rng(seed)
    ratings = draw.integers(1, 5, size=(6, 7)).astype(float)
    ratings[draw.random(ratings.shape) < 0.2] = np.nan
    assert krippendorff(ratings) == pytest.approx(by_hand(ratings))


def test_alpha_knows_agreement_chance_and_opposition():
    ranks = np.arange(5.0)
    assert krippendorff(np.tile(ranks, (4, 1))) == 1
    assert krippendorff(np.stack([ranks, ranks[::-1]])) < -0.7
    draw = np.random.default_rng(0)
    assert abs(krippendorff(np.stack([draw.permutation(5) for _ in range(2000)]).astype(float))) < 0.01
    assert np.isnan(krippendorff(np.ones((3, 4))))


def curves_of(samples=30):
    def model(x):
        return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1)

    x = torch.rand(samples, 12, generator=torch.Generator().manual_seed(0))
    maps = {"own": x, "flat": x * 0 + 1, "upside down": 1 - x}
    return {
        name: {
            order: tl.road(model, x, [0] * samples, own, order=order, imputer=ZERO, performance="logit")
            for order in ("morf", "lerf")
        }
        for name, own in maps.items()
    }


def test_samples_that_rank_alike_agree():
    curves = curves_of()
    found = metric_agreement(curves)
    assert found.over_samples["morf"].value > 0.9
    # Less is better by lerf: it ranks like morf.
    assert found.together.value == 1
    assert found.with_others["lerf"].value == 1
    swapped = {**curves, "own": curves["upside down"], "upside down": curves["own"]}
    mixed = {name: {"morf": own["morf"], "other": swapped[name]["morf"]} for name, own in curves.items()}
    assert metric_agreement(mixed).together.value < -0.5
    areas = np.stack([own["morf"].area_per_sample() for own in curves.values()], axis=1)
    ranks = areas.argsort(axis=1).argsort(axis=1).astype(float)
    assert found.over_samples["morf"].value == pytest.approx(by_hand(ranks))
    low, high = found.over_samples["morf"].interval
    assert 0.7 < low < high == 1


def test_what_cannot_be_ranked_is_refused():
    curves = curves_of(5)
    for wrong in ({"own": curves["own"]}, {"own": curves["own"], "flat": {}}, {}):
        with pytest.raises(ValueError, match="`curves` must hold two or more methods"):
            metric_agreement(wrong)


def test_the_check_reads_stored_probes_alone(measured, monkeypatch, capsys):
    for name in ("setup.load_model", "reopening.load_model", "reopening.open_labelled"):
        monkeypatch.setattr(f"twinlens.run.{name}", lambda *_, **__: pytest.fail("model or data are loaded"))
    run, _ = measured
    before = content_of_run(run)
    assert main(["check", "agreement", str(run)]) == 0
    assert content_of_run(run) == before
    evaluation = tl.open_evaluation(run)
    check = evaluation.checks()["agreement"]
    assert check.line in capsys.readouterr().out
    assert list(check.methods) == ["soundness", "completeness", "calibration", "ROAD MoRF"]
    direct = metric_agreement(
        {
            name: {metric: evaluation.curve(name, metric) for metric in evaluation.metrics}
            for name in evaluation.methods
        },
        resamples=50,
    )
    assert check.methods["calibration"].values == (
        direct.over_samples["calibration"],
        direct.with_others["calibration"],
    )
    with pytest.raises(ValueError, match="`methods` must be two or more"):
        run_check(evaluation, "agreement", methods=("saliency",))
