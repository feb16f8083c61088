import csv
import io

import pytest

from tests.report.runs import METHODS, SKILLS, changed, make_run, with_curve, with_skills, without_control
from twinlens.report import format_table
from twinlens.statistics.advice import Advice
from twinlens.support.estimate import Estimate


def test_tables_hold_the_numbers_of_the_results(run):
    rows = list(csv.DictReader(io.StringIO(format_table([run], "csv"))))
    assert [row["method"] for row in rows] == run.results.best_first()
    for row in rows:
        for metric, curve in run.results.methods[row["method"]].metrics.items():
            assert float(row[metric]) == curve.area.value
            assert (float(row[f"{metric}_low"]), float(row[f"{metric}_high"])) == curve.area.interval
            skill = curve.skill
            stored = (curve.control.value, skill.value, skill.low, skill.high, skill.p) if skill else [""] * 5
            shown = [row[f"{metric}_{end}"] for end in ("control", "skill", "skill_low", "skill_high", "p")]
            assert [float(text) if text else "" for text in shown] == ["" if n is None else n for n in stored]
        sparse = run.results.methods[row["method"]].properties["sparseness"]
        shown = [float(row[f"sparseness{end}"]) for end in ("", "_low", "_high")]
        assert shown == [sparse.value, sparse.low, sparse.high]
    markdown = format_table([run], "markdown").splitlines()
    assert markdown[0].startswith(
        "| method | soundness ↑ | skill ↑ | completeness ↑ | skill ↑ | calibration ↓ | soundness (paper) ↑ |"
    )
    latex = format_table([run, run], "latex")
    assert latex.startswith(
        "\\begin{tabular}{llrrrrrrrrrrrrr}\n\\toprule\nrun & method & soundness $\\uparrow$ & skill $\\uparrow$"
    )


def test_skill_stands_beside_both_sides_with_its_sign(judged):
    lines = format_table([judged], "markdown").splitlines()
    cells = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in lines}
    for method, skills in SKILLS.items():
        for column, (skill, reach) in zip((2, 4), skills.values(), strict=True):
            assert cells[method][column] == f"{skill:+z.3f} [{skill - reach:z.3f}, {skill + reach:z.3f}]"
    assert cells["random"][2].startswith("+0.000 [-0.020, 0.020]")
    assert r"$-0.030\;{\scriptstyle[-0.080,\,0.020]}$" in format_table([judged], "latex")
    assert "skill" not in format_table([without_control(judged)], "markdown")


SEVERAL = Advice(outcome="several", methods=("saliency", "other"))


def test_only_what_is_significantly_best_is_bold_and_never_a_baseline(judged):
    methods = {**judged.results.methods, "other": judged.results.methods["saliency"]}
    for decided in (True, False):
        advice = Advice(outcome="clear", methods=("saliency",)) if decided else SEVERAL
        odd = changed(judged, methods=methods, advice={"completeness_share": advice})
        bold = [line.split(" ")[1] for line in format_table([odd], "markdown").splitlines() if "**" in line]
        assert bold == (["saliency"] if decided else [])
        assert format_table([odd], "latex").count("mathbf") == decided
        assert odd._repr_html_().partition("<table>")[2].count("<b>") == decided


def test_tables_show_intervals_and_gaps(run):
    odd = with_curve(run, "random", "deletion", area=Estimate(value=-0.00001, low=-0.1, high=0.25, samples=10))
    odd = with_curve(with_skills(odd), "random", "insertion", area=Estimate(value=None, samples=10))
    methods = {"ig_sg|<b>" if name == "sobel" else name: found for name, found in odd.results.methods.items()}
    odd = changed(odd, methods=methods)
    markdown = format_table([odd], "markdown")
    assert "0.000 [-0.100, 0.250]" in markdown
    assert "-0.000" not in markdown
    assert "| – |" in markdown
    assert r"ig\_sg\|\<b\>" in markdown
    latex = format_table([odd], "latex")
    assert r"0.000\;{\scriptstyle[-0.100,\,0.250]}$" in latex
    assert r"ig\_sg|<b> &" in latex
    assert "ig_sg|&lt;b&gt;" in odd._repr_html_()


def test_metrics_with_names_of_ones_own_have_columns_of_their_own(run, tmp_path):
    other = make_run(tmp_path / "other", methods=["random"], metrics={"my_own": "road_lerf", "deletion": "deletion"})
    markdown = format_table([run, other], "markdown").splitlines()
    assert markdown[0].endswith(r"| insertion ↓ | my\_own ↓ | sparseness |")
    assert len({line.count(" | ") for line in markdown}) == 1
    assert r"my\_own $\downarrow$" in format_table([other], "latex")
    [*_, row] = csv.DictReader(io.StringIO(format_table([run, other], "csv")))
    assert float(row["my_own"]) == other.results.area("random", "my_own")
    assert row["insertion"] == ""


@pytest.mark.parametrize(
    ("evaluations", "kind", "message"),
    [
        ([], "csv", "`evaluations` must"),
        ([1], "csv", "`evaluations` must be a list of StoredRun"),
        ([], "doc", "`kind` must"),
    ],
)
def test_tables_refuse_what_they_cannot(evaluations, kind, message):
    with pytest.raises((ValueError, TypeError), match=message):
        format_table(evaluations, kind)


def test_notebooks_show_results(run):
    shown = run._repr_html_()
    assert "tiny on 10 samples of" in shown
    for method in METHODS:
        assert f"{run.results.area(method, 'deletion'):z.3f}" in shown


def test_notebooks_show_skill_beside_both_sides_and_mark_baselines(run):
    shown = with_skills(run)._repr_html_()
    assert shown.count("skill ↑") == 2
    for sign, text in (("▲", "+0.210"), ("▲", "+0.120"), ("≈", "-0.030"), ("≈", "+0.000"), ("▼", "-0.050")):
        assert f"{sign} {text}<" in shown
    assert "-0.000" not in shown.replace("-0.0000", "")
    assert "sobel (baseline)" in shown
    assert "skill" not in without_control(run)._repr_html_().partition("<table>")[2]


def test_a_skill_without_an_interval_has_no_sign(run):
    skill = Estimate(value=0.25, samples=5)
    bare = with_curve(with_skills(run), "saliency", "completeness_share", skill=skill)
    assert ">+0.250</td>" in bare._repr_html_()
    assert bare.results.has_skill("saliency", "completeness_share") is None
