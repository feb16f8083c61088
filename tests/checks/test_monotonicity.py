"""Monotonicity: counted by hand, and from the probes of a run."""

import dataclasses
import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.report.runs import content_of
from tests.tiny import image_folder, model_file
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.checks.monotonicity import monotonicity
from twinlens.cli.main import main

ZERO = tl.ConstantImputer(0.0)
LEVELS = tuple(k / 10 for k in range(9, -1, -1))


def random_model(seed):
    weights = torch.randn(10, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda x: torch.tanh(x) @ weights


def table_of(model, samples=40, features=10, **options):
    draw = torch.Generator().manual_seed(0)
    inputs, maps = (torch.rand(samples, features, generator=draw, dtype=torch.float64) for _ in range(2))
    labels = torch.arange(samples) % 3
    options = {"imputer": ZERO, "levels": LEVELS, **options}
    return tl.soundness(model, inputs, labels, maps, **options).table


def by_hand(tables, fall):
    """Loops over samples and pairs of neighbouring levels, on each table's long form."""
    each, levels, falls = {}, 0, 0
    for table in tables:
        frame = table.to_frame()
        frame["log_odds"] = [math.log(p) - math.log1p(-p) for p in frame.probability]
        for name, own in frame.groupby("sample"):
            rows = own.sort_values("removed", ascending=False).to_dict("records")
            for before, after in pairwise(rows):
                if after["removed"] < before["removed"]:
                    count = each.setdefault(name, [0, 0, 0])
                    count[0] += 1
                    count[1] += before["probability"] - after["probability"] > fall
                    count[2] += before["log_odds"] - after["log_odds"] > 4 * fall
        accuracy = [group.correct.mean() for _, group in frame.groupby("level")]  # levels ascend: fewer are kept
        if table.settings.schedule.by == "area":
            accuracy.reverse()
        levels += len(accuracy) - 1
        falls += sum(one - other > fall + 1e-12 for one, other in pairwise(accuracy))
    counts = np.array(list(each.values()))
    return (
        (counts[:, 1] / counts[:, 0]).mean(),
        (counts[:, 2] / counts[:, 0]).mean(),
        falls / levels,
        counts[:, 0].sum(),
    )


@pytest.mark.parametrize("fall", [0.0, 0.01, 0.05])
def test_falls_are_those_that_a_loop_counts(fall):
    first = table_of(random_model(1))
    tables = [first, table_of(random_model(2), levels=(0.9, 0.5, 0.2)), first.take(range(20))]  # some samples twice
    found = monotonicity(tables, fall=fall)
    probability, log_odds, accuracy, steps = by_hand(tables, fall)
    assert found.probability.value == pytest.approx(probability)
    assert found.log_odds.value == pytest.approx(log_odds)
    assert found.accuracy.value == pytest.approx(accuracy)
    assert found.steps == steps == 40 * 9 + 40 * 2 + 20 * 9
    assert found.levels == 9 + 2 + 9
    assert 0 < found.probability.value < 1
    for share in found.shares:
        assert 0 <= share.low <= share.value <= share.high <= 1


def test_removed_first_or_last_the_sets_are_nested_alike():
    model = random_model(3)
    rising = table_of(model)
    falling = dataclasses.replace(
        rising,
        settings=dataclasses.replace(
            rising.settings, schedule=dataclasses.replace(rising.settings.schedule, levels=LEVELS[::-1])
        ),
        **{name: getattr(rising, name)[:, ::-1] for name in ("removed", "kept_mass", "predicted", "probability")},
        **{name: getattr(rising, name)[:, ::-1] for name in ("logit", "target_rank")},
    )
    assert monotonicity([rising]) == monotonicity([falling])


def test_a_model_that_only_gains_never_falls():
    def model(x):  # every feature speaks for class 0
        return torch.stack([x.sum(dim=1), torch.zeros(len(x), dtype=x.dtype)], dim=1)

    draw = torch.Generator().manual_seed(0)
    inputs, maps = (torch.rand(50, 10, generator=draw, dtype=torch.float64) for _ in range(2))
    table = tl.soundness(model, inputs, [0] * 50, maps, imputer=ZERO, levels=LEVELS).table
    found = monotonicity([table], fall=0.0)
    assert [share.value for share in found.shares] == [0.0, 0.0, 0.0]
    assert found.probability.high > 0  # 50 samples do not show that it never happens


def test_equal_sets_are_no_step():
    """Thresholds that remove nothing more, where noise still changes the answers."""
    inputs = torch.randn(30, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    maps = (torch.arange(36.0) == 7).reshape(6, 6).expand(30, 6, 6)

    def model(x):
        return x.flatten(1) @ torch.eye(36)[:, :3]

    curve = tl.completeness(model, inputs, [0, 1, 2] * 10, maps, imputer=tl.LinearImputer(noise=0.5))
    assert len(curve.table.levels) == 10
    found = monotonicity([curve.table], fall=0.0)
    assert (found.steps, found.levels) == (30, 1)  # with and without the one marked pixel


def test_a_fall_of_exactly_the_tolerance_does_not_count():
    table = table_of(random_model(1), samples=100, levels=(0.5, 0.0))
    rank = np.zeros((100, 2), dtype=np.int64)
    rank[:7, 1] = 1  # 0.07 are lost when features join
    table = dataclasses.replace(table, target_rank=rank)
    assert monotonicity([table], fall=0.07).accuracy.value == 0
    assert monotonicity([table], fall=0.069).accuracy.value == 1


def test_what_cannot_be_counted_is_refused():
    table = table_of(random_model(1), levels=(0.5, 0.0))
    with pytest.raises(ValueError, match="`fall` must be >= 0"):
        monotonicity([table], fall=-0.1)
    with pytest.raises(ValueError, match="`tables` must hold at least one"):
        monotonicity([])
    inputs = torch.rand(5, 4, dtype=torch.float64)
    curve = tl.soundness(lambda x: x.sum(dim=1), inputs, inputs.sum(dim=1), inputs, performance="r2", imputer=ZERO)
    with pytest.raises(ValueError, match="must be of a classification model"):
        monotonicity([curve.table])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of a model that is code, with an exchanged control."""
    folder = tmp_path_factory.mktemp("monotonicity")
    tl.evaluate(
        model_file(folder), image_folder(folder / "images"), ["saliency", "random"], metrics=["headline", "deletion"],
        out=folder / "run", batch_size=16, memory_format="contiguous", resamples=50, shard_size=5,
    )  # fmt: skip
    return folder / "run"


def test_the_check_reads_every_stored_sweep_and_calls_no_model(made, monkeypatch):
    for name in ("setup.load_model", "setup.open_samples", "reopening.load_model", "reopening.open_labelled"):
        monkeypatch.setattr(f"twinlens.run.{name}", lambda *_, **__: pytest.fail("model or data are loaded"))
    evaluation = tl.open_evaluation(made)
    check = run_check(evaluation, "monotonicity", options=CheckOptions(fall=0.02))
    assert evaluation.checks()["monotonicity"] == check
    assert check.options == {"fall": 0.02, "seed": 0}
    for name, found in check.methods.items():
        tables = [
            evaluation.run.load_probes(name, folder.name, sorted(int(file.stem) for file in folder.glob("*.parquet")))
            for folder in sorted((made / "probes" / name).iterdir())
        ]
        assert len(tables) == 6  # joining, leaving and deletion, each with its control
        assert found.values[:2] == monotonicity(tables, fall=0.02).shares[:2]
        assert found.values[2].value == monotonicity(tables, fall=0.02).accuracy.value
    assert "area-morf-linear-exchanged" in check.notes[1]


def test_the_page_has_it_as_one_line(made, tmp_path, capsys):
    assert main(["check", "monotonicity", str(made)]) == 0
    evaluation = tl.open_evaluation(made)
    check = evaluation.checks()["monotonicity"]
    assert re.fullmatch(
        r"When features join, the target's probability falls in [\d.]+% \[[\d.]+%, [\d.]+%\] of steps, its log-odds in "
        r".*, and accuracy in [\d.]+% \[.*%\]\.",
        check.line,
    )
    assert check.notes[0].startswith("A fall counts if it is more than 0.01, of log-odds 0.04. ")
    assert check.line in capsys.readouterr().out
    [shown] = content_of(tl.write_report([evaluation], tmp_path / "page.html"))["runs"][0]["checks"]
    assert shown["line"] == check.line
    assert main(["verify", str(made)]) == 0
    code = main(["check", "monotonicity", str(made), "--fall", "-1"])
    assert (code, capsys.readouterr().err.strip()) == (2, "twinlens: error: `fall` must be >= 0, such as 0.01; got -1.")


def test_a_regression_model_has_no_such_check(tmp_path):
    rows = torch.randn(8, 4)
    evaluation = tl.evaluate(
        torch.nn.Linear(4, 1), (rows, rows.sum(dim=1)), ["saliency"], metrics=["deletion"], performance="r2",
        out=tmp_path / "run", batch_size=8, memory_format="contiguous", resamples=50,
    )  # fmt: skip
    with pytest.raises(ValueError, match="monotonicity needs a classification model"):
        run_check(evaluation, "monotonicity")
