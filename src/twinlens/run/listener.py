"""Handing over results as they come: the option `on_result`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twinlens.errors import first_line
from twinlens.run.directory import Run
from twinlens.run.results import MethodResults
from twinlens.statistics.new_result import NewResult
from twinlens.support.progress import Progress


@dataclass
class Listener:
    """Calls `on_result` until it raises an error, which never ends the run."""

    on_result: Callable[[NewResult], object] | None
    progress: Progress

    def of(self, run: Run, *, final: bool) -> Callable[[str, MethodResults], None]:
        """Return a function that hands over the results of one method of a run."""
        return partial(self._hear, samples=run.manifest.data.samples, final=final)

    def _hear(self, method: str, results: MethodResults, *, samples: int, final: bool) -> None:
        for metric, curve in results.metrics.items():
            if self.on_result is None:
                return
            result = NewResult(
                method=method,
                metric=metric,
                estimate=curve.area,
                control=curve.control,
                skill=curve.skill,
                samples=samples,
                final=final,
            )
            try:
                self.on_result(result)
            except Exception as error:
                self.on_result = None
                self.progress.warn(
                    f"`on_result` failed for {method} by {metric}, and is not called again. The run does not need "
                    f"it. {type(error).__name__}: {first_line(error)}"
                )
