"""Metrics and methods of other packages: ten lines outside twinlens that show up wherever ours do."""

import json
import sys

import pytest

import twinlens as tl
from tests.distribution import ROOT
from tests.small_runs import QUICK, samples
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.errors import RunError
from twinlens.metrics.catalogue import describe_metric, find_metrics, rebuild_metric

PAGE = ROOT / "docs" / "reference" / "metrics.md"
METRIC = PAGE.read_text(encoding="utf-8").partition("## Your own metric")[2].split("```python\n")[1].split("```")[0]
"""The example of the documentation."""

METHOD = '''
def ones_first(model, inputs, targets):
    """Put all attribution on the first row of an image."""
    maps = inputs.new_zeros(len(inputs), *inputs.shape[2:])
    maps[:, 0] = 1.0
    return maps
'''
ENTRIES = """
[twinlens.metrics]
comprehensiveness = their_metrics:METRIC
[twinlens.methods]
ones_first = their_metrics:ones_first
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with a metric and a method, as pip would leave it."""

    def install(source=METRIC + METHOD, entries=ENTRIES, name="their_metrics"):
        folder = tmp_path / "site" / name
        records = folder / f"{name}-1.0.dist-info"
        records.mkdir(parents=True)
        (folder / f"{name}.py").write_text(source)
        (records / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (records / "entry_points.txt").write_text(entries)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, name, raising=False)

    yield install
    sys.modules.pop("their_metrics", None)


@pytest.fixture
def metric(installed):
    installed(entries="")
    import their_metrics

    return their_metrics.METRIC


def test_a_metric_of_ones_own_shows_up_in_results_table_and_page(tmp_path, metric):
    out = tmp_path / "run"
    evaluation = tl.evaluate(
        tiny_model(), samples(), ["saliency", "random"], metrics=["completeness", metric], out=out, **QUICK
    )
    assert evaluation.metrics == ["completeness", "comprehensiveness"]
    frame = evaluation.summary().set_index(["method", "metric"])
    row = frame.loc["saliency", "comprehensiveness"]
    assert row["low"] <= row["value"] <= row["high"]
    assert row["skill"] == pytest.approx(row["value"] - row["control"])
    curve = evaluation.curve("saliency", "comprehensiveness")
    assert curve.levels.tolist() == [0.01, 0.05, 0.1, 0.2, 0.5]
    expected = tl.deletion(
        tiny_model(), *samples(), evaluation.maps("saliency"), levels=metric.levels, performance="probability",
        ids=evaluation.ids(), batch_size=16,
    )  # fmt: skip
    assert curve.area() == row["value"] == pytest.approx(expected.area())
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '"title":"Comprehensiveness"' in page.replace('": "', '":"')
    assert '"heading":"comprehensiveness ↑"' in page.replace('": "', '":"')
    assert "comprehensiveness ↑" in tl.format_table([evaluation], "markdown", columns="all")
    assert "comprehensiveness" in evaluation._repr_html_()


def test_whoever_has_not_the_metric_can_still_read_its_results(tmp_path, metric):
    out = tmp_path / "run"
    evaluation = tl.evaluate(tiny_model(), samples(), ["random"], metrics=metric, out=out, **QUICK)
    stored = tl.open_evaluation(out)
    assert stored.results == evaluation.results
    assert stored.results.about("comprehensiveness") == metric.about
    with pytest.raises(RunError, match="is a custom metric"):
        stored.curve("random", "comprehensiveness")
    assert stored.ask(metric).results == evaluation.results
    (out / "report.html").unlink()
    tl.write_report([tl.open_evaluation(out)], out / "report.html")
    assert "Comprehensiveness" in (out / "report.html").read_text(encoding="utf-8")
    # Without how it is shown, it is a name that nobody knows.
    damaged = json.loads((out / "results.json").read_text())
    del damaged["settings"]["metrics"]["comprehensiveness"]["about"]
    (out / "results.json").write_text(json.dumps(damaged))
    with pytest.raises(RunError, match=r"damaged: `metrics` must be one of soundness.*got 'comprehensiveness'"):
        tl.open_evaluation(out)


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_an_installed_metric_and_method_by_their_names_on_the_command_line(tmp_path, installed, capsys):
    installed()
    out, data = tmp_path / "run", image_folder(tmp_path / "images")
    code, shown, said = run(
        capsys, "evaluate", "--model", model_file(tmp_path), "--data", data, "--out", out, "--imputer", "constant",
        "--methods", "ones_first,random", "--metrics", "completeness,comprehensiveness", "--batch-size", 16,
        "--memory-format", "contiguous", "--option", "comprehensiveness.levels=[0.1, 0.5]",
    )  # fmt: skip
    assert (code, said) == (0, "")
    assert "comprehensiveness" in shown
    stored = tl.open_evaluation(out)
    assert set(stored.methods) == {"ones_first", "random"}
    assert stored.curve("ones_first", "comprehensiveness").levels.tolist() == [0.1, 0.5]
    assert stored.maps("ones_first").sum() == 12 * 10
    code, shown, said = run(capsys, "ask", out, "--option", "comprehensiveness.performance=logit", "--quiet")
    assert (code, said) == (0, "")
    asked = tl.open_evaluation(out, results="comprehensiveness-performance-logit")
    assert asked.curve("random", "comprehensiveness").measure == "logit"


def test_installed_plugins_are_listed_and_explained(installed, capsys):
    installed()
    assert "comprehensiveness" in run(capsys, "metrics")[1]
    assert "Probability lost without" in run(capsys, "metrics", "comprehensiveness")[1]
    shown = run(capsys, "methods")[1]
    assert "ones_first" in shown
    assert "Put all attribution on the first row" in run(capsys, "methods", "ones_first")[1]
    code, _, said = run(capsys, "metrics", "comprehensivenes")
    assert code == 2
    assert "Did you mean 'comprehensiveness'?" in said
    assert find_metrics("comprehensiveness")["comprehensiveness"].levels == (0.01, 0.05, 0.1, 0.2, 0.5)
    assert tl.attribute(tiny_model(), *samples(2), "ones_first").sum() == 2 * 9


def test_a_metric_is_made_again_from_its_description(installed):
    installed()
    [metric] = find_metrics({"mine": {"metric": "comprehensiveness", "levels": [0.3]}}).values()
    assert rebuild_metric(describe_metric(metric)) == metric


def test_nothing_of_a_plugin_is_imported_before_it_is_used(installed, capsys):
    installed()
    assert run(capsys, "metrics", "soundness")[0] == 0
    assert find_metrics("completeness")
    assert "their_metrics" not in sys.modules


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no licence')", r"cannot be imported: RuntimeError: no licence"),
        ("METRIC = 7", r"must be a metric as a value, called 'comprehensiveness'; it is int 7"),
        (METRIC.replace("METRIC = Comprehensiveness()", "METRIC = Comprehensiveness"), "it is type"),
        (METRIC.replace('= "comprehensiveness", ()', '= "other", ()'), "it is one called 'other'"),
    ],
)
def test_a_bad_plugin_is_refused_by_its_name_and_hides_no_other(installed, capsys, source, message):
    installed(source)
    with pytest.raises((ImportError, TypeError), match=message):
        find_metrics("comprehensiveness")
    code, shown, _ = run(capsys, "metrics")
    assert code == 0
    assert "soundness_rank" in shown
    assert "plug-in" in shown


def test_a_name_that_two_packages_claim_is_refused(installed):
    installed()
    installed(name="other_metrics", entries=ENTRIES.replace("their_", "other_"))
    with pytest.raises(ImportError, match=r"in several packages, .*their_metrics:METRIC.* Keep one"):
        find_metrics("comprehensiveness")


def test_names_of_ours_stay_ours(installed):
    installed(entries="[twinlens.metrics]\nsoundness = their_metrics:METRIC\n")
    assert isinstance(find_metrics("soundness")["soundness"], tl.Soundness)

    class Mine(tl.Deletion):
        pass

    with pytest.raises(ValueError, match="custom metric called 'deletion'"):
        find_metrics([Mine()])


def test_the_example_is_as_short_as_it_says():
    assert len([line for line in METRIC.splitlines() if line.strip()]) == 10


def test_a_class_is_no_metric():
    with pytest.raises(ValueError, match="`metrics` must be one of soundness"):
        find_metrics([tl.Deletion])
