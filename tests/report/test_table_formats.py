import csv
import io
import re

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
    markdown = format_table([run], "markdown", columns="all").splitlines()
    assert markdown[0].startswith(
        "| method | soundness ↑ | skill ↑ | completeness ↑ | skill ↑ | calibration ↓ | soundness (paper) ↑ |"
    )


def test_skill_stands_beside_both_sides_with_its_sign(judged):
    lines = format_table([judged], "markdown", digits=3).splitlines()
    cells = {line.split(" | ")[0].removeprefix("| "): line.removesuffix(" |").split(" | ") for line in lines}
    titles = {"saliency": "Saliency", "sobel": "Sobel (baseline)", "random": "Random (baseline)"}
    for method, skills in SKILLS.items():
        for column, (skill, reach) in zip((2, 4), skills.values(), strict=True):
            shown = cells[titles[method]][column]
            assert shown == f"{skill:+z.3f} [{skill - reach:z.3f}, {skill + reach:z.3f}]"
    assert cells["Random (baseline)"][2] == "+0.000 [-0.020, 0.020]"
    inline = format_table([judged], "latex", digits=3, intervals="inline")
    assert r"$-0.030\;{\scriptstyle[-.080,\,.020]}$" in inline
    assert "skill" not in format_table([without_control(judged)], "markdown")


def test_latex_for_one_column(judged):
    """Rows of eight methods are short enough for 241 points: measured with LaTeX, 209 points have 47 characters."""
    titles = ("IG", "IG-SG", "Guided Backprop", "DeepLIFT", "GradCAM", "Occlusion", "Sobel", "Random")
    eight = changed(judged, methods=dict.fromkeys(titles, judged.results.methods["saliency"]))
    latex = format_table([eight], "latex")
    assert latex.startswith("\\begin{table}[t]\n\\caption{tiny on 12 samples of ")
    assert latex.endswith("\\bottomrule\n\\end{tabular}\n\\end{table}\n")
    assert r"\begin{tabular}{@{}lrrrr@{}}" in latex
    head = [r" & \multicolumn{2}{c}{soundness $\uparrow$} & \multicolumn{2}{c}{completeness $\uparrow$} \\"]
    head += [r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}", r"method & value & skill & value & skill \\"]
    assert "\n".join(head) in latex
    rows = [line for line in latex.splitlines() if line.endswith((r" \\", r" \\[-2pt]"))][2:]
    assert len(rows) == 2 * 8
    assert all(row.count(" & ") == 4 for row in rows)
    visible = [re.sub(r"\\[a-z]+|[${}& ]|\\.*$", "", row.replace(r"\,", "")) for row in rows]
    assert max(map(len, visible[::2])) <= len("Guided Backprop") + 4 * len("+0.00")
    assert max(map(len, visible[1::2])) <= 4 * len("[-.00,.00]")
    booktabs = {"toprule", "midrule", "cmidrule", "bottomrule"}
    plain = {"begin", "end", "caption", "smallskip", "centering", "footnotesize", "setlength", "tabcolsep"}
    plain |= {"multicolumn", "uparrow", "scriptstyle", "mathbf"}
    assert set(re.findall(r"\\([a-z]+)", latex)) <= booktabs | plain


def test_notes_tell_what_was_measured_how_and_what_bold_means(judged, tmp_path):
    advice = {"soundness_rank": Advice(outcome="clear", methods=("saliency",))}
    clear = "clearly better than the baselines and all other methods with skill."
    for evaluation, bold in (
        (changed(judged, advice=advice), f"Bold: {clear}"),
        (changed(judged, advice={}), f"Nothing is bold: no method is {clear}"),
    ):
        latex = format_table([evaluation], "latex")
        for text in (latex, format_table([evaluation], "markdown").replace("%", r"\%"), evaluation._repr_html_()):
            assert bold in text
            assert "tiny on 12 samples of" in text
            assert ": 20 steps" in text
            assert "95" in text
        assert "Soundness and completeness: 20 steps." in latex
        assert r"below, 95\% intervals. By chance, soundness and completeness are 0.5. Skill: how much" in latex
        assert latex.partition("\n\\centering")[0].endswith(r"Below the line are baselines.}\smallskip")
    assert "inline" not in format_table([judged], "markdown")
    assert "in brackets, 95% intervals" in format_table([judged], "markdown")
    assert "95%" not in format_table([judged], "markdown", intervals="none")
    other = make_run(tmp_path / "one", methods={"mine": {"method": "occlusion", "window": 5}}, metrics="headline")
    assert "20 steps. Options: mine window 5. ↑ more" in format_table([other], "markdown")
    assert "Options: Ours window 5." in format_table([other], "markdown", names={"mine": "Ours"})
    assert "Options: mine window 5." in other._repr_html_()
    assert "bold" not in format_table([judged], "markdown", columns=["deletion"])


def test_columns_digits_and_intervals_are_chosen(judged):
    def first(**options):
        [head, _, row, *_] = format_table([judged], "markdown", **options).splitlines()
        return head, row

    area = judged.results.methods["saliency"].metrics["soundness_rank"].area
    head, row = first(columns=["calibration", "soundness_rank"], digits=1, intervals="none")
    assert head == "| method | calibration ↓ | soundness ↑ |"
    assert row.endswith(f"| {area.value:.1f} |")
    assert first(columns="soundness_rank", intervals="below")[1].endswith(
        f"| {area.value:.2f}<br>[{area.low:.2f}, {area.high:.2f}] |"
    )
    assert first(columns=["headline", "sparseness"])[0].endswith("| skill ↑ | sparseness |")
    alone = ["soundness_rank_skill", "completeness_share", "completeness_share_skill"]
    assert first(columns=alone)[0] == "| method | soundness skill ↑ | completeness ↑ | skill ↑ |"
    latex = format_table([judged], "latex", columns=[*alone, "calibration"], intervals="none")
    assert r" &  & \multicolumn{2}{c}{completeness $\uparrow$} &  \\" in latex
    assert r"\cmidrule(lr){3-4}" in latex
    assert r"method & \shortstack[r]{soundness skill $\uparrow$} & value & skill & \shortstack[r]{calibration" in latex
    assert "scriptstyle" not in latex
    everything = format_table([judged], "latex", columns="all")
    assert everything.startswith(r"\begin{table*}")
    assert everything.endswith("\\end{table*}\n")
    [row, *_] = csv.DictReader(io.StringIO(format_table([judged], "csv", columns=["completeness_share_skill"])))
    assert list(row) == ["run", "method", *(f"completeness_share_skill{end}" for end in ("", "_low", "_high"))]


def test_methods_are_called_as_papers_write_them(tmp_path, run):
    def own(model, inputs, targets):
        return inputs.abs().sum(dim=1)

    methods = {"ig_sg": {"method": "ig_sg", "samples": 1}, "mine": "gradcam", "saliency": own, "rise": "saliency"}
    made = make_run(tmp_path / "run", methods=methods, metrics="deletion")
    expected = {"ig_sg": "IG-SG", "mine": "mine", "saliency": "saliency", "rise": "rise"}
    for kind in ("latex", "markdown"):
        text = format_table([made], kind)
        assert all(re.search(rf"^(\| )?{title} [&|]", text, re.M) for title in expected.values())
        assert "Ours" in format_table([made], kind, names={"mine": "Ours", "gradcam": "not in this run"})
    rows = csv.DictReader(io.StringIO(format_table([made], "csv")))
    assert {row["method"] for row in rows} == set(methods)
    named = csv.DictReader(io.StringIO(format_table([made], "csv", names={"ig_sg": "Smooth"})))
    assert {row["method"] for row in named} == {"Smooth", "mine", "saliency", "rise"}
    assert "saliency" in run._repr_html_()
    assert "Saliency" not in run._repr_html_()


def test_several_runs_share_a_table(run, tmp_path):
    other = make_run(tmp_path / "other_run", methods=["random"], metrics="headline")
    latex = format_table([run, other], "latex")
    assert r"\midrule" + "\n" + r"\multicolumn{5}{@{}l}{\emph{other\_run}} \\" in latex
    assert latex.count("on 12 samples of") == 2
    markdown = format_table([run, other], "markdown").splitlines()
    assert markdown[0].startswith("| run | method | soundness ↑ |")
    assert r"| other\_run | Random (baseline) |" in "\n".join(markdown)


SEVERAL = Advice(outcome="several", methods=("saliency", "other"))


def test_only_what_is_significantly_best_is_bold_and_never_a_baseline(judged):
    methods = {**judged.results.methods, "other": judged.results.methods["saliency"]}
    for decided in (True, False):
        advice = Advice(outcome="clear", methods=("saliency",)) if decided else SEVERAL
        odd = changed(judged, methods=methods, advice={"completeness_share": advice})
        bold = [line.split(" ")[1] for line in format_table([odd], "markdown").splitlines() if "**" in line]
        assert bold == (["Saliency"] if decided else [])
        assert format_table([odd], "latex").count("mathbf") == decided
        assert odd._repr_html_().partition("<table>")[2].count("<b>") == decided


def test_tables_show_intervals_and_gaps(run):
    odd = with_curve(run, "random", "deletion", area=Estimate(value=-0.00001, low=-0.1, high=0.25, samples=10))
    odd = with_curve(with_skills(odd), "random", "insertion", area=Estimate(value=None, samples=10))
    methods = {"ig_sg|<b>" if name == "sobel" else name: found for name, found in odd.results.methods.items()}
    odd = changed(odd, methods=methods)
    markdown = format_table([odd], "markdown", columns="all", digits=3)
    assert "0.000 [-0.100, 0.250]" in markdown
    assert "-0.000" not in markdown
    assert "| – |" in markdown
    assert r"ig\_sg\|\<b\>" in markdown
    latex = format_table([odd], "latex", columns="all", digits=3, intervals="inline")
    assert r"0.000\;{\scriptstyle[-.100,\,.250]}$" in latex
    assert " & -- & " in latex
    assert r"ig\_sg|<b> &" in latex
    assert "ig_sg|&lt;b&gt;" in odd._repr_html_()


def test_metrics_with_names_of_ones_own_have_columns_of_their_own(run, tmp_path):
    other = make_run(tmp_path / "other", methods=["random"], metrics={"my_own": "road_lerf", "deletion": "deletion"})
    markdown = format_table([run, other], "markdown", columns="all").splitlines()
    assert markdown[0].endswith(r"| insertion ↓ | my\_own ↓ | sparseness |")
    assert len({line.count(" | ") for line in markdown if line.startswith("|")}) == 1
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


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "latex",
            {"columns": "soundnes_rank"},
            r"`columns` must be one of headline, all, soundness_rank, .*Did you mean",
        ),
        ("latex", {"columns": ["all", "skill"]}, r"`columns` must be one of headline, all, .*; got 'skill'"),
        ("latex", {"columns": []}, "`columns` must name at least one column, headline or all; got none"),
        ("latex", {"columns": 3}, "`columns` must be text or a list of names; got 3"),
        ("markdown", {"digits": 0}, "`digits` must be 1 to 6; got 0"),
        ("markdown", {"digits": 7}, "`digits` must be 1 to 6; got 7"),
        ("markdown", {"digits": 2.5}, "`digits` must be a whole number; got 2.5"),
        ("csv", {"digits": 2}, "`digits` is for latex and markdown; csv has all digits and intervals"),
        ("csv", {"intervals": "none"}, "`intervals` is for latex and markdown; csv has all"),
        ("latex", {"intervals": "above"}, "`intervals` must be one of below, inline, none; got 'above'"),
        (
            "latex",
            {"names": {"salience": "S"}},
            "`names` must be one of saliency, .*'salience'. Did you mean 'saliency'?",
        ),
        ("latex", {"names": {"saliency": 3}}, "`names.saliency` must be text; got 3"),
        ("latex", {"names": ["saliency"]}, "`names` must be a table"),
    ],
)
def test_bad_choices_are_refused_by_name(run, kind, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        format_table([run], kind, **options)


def test_notebooks_show_results(run):
    shown = run._repr_html_()
    assert "tiny on 12 samples of" in shown
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
