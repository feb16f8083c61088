"""The examples of docs/guide/logging.md run as they are, with stand-ins that have the interface of each library."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import twinlens as tl
from tests.growing_runs import INPUTS, LABELS, METHODS, OPTIONS, Model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "logging.md"
EXAMPLES = dict(re.findall(r"^## (.+?)\n.*?^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M))


class Writer:
    """As torch.utils.tensorboard.SummaryWriter."""

    def __init__(self, log_dir=None):
        self.log_dir = log_dir

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LOGGED["closed"] = self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None):
        LOGGED[tag, global_step] = scalar_value

    def add_text(self, tag, text_string, global_step=None):
        LOGGED[tag] = text_string


class WandbRun:
    """As wandb.Run."""

    def log(self, data):
        samples = data.pop("samples", None)
        LOGGED.update({(name, samples): value for name, value in data.items()})

    def define_metric(self, name, step_metric=None):
        LOGGED[name] = step_metric

    def save(self, glob_str, policy="live"):
        LOGGED[Path(glob_str).name] = policy


@contextmanager
def entered(**_):
    yield WandbRun()
    LOGGED["closed"] = True


LOGGED = {}
LIBRARIES = {
    "TensorBoard": ("torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer)),
    "MLflow": (
        "mlflow",
        SimpleNamespace(
            start_run=entered,
            log_metrics=lambda metrics, step: LOGGED.update({(name, step): each for name, each in metrics.items()}),
            log_params=LOGGED.update,
            log_artifact=lambda path: LOGGED.update({Path(path).name: Path(path).exists()}),
        ),
    ),
    "Weights & Biases": ("wandb", SimpleNamespace(init=entered, Table=lambda *, dataframe: len(dataframe))),
}
EXPECTED = {
    "TensorBoard": {"closed": "runs/tensorboard", "run": "128 samples in `runs/mine`"},
    "MLflow": {
        "closed": True,
        "samples": 128,
        "seed": 0,
        "results.json": True,
        "results.csv": True,
        "report.html": True,
    },
    "Weights & Biases": {"closed": True, "*": "samples", "report.html": "now", ("summary", None): 6},
}


def test_every_library_has_an_example_of_thirty_lines():
    assert EXAMPLES.keys() == LIBRARIES.keys()
    assert max(text.count("\n") for text in EXAMPLES.values()) <= 30


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_examples_log_every_number(name, tmp_path, monkeypatch):
    module, stand_in = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.chdir(tmp_path)
    LOGGED.clear()
    how = OPTIONS | {"methods": METHODS}
    example = EXAMPLES[name].replace("methods, until=0.02", "until=0.06, **how")
    exec(example, {"model": Model(), "data": (INPUTS, LABELS), "how": how})
    numbers = tl.open_evaluation("runs/mine").summary().set_index(["method", "metric"])
    logged = {key: LOGGED.pop(key) for key in list(LOGGED) if isinstance(key, tuple) and key[1]}
    for (method, metric), row in numbers.iterrows():
        for column, number in row.dropna().items():
            tag = f"{metric}/{column}/{method}" if name == "TensorBoard" else f"{method}/{metric}/{column}"
            assert logged.pop((tag, 128)) == number
    assert {samples for _, samples in logged} == {64}  # the round before
    assert EXPECTED[name] == LOGGED
