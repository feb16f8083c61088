"""The commands report and compare."""

import json

import pytest

import twinlens as tl


@pytest.mark.slow
def test_report_figures_and_tables(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "deletion,completeness", "--out", out)
    assert run(*command)[0] == 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    code, output, error = run("report", out, "--out", tmp_path / "page.html")
    assert (code, error) == (0, "")
    assert output.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
    code, output, _ = run("report", out, "--table", "latex")
    assert code == 0
    assert "Centre" in output
    assert "\\\\" in output
    (tmp_path / "names.toml").write_text('centre = "Middle"')
    options = ("--columns", "deletion, sparseness", "--digits", "1", "--intervals", "none")
    named = ("--names", tmp_path / "names.toml", "--names", "random=R = 1")
    code, output, _ = run("report", out, "--table", "markdown", *options, *named)
    assert code == 0
    head, _, *rows = output.split("\n\n")[0].splitlines()
    assert head == "| method | deletion ↑ | sparseness |"
    assert {row.split(" | ")[0] for row in rows} == {"| Middle (baseline)", "| R = 1 (baseline)"}
    assert not any("[" in row for row in rows)
    assert all(len(cell.strip(" |").partition(".")[2]) == 1 for row in rows for cell in row.split(" | ")[1:])
    code, output, _ = run("report", out, "--figures", tmp_path / "figures")
    assert code == 0
    assert len(output.splitlines()) == len(list((tmp_path / "figures").iterdir())) > 0
    code, output, _ = run("compare", out, out, "--out", tmp_path / "both.html", "--verdicts")
    assert code == 0
    assert output.rstrip().endswith(str(tmp_path / "both.html"))
    assert (tmp_path / "both.html").exists()
    assert tl.open_evaluation(out).comparison().verdicts[0] in output


def test_compare_shows_runs_side_by_side(tmp_path, run, subject):
    for name, method in (("one", "random"), ("two", "centre")):
        run("evaluate", *subject, "--methods", method, "--metrics", "deletion", "--out", tmp_path / name)
    code, output, _ = run("compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "page.html")
    assert code == 0
    assert "random" in output
    assert "centre" in output
    code, output, _ = run("compare", tmp_path / "one", tmp_path / "two", "--json")
    assert [list(summary["areas"]) for summary in json.loads(output).values()] == [["random"], ["centre"]]
    code, _, error = run("compare", tmp_path)
    assert code == 2
    assert "holds no run" in error


@pytest.mark.slow
def test_compare_tests_how_runs_differ(tmp_path, run, subject):
    command = ("--methods", "random", "--metrics", "deletion,soundness", "--performance", "probability")
    for name, more in (("one", ()), ("two", ("--limit", "10")), ("three", ("--epsilon", "0.05"))):
        run("evaluate", *subject, *command, "--out", tmp_path / name, *more)
    runs, page = [tmp_path / name for name in ("one", "two", "three")], ("--out", tmp_path / "page.html")
    code, output, error = run("compare", *runs, *page, "--verdicts", "--resamples", "50")
    assert (code, error) == (0, "")
    assert "one − two" in output
    assert "Note: one and two share 10 samples and are compared on these, paired; 2 of one are left out." in output
    refused = "Note: soundness is not compared between one and three: epsilon is 0.01 in one and 0.05 in three."
    assert refused in output
    assert "  random: deletion between one and three is not decided with 12 samples (0.000 [" in output
    assert refused.removeprefix("Note: ") in (tmp_path / "page.html").read_text()
    code, output, _ = run("compare", *runs[:2], *page, "--json", "--resamples", "50")
    first, second = json.loads(output).values()
    assert {(row["metric"], row["second"]) for row in first["differences"]} >= {("deletion", "two")}
    assert second["differences"] == []
    assert "share 10 samples" in first["notes"][0]
    code, output, _ = run("compare", *runs, *page, "--resamples", "0")
    assert code == 0
    assert "one − two" not in output
    code, _, error = run("compare", *runs, *page, "--resamples", "1")
    assert code == 2
    assert "`resamples` must be at least 2; got 1" in error
