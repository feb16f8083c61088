"""Curves read from steps: their areas are means over samples, and calibration is a distance from the diagonal."""

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.metrics.step_curve import calibration, completeness_share, soundness_rank
from twinlens.metrics.steps import Steps, step_schedules
from twinlens.probing.probe import probe

INPUTS = torch.randn(30, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def linear(x):
    total = x.sum(dim=1)
    return torch.stack([torch.zeros_like(total), total], dim=1)


def tables(maps):
    return [
        probe(linear, INPUTS, [1] * 30, maps, schedule=schedule, imputer=tl.ConstantImputer(0.0))
        for schedule in step_schedules(60)
    ]


RANDOM = torch.rand(30, 60, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("read", [soundness_rank, completeness_share, calibration])
def test_the_area_is_the_mean_over_samples(read):
    curve = read(*tables(RANDOM))
    assert curve.area() == pytest.approx(np.nanmean(curve.area_per_sample()))
    counts = np.random.default_rng(0).multinomial(30, np.ones(30) / 30, size=7).astype(float)
    performance, values = curve.replicate(counts)
    expected = [np.average(curve.area_per_sample(), weights=row) for row in counts]
    assert curve.areas(performance, values) == pytest.approx(expected)
    assert curve.replicate(np.ones((1, 30)))[1][0] == pytest.approx(curve.values)


def test_the_areas_are_those_of_the_steps():
    both = tables(RANDOM)
    steps = Steps.of(*both)
    assert soundness_rank(*both).area_per_sample() == pytest.approx(steps.soundness()[:, -1])
    share = np.pad(steps.completeness(), ((0, 0), (1, 0)))
    assert completeness_share(*both).area_per_sample() == pytest.approx((share[:, 1:] + share[:, :-1]).mean(axis=1) / 2)


def test_a_calibrated_map_lies_on_the_diagonal():
    exact = calibration(*tables(INPUTS.clamp(min=0)))
    squared = calibration(*tables(INPUTS.clamp(min=0) ** 3))
    assert exact.area() == pytest.approx(0, abs=0.01)
    assert squared.area() > 0.1
    assert not exact.higher_is_better
    assert exact.levels[[0, -1]] == pytest.approx([0.05, 1])


def test_a_sample_without_attribution_is_left_out():
    maps = RANDOM.clone()
    maps[3] = 0
    curve, other = soundness_rank(*tables(maps)), soundness_rank(*tables(RANDOM))
    assert np.isnan(curve.area_per_sample()[3])
    assert curve.area() == pytest.approx(np.delete(other.area_per_sample(), 3).mean())


def test_some_samples_of_a_curve():
    curve = completeness_share(*tables(RANDOM))
    assert curve.take([2, 5]).area_per_sample() == pytest.approx(curve.area_per_sample()[[2, 5]])
    assert curve.at(0.5) == curve.values[9]


@pytest.mark.parametrize(
    ("metric", "read"),
    [
        (tl.Soundness(estimator="rank"), soundness_rank),
        (tl.Completeness(estimator="share"), completeness_share),
        (tl.METRICS["calibration"], calibration),
    ],
)
def test_metrics_as_values_read_the_same_curves(metric, read):
    assert tl.METRICS[metric.name] == metric
    assert [sweep.schedule for sweep in metric.sweeps(60)] == list(step_schedules(60))
    assert metric.read(tables(RANDOM)).area_per_sample() == pytest.approx(read(*tables(RANDOM)).area_per_sample())
    assert not metric.needs_performance
    with pytest.raises(ValueError, match="`steps` must be at least 2"):
        type(metric)(**{"steps": 1} | ({} if metric.name == "calibration" else {"estimator": metric.estimator}))


def test_they_share_one_pair_of_sweeps_with_road(tmp_path):
    names = ["soundness_rank", "completeness_share", "calibration", "road_morf", "road_lerf"]
    inputs = torch.randn(12, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 3))
    methods = ["input_x_gradient", "random"]
    evaluation = tl.evaluate(model, (inputs, [0, 1, 2] * 4), methods, metrics=names, control="none")
    levels = {sweep.name: len(sweep.schedule.levels) for sweep in evaluation.manifest.sweeps}
    assert levels == {"area-lerf-linear": 20, "area-morf-linear": 20}
    summary = evaluation.summary().set_index(["method", "metric"])
    for name in names[:2]:
        assert summary.loc[("input_x_gradient", name)].low > summary.loc[("random", name)].high
    assert summary.loc[(slice(None), names[:3]), "value"].between(0, 1).all()


def test_a_regression_model_needs_no_measure():
    inputs = torch.randn(12, 30, generator=torch.Generator().manual_seed(0))
    labels = inputs.sum(dim=1).double().numpy()
    metrics = ["soundness_rank", "completeness_share"]
    evaluation = tl.evaluate(
        lambda x: x.sum(dim=1, keepdim=True),
        (inputs, labels),
        {"own": lambda model, x, y: x.clamp(min=0)},
        metrics=metrics,
    )
    assert (evaluation.summary().value > 0.75).all()
