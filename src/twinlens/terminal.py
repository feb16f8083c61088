"""What a person sees in the terminal: progress while a run goes on, and tables at its end."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from twinlens.attribution import METHODS
from twinlens.experiments import Stored
from twinlens.planning import METRICS
from twinlens.results import Evaluation
from twinlens.tuning import Execution


class _Rate(ProgressColumn):
    """Rows per second."""

    def render(self, task: Task) -> Text:
        """Shows the rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class LiveProgress:
    """Shows one bar per method on a terminal, and nothing elsewhere; warnings are always shown."""

    def __init__(self, *, shown: bool) -> None:
        self._console = Console(stderr=True)
        self._shown = shown and self._console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[stage]}", style="dim"),
            console=self._console,
            disable=not self._shown,
        )
        self._tasks: dict[str, TaskID] = {}
        self._nodes: dict[str, TaskID] = {}

    def __enter__(self) -> LiveProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, rows: Mapping[str, int], execution: Execution) -> None:
        """Makes the bars, and says how the model is called."""
        if self._shown:
            compiled = ", compiled" if execution.compiled else ""
            threads = f", {execution.threads} threads" if execution.threads else ""
            self._console.print(
                f"Model called with batches of {execution.batch_size}, {execution.memory_format}{threads}{compiled}.",
                style="dim",
            )
        for name, total in rows.items():
            self._tasks[name] = self._bars.add_task(escape(name), total=total, start=False, stage="")

    def advance(self, task: str, rows: int, stage: str) -> None:
        """Moves a bar on."""
        bar = self._tasks[task]
        self._bars.start_task(bar)
        self._bars.update(bar, advance=rows, stage=stage)

    def done_at(self, node: str, rows: int) -> None:
        """Counts the rows of a machine, and shows how many it does per second."""
        if node not in self._nodes:
            self._nodes[node] = self._bars.add_task(escape(node), total=None, stage="rows of this node")
        self._bars.update(self._nodes[node], advance=rows)

    def warn(self, message: str) -> None:
        """Prints a warning above the bars."""
        _say(self._console, f"twinlens: warning: {' '.join(message.split())}")


class LiveSteps:
    """Shows one bar on a terminal for work that says what it is doing, and nothing elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._bar = self._bars.add_task("", total=None)

    def __enter__(self) -> LiveSteps:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def tell(self, what: str, done: int, total: int) -> None:
        """Moves the bar to where the work is."""
        self._bars.update(self._bar, description=escape(what), completed=done, total=total)


def _console() -> Console:
    """Gives the console; a file or a pipe is wide enough for any table."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _say(console: Console, text: str) -> None:
    """Prints text as it is: brackets in names are no markup, and a path is not broken in two."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_evaluation(evaluation: Evaluation) -> None:
    """Prints the table of a run."""
    console, results = _console(), evaluation.results
    data = results["data"]
    subject = f"{results['model']['name']} on {data['samples']} samples of {data['name']}"
    _say(console, f"{subject}: accuracy {results['accuracy']:.1%}")
    if data["skipped"]:
        first = data["skipped"][0]
        _say(console, f"Left out: {len(data['skipped'])} samples; the first: {first['reason']}")
    if evaluation.metrics:
        console.print(_table([evaluation]))
        console.print(_legend(evaluation), style="dim")
    _print_findings(console, evaluation)
    _say(console, f"Everything is in {evaluation.path}")


def _print_findings(console: Console, evaluation: Evaluation) -> None:
    """Prints the Pareto front, and of each kind of warning the first."""
    front = evaluation.results["front"]
    if front:
        _say(console, f"Beaten by none in both soundness and completeness: {', '.join(front)}")
    about: dict[str, dict[str, str]] = {}
    for method, content in evaluation.results["methods"].items():
        for finding in content["diagnostics"]:
            if finding["message"]:
                about.setdefault(finding["kind"], {})[method] = finding["message"]
    for messages in about.values():
        first, others = next(iter(messages)), len(messages) - 1
        alike = f"; {others} more alike, see results.json" if others else ""
        _say(console, f"Note ({first}{alike}): {messages[first]}")


def print_runs(evaluations: Sequence[Evaluation], *, verdicts: bool = False) -> None:
    """Prints the tables of several runs as one, and if wanted what each pair of methods differs in."""
    console = _console()
    console.print(_table(evaluations))
    for evaluation in evaluations:
        _say(console, f"{evaluation.path}: {_legend(evaluation)}")
        for verdict in evaluation.results["verdicts"] if verdicts else ():
            _say(console, f"  {verdict}")


def _table(evaluations: Sequence[Evaluation]) -> Table:
    metrics = [name for name in METRICS if any(name in evaluation.metrics for evaluation in evaluations)]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in metrics:
        arrow = "↑" if METRICS[name].higher_is_better else "↓"
        table.add_column(f"{METRICS[name].heading} {arrow}", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for evaluation in evaluations:
        best, seconds = _best(evaluation), evaluation.seconds()
        if len(evaluations) > 1:
            table.add_section()
            table.add_row(f"[bold]{escape(evaluation.path.name)}[/bold]")
        for method, content in evaluation.results["methods"].items():
            cells = [_cell(content["metrics"].get(name, {}), best.get(name) == method) for name in metrics]
            table.add_row(escape(method), *cells, f"{seconds.get(method, 0.0):.1f} s")
    return table


def _cell(curve: Mapping[str, Any], best: bool) -> str:
    """Gives the area of a curve with its interval below, the best one in bold."""
    if curve.get("area") is None:
        return "–"
    area = f"[bold]{curve['area']:.3f}[/bold]" if best else f"{curve['area']:.3f}"
    ends = curve.get("area_interval") or [None]
    between = "" if None in ends else "–".join(f"{end:.2f}".replace("0.", ".", 1) for end in ends)
    return f"{area}\n[dim]{between}[/dim]" if between else area


def _best(evaluation: Evaluation) -> dict[str, str]:
    """Gives the best method of each metric."""
    best = {}
    for name in evaluation.metrics:
        areas = {m: c["metrics"].get(name, {}).get("area") for m, c in evaluation.results["methods"].items()}
        known = {method: area for method, area in areas.items() if area is not None}
        if known:
            best[name] = (max if METRICS[name].higher_is_better else min)(known, key=known.__getitem__)
    return best


def _legend(evaluation: Evaluation) -> str:
    high, measure = evaluation.results["soundness_up_to"], evaluation.results["options"]["performance"]
    soundness = "" if high is None else f" soundness up to {measure} {high:.2f}, which all methods reach;"
    return f"Areas under the curves:{soundness} ↑ more is better, ↓ less is better; below, 95% intervals."


_HOLDS = {True: "[bold]holds[/bold]", False: "[bold red]does not[/bold red]", None: "open"}


def print_experiments(experiments: Sequence[Stored], page: Path) -> None:
    """Prints the claims of experiments, each with what was measured."""
    console = _console()
    for experiment in experiments:
        took = "" if experiment.seconds is None else f" ({experiment.seconds:.0f} s)"
        _say(console, f"{experiment.name}: {experiment.title}{took}")
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for heading in ("claim", "here", "measured", "in the paper"):
            table.add_column(heading, ratio={"here": 2, "in the paper": 3}.get(heading, 6))
        for claim in experiment.claims:
            table.add_row(escape(claim.text), _HOLDS[claim.holds], escape(claim.measured), escape(claim.source))
        console.print(table)
    held = sum(claim.holds is True for experiment in experiments for claim in experiment.claims)
    _say(console, f"{held} of {sum(len(experiment.claims) for experiment in experiments)} claims hold here: {page}")


def print_selftest(result: pd.DataFrame, method: str, samples: int) -> None:
    """Prints how well each metric ranks ever worse versions of a method's maps."""
    console = _console()
    _say(console, f"{method} on {samples} samples, a growing share of each map replaced by noise")
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("metric")
    for name in result.columns[1:]:
        table.add_column(str(name).replace("share ", "").replace("correlation", "Spearman"), justify="right")
    for row in result.itertuples(index=False):
        table.add_row(escape(str(row[0])), *(f"{value:.3f}" for value in row[1:]))
    console.print(table)
    _say(console, "Spearman: 1 ranks them as the truth does, -1 upside down. Right of it, the area at each share.")


def list_methods() -> None:
    """Prints the names of all methods and metrics with what they are."""
    console = Console()
    for title, entries in (("Methods", METHODS), ("Metrics", {name: m.read for name, m in METRICS.items()})):
        table = Table(title=title, box=None, title_justify="left", title_style="bold", show_header=False)
        for name, function in entries.items():
            table.add_row(name, escape(_summary(name, function)))
        console.print(table)
    console.print("Options of a method: twinlens methods NAME", style="dim")


def _summary(name: str, function: object) -> str:
    if name in METRICS:
        return METRICS[name].summary
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def explain_method(name: str) -> None:
    """Prints the documentation and the options of a method."""
    if name not in METHODS:
        raise ValueError(f"`name` must be one of {', '.join(METHODS)}; got {name!r}.")
    console, function = Console(), METHODS[name]
    options = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    console.print(f"{name}\n", style="bold")
    _say(console, inspect.getdoc(function) or "")
    defaults = ", ".join(f"{p.name}={p.default!r}" for p in options if p.name not in ("ids", "seed"))
    _say(console, f"\nDefaults: {defaults or 'it has no options'}")
