"""What the commands print about a run."""

import dataclasses
import re

import pandas as pd
import pytest

from tests.report.runs import changed, make_run, shared_run, with_curve, with_skills
from twinlens.cli.printing import print_differences, print_evaluation, print_runs, print_selftest
from twinlens.data.samples import Skipped
from twinlens.run.run_comparison import compare_evaluations
from twinlens.statistics.advice import Advice
from twinlens.support.estimate import Estimate

CLEAR = "clearly better than the baselines and all other methods with skill."


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run with all metrics, whose methods have skills."""
    return with_skills(shared_run(tmp_path_factory.getbasetemp()))


@pytest.fixture
def printed(capsys):
    """Prints a run and returns the lines."""

    def lines_of(evaluation):
        print_evaluation(evaluation)
        return capsys.readouterr().out.splitlines()

    return lines_of


def test_a_table_has_at_most_eight_columns_and_names_the_others(judged, printed):
    lines = printed(judged)
    rows = {line.split()[0]: line.split()[1:] for line in lines if re.match(r" (saliency|sobel|random) ", line)}
    assert list(rows) == judged.results.best_first()
    assert all(len(numbers) == 8 for numbers in rows.values())
    sides = [judged.results.area("saliency", metric) for metric in ("soundness_rank", "completeness_share")]
    assert [rows["saliency"][k] for k in (0, 2)] == [f"{area:.3f}" for area in sides]
    assert [rows["saliency"][k] for k in (1, 3)] == ["+0.210", "+0.120"]
    [more] = [line for line in lines if line.startswith("More columns (")]
    assert more.endswith(f"are shown by: twinlens report {judged.path} --table markdown --columns all")
    assert "ROAD gain, deletion, insertion, sparseness" in more


def test_a_run_ends_with_a_sentence_per_side_its_notes_and_the_page(judged, printed):
    advice = {
        "soundness_rank": Advice(outcome="clear", methods=("saliency",)),
        "completeness_share": Advice(outcome="baseline", methods=("saliency",), against="sobel"),
    }
    alike = tuple(f"{name}: {k} zeros. Look at them." for k, name in enumerate(judged.methods))
    lines = printed(changed(judged, advice=advice, warnings=alike))
    assert lines[0] == judged.title
    text = " ".join(" ".join(lines).split())
    assert "By chance, soundness and completeness are 0.5." in text
    assert f"Bold: {CLEAR}" in text
    assert "20 steps; soundness (paper): 12 levels" in text
    bullets = [line for line in lines if line.startswith("•")]
    assert len(bullets) == 2
    assert bullets[0].startswith("• Where nothing may be falsely blamed, use saliency")
    assert bullets[1].startswith("• Where nothing may be missed, no method can be recommended")
    assert lines[-2] == "Note: saliency: 0 zeros. Look at them. (2 similar, see results.json)"
    assert lines[-1] == f"Page: {judged.path / 'report.html'}"


def test_skipped_samples_are_a_line_above_the_table(judged, printed):
    skipped = (Skipped(id="x", reason="x.png is cut off."), Skipped(id="y", reason="y.png is empty."))
    data = dataclasses.replace(judged.results.data, skipped=skipped)
    assert printed(changed(judged, data=data))[1] == "Skipped: 2 samples; the first: x.png is cut off."


def test_what_is_undecided_about_other_methods_is_one_note(judged, printed):
    unclear = Estimate(value=0.03, low=-0.02, high=0.08, samples=10)
    methods = {**judged.results.methods, "other": judged.results.methods["saliency"]}
    advice = {side: Advice(outcome="clear", methods=("saliency",)) for side in ("soundness_rank", "completeness_share")}
    odd = changed(judged, methods=methods, advice=advice, warnings=())
    for side in advice:
        odd = with_curve(odd, "other", side, skill=unclear)
    lines = printed(odd)
    assert sum(line.startswith("• ") for line in lines) == 2
    [note] = [line for line in lines if line.startswith("Note: ")]
    assert note.startswith("Note: In soundness, it is not decided")
    assert " In completeness, it is not decided" in note


def test_options_other_than_the_defaults_are_a_line_below_the_table(tmp_path, printed):
    methods = {"occlusion": {"method": "occlusion", "window": 5, "stride": 2, "batch_size": 4}, "random": "random"}
    lines = printed(make_run(tmp_path / "run", methods=methods, metrics="headline"))
    assert "Options: occlusion window 5, stride 2." in lines
    assert not any("More columns" in line for line in lines)
    methods["occlusion"] = "occlusion"
    assert "Options" not in " ".join(printed(make_run(tmp_path / "plain", methods=methods, metrics="headline")))


def test_several_runs_are_one_table_with_one_legend(judged, tmp_path, capsys):
    other = make_run(tmp_path / "other", methods=["random"], metrics="headline")
    print_runs([judged, other])
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("↑ more is better") == 1
    for run in (judged, other):
        assert f"{run.path}: {run.title}. Soundness" in text.replace("- ", "-")
    assert f"twinlens report {judged.path} {other.path} --table markdown --columns all" in text


def test_differences_between_runs_have_a_legend_and_name_the_columns_that_do_not_fit(judged, tmp_path, capsys):
    other = make_run(tmp_path / "other", seed=1, performance="probability")
    runs = {"one": judged, "two": other}
    print_differences(compare_evaluations(runs, resamples=50), [judged, other], verdicts=True)
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Differences between the runs, the first minus the second; below, 95% intervals that hold simultaneously for "
        "all methods; bold: significant." in text
    )
    assert re.search(r"More columns \([^)]*insertion\) are on the page", text)


def test_a_selftest_has_a_row_per_metric_and_method(capsys):
    row = {"metric": "soundness_rank", "method": "a", "share 0": 0.8, "share 1": 0.5, "correlation": -1.0}
    ends = {"departure": 0.01, "departure_low": -0.01, "departure_high": 0.03, "difference": -0.3}
    more = {"difference_low": -0.4, "difference_high": -0.2, "blurred": -0.1, "blurred_low": -0.2, "blurred_high": 0.0}
    print_selftest(pd.DataFrame([row | ends | more]), 30)
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("30 samples; below, the share of exchanged maps in the mixture")
    assert "metric method 0 1 Spearman off the line blurred" in text
    assert "a 0.800 0.500 -1.000 +0.010 ± 0.020 -0.100 ± 0.100" in text
    assert "Blurred: how much better a blurred copy scores than the map. 95% intervals." in text


def test_numbers_above_one_keep_their_digits(judged, printed):
    odd = with_curve(judged, "saliency", "soundness_rank", area=Estimate(value=10.25, low=10.0, high=10.5, samples=10))
    assert any("10.00–10.50" in line for line in printed(odd))
