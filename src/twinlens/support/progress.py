"""Progress of long work: the interface that receives it, and two implementations, silent and as bars."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID


class Progress(Protocol):
    """Receives the progress of tasks; each task consists of rows."""

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        """Announce tasks with their number of rows; `note` describes the work."""

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Report `rows` more rows of a task; `stage` names the current step. An unannounced task has no total."""

    def finished_on(self, node: str, rows: int) -> None:
        """Report `rows` finished on `node`; they are included in `advance`."""

    def warn(self, message: str) -> None:
        """Show a warning."""


class Quiet:
    """Shows no progress; warnings become Python warnings."""

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        """Do nothing."""

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Do nothing."""

    def finished_on(self, node: str, rows: int) -> None:
        """Do nothing."""

    def warn(self, message: str) -> None:
        """Issue a Python warning."""
        warnings.warn(message, stacklevel=3)


class Bars:
    """Draws one bar per task on a terminal or in a notebook; warnings are always printed. A context manager."""

    def __init__(self, *, shown: bool = True) -> None:
        from rich.console import Console  # noqa: PLC0415 (takes a tenth of a second, and most programs show no bars)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        self._console: Console = Console(stderr=True)
        self.shown = shown and (self._console.is_terminal or self._console.is_jupyter)
        self._bars: RichBars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", style="progress.data.speed"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[stage]}", style="dim"),
            console=self._console,
            disable=not self.shown,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, rows: Mapping[str, int], note: str = "") -> None:
        """Add a bar per task, and print the note above them."""
        if self.shown and note:
            self._console.print(note, style="dim", markup=False)
        for bar in self._bars.tasks:  # of earlier work
            self._bars.update(bar.id, visible=not bar.finished)
        for name, total in rows.items():
            self._add(name, total)

    def advance(self, task: str, rows: int, stage: str = "") -> None:
        """Advance a bar."""
        bar = self._tasks[task] if task in self._tasks else self._add(task, None)
        self._bars.start_task(bar)
        self._bars.update(bar, advance=rows, stage=stage, rate=self._rate(bar))

    def finished_on(self, node: str, rows: int) -> None:
        """Count the rows of a machine, and show its rate."""
        self.advance(f"on {node}", rows, "rows of this node")

    def warn(self, message: str) -> None:
        """Print a warning above the bars."""
        text = f"twinlens: warning: {' '.join(message.split())}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _add(self, name: str, total: int | None) -> TaskID:
        from rich.markup import escape  # noqa: PLC0415

        if name in self._tasks:
            self._bars.update(self._tasks[name], total=total, completed=0, visible=True)
        else:
            self._tasks[name] = self._bars.add_task(escape(name), total=total, start=False, stage="", rate="")
        return self._tasks[name]

    def _rate(self, bar: TaskID) -> str:
        speed = self._bars.tasks[self._bars.task_ids.index(bar)].speed
        return "" if not speed else f"{speed:,.0f}/s" if speed >= 1 else f"{1 / speed:,.1f} s each"


@contextmanager
def shown_progress(progress: bool | Progress) -> Iterator[Progress]:
    """Yield what receives the progress: bars for True, nothing for False, or the object itself."""
    if progress is True:
        with Bars() as bars:
            yield bars if bars.shown else Quiet()
    else:
        yield progress or Quiet()
