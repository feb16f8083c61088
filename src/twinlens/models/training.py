"""Training of small networks, reproducible by seed, for experiments and checks that train their own.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, K classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.errors import first_line
from twinlens.probing.answers import find_logits
from twinlens.probing.execution import using_threads
from twinlens.probing.model_call import (
    Labels,
    best_device,
    blaming,
    check_device,
    evaluating,
    find_device,
)
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.fields import check_types
from twinlens.support.memory import is_out_of_memory
from twinlens.support.randomness import stream

Network = TypeVar("Network", bound=nn.Module)
_ROWS, _LARGE_ROWS = 512, 32  # inputs per call in evaluation, and of those that are made on demand


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of training by Adam on the cross-entropy."""

    epochs: int = 10
    """Passes over all samples."""
    batch_size: int = 64
    """Samples per step."""
    rate: float = 1e-3
    """Learning rate, or the highest of "one_cycle"."""
    weight_decay: float = 0.0
    """Weight of the squared parameters, as Adam adds it to gradients."""
    schedule: Literal["constant", "one_cycle"] = "constant"
    """Course of the learning rate: "constant", or "one_cycle", which rises and falls (Smith 2018)."""
    threads: int | None = 1
    """Threads within one operation of torch; one is best for small batches. None keeps torch's own setting."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        if not self.rate > 0:
            raise ValueError(f"`rate` must be > 0; got {self.rate!r}.")
        if not self.weight_decay >= 0:
            raise ValueError(f"`weight_decay` must be >= 0; got {self.weight_decay!r}.")


USUAL = Training()
"""Ten epochs in small batches."""

PAPER = Training(epochs=35, batch_size=256, weight_decay=1e-4, threads=None)
"""The paper's training on CIFAR (its appendix C)."""


class Batches(ABC):
    """Inputs that are made on demand, batch by batch, because all at once would not fit into memory."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: Tensor) -> Tensor:
        """Return the inputs with these numbers, on the CPU."""


def train(
    build: Callable[[], Network],
    inputs: ArrayLike | Batches,
    labels: Labels,
    *,
    training: Training = USUAL,
    seed: int = 0,
    device: str | torch.device | None = None,
    advance: Callable[[int, int], object] | None = None,
) -> Network:
    """Build a network and train it.

    The initial weights, the order of the samples and random layers such as dropout derive from the seed; torch's
    global generator is restored. On one device the same call returns the same network, in evaluation mode.

    Args:
        build: returns the untrained network.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the network expects them; bytes are scaled to 0 to 1. Or
            `Batches`, which return such inputs by index.
        labels: (N,) classes.
        training: settings.
        seed: random seed.
        device: by default a GPU if there is one.
        advance: called after each epoch with the number of epochs finished and their total.
    """
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"`seed` must have at most 64 bits; got {seed}.")
    source, targets = check_examples(inputs, labels)
    on = check_device(device or best_device(None))
    source, targets = source.to(on) if isinstance(source, Tensor) else source, targets.to(on)
    steps = training.epochs * -(-len(source) // training.batch_size)
    with torch.random.fork_rng(devices=[on] if on.type == "cuda" else []), using_threads(training.threads):
        torch.manual_seed(seed)
        with blaming("build"):
            model, classes = build(), int(targets.max()) + 1
        if not isinstance(model, nn.Module):
            raise TypeError(f"`build` must return an nn.Module; it returned {type(model).__name__}.")
        model = model.to(on).train()
        real = find_device(model, None)[1]
        optimiser = torch.optim.Adam(model.parameters(), lr=training.rate, weight_decay=training.weight_decay)
        cycle = None
        if training.schedule == "one_cycle":
            cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=training.rate, total_steps=steps)
        for epoch in range(training.epochs):
            for batch in torch.split(torch.randperm(len(source)), training.batch_size):
                optimiser.zero_grad()
                answer = _ask(model, _as_values(source[batch].to(on), real), classes)
                loss = nn.functional.cross_entropy(answer, targets[batch.to(on)])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if cycle is not None:
                    cycle.step()
            if advance is not None:
                advance(epoch + 1, training.epochs)
    return model.eval()


def _ask(model: nn.Module, inputs: Tensor, classes: int) -> Tensor:
    try:
        answer = find_logits(model(inputs))[0]
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(
            f"`inputs` of shape {tuple(inputs.shape)} do not fit the network that `build` returns: {first_line(error)}"
        ) from error
    if not isinstance(answer, Tensor) or answer.dim() != 2 or answer.shape[1] < classes:
        what = f"logits of shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(
            f"`labels` have class {classes - 1}, and the network that `build` returns answers with {what}."
        )
    if answer.is_complex():
        raise TypeError(f"`build` must return a network whose answers are real numbers; they are {answer.dtype}.")
    return answer


def recognised(model: nn.Module, inputs: ArrayLike | Batches, labels: Labels) -> NDArray[np.bool_]:
    """Return which inputs (N, C, *S) a network classifies correctly, (N,); bytes are scaled to 0 to 1."""
    source, targets = check_examples(inputs, labels)
    on, real = find_device(model, None)
    correct = []
    with evaluating(model), torch.inference_mode():
        for batch in torch.split(torch.arange(len(source)), _ROWS if isinstance(source, Tensor) else _LARGE_ROWS):
            answer = _ask(model, _as_values(source[batch].to(on), real), 1)
            correct.append(answer.argmax(dim=1).cpu() == targets[batch])
    return torch.cat(correct).numpy()


def accuracy(model: nn.Module, inputs: ArrayLike | Batches, labels: Labels) -> float:
    """Return the share of inputs (N, C, *S) that a network classifies correctly; bytes are scaled to 0 to 1."""
    return float(recognised(model, inputs, labels).mean())


def retraining_seed(seed: int, number: int) -> int:
    """Derive the seed of one of several trainings; the first uses the seed itself."""
    return seed if number == 0 else stream(seed, "retraining", number)


def check_examples(inputs: ArrayLike | Batches, labels: Labels) -> tuple[Tensor | Batches, Tensor]:
    """Return inputs and classes to train on, or refuse those that do not fit each other."""
    source = inputs if isinstance(inputs, Batches) else as_tensor(inputs, "inputs")
    targets = as_tensor(labels, "labels")
    if isinstance(source, Tensor) and not source.ndim:
        raise ValueError("`inputs` must hold one or more inputs; got a single number.")
    if isinstance(source, Tensor) and not source.is_floating_point() and source.dtype != torch.uint8:
        raise TypeError(f"`inputs` must be floating-point, as the network expects them, or bytes; got {source.dtype}.")
    if targets.shape != (len(source),) or targets.is_floating_point() or not len(source):
        raise ValueError(
            f"`labels` must hold one integer for each of the {len(source)} inputs, at least one; got {targets.dtype} "
            f"of shape {tuple(targets.shape)}."
        )
    if int(targets.min()) < 0:
        raise ValueError(f"`labels` must be class indices from 0; got {int(targets.min())}.")
    return source, targets.long()


def _as_values(batch: Tensor, real: torch.dtype | None) -> Tensor:
    # Images stay bytes until they are used: 50,000 of CIFAR take 150 MB, and 600 MB as float32.
    values = batch.float() / 255 if batch.dtype == torch.uint8 else batch
    return values.to(real or values.dtype)
