"""How wrong are the metrics themselves? Writes the tables and figures of docs/concepts/estimators.md.

python examples/laboratory.py          # a few minutes; writes docs/laboratory*.png and the tables of that page
"""

import argparse
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import twinlens as tl
from twinlens.laboratory import true_soundness_curve
from twinlens.laboratory.tasks import ESTIMATORS, TASKS, completeness_errors, map_grid, soundness_errors, sparse_linear

DOCS = Path(__file__).resolve().parents[1] / "docs"


def table(frame: pd.DataFrame) -> str:
    """Write a frame as Markdown, its index as the first column."""
    lines = [" | ".join([str(frame.index.name or ""), *map(str, frame.columns)])]
    lines.append("|".join(["---"] * (1 + len(frame.columns))))
    for name, row in frame.iterrows():
        cells = [f"{value:.0f}" if column == "calls" else f"{value:.3f}" for column, value in row.items()]
        lines.append(" | ".join([str(name), *cells]))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def errors_by_task(errors: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return mean errors, one row per estimator and one column per task."""
    frame = errors.pivot_table(index="estimator", columns="task", values=column).loc[list(ESTIMATORS), list(TASKS)]
    return frame.assign(all=frame.mean(axis=1), calls=errors.groupby("estimator")["calls"].max())


def draw_errors(errors: pd.DataFrame, path: Path) -> None:
    """Draw the error of each estimator for each map, averaged over tasks."""
    frame = errors.pivot_table(index="map", columns="estimator", values="error", sort=False)[list(ESTIMATORS)]
    figure, axes = plt.subplots(figsize=(7, 3.9), layout="constrained")
    image = axes.imshow(frame.T, cmap="magma_r", vmin=0, vmax=0.8, aspect="auto")
    axes.set_xticks(range(len(frame)), frame.index, rotation=40, ha="right")
    axes.set_yticks(range(len(frame.columns)), frame.columns)
    for (row, column), value in np.ndenumerate(frame.T.to_numpy()):
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.4 else "black")
    figure.colorbar(image, label="mean absolute error of soundness")
    figure.savefig(path, dpi=110)


def draw_curves(path: Path) -> None:
    """Draw the true soundness and that of the estimators, for maps with introduced attribution."""
    task = sparse_linear(300)
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for axes, name in zip(panels, ("truth", "introduced 0.5", "random"), strict=True):
        maps = map_grid(task)[name]
        arguments = (task.model, task.inputs, task.labels, maps)
        paper = tl.soundness(*arguments, imputer=task.imputer)
        for label, way in list(ESTIMATORS.items())[:3]:
            curve = tl.soundness_from_probes(paper.table, performance=way.performance, protocol=way.protocol)
            axes.plot(1 - curve.levels, curve.values, label=label)
        best = tl.soundness(*arguments, imputer=task.imputer, estimator="rank")
        line = axes.plot(1 - best.levels, best.values, label="two-sided")[0]
        axes.fill_between(1 - best.levels, *best.band(resamples=300), color=line.get_color(), alpha=0.3)
        axes.plot(1 - best.levels, best.in_steps().values, ":", color=line.get_color(), label="two-sided, plain")
        true = true_soundness_curve(maps, task.predictive, paper.table)
        axes.plot(1 - paper.levels, np.nanmean(true, axis=0), "k--", label="truth")
        axes.set(title=f"map: {name}", xlabel="share of features kept")
    panels[0].set_ylabel("soundness")
    panels[0].legend(fontsize=7, loc="lower right")
    figure.savefig(path, dpi=110)


def degraded() -> pd.DataFrame:
    """Return the correlation of each metric's ranking of degraded maps with the truth, for each task."""
    columns = {}
    for name, make in TASKS.items():
        task = make(150)
        found = tl.laboratory.selftest(task.model, task.inputs, task.labels, task.information, imputer=task.imputer)
        columns[name] = found.set_index("metric")["correlation"]
    return pd.DataFrame(columns).rename_axis("metric")


def replace(page: str, name: str, text: str) -> str:
    """Put text between the marks of that name."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    return re.sub(f"{start}.*?{end}", lambda _: f"{start}\n{text}\n{end}", page, flags=re.DOTALL)


def main() -> None:
    """Run the laboratory and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the documentation")
    folder = parser.parse_args().docs
    mpl.use("Agg")
    errors = pd.concat([soundness_errors(make()) for make in TASKS.values()])
    draw_errors(errors, folder / "laboratory-errors.png")
    draw_curves(folder / "laboratory-curves.png")
    complete = pd.concat([completeness_errors(make()) for make in TASKS.values()])
    complete = complete.pivot_table(index="metric", columns="task", values="correlation")[list(TASKS)]
    tables = {
        "errors": table(errors_by_task(errors, "error")),
        "errors at all levels": table(errors_by_task(errors, "error, all levels")),
        "completeness": table(complete),
        "degraded maps": table(degraded()),
    }
    path = folder / "concepts" / "estimators.md"
    page = path.read_text()
    for name, text in tables.items():
        page = replace(page, name, text)
        print(f"{name}\n{text}\n")
    path.write_text(page)


if __name__ == "__main__":
    main()
