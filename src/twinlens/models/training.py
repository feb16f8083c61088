"""Training: small networks, the same under the same seed, for experiments and metrics that train their own.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, K classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.errors import first_line
from twinlens.probing.execution import using_threads
from twinlens.probing.model_call import (
    Labels,
    best_device,
    blaming,
    check_device,
    evaluating,
    find_device,
    is_out_of_memory,
)
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.fields import check_types
from twinlens.support.randomness import stream

Network = TypeVar("Network", bound=nn.Module)
SCHEDULES = ("constant", "one_cycle")
_ASKED, _ASKED_LARGE = 512, 32  # inputs per call where nothing is learned, and of those that are made on demand


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of training by Adam on the cross-entropy.

    Example:
        >>> Training(epochs=35, batch_size=256, weight_decay=1e-4).rate
        0.001
    """

    epochs: int = 10
    """How often every sample is seen."""

    batch_size: int = 64
    """Samples per step."""

    rate: float = 1e-3
    """Learning rate, or the highest of "one_cycle"."""

    weight_decay: float = 0.0
    """Weight of the squared parameters, as Adam adds it to gradients."""

    schedule: str = "constant"
    """Course of the learning rate: "constant", or "one_cycle", which rises and falls (Smith 2018)."""

    threads: int | None = 1
    """Threads within one operation of torch; small batches are too small for more than one. None leaves torch as it
    is."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        if not self.rate > 0:
            raise ValueError(f"`rate` must be > 0; got {self.rate!r}.")
        if not self.weight_decay >= 0:
            raise ValueError(f"`weight_decay` must be >= 0; got {self.weight_decay!r}.")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"`schedule` must be one of {', '.join(map(repr, SCHEDULES))}; got {self.schedule!r}.")


USUAL = Training()
"""Ten epochs in small batches."""

PAPER = Training(epochs=35, batch_size=256, weight_decay=1e-4, threads=None)
"""The paper's training on CIFAR (its appendix C)."""


class Batches(ABC):
    """Inputs that are made when they are asked for, batch by batch, where all at once would not fit into memory."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of inputs."""

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

    The initial weights, the order of the samples and what the network draws itself, as in dropout, all come from the
    seed; torch's own generator is left as it was. On one device the same call returns the same network.

    Args:
        build: returns the untrained network.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the network expects them; bytes stand for 0 to 1. Or
            `Batches`, which return such inputs by their numbers.
        labels: (N,) classes.
        training: epochs, batches, learning rate and schedule.
        seed: seed of everything random.
        device: where to train: cpu, cuda, cuda:1, …; a GPU where there is one by default.
        advance: called after each epoch with the number of epochs finished and their total.

    Returns:
        The network on that device, in evaluation mode.

    Example:
        >>> x = torch.tensor([[-1.0], [1.0]]).repeat(32, 1)
        >>> model = train(lambda: nn.Linear(1, 2), x, [0, 1] * 32, training=Training(epochs=5, rate=0.1))
        >>> accuracy(model, x, [0, 1] * 32)
        1.0
    """
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"`seed` must have at most 64 bits; got {seed}.")
    given, targets = _check(inputs, labels)
    place = check_device(device or best_device(None))
    given, targets = given.to(place) if isinstance(given, Tensor) else given, targets.to(place)
    steps = training.epochs * -(-len(given) // training.batch_size)
    with _seeded(seed, place), using_threads(training.threads):
        with blaming("build"):
            model = build()
        if not isinstance(model, nn.Module):
            raise TypeError(f"`build` must return an nn.Module; it returned {type(model).__name__}.")
        model = model.to(place).train()
        real = find_device(model, None)[1]
        optimiser = torch.optim.Adam(model.parameters(), lr=training.rate, weight_decay=training.weight_decay)
        cycle = (
            torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=training.rate, total_steps=steps)
            if training.schedule == "one_cycle"
            else None
        )
        for epoch in range(training.epochs):
            for batch in torch.split(torch.randperm(len(given)), training.batch_size):
                optimiser.zero_grad()
                answer = _ask(model, _as_values(given[batch].to(place), real))
                loss = nn.functional.cross_entropy(answer, targets[batch.to(place)])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                if cycle is not None:
                    cycle.step()
            if advance is not None:
                advance(epoch + 1, training.epochs)
    return model.eval()


def _ask(model: nn.Module, inputs: Tensor) -> Tensor:
    try:
        answer: Tensor = model(inputs)
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(
            f"`inputs` of shape {tuple(inputs.shape)} do not fit the network that `build` returns: {first_line(error)}"
        ) from error
    return answer


def recognised(model: nn.Module, inputs: ArrayLike | Batches, labels: Labels) -> NDArray[np.bool_]:
    """Tell of each input (N, C, *S) whether a network classifies it correctly, (N,); bytes stand for 0 to 1.

    Example:
        >>> recognised(nn.Identity(), torch.eye(3), [0, 1, 1])
        array([ True,  True, False])
    """
    given, targets = _check(inputs, labels)
    place, real = find_device(model, None)
    found = []
    with evaluating(model), torch.inference_mode():
        for batch in torch.split(torch.arange(len(given)), _ASKED if isinstance(given, Tensor) else _ASKED_LARGE):
            found.append(model(_as_values(given[batch].to(place), real)).argmax(dim=1).cpu() == targets[batch])
    return torch.cat(found).numpy()


def accuracy(model: nn.Module, inputs: ArrayLike, labels: Labels) -> float:
    """Measure the share of inputs (N, C, *S) that a network classifies correctly; bytes stand for 0 to 1.

    Example:
        >>> accuracy(nn.Identity(), torch.eye(3), [0, 1, 1])
        0.6666666666666666
    """
    return float(recognised(model, inputs, labels).mean())


def retraining_seed(seed: int, number: int) -> int:
    """Derive the seed of one of several trainings; the first has the seed itself.

    Example:
        >>> retraining_seed(7, 0), retraining_seed(7, 1) == retraining_seed(8, 1)
        (7, False)
    """
    return seed if number == 0 else stream(seed, "retraining", number)


def _check(inputs: ArrayLike | Batches, labels: Labels) -> tuple[Tensor | Batches, Tensor]:
    given = inputs if isinstance(inputs, Batches) else as_tensor(inputs, "inputs")
    targets = as_tensor(labels, "labels")
    if isinstance(given, Tensor) and not given.is_floating_point() and given.dtype != torch.uint8:
        raise TypeError(f"`inputs` must be floating-point, as the network expects them, or bytes; got {given.dtype}.")
    if targets.shape != (len(given),) or targets.is_floating_point() or not len(given):
        raise ValueError(
            f"`labels` must hold one integer for each of the {len(given)} inputs, of which there must be some; got "
            f"{targets.dtype} of shape {tuple(targets.shape)}."
        )
    return given, targets.long()


def _as_values(batch: Tensor, real: torch.dtype | None) -> Tensor:
    # Images stay bytes until they are needed: 50,000 of CIFAR's take 150 MB so, and 600 MB as numbers.
    values = batch.float() / 255 if batch.dtype == torch.uint8 else batch
    return values.to(real or values.dtype)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, and restore its generators afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
