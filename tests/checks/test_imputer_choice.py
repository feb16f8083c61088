"""The imputers of a run compared: against direct measurements, SciPy, and a loop."""

import re

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau

import twinlens as tl
from tests.checks.conftest import content_of_run
from tests.report.runs import content_of
from twinlens.checks.check_catalogue import run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.checks.imputer_choice import describe_changes
from twinlens.checks.rank_agreement import VerdictChanges
from twinlens.cli.main import main
from twinlens.data.inputs import load_inputs
from twinlens.probing.probe import Prober
from twinlens.run.directory import Run
from twinlens.run.reopening import reopen
from twinlens.statistics.verdicts import Pair
from twinlens.support.estimate import Estimate

CUSTOM = "import torch\ndef zero(inputs, keep, streams):\n    return inputs * keep.unsqueeze(1)\nvalue = 3\n"


DIFFERENCE = Estimate(value=0.2, low=0.1, high=0.3, samples=30)
PAIRS = tuple(
    Pair(
        metric="soundness_rank",
        first=first,
        second="saliency",
        difference=DIFFERENCE,
        p_alone=0.01,
        wins=1.0,
        sample_wins=0.9,
    )
    for first in ("sobel", "gradcam")
)


def record_of(measured, **options):
    run, spec = measured
    return run_check(tl.open_evaluation(run), "imputers", options=CheckOptions(**options), model=spec)


def test_rows_are_direct_measurements_and_the_run_does_not_change(measured):
    run, spec = measured
    before = content_of_run(run)
    check = record_of(measured, imputers=("constant",))
    assert content_of_run(run) == before
    assert list(check.methods) == ["linear", "constant"]
    evaluation = tl.open_evaluation(run)
    names = evaluation.methods
    # Under the run's own imputer and with all samples, the numbers are those of the run.
    own = [evaluation.results.methods[name].metrics[metric].area for metric in evaluation.metrics[:2] for name in names]
    assert [each.value for each in check.methods["linear"].course] == [each.value for each in own]
    assert [each.low for each in check.methods["linear"].course] == [each.low for each in own]
    model, samples = reopen(evaluation, model=spec)
    curve = tl.soundness(
        model.module, load_inputs(samples, model, 1), samples.labels, evaluation.maps(names[0]), estimator="rank",
        imputer=tl.ConstantImputer(0.0), ids=samples.ids,
    )  # fmt: skip
    values = [each.value for each in check.methods["constant"].course]
    assert values[0] == pytest.approx(curve.area(), abs=1e-5)
    assert check.steps[0] == f"soundness, {names[0]}"
    first = [each.value for each in check.methods["linear"].course]
    taus = [kendalltau(first[k : k + 4], values[k : k + 4]).statistic for k in (0, 4)]
    assert [each.value for each in check.methods["constant"].values[:2]] == pytest.approx(taus)
    assert all(each.value is None for each in check.methods["linear"].values[:4])


def test_accuracy_under_random_removal_is_that_of_a_loop(measured):
    run, spec = measured
    check = record_of(measured, imputers=("constant",))
    evaluation = tl.open_evaluation(run)
    model, samples = reopen(evaluation, model=spec)
    prober = Prober(model.module, load_inputs(samples, model, 1), samples.labels, ids=samples.ids)
    maps = evaluation.maps("random").flatten(1)
    correct = []
    for level in range(1, 20):
        keep = (maps.argsort(dim=1).argsort(dim=1) >= level * 5).reshape(-1, 10, 10)
        imputed = tl.ConstantImputer(0.0)(prober.inputs, keep, [0] * len(keep))
        correct.append((model.call(imputed).argmax(dim=1).numpy() == samples.labels).mean())
    assert check.methods["constant"].values[4].value == pytest.approx(np.mean(correct))


def test_an_interrupted_check_resumes(measured, monkeypatch):
    whole = record_of(measured, imputers=("mean", "blur"))
    assert list(whole.methods) == ["linear", "mean", "blur"]
    monkeypatch.setattr(Run, "save_probes", lambda *_: pytest.fail("probes are computed again"))
    assert record_of(measured, imputers=("mean", "blur")) == whole
    assert list(record_of(measured, imputers=("blur",)).methods) == ["linear", "blur"]


def test_a_custom_imputer_comes_from_a_file(measured, tmp_path):
    (tmp_path / "own.py").write_text(CUSTOM)
    check = record_of(measured, imputers=("constant", f"{tmp_path / 'own.py'}:zero"))
    assert check.methods["zero"] == check.methods["constant"]


def test_the_command_reports_and_the_page_shows_one_line(measured, tmp_path, capsys):
    run, spec = measured
    assert main(["check", "imputers", str(run), "--model", spec, "--imputers", "mean,constant"]) == 0
    shown = capsys.readouterr().out
    evaluation = tl.open_evaluation(run)
    check = evaluation.checks()["imputers"]
    assert check.line in shown
    assert re.match(r"None of \d+ verdicts under linear is reversed|The ranking does not survive every", check.line)
    assert re.search(
        r"Kendall's tau with the ranking under linear: soundness -?\d\.\d\d( to -?\d\.\d\d)?, comp", check.line
    )
    assert [note.split(",")[0] for note in check.notes] == ["Under mean", "Under constant"]
    content = content_of(tl.write_report([evaluation], tmp_path / "page.html"))
    [panel] = content["runs"][0]["checks"]
    assert (panel["rows"], panel["line"]) == ("imputer", check.line)
    assert [row["method"] for row in panel["table"]["rows"]] == ["linear", "mean", "constant"]
    table = panel["stepTable"]
    assert [column["key"] for column in table["columns"]] == ["linear", "mean", "constant"]
    assert [row["method"] for row in table["rows"]] == list(check.steps)
    assert table["rows"][1]["cells"][2]["estimate"]["value"] == check.methods["constant"].course[1].value
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize(
    ("imputers", "message"),
    [
        (("linear",), "`imputers` must name others than linear"),
        (("liner",), "Did you mean 'linear'"),
        (("nowhere.py:fill",), r"`imputers` 'nowhere.py:fill' failed: FileNotFoundError"),
        (("{}/own.py:missing",), "must name a function"),
        (("{}/own.py:value",), "must name a function"),
        (("{0}/own.py:zero", "{0}/own.py:zero"), "`imputers` must have different names; 'zero' occurs twice"),
    ],
)
def test_imputers_that_do_not_exist_are_refused(measured, tmp_path, imputers, message):
    (tmp_path / "own.py").write_text(CUSTOM)
    with pytest.raises(ValueError, match=message):
        record_of(measured, imputers=tuple(name.format(tmp_path) for name in imputers))


def test_the_line_says_what_the_intervals_support():
    changes = {
        "none": VerdictChanges(same=(), reversed=(), lost=()),
        "lost": VerdictChanges(same=PAIRS[:1], reversed=(), lost=PAIRS[1:]),
        "turned": VerdictChanges(same=(), reversed=PAIRS, lost=()),
    }

    def line(name):
        return describe_changes("linear", {"blur": changes[name], "mean": changes[name]}, {}, ["sobel"])

    assert line("none").startswith("Under linear no verdict is decided, and none can be reversed: more samples")
    assert line("lost").startswith(
        "None of 2 verdicts under linear is reversed under blur, mean, but not all of them are still decided: 1 under "
        "blur, 1 under mean are not"
    )
    assert line("turned").startswith(
        "The ranking does not survive every imputer: of 2 verdicts under linear these are reversed: 2 under blur, 2 "
        "under mean; 2 of them without a baseline"
    )


@pytest.mark.parametrize("check", ["imputers", "fine-tuned"])
def test_one_method_has_no_ranking(measured, check):
    run, spec = measured
    options = CheckOptions(train=tl.open_evaluation(run).manifest.source.data) if check == "fine-tuned" else None
    with pytest.raises(ValueError, match="`methods` must be two or more, to rank them; got sobel alone"):
        run_check(tl.open_evaluation(run), check, methods=("sobel",), options=options, model=spec)


def test_rows_of_a_table_are_compared_by_mean_and_constant(tmp_path):
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "rows.npz", inputs=x.numpy(), labels=(x.sum(dim=1) > 0).long().numpy())
    (tmp_path / "lines.py").write_text(
        "import torch\ndef build():\n    layer = torch.nn.Linear(6, 2)\n    with torch.no_grad():\n"
        "        layer.weight.copy_(torch.tensor([[-1.0] * 6, [1.0] * 6]))\n        layer.bias.zero_()\n"
        "    return layer\n"
    )
    spec = f"{tmp_path / 'lines.py'}:build"
    tl.evaluate(
        spec, str(tmp_path / "rows.npz"), ["input_x_gradient", "saliency"], metrics="headline", out=tmp_path / "run",
        batch_size=40, memory_format="contiguous", resamples=50,
    )  # fmt: skip
    check = record_of((tmp_path / "run", spec))
    assert list(check.methods) == ["mean", "constant"]  # no other has no need of neighbours
    assert all(each.values[4].value > 0.5 for each in check.methods.values())


def test_the_measurement_runs_on_the_requested_engine(measured, monkeypatch):
    """That a cluster gives the same bytes is tested with the engine."""
    engines = []

    def evaluate(*arguments, engine, **options):
        engines.append(engine)
        return tl.evaluate(*arguments, **options)

    monkeypatch.setattr("twinlens.checks.remeasuring.evaluate", evaluate)
    record_of(measured, imputers=("constant",), engine="ray")
    assert engines == ["ray"]
