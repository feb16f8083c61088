"""A run is resumed with the model, the data and the packages that it was made with, or not at all."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.small_runs import QUICK, samples
from tests.tiny import image_folder, tiny_model
from twinlens.errors import DataError, RunError
from twinlens.evaluation import evaluate
from twinlens.models.loading import LoadedModel

MODEL = """
import torch
import helper
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)

    def forward(self, inputs):
        return helper.change(self.linear(inputs.mean(dim=(2, 3))))

def build():
    return Net()
"""


def made(tmp_path, model, **change):
    return evaluate(model, samples(), ["random"], metrics=["deletion"], out=tmp_path / "run", **{**QUICK, **change})


def test_a_neighbour_that_a_model_file_imports_belongs_to_the_model(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "helper.py").write_text("def change(logits):\n    return logits\n")
    spec, data = f"{tmp_path / 'net.py'}:build", image_folder(tmp_path / "images")
    preprocessing = {"preprocessing": {"resize": 8, "crop": 8}}
    how = {"metrics": ["deletion"], "out": tmp_path / "run", **QUICK, **preprocessing}
    evaluate(spec, data, ["random"], **how)
    evaluate(spec, data, ["random"], **how)
    (tmp_path / "helper.py").write_text("def change(logits):\n    return -logits\n")
    with pytest.raises(RunError, match=r"holds another run: model\.digest"):
        evaluate(spec, data, ["random"], **how)


class Hidden(nn.Module):
    """A model whose answers depend on what no digest can see."""

    def __init__(self, sign):
        super().__init__()
        self.inner, self.state = tiny_model(), torch.futures.Future()
        self.state.set_result(sign)

    def forward(self, inputs):
        return self.state.value() * self.inner(inputs)


def test_other_answers_to_original_inputs_are_refused(tmp_path):
    assert LoadedModel(name="", module=Hidden(1)).digest() == LoadedModel(name="", module=Hidden(-1)).digest()
    made(tmp_path, Hidden(1))
    made(tmp_path, Hidden(1))
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(RunError, match=r"answers otherwise: for sample '00000' the stored logit .* is \S+, and now it"):
        made(tmp_path, Hidden(-1), resamples=50)
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_answers_that_differ_by_rounding_are_the_same(tmp_path):
    first = made(tmp_path, Hidden(1)).summary()
    assert made(tmp_path, Hidden(1 + 1e-6)).summary().equals(first)


def test_other_versions_are_reported_once_and_recorded(tmp_path, monkeypatch):
    evaluation = made(tmp_path, tiny_model())
    before = evaluation.run.manifest.versions
    monkeypatch.setattr("twinlens.run.plan.environment", lambda: {**before, "torch": "99.0"})
    with pytest.warns(UserWarning, match=r"was made with torch \S+ and now 99\.0"):
        again = made(tmp_path, tiny_model())
    assert again.run.manifest.versions == {**before, "torch": f"{before['torch']}, 99.0"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(tmp_path, tiny_model())


class Changing:
    """A data set that returns another input when a sample is read again."""

    def __init__(self, times):
        self.inputs, self.labels, self.times = *samples(), times

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, position):
        self.times[position] = self.times.get(position, 0) + 1
        return self.inputs[position] + (position == 7 and self.times[position] > 2), int(self.labels[position])


def test_data_that_change_during_a_run_are_refused(tmp_path):
    with pytest.raises((DataError, RunError), match="Sample '00007' of Changing is not what it was"):
        evaluate(tiny_model(), Changing({}), ["random"], metrics=["deletion"], out=tmp_path / "r", **QUICK)


def test_images_that_change_during_a_run_are_refused(tmp_path):
    folder = Path(image_folder(tmp_path / "images"))
    target = sorted(folder.rglob("*.png"))[5]

    def method(model, inputs, targets):
        target.write_bytes(sorted(folder.rglob("*.png"))[0].read_bytes())
        return torch.ones(len(inputs), *inputs.shape[2:])

    how = {"metrics": ["deletion"], "out": tmp_path / "run", "preprocessing": {"resize": 8, "crop": 8}, **QUICK}
    with pytest.raises((DataError, RunError), match="is not what it was when it was first read"):
        evaluate(tiny_model(), str(folder), {"mine": method}, strict=True, **{**how, "shard_size": 4})


def test_copies_among_the_samples_are_counted(tmp_path):
    inputs, labels = samples()
    inputs, labels = np.concatenate([inputs, inputs[:3]]), np.concatenate([labels, labels[:3]])
    with pytest.warns(UserWarning, match="3 of the 13 samples of arrays are copies of others"):
        evaluate(tiny_model(), (inputs, labels), ["random"], metrics=["deletion"], out=tmp_path / "run", **QUICK)
