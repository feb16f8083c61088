"""Execution: the fastest way to call a model on this machine, found by a short trial.

Batch size, memory format and compilation change the speed and nothing else, but for the last bits of a float32.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.core.calling import evaluating
from twinlens.errors import first_line

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
_BATCHES = (8, 16, 32, 64, 128, 256, 512, 1024)
_MOST_VALUES = 5_000_000  # input values of the largest batch that is tried: 33 images of 224 × 224 × 3
_SECONDS = 0.4  # for which one setting is tried at most, after a first call
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a model is called; the manifest of a run stores it."""

    batch_size: int
    """Inputs per call."""

    memory_format: str = "contiguous"
    """Order of an input's values in memory: "contiguous", or "channels_last" for images."""

    compiled: bool = False
    """Run the model through torch.compile."""

    threads: int | None = None
    """Threads within one operation of torch on the CPU; None leaves torch as it is. On a machine that others use too,
    one thread can be many times as fast as two that wait for each other."""

    def describe(self) -> str:
        """Describe the execution in a sentence."""
        compiled = ", compiled" if self.compiled else ""
        threads = f", {self.threads} threads" if self.threads else ""
        return f"Model called with batches of {self.batch_size}, {self.memory_format}{threads}{compiled}."


class Prepared(nn.Module):
    """A model wrapped in its execution; the outputs are the model's own."""

    def __init__(self, module: nn.Module, execution: Execution) -> None:
        super().__init__()
        self.module = module
        self.execution = execution
        self._call: Callable[[Tensor], Any] = torch.compile(module, dynamic=False) if execution.compiled else module

    def forward(self, inputs: Tensor) -> Any:
        """Call the model."""
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=MEMORY_FORMATS[self.execution.memory_format])
        missing = self.execution.batch_size - len(inputs)
        if not self.execution.compiled or missing <= 0:
            return self._call(inputs)
        # A compiled model is compiled for one shape; a smaller batch is filled up with its last input.
        filled = torch.cat([inputs, inputs[-1:].expand(missing, *inputs.shape[1:])])
        return self._call(filled)[: len(inputs)]


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Set the number of threads within one operation of torch, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tune(
    module: nn.Module,
    example: Tensor,
    *,
    batch_size: int | None = None,
    memory_format: str | None = None,
    compiled: bool = False,
    threads: int | None = None,
) -> Execution:
    """Choose the fastest way to call a model.

    Args:
        module: the model, on its device.
        example: one input with a batch axis of 1.
        batch_size: fixes the batch size, and leaves the number of threads alone; by default both are found by trial.
        memory_format: fixes the memory format; by default it is found by trial.
        compiled: compile the model; one that cannot be compiled is called as it is, with a warning.
        threads: fixes the number of threads, whatever the batch size.
    """
    given = example.to(next((p.device for p in module.parameters()), example.device))
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1; got {batch_size}.")
    if threads is None and batch_size is None:
        with evaluating(module), torch.inference_mode():
            threads = _fastest_threads(module, given)
    with evaluating(module), torch.inference_mode(), using_threads(threads):
        if compiled:
            # The compiler chooses the memory format of what lies inside by itself.
            plain = _fastest(module, given, batch_size, [memory_format or "contiguous"])
            smaller = batch_size is None and plain.batch_size > 1
            return _compiled(module, given, replace(plain, threads=threads), smaller=smaller)
        images = example.dim() == 4
        formats = [memory_format] if memory_format else [*MEMORY_FORMATS] if images else ["contiguous"]
        return replace(_fastest(module, given, batch_size, formats), threads=threads)


def _fastest_threads(module: nn.Module, example: Tensor) -> int | None:
    """Try whether one thread is faster than all of them; None where there is nothing to choose."""
    most = torch.get_num_threads()
    if example.device.type != "cpu" or most == 1:
        return None
    trial = Execution(batch_size=max(1, min(16, _MOST_VALUES // example.numel())))
    seconds: dict[int, float] = {}
    for threads in (most, 1, most, 1):
        with using_threads(threads):
            seconds[threads] = seconds.get(threads, 0.0) + _seconds_per_input(module, example, trial)
    return 1 if seconds[1] < 0.9 * seconds[most] else most


def _fastest(module: nn.Module, example: Tensor, batch_size: int | None, formats: list[str]) -> Execution:
    """Try each memory format with growing batches, until a batch is clearly too large."""
    if batch_size is not None and len(formats) == 1:
        return Execution(batch_size=batch_size, memory_format=formats[0])
    fitting = [size for size in _BATCHES if size * example.numel() <= _MOST_VALUES] or [1]
    trials: dict[Execution, float] = {}
    for memory_format in formats:
        for size in fitting if batch_size is None else [batch_size]:
            trial = Execution(batch_size=size, memory_format=memory_format)
            try:
                trials[trial] = _seconds_per_input(module, example, trial)
            except RuntimeError as error:
                if memory_format == formats[0] or not wants_contiguous(error):
                    raise
                break
            if trials[trial] > 1.3 * min(trials.values()):
                break
    # Of what is about as fast, the largest batch, because imputation costs less per input then.
    enough = 1.05 * min(trials.values())
    return max((trial for trial in trials if trials[trial] <= enough), key=lambda trial: trial.batch_size)


def _seconds_per_input(module: nn.Module, example: Tensor, execution: Execution) -> float:
    model = Prepared(module, execution)
    batch = example.expand(execution.batch_size, *example.shape[1:]).contiguous()
    try:
        model(batch)
        times: list[float] = []
        while len(times) < 2 or (len(times) < 10 and sum(times) < _SECONDS):
            before = time.perf_counter()
            model(batch)
            if batch.device.type == "cuda":
                torch.cuda.synchronize(batch.device)
            times.append(time.perf_counter() - before)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        return float("inf")
    return median(times) / execution.batch_size


def _compiled(module: nn.Module, example: Tensor, execution: Execution, *, smaller: bool) -> Execution:
    """Compile a model, with `smaller` also for half the batch size, since fused operations fit smaller caches."""
    wanted = replace(execution, compiled=True)
    trials = [wanted, replace(wanted, batch_size=execution.batch_size // 2)] if smaller else [wanted]
    try:
        best = min(trials, key=lambda trial: _seconds_per_input(module, example, trial)) if smaller else wanted
        answer, expected = Prepared(module, best)(example), Prepared(module, execution)(example)
        if not torch.allclose(answer, expected, rtol=1e-2, atol=1e-2):
            raise RuntimeError("the compiled model gives other answers")
    except Exception as error:
        _log.warning("The model cannot be compiled and is called as it is: %s", first_line(error))
        return execution
    return best


def wants_contiguous(error: Exception) -> bool:
    """Return whether a model failed over the order of values in memory, as by calling `view` on its features.

    Example:
        >>> try:
        ...     torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).view(2, -1)
        ... except RuntimeError as error:
        ...     wants_contiguous(error)
        True
    """
    return "view size is not compatible" in str(error) or "contiguous" in str(error)
