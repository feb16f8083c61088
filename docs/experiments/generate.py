"""Write the tables of claims and the figures of these pages from directories of `twinlens reproduce`.

    twinlens reproduce all --out smoke
    python docs/experiments/generate.py smoke=smoke

A page holds tables between marks, `<!-- claims LABEL -->` and `<!-- end of claims -->`. For each LABEL=DIRECTORY, the
tables with this label are made from DIRECTORY/NAME, or from DIRECTORY itself where it holds the experiment, and so are
the figures that the page shows: FIGURE.png of the label smoke, FIGURE-LABEL.png of others. README.md counts verdicts,
between `<!-- experiments LABEL -->` and `<!-- end of experiments -->`; experiments that DIRECTORY does not hold keep
their rows. figures.md, the index of the paper's figures and tables, is made from the tables of all pages, also without
any LABEL=DIRECTORY.
"""

import json
import re
import shutil
import sys
from pathlib import Path

from twinlens.laboratory.modifications import SCHEMES
from twinlens.reproduction import EXPERIMENTS
from twinlens.reproduction.claims import Claim, count_verdicts, group_statements, statement_verdict
from twinlens.reproduction.comparison_figures import paper_name
from twinlens.reproduction.experiment_storage import read_stored
from twinlens.reproduction.order_vs_value import PAPER_DISTANCES

PAPER_DEVIATIONS = {"completeness": 0.112, "soundness": 0.046, "deletion": 0.011, "road_morf": 0.009}
"""Deviations of the same nine cells in the paper's Table 1."""

HERE = Path(__file__).parent
DATA = {"cifar10": "CIFAR-10", "cifar10-100": "CIFAR-10", "imagenet": "ImageNet"}
"""Names of the data in tables, by label; others have the name in the results."""
HEADS = {
    "completeness": "completeness (paper)",
    "soundness": "soundness (paper)",
    "deletion": "deletion",
    "road_morf": "ROAD",
    "road_lerf": "ROAD, least relevant first",
    "soundness_rank": "soundness",
    "completeness_share": "completeness",
    "calibration": "calibration",
}
"""Columns of the table of distances: the paper's, and ours beside them."""


FIGURES = {
    "Fig. 1": ("retraining on perturbed images", "retraining", "retraining"),
    "Fig. 2": ("Attr% on semi-natural data", "semi-natural", "semi-natural"),
    "Fig. 3": ("ROAD on semi-natural and real data", "semi-natural-road", "semi-natural-road"),
    "Fig. 4": ("diagram: soundness and completeness of two attributions", None, "[definitions](../concepts/theory.md)"),
    "Fig. 5": ("diagram: how soundness is evaluated", None, "[soundness](../concepts/soundness.md)"),
    "Fig. 6": ("exact maps, changed in a known way", "synthetic", "synthetic"),
    "Fig. 7": ("modified maps by four metrics", "order-vs-value", "order-vs-value"),
    "Fig. 8": ("ensembles of IG", "ensembles", "ensembles"),
    "Fig. 9": ("all methods by both metrics", "benchmark", "benchmark"),
    "Fig. 10": ("retraining with a mark at the edge", "spurious-edge", "spurious-edge"),
    "Fig. 11": ("more watermarks, with maps of Rect and Pooling", "semi-natural", "semi-natural"),
    "Fig. 12": ("ROAD on real, semi-natural and synthetic data", "semi-natural-road", "semi-natural-road"),
    "Fig. 13": ("more modified maps", "order-vs-value", "modified-maps"),
    "Fig. 14": ("more maps of IG and its ensembles", "ensembles", "ensemble-maps"),
    "Fig. 15": ("ensembles of IG by all metrics", "ensembles", "ensembles"),
    "Table 1": ("least Hausdorff distances", "order-vs-value", "distances"),
    "Table 2": ("notation", None, "[theory](../concepts/theory.md#symbols)"),
    "Table 3": ("modifications of maps", "order-vs-value", "[settings](settings.md)"),
}
"""The paper's figures and tables: what they show, the experiment, and our figure, or the page that replaces it."""
SHOWN = {
    "cifar10": "CIFAR-10",
    "cifar10-six": "CIFAR-10, six methods",
    "cifar10-100": "CIFAR-10, 100 images",
    "cifar10-150": "CIFAR-10, 150 images, all readings",
    "cifar10-variance": "CIFAR-10, 1,000 images, 0.3 as a variance",
    "imagenet": "ImageNet",
    "imagenet-all": "ImageNet, all methods",
    "smoke": "smoke run",
}
"""Names of labels, in the order of the index."""


def read_claims(page):
    """Read the paper's statements from a page: their sources and verdicts, by label."""
    claims = {}
    for label, text in re.findall(r"<!-- claims (\S+) -->\n(.*?)<!-- end of claims -->", page, flags=re.DOTALL):
        own = text.partition("| our own claim")[0].splitlines()
        # Rows of readings are below that of their statement, which has the verdict on all of them.
        rows = [row.split(" | ") for row in own if row.startswith("| ") and not row.startswith("| – ")]
        claims[label] = [
            Claim(text=row[0], source=row[1], measured="", verdict=re.sub(r":.*|[*|]", "", row[-1]).strip())
            for row in rows[1:]
        ]
    return claims


def index_row(name):
    """The row of a figure or table in the index."""
    what, experiment, shown = FIGURES[name]
    if experiment is None:
        return [name, what, "–", shown, "none"]
    page = (HERE / f"{experiment}.md").read_text(encoding="utf-8")
    figures, verdicts = [], []
    for label, title in SHOWN.items():
        file = f"{shown}.png" if label == "smoke" else f"{shown}-{label}.png"
        if f"]({file})" in page:
            figures.append(f"[{title}]({file})")
        # A claim of the text alone goes with the first figure of its experiment.
        first = next(each for each, (_, other, _) in FIGURES.items() if other == experiment)
        own = [
            claim
            for claim in read_claims(page).get(label, ())
            if re.search(rf"{re.escape(name)}(?![0-9])", claim.source)
            or (name == first and not re.search(r"Fig\.|Table", claim.source))
        ]
        if own:
            verdicts.append(f"{title}: {count_verdicts(own, ours=False)}")
    if "synthetic" in experiment:  # which is the paper's own set
        figures, verdicts = (
            [text.replace("smoke run", "the paper's set") for text in texts] for texts in (figures, verdicts)
        )
    drawn = ", ".join(figures) or (shown if shown and shown.startswith("[") else "not drawn")
    command = f"`twinlens reproduce {experiment}`, [page]({experiment}.md)"
    return [name, what, command, drawn, "; ".join(verdicts) or "none"]


def write_index():
    """Write the index of the paper's figures and tables from the tables of the pages."""
    page = HERE / "figures.md"
    heads = [
        "| in the paper | what | command | our figure | verdicts on the paper's statements |",
        "|---|---|---|---|---|",
    ]
    rows = [f"| {' | '.join(map(cell, index_row(name)))} |" for name in FIGURES]
    text = page.read_text(encoding="utf-8")
    page.write_text(
        between(text, "<!-- index -->", "<!-- end of index -->", "\n".join([*heads, *rows])), encoding="utf-8"
    )


def find(directory, name):
    """The experiment of this name in a directory; None if there is none."""
    candidates = [stored for path in (directory / name, directory) if (stored := read_stored(path)) is not None]
    return next((stored for stored in candidates if stored.name == name), None)


def cell(text):
    """Text as a cell of a Markdown table holds it."""
    return text.replace("|", "\\|").replace("\n", " ")


def verdict_cell(verdict, reason=""):
    """A verdict with its reason, if that is more than an interval that contains zero."""
    shown = "**does not hold**" if verdict == "does not hold" else verdict
    return shown + ("" if reason in ("", "the interval contains 0") else f": {reason}")


def table(stored):
    """The statements as Markdown, the paper's before our own; readings are rows below their statement."""
    lines = []
    for heading, ours in (("the paper's statement", False), ("our own claim", True)):
        statements = group_statements(stored.claims, ours=ours)
        if not statements:
            continue
        lines += [f"| {heading} | in the paper | measured | margin | verdict |", "|---|---|---|---|---|"]
        for text, readings in statements.items():
            several = len(readings) > 1
            rows = [(text, readings[0].source, "", "", verdict_cell(statement_verdict(readings)))] if several else []
            rows += [
                (
                    f"– {claim.reading}" if several else claim.words,
                    "" if several else claim.source,
                    claim.measured,
                    claim.margin,
                    verdict_cell(claim.verdict, claim.reason),
                )
                for claim in readings
            ]
            lines += [f"| {' | '.join(map(cell, row))} |" for row in rows]
        lines.append("")
    over = sorted({claim.over for claim in stored.claims if claim.over})
    return "\n".join([*lines, f"Margins with 95% intervals over {', '.join(over)}."])


def distances(stored, label):
    """The mean least distances of order-vs-value, of both variants, with their deviation over methods and schemes."""
    results = json.loads((stored.path / "results.json").read_text(encoding="utf-8"))
    data = DATA.get(label, results["data"])
    lines = [f"| mean least distance | {' | '.join(HEADS.values())} |", "|---|" + "---|" * len(HEADS)]
    rows = {"the paper: VGG16, 5,000 images": (PAPER_DISTANCES, PAPER_DEVIATIONS)}
    for variant, distances in results["distances"].items():
        name = {"ours": "our variant", "literal": "to the letter"}[variant]
        rows[f"{name}: {data}, {results['samples']:,} images"] = distances["mean"], distances["deviation"]
        rows |= {f"– {scheme}, {name}": (means, {}) for scheme, means in distances["by_scheme"].items()}
    for name, (means, deviations) in rows.items():
        ends = {metric: f" ± {deviations[metric]:z.3f}" if metric in deviations else "" for metric in HEADS}
        cells = (f"{means[metric]:z.3f}{ends[metric]}" if metric in means else "–" for metric in HEADS)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def areas(stored):
    """The areas of order-vs-value by our metrics, of the variant that keeps the order."""
    of = json.loads((stored.path / "results.json").read_text(encoding="utf-8"))["areas"]["ours"]
    lines = [f"| {HEADS['soundness_rank']} or calibration | {' | '.join(SCHEMES)} |", "|---|" + "---|" * len(SCHEMES)]
    for metric in ("soundness_rank", "calibration"):
        for method in dict.fromkeys(name.partition(", ")[0] for name in of[metric]):
            values = [of[metric][f"{method}, {scheme}"] for scheme in SCHEMES]
            cells = (" / ".join(f"{own[v]:.2f}" for v in ("remove", "original", "introduce")) for own in values)
            lines.append(f"| {HEADS[metric]}, {paper_name(method)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def between(text, opening, closing, inside):
    """Replace the text between two marks."""
    pattern = re.compile(f"{re.escape(opening)}\n.*?{re.escape(closing)}", re.DOTALL)
    return pattern.sub(lambda _: f"{opening}\n{inside}\n{closing}", text)


def count_row(stored):
    """The row of an experiment in README.md: its data, and the verdicts on its claims."""
    counts = [count_verdicts(stored.claims, ours=ours) for ours in (False, True)]
    over = ", ".join(sorted({claim.over for claim in stored.claims if claim.over}))
    return [f"[{stored.name}]({stored.name}.md)", stored.title, over, f"{stored.seconds / 60:.1f}", *counts]


def update_counts(text, label, experiments):
    """Write the rows of these experiments into the table of a label, and leave the others."""
    opening, closing = f"<!-- experiments {label} -->", "<!-- end of experiments -->"
    if opening not in text:
        return text
    before = text.split(opening, 1)[1].split(closing, 1)[0]
    rows = {name: row for row in before.splitlines() for name in EXPERIMENTS if row.startswith(f"| [{name}]")}
    rows |= {name: f"| {' | '.join(map(cell, count_row(stored)))} |" for name, stored in experiments.items()}
    heads = ["| name | what it asks | on | minutes | the paper's statements | our own |", "|---|---|---|---|---|---|"]
    lines = [*heads, *(rows[name] for name in EXPERIMENTS if name in rows)]
    return between(text, opening, closing, "\n".join(lines))


def write_pages(directories):
    """Write tables and figures into every page, and the counts into README.md."""
    readme = HERE / "README.md"
    counts = readme.read_text(encoding="utf-8")
    for label, directory in directories.items():
        experiments = {name: stored for name in EXPERIMENTS if (stored := find(directory, name)) is not None}
        for name, stored in experiments.items():
            page = HERE / f"{name}.md"
            text = between(
                page.read_text(encoding="utf-8"), f"<!-- claims {label} -->", "<!-- end of claims -->", table(stored)
            )
            if name == "order-vs-value":
                rows = distances(stored, label)
                text = between(text, f"<!-- distances {label} -->", "<!-- end of distances -->", rows)
                text = between(text, f"<!-- areas {label} -->", "<!-- end of areas -->", areas(stored))
            page.write_text(text, encoding="utf-8")
            for figure in stored.figures:
                shown = f"{figure}.png" if label == "smoke" else f"{figure}-{label}.png"
                if f"({shown})" in text:
                    shutil.copy(stored.path / "figures" / f"{figure}.png", HERE / shown)
        counts = update_counts(counts, label, experiments)
    readme.write_text(counts, encoding="utf-8")
    write_index()


if __name__ == "__main__":
    write_pages({label: Path(path) for label, _, path in (argument.partition("=") for argument in sys.argv[1:])})
