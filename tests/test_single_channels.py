"""`features="channels"`: each channel of a position is a feature, as a lead of an ECG at one moment."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.data.segments import find_segments
from twinlens.imputation.linear_system import solve_direct

LEADS, MOMENTS = 3, 48


class ReadsOneLead(nn.Module):
    """Tells an early bump from a late one by lead 1 alone; the other leads show the same bump."""

    def forward(self, signals):
        early, late = signals[:, 1].chunk(2, dim=1)
        return torch.stack([early.sum(dim=1), late.sum(dim=1)], dim=1)


@pytest.fixture(scope="module")
def signals():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 2
    inputs = 0.3 * torch.randn(24, LEADS, MOMENTS, generator=generator)
    for one, label in zip(inputs, labels.tolist(), strict=True):
        one[:, 6 + 24 * label : 18 + 24 * label] += 2
    return inputs, labels


def map_on(leads, inputs):
    """The positive values of some leads."""
    maps = torch.zeros_like(inputs)
    maps[:, leads] = inputs[:, leads].clamp(min=0)
    return maps


def areas(signals, maps, **how):
    sound = tl.soundness(ReadsOneLead(), *signals, maps, estimator="rank", **how)
    complete = tl.completeness(ReadsOneLead(), *signals, maps, estimator="share", **how)
    return sound.area(), complete.area()


def test_a_map_on_the_lead_that_is_read_scores_high_and_one_on_others_does_not(signals):
    inputs, _ = signals
    bump = inputs[:, 1:2].expand_as(inputs)  # the same values on every lead
    right, wrong = (map_on(leads, bump) for leads in ([1], [0, 2]))
    own, other = (areas(signals, maps, features="channels") for maps in (right, wrong))
    assert own[0] > 0.85
    assert own[1] > 0.75
    assert other[0] < 0.5
    assert other[1] < 0.55
    merged = [areas(signals, maps, channels="mean") for maps in (right, wrong)]  # a map of moments cannot tell
    assert np.allclose(*merged, atol=1e-6)


def test_each_lead_can_be_one_feature(signals):
    inputs, labels = signals
    leads = torch.arange(LEADS)[:, None].expand(len(inputs), LEADS, MOMENTS)
    table = tl.probe(
        ReadsOneLead(), inputs, labels, map_on([1], inputs), features="channels", segments=leads,
        schedule=tl.probing.Schedule(by="area", order="morf", levels=(0.0, 0.34)), imputer=tl.ConstantImputer(),
    )  # fmt: skip
    assert table.removed.tolist() == [[0, 1]] * len(inputs)
    assert (table.logit[:, 1] == 0).all()  # the lead that is read was removed


def test_a_value_is_imputed_from_its_own_channel():
    rng = np.random.default_rng(0)
    for shape in [(31,), (9, 8), (20, 21), (5, 6, 7)]:
        inputs, keep = rng.normal(size=(2, 3, *shape)).astype(np.float32), rng.random((2, 3, *shape)) < 0.4
        filled = tl.LinearImputer(noise=0.0)(torch.from_numpy(inputs), torch.from_numpy(keep), [0, 1])
        for i, c in np.ndindex(2, 3):
            exact = solve_direct(inputs[i, c : c + 1], keep[i, c])
            assert np.abs(filled[i, c].numpy() - exact[0]).max() <= 1e-3


def test_a_channel_of_which_nothing_is_kept_is_empty():
    inputs, keep = torch.ones(1, 2, 5), torch.tensor([[[True] * 5, [False] * 5]])
    assert tl.LinearImputer(noise=0.0, empty=0.25)(inputs, keep, [0]).tolist() == [[[1.0] * 5, [0.25] * 5]]


def test_noise_and_other_imputers_of_single_channels():
    inputs = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0))
    nothing, one = torch.zeros(2, 40, dtype=torch.bool), torch.ones(2, 3, 40, dtype=torch.bool)
    one[:, 1] = False
    noisy = tl.LinearImputer(noise=0.5)
    together = noisy(inputs, nothing, [3, 4])
    alone = noisy(inputs, one, [3, 4])
    assert torch.equal(alone[:, [0, 2]], inputs[:, [0, 2]])
    assert torch.allclose(alone[:, 1], together[:, 1], atol=1e-6)  # the same draws
    means = tl.MeanImputer([1.0, 2.0, 3.0])(inputs, one, [3, 4])
    assert (means[:, 1] == 2).all()
    blurred = tl.BlurImputer(sigma=2.0)
    assert torch.equal(blurred(inputs, one, [3, 4])[:, 1], blurred(inputs, nothing, [3, 4])[:, 1])


def test_a_run_says_which_lead_is_read(signals, tmp_path):
    methods = ["integrated_gradients", "occlusion", "gradcam", "random"]
    model = nn.Sequential(nn.Conv1d(LEADS, LEADS, 1, bias=False), ReadsOneLead())
    model[0].weight.data = torch.eye(LEADS)[:, :, None]

    def mine(model, inputs, targets):
        return inputs.clamp(min=0)

    evaluation = tl.evaluate(
        model, signals, {**{name: name for name in methods}, "mine": mine}, metrics="headline", features="channels",
        maps={"others": map_on([0, 2], signals[0])}, out=tmp_path / "run", strict=True, progress=False,
    )  # fmt: skip
    sound = evaluation.summary().query("metric == 'soundness_rank'").set_index("method")["value"]
    assert sound["integrated_gradients"] > 0.85
    assert sound["occlusion"] > sound["gradcam"]  # which has one value for all leads
    assert sound["others"] < 0.5
    assert evaluation.results.data.spatial == (LEADS, MOMENTS)
    by_lead = evaluation.maps("integrated_gradients").sum(dim=(0, 2))
    assert by_lead.argmax() == 1
    assert by_lead[[0, 2]].sum() == 0
    assert (tmp_path / "run" / "report.html").exists()
    with pytest.raises(tl.RunError, match="feature_kind"):
        tl.evaluate(model, signals, methods, metrics="headline", out=tmp_path / "run", progress=False)


def test_checks_remove_single_channels_or_refuse_them(signals, tmp_path):
    spec, data = f"{tmp_path / 'leads.py'}:build", tmp_path / "signals.npz"
    np.savez(data, inputs=signals[0], labels=signals[1])
    imports = "import torch\nfrom torch import nn\n\n\n"
    build = "\n\ndef build():\n    return nn.Sequential(nn.Identity(), ReadsOneLead())\n"
    (tmp_path / "leads.py").write_text(imports + inspect.getsource(ReadsOneLead) + build)
    evaluation = tl.evaluate(
        spec, data, ["integrated_gradients", "random"], metrics="headline", features="channels", out=tmp_path / "run",
        progress=False,
    )  # fmt: skip
    check = run_check(evaluation, "sensitivity-n", options=CheckOptions(limit=12, subsets=20), model=spec)
    own, other = (check.methods[name].values[0].value for name in ("integrated_gradients", "random"))
    assert own > 0.9
    assert abs(other) < 0.3
    with pytest.raises(ValueError, match="`name` ceiling orders segments of positions"):
        run_check(evaluation, "ceiling", model=spec)


def test_equal_parts_do_not_join_channels(signals):
    samples = tl.data.from_arrays(*signals)
    segments = find_segments("grid:12", samples, "channels").of(samples, signals[0])
    assert segments.shape == signals[0].shape
    assert segments[0].unique().tolist() == list(range(12))
    assert [row.unique().tolist() for row in segments[0]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(ValueError, match="`segments` 'slic' joins all channels"):
        find_segments("slic", samples, "channels")


def test_what_has_no_channels_is_refused(signals):
    rows = torch.rand(4, 3)
    with pytest.raises(ValueError, match="`features` 'channels' needs inputs"):
        tl.soundness(nn.Linear(3, 2), rows, [0] * 4, rows, features="channels", imputer=tl.ConstantImputer())
    with pytest.raises(ValueError, match=r"`maps` must have shape \(24, 3, 48\)"):
        tl.soundness(ReadsOneLead(), *signals, signals[0][:, 0].abs(), features="channels")
