"""Execution: how a model is called on this machine, chosen by rule.

The choice depends on the device, the model and the amount of work, and never on a clock: two runs of one command on one
machine give the same bytes. docs/performance.md has the measurements behind the rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.errors import first_line
from twinlens.probing.answers import find_logits
from twinlens.probing.model_call import evaluating
from twinlens.probing.tokens import are_tokens
from twinlens.support.memory import keeps_freed_memory, second_level_cache

PREDICTIONS, PROBABILITIES = 0.995, 0.02  # least agreement of a lower precision on the probes of its trial
# Values of a batch of up to 16 large inputs on the CPU: without faults in the C library's own settings, or if freed
# memory is kept.
_MOST_VALUES, _MOST_KEPT_VALUES = 460_000, 2_500_000
_DEVICE_VALUES = 5_000_000  # of a batch elsewhere: 32 images of 224 × 224 × 3
_MOST_ROWS = 4096
_TOKEN_VALUES = 256  # a token counts as this many values, because its embedding is wider than a pixel
_WORTHWHILE = 2e7  # floating-point operations per input, below which casts cost what a lower precision gains
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a model is called; the manifest of a run stores it."""

    batch_size: int
    memory_format: str = "contiguous"
    """"contiguous", or "channels_last" for images."""
    compiled: bool = False
    threads: int | None = None
    """Threads within one operation of torch on the CPU; None keeps torch's setting."""
    precision: str = "float32"
    """"float32", or "bfloat16" or "float16" by autocast."""

    def describe(self) -> str:
        """Describe the execution in a sentence."""
        compiled = ", compiled" if self.compiled else ""
        threads = f", {self.threads} threads" if self.threads else ""
        precision = "" if self.precision == "float32" else f", {self.precision}"
        return f"Model called with batches of {self.batch_size}, {self.memory_format}{threads}{precision}{compiled}."


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far another precision, or a compiled model, agrees with the model in float32, on real probes."""

    precision: str
    compiled: bool
    probes: int
    predictions: float
    """Share of probes with the same prediction."""
    probabilities: float
    """Largest change of the probability of the target class."""

    @property
    def enough(self) -> bool:
        """Whether metrics should not change."""
        return self.predictions >= PREDICTIONS and self.probabilities <= PROBABILITIES

    def describe(self) -> str:
        """Describe the agreement in words."""
        tried = f"{self.precision}, compiled" if self.compiled else self.precision
        return (
            f"{tried}: {self.predictions:.2%} of {self.probes} trial probes predicted as in float32, probabilities "
            f"within {self.probabilities:.3f}"
        )


class Prepared(nn.Module):
    """A model wrapped in its execution; the outputs are the model's own."""

    def __init__(self, module: nn.Module, execution: Execution) -> None:
        super().__init__()
        self.module, self.execution = module, execution
        self._call: Callable[[Tensor], Any] = torch.compile(module, dynamic=False) if execution.compiled else module

    def forward(self, inputs: Tensor) -> Any:
        """Call the model."""
        if inputs.dim() == 4:
            channels_last = self.execution.memory_format == "channels_last"
            inputs = inputs.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        precision = self.execution.precision
        lower = precision != "float32"
        with torch.autocast(inputs.device.type, getattr(torch, precision)) if lower else nullcontext():
            missing = self.execution.batch_size - len(inputs)
            if not self.execution.compiled or missing <= 0:
                return self._call(inputs)
            # A model is compiled for one shape; a smaller batch is padded with its last input.
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


def choose_batch(example: Tensor, device: torch.device | None = None, *, kept: bool = False) -> int:
    """Choose how many inputs make a batch: up to three, or a power of two.

    On the CPU, small inputs fill the second-level cache. Of large ones, torch calls 16 fastest on one thread: it leaves
    1×1 convolutions of fewer to a slower library. Their layers must fit into memory that the C library reuses: the
    kernel maps and unmaps larger blocks at every layer, which takes longer than the model itself.

    Args:
        example: one input.
        device: where the model is; by default that of the example.
        kept: freed memory is kept (`keep_freed_memory`), and blocks may be larger.

    Example:
        >>> [choose_batch(torch.zeros(3, size, size)) for size in (224, 600)]
        [3, 1]
        >>> choose_batch(torch.zeros(3, 224, 224), kept=True)
        16
    """
    values = example.numel() * (_TOKEN_VALUES if are_tokens(example) else 1)
    if (device or example.device).type == "cpu":
        most = _MOST_KEPT_VALUES if kept else _MOST_VALUES
        rows = max(second_level_cache() // (4 * values), min(16, most // values), 1)
    else:
        rows = max(1, _DEVICE_VALUES // values)
    return rows if rows < 4 else int(min(_MOST_ROWS, 2 ** (rows.bit_length() - 1)))


def native_precisions(device: torch.device) -> tuple[str, ...]:
    """Return the lower precisions that a device computes in at twice the speed of float32, the finest first."""
    if device.type == "cuda":
        major, _ = torch.cuda.get_device_capability(device)
        return ("float16", "bfloat16") if major >= 8 else ("float16",) if major == 7 else ()
    if device.type == "cpu":
        checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
        return ("bfloat16",) if any(supported is not None and supported() for supported in checks) else ()
    return ()


def count_operations(module: nn.Module, example: Tensor) -> int:
    """Count the floating-point operations of a model's convolutions and linear layers for one input.

    torch's own counter takes seconds to load. The number is 0 where they cannot be counted.
    """
    counted: list[int] = []

    def count(part: nn.Module, _: Any, answer: Tensor) -> None:
        weight = part.weight
        assert isinstance(weight, Tensor)
        counted.append(2 * answer.numel() * (weight.numel() // len(weight)))

    layers = [part for part in module.modules() if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        with evaluating(module), torch.inference_mode():
            module(example)
    except Exception:
        return 0
    finally:
        for handle in handles:
            handle.remove()
    return sum(counted)


def choose_execution(
    module: nn.Module,
    example: Tensor,
    *,
    batch_size: int | None = None,
    memory_format: str | None = None,
    threads: int | None = None,
    precision: str = "float32",
    compiled: bool = False,
    rows: int = 0,
    agreement: Callable[[Execution], Agreement | None] = lambda _: None,
) -> tuple[Execution, tuple[Agreement, ...]]:
    """Choose how to call a model.

    Args:
        module: the model, on its device.
        example: one input with a batch axis of 1.
        batch_size: fixes the batch size.
        memory_format: fixes the memory format; by default channels come last where the model convolves images.
        threads: fixes the number of threads on the CPU.
        precision: "auto" takes the first native precision of the device whose answers agree.
        compiled: compile the model; one that cannot be compiled is called uncompiled, with a warning.
        rows: number of inputs that the model will be called on.
        agreement: compares an execution with the plain one on probes; returns None where that is not possible.

    Returns:
        The execution, and the outcome of every trial.
    """
    example = _as_called(module, example)
    plain = Execution(
        batch_size=batch_size or choose_batch(example, kept=keeps_freed_memory()),
        memory_format=_choose_format(module, example, memory_format),
        threads=threads or (torch.get_num_threads() if example.device.type == "cpu" else None),
    )
    with using_threads(plain.threads):
        work = count_operations(module, example) if rows and precision == "auto" else 0
        strict = precision in ("auto", "float32")
        trials: list[Agreement] = []

        def passes(execution: Execution, than: Execution) -> bool:
            """Return whether the model runs this way, with the same answers unless the user fixed the precision."""
            what = "compiled" if execution.compiled else f"called in {execution.precision}"
            try:
                answers = [find_logits(_call(module, example, way))[0] for way in (execution, than)]
                trial = agreement(execution)
                trials.extend([] if trial is None else [trial])
                same = execution.compiled and _close(*answers) if trial is None else trial.enough
                if execution.compiled and strict and not same:
                    raise RuntimeError(f"the {what} model gives other answers")
            except Exception as error:
                _log.warning("The model cannot be %s and runs unchanged: %s", what, first_line(error))
                return False
            return same or not strict

        names: tuple[str, ...] = (precision,) if precision not in ("auto", "float32") else ()
        if precision == "auto" and work >= _WORTHWHILE:
            names = native_precisions(example.device)
        lower = (replace(plain, precision=name) for name in names)
        chosen = next((execution for execution in lower if passes(execution, plain)), plain)
        if compiled and passes(replace(chosen, compiled=True), chosen):
            chosen = replace(chosen, compiled=True)
    return chosen, tuple(trials)


def _as_called(module: nn.Module, example: Tensor) -> Tensor:
    weights = next(module.parameters(), None)
    if weights is None:
        return example
    cast = weights.is_floating_point() and not are_tokens(example)
    return example.to(weights.device, weights.dtype if cast else example.dtype)


def _choose_format(module: nn.Module, example: Tensor, memory_format: str | None) -> str:
    convolves = example.dim() == 4 and any(isinstance(part, nn.Conv2d) for part in module.modules())
    if memory_format == "contiguous" or not (memory_format or convolves):
        return "contiguous"
    try:
        _call(module, example, Execution(batch_size=1, memory_format="channels_last"))
    except RuntimeError as error:
        if memory_format or not wants_contiguous(error):
            raise
        return "contiguous"
    return "channels_last"


def _close(answer: Any, expected: Any) -> bool:
    """Return whether two outputs for one input agree closely; True where they are no tensors."""
    if not isinstance(answer, Tensor) or not isinstance(expected, Tensor):
        return True
    return torch.allclose(answer.double(), expected.double(), rtol=1e-2, atol=1e-2)


def _call(module: nn.Module, example: Tensor, execution: Execution) -> Any:
    with evaluating(module), torch.inference_mode():
        return Prepared(module, execution)(example)


def wants_channels_last(model: object) -> bool:
    """Return whether a model is called on images whose channels come last."""
    return isinstance(model, Prepared) and model.execution.memory_format == "channels_last"


def wants_contiguous(error: Exception) -> bool:
    """Return whether a model failed because of the memory format, as by calling `view` on its features."""
    return "view size is not compatible" in str(error) or "contiguous" in str(error)
