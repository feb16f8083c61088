import csv
import io

import pytest

from tests.report.runs import changed, make_run, with_curve
from twinlens.report import format_table


def test_tables_hold_the_numbers_of_the_results(run):
    rows = list(csv.DictReader(io.StringIO(format_table([run], "csv"))))
    assert [row["method"] for row in rows] == run.results.best_first()
    for row in rows:
        for metric, curve in run.results.methods[row["method"]].metrics.items():
            assert float(row[metric]) == curve.area
            assert (float(row[f"{metric}_low"]), float(row[f"{metric}_high"])) == curve.area_interval
    markdown = format_table([run], "markdown").splitlines()
    assert markdown[0].startswith("| method | soundness ↑ | completeness ↑ | ROAD MoRF ↑ |")
    latex = format_table([run, run], "latex")
    assert latex.startswith("\\begin{tabular}{llrrrrrr}\n\\toprule\nrun & method & soundness $\\uparrow$")
    for metric in run.metrics:
        areas = [found.metrics[metric].area for found in run.results.methods.values()]
        best = min(areas) if metric in ("road_lerf", "insertion") else max(areas)
        assert f"**{best:z.3f}**" in markdown[2] + markdown[3] + markdown[4]
        assert f"$\\mathbf{{{best:z.3f}}}" in latex


def test_tables_show_intervals_and_gaps(run):
    odd = with_curve(run, "random", "deletion", area=-0.00001, area_interval=(-0.1, 0.25))
    odd = with_curve(odd, "random", "insertion", area=None)
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
    assert "<b>0" in odd._repr_html_()
    assert "ig_sg|&lt;b&gt;" in odd._repr_html_()


def test_metrics_with_names_of_ones_own_have_columns_of_their_own(run, tmp_path):
    other = make_run(tmp_path / "other", methods=["random"], metrics={"my_own": "road_lerf", "deletion": "deletion"})
    markdown = format_table([run, other], "markdown").splitlines()
    assert markdown[0].endswith(r"| insertion ↓ | my\_own ↓ |")
    assert len({line.count(" | ") for line in markdown}) == 1
    assert r"my\_own $\downarrow$" in format_table([other], "latex")
    [*_, row] = csv.DictReader(io.StringIO(format_table([run, other], "csv")))
    assert float(row["my_own"]) == other.results.area("random", "my_own")
    assert row["insertion"] == ""


@pytest.mark.parametrize(
    ("evaluations", "kind", "message"), [([], "csv", "`evaluations` must"), ([1], "doc", "`kind` must")]
)
def test_tables_refuse_what_they_cannot(evaluations, kind, message):
    with pytest.raises(ValueError, match=message):
        format_table(evaluations, kind)
