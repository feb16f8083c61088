"""Numbers of figures, tables, sections and appendices are those of the paper, counted in its source."""

import re
from pathlib import Path

import pytest

from tests.conftest import SHARED
from twinlens.reproduction import EXPERIMENTS

PLACES = {
    "synthetic": {
        "sec:exp_validation": "Section 5.1",
        "fig:synthetic_completenss_soundness": "Fig. 6",
        "appendix:validation_tests": "appendix G.1",
    },
    "retraining": {
        "sec:issue_retraining": "Section 3.1",
        "fig:retrain_issue": "Fig. 1",
    },
    "spurious-edge": {
        "appendix:more_retrain_issue": "appendix C",
        "fig:more_retrain_issue": "Fig. 10",
    },
    "semi-natural": {
        "sec:issue_semi_natural": "Section 3.2",
        "fig:semi_natural_attr_percentage": "Fig. 2",
        "fig:more_watermark": "Fig. 11",
    },
    "semi-natural-road": {
        "sec:issue_semi_natural": "Section 3.2",
        "fig:semi_natural_vs_real_road": "Fig. 3",
        "fig:retraining_cifar100_benchmark": "Fig. 12",
    },
    "order-vs-value": {
        "sec:exp_comparison_order_based": "Section 5.2",
        "fig:vision_remove_introduce": "Fig. 7",
        "tab:rm_in_avg_diff": "Table 1",
        "tab:imagenet_modification_details": "Table 3",
    },
    "ensembles": {
        "sec:exp_ensemble": "Section 5.3",
        "fig:ensemble_comparison": "Fig. 8",
        "fig:appendix_ig_ensemble": "Fig. 15",
        "appendix:ensemble": "appendix G.4",
    },
    "benchmark": {
        "sec:exp_ensemble": "Section 5.3",
        "fig:benchmark_soundness_completeness": "Fig. 9",
    },
}
"""The labels in the paper's source that each experiment is about, and what is printed for them."""

PARTS = re.compile(
    r"\\(appendix\b)|\\(section|subsection)\{|\\begin\{(figure|table|subfigure)\*?\}|\\end\{(figure|table|subfigure)"
    r"|\\label\{([^}]*)\}"
)


def count_labels(source):
    """By label, what LaTeX would print: Section 5.1, appendix G.4, Fig. 7, Fig. 7b, Table 1."""
    found, counts, appendix, inside = (
        {},
        dict.fromkeys(("section", "subsection", "figure", "table", "part"), 0),
        False,
        [],
    )
    for match in PARTS.finditer(re.sub(r"(?m)(?<!\\)%.*", "", source)):
        begins_appendix, heading, begins, ends, label = match.groups()
        if begins_appendix:
            appendix, counts["section"], counts["subsection"] = True, 0, 0
        elif heading:
            counts[heading] += 1
            counts["subsection"] *= heading == "subsection"
        elif begins:
            counts["part" if begins == "subfigure" else begins] += 1
            counts["part"] *= begins == "subfigure"
            inside.append(begins)
        elif ends:
            inside.pop()
        elif inside:
            letter = chr(ord("a") + counts["part"] - 1) if inside[-1] == "subfigure" else ""
            found[label] = f"Table {counts['table']}" if inside[0] == "table" else f"Fig. {counts['figure']}{letter}"
        else:
            number = chr(ord("A") + counts["section"] - 1) if appendix else str(counts["section"])
            number += f".{counts['subsection']}" if counts["subsection"] else ""
            found[label] = f"appendix {number}" if appendix else f"Section {number}"
    return found


def test_counting():
    source = r"""
    \section{One}\label{a} \begin{figure*} \begin{subfigure} \end{subfigure} \begin{subfigure}\label{b}\end{subfigure}
    \label{c} \end{figure*} % \section{no}
    \section{Two} \subsection{x}\label{d} \begin{table}\label{e}\end{table}
    \appendix \section{y} \subsection{z}\label{f}
    """
    numbers = {"a": "Section 1", "b": "Fig. 1b", "c": "Fig. 1", "d": "Section 2.1", "e": "Table 1", "f": "appendix A.1"}
    assert count_labels(source) == numbers


def test_places_are_those_of_the_paper():
    paper = SHARED / "paper" / "dual-perspective.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not on this machine")
    numbers = count_labels(paper.read_text(encoding="utf-8"))
    for places in PLACES.values():
        assert places == {label: numbers[label] for label in places}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_names_its_place(name):
    source = EXPERIMENTS[name].source.replace("Appendix", "appendix")
    for label, place in PLACES[name].items():
        assert place in source, label


def test_the_index_lists_every_figure_and_table():
    page = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "figures.md"
    rows = re.findall(r"^\| (Fig\. \d+|Table \d+) \|", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [*(f"Fig. {number}" for number in range(1, 16)), *(f"Table {number}" for number in range(1, 4))]
    paper = SHARED / "paper" / "dual-perspective.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not on this machine")
    numbers = count_labels(paper.read_text(encoding="utf-8")).values()
    assert {number for number in numbers if re.fullmatch(r"(Fig\.|Table) \d+", number)} == set(rows)
