import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.experiments.watching import Watch
from twinlens.experiments import ExperimentOptions, synthetic


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("change", ["truth", synthetic.REMOVE, synthetic.INTRODUCE])
def test_trials_are_what_the_metrics_give(every, change):
    data = synthetic.linear_set(50, every=every, seed=3)
    maps = data.information if change == "truth" else synthetic.modify(data, change, 7, seed=3)
    measured = synthetic.measure(data, maps)

    # The evidence itself as the input of a model that sums it up: a zero is what imputation puts in its place.
    def model(x):
        return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1)

    arguments = (model, torch.from_numpy(data.evidence), [0] * 50, maps)
    options = {"imputer": tl.ConstantImputer(0.0), "seed": 3}
    soundness, completeness = tl.soundness(*arguments, **options), tl.completeness(*arguments, **options)
    assert np.array_equal(measured.accuracy, soundness.performance)
    assert np.allclose(measured.soundness, soundness.values, rtol=0, atol=1e-12)
    assert np.allclose(measured.completeness, completeness.values, rtol=0, atol=1e-12)
    assert measured.at(0.9) == pytest.approx(soundness.at(0.9))


def test_changes_touch_what_they_may():
    data = synthetic.linear_set(30, every=2)
    removed, introduced = (synthetic.modify(data, change, 0) for change in (synthetic.REMOVE, synthetic.INTRODUCE))
    kept = removed > 0
    assert np.array_equal(removed[kept], data.information[kept])
    assert 0.4 < kept.sum() / data.predictive.sum() < 0.6
    new = introduced != data.information
    assert not new[:, ::2].any()
    assert 0.4 < new[:, 1::2].mean() < 0.6
    assert introduced.max() <= data.information.max()


def test_a_small_run(tmp_path):
    progress = Watch()
    options = ExperimentOptions(out=tmp_path, limit=3)
    outcome = synthetic.run(options, progress)
    assert sum(progress.announced.values()) == 12
    assert [rows for _, rows in progress.advances] == [1] * 12
    assert progress.done == progress.announced
    by_text = {claim.text: claim.holds for claim in outcome.claims}
    assert len(by_text) == 11
    assert by_text["On the paper's set, introducing attribution lowers soundness."] is True
    assert by_text["On the paper's set, removing attribution lowers completeness."] is True
    assert by_text["On the set with zero weights, introducing attribution does not lower completeness."] is True
    # The paper's prose contradicts its own expectation, and what is measured.
    assert [claim.holds for claim in outcome.claims if "prose" in claim.source] == [False]
    json.dumps(outcome.numbers, allow_nan=False)
    assert outcome.numbers == synthetic.run(options, Watch()).numbers
    assert outcome.numbers != synthetic.run(replace(options, seed=1), Watch()).numbers


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="`model` is not used by this experiment, because it draws its own data"):
        synthetic.run(ExperimentOptions(out=tmp_path, model="mnist-cnn"), Watch())
    with pytest.raises(ValueError, match="`limit` must be at least 1"):
        synthetic.run(ExperimentOptions(out=tmp_path, limit=0), Watch())
