import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.reproduction.watching import Watch, check_figures
from twinlens.reproduction import ExperimentOptions, synthetic
from twinlens.reproduction.claims import group_statements


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("change", ["truth", synthetic.REMOVE, synthetic.INTRODUCE, synthetic.ANYWHERE])
def test_trials_are_what_the_metrics_give(every, change):
    data = synthetic.linear_set(50, every=every, seed=3)
    if change == synthetic.ANYWHERE and every == 2:
        pytest.skip("attribution is introduced on features that are not read alone")
    maps = data.information if change == "truth" else synthetic.modify(data, change, 7, seed=3)
    measured = synthetic.measure(data, maps)

    # The evidence itself as the input of a model that sums it up: a zero is what imputation puts in its place.
    def model(x):
        return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1)

    arguments = (model, torch.from_numpy(data.evidence), [0] * 50, maps)
    options = {"imputer": tl.ConstantImputer(0.0), "seed": 3}
    soundness, completeness = tl.soundness(*arguments, **options), tl.completeness(*arguments, **options)
    absolute = tl.completeness(*arguments, relative=False, **options)
    once = tl.completeness(
        *arguments[:3], maps / data.information.max(axis=1, keepdims=True), relative=False, **options
    )
    assert np.array_equal(measured["accuracy"], soundness.performance)
    assert np.allclose(measured["soundness_by_level"], soundness.values, rtol=0, atol=1e-12)
    at_levels = [np.nan if (value := soundness.at(level)) is None else value for level in synthetic.PREDICTIVE]
    assert np.allclose(measured["soundness"], at_levels, rtol=0, atol=1e-12, equal_nan=True)
    for name, curve in zip(synthetic.COMPLETENESS, (completeness, once, absolute), strict=True):
        assert np.allclose(measured[name], curve.values, rtol=0, atol=1e-12)


def test_changes_touch_what_they_may():
    data = synthetic.linear_set(30, every=2)
    removed, introduced = (synthetic.modify(data, change, 0) for change in (synthetic.REMOVE, synthetic.INTRODUCE))
    kept = removed > 0
    assert np.array_equal(removed[kept], data.information[kept])
    assert 0.4 < kept.sum() / (data.information > 0).sum() < 0.6
    new = introduced != data.information
    assert not new[:, ::2].any()
    assert 0.4 < new[:, 1::2].mean() < 0.6
    assert introduced.max() <= data.information.max()
    anywhere = synthetic.modify(synthetic.linear_set(30), synthetic.ANYWHERE, 0)
    exact = synthetic.linear_set(30).information
    assert (anywhere >= exact).all()
    assert 0.4 < (anywhere > exact)[exact > 0].mean() < 0.6
    assert 0.4 < (anywhere > exact)[exact == 0].mean() < 0.6


@pytest.mark.slow
def test_a_small_run(tmp_path):
    progress = Watch()
    options = ExperimentOptions(out=tmp_path, limit=20)
    outcome = synthetic.run(options, progress)
    assert sum(progress.announced.values()) == 100
    assert [rows for _, rows in progress.advances] == [1] * 100
    assert progress.done == progress.announced
    verdicts = {(claim.text, claim.reading): claim.verdict for claim in outcome.claims}
    assert (len(verdicts), sum(claim.ours for claim in outcome.claims)) == (27, 14)
    assert [len(group_statements(outcome.claims, ours=ours)) for ours in (False, True)] == [5, 9]
    assert {claim.ours for claim in outcome.claims if "zero weights" in claim.text} == {True}
    assert {claim.over for claim in outcome.claims if claim.verdict != "by construction"} == {
        "20 trials",
        "1,000 samples",
    }
    paper, exact = "On the paper's set, ", "thresholds relative to the exact map"
    against, anywhere = "on evidence against the label", "on any feature"
    assert verdicts[paper + "introducing attribution lowers soundness.", against] == "holds"
    assert verdicts[paper + "introducing attribution lowers soundness.", anywhere] == "does not hold"
    assert verdicts[paper + "removing attribution lowers completeness.", exact] == "holds"
    # How "randomly add" is read decides whether introducing improves completeness.
    improves = paper + "introducing attribution improves completeness."
    assert verdicts[improves, f"{anywhere}, {exact}"] == "holds"
    assert verdicts[improves, f"{against}, {exact}"] == "does not hold"
    unread = [key for key in verdicts if "zero weights" in key[0] and "leaves completeness as it is" in key[0]]
    assert [verdicts[key] for key in unread] == ["holds"] * 3
    # Our own pair notices every change, also where accuracy is blind.
    pair = [claim for claim in outcome.claims if "as a rank" in claim.text or "as a share" in claim.text]
    assert [claim.verdict for claim in pair] == ["holds"] * 5
    assert sum("as a rank" in claim.text for claim in pair) == 3
    fixed = [claim for claim in outcome.claims if claim.verdict == "by construction"]
    assert [claim.measured[:14] for claim in fixed] == ["at least 1.000"] * 4
    check_figures(outcome)
    json.dumps(outcome.numbers, allow_nan=False)
    assert outcome.numbers == synthetic.run(options, Watch()).numbers
    assert outcome.numbers != synthetic.run(replace(options, seed=1), Watch()).numbers


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="`model` is not used by this experiment, because it draws its own data"):
        synthetic.run(ExperimentOptions(out=tmp_path, model="mnist-cnn"), Watch())
    with pytest.raises(ValueError, match="`limit` must be at least 1"):
        synthetic.run(ExperimentOptions(out=tmp_path, limit=0), Watch())
