"""The examples of README.md run and print what it shows."""

import re
from pathlib import Path

import pandas as pd
import pytest

import twinlens as tl
from twinlens.data.inputs import load_inputs

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def first_example(tmp_path_factory):
    """What the first example leaves behind, run from a directory of its own."""
    names = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path_factory.mktemp("readme"))
        exec(blocks("python")[0].replace("limit=200", "limit=200, progress=False"), names)
    return names


@pytest.mark.slow
def test_the_first_example_prints_what_it_says(first_example):
    rows = [line.split() for line in blocks("text")[0].splitlines() if line.strip()]
    expected = pd.DataFrame(rows[1:], columns=rows[0]).set_index(["method", "metric"]).astype(float)
    summary = first_example["evaluation"].summary().set_index(["method", "metric"])
    assert list(summary.columns) == list(expected.columns)
    # Another kind of processor rounds differently; p is the finest of all these numbers.
    numbers = [name for name in expected.columns if name != "p"]
    assert (summary.loc[expected.index, numbers] - expected[numbers]).abs().max().max() < 0.02
    skill = summary["skill_low"].unstack()
    assert (skill.loc["captum"] > 0).all()
    assert (skill.loc["random"] < 0).all()


@pytest.mark.slow
def test_the_functions_run_as_they_are_shown(first_example):
    model, samples = first_example["model"], tl.open_data("mnist").take(range(40))
    names = {
        "tl": tl,
        "network": model.module,
        "images": load_inputs(samples, model, workers=1),
        "labels": samples.labels,
    }
    exec(blocks("python")[1], names)
    assert names["maps"].shape == (40, 28, 28)
    assert isinstance(names["curve"], tl.SoundnessCurve)
