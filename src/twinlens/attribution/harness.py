"""What all attribution methods share: a checked request, an unchanged model, batches, and the final maps.

`AttributionMethod` in method.py puts these around every method.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, M baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.probing.answers import advise_on_shape, answering_logits
from twinlens.probing.execution import choose_batch, wants_contiguous
from twinlens.probing.maps import SIGNS
from twinlens.probing.model_call import (
    Labels,
    Model,
    check_inputs,
    check_labels,
    evaluating,
    find_device,
    handing_copies,
)
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.fields import check_count
from twinlens.support.randomness import stream

_LEAST, _MOST, _MOST_ROWS = 1e-12, 10**6, 2**31  # of numbers; of steps, masks, …; of inputs per call


@dataclass(frozen=True, kw_only=True)
class Request:
    """Samples to explain, on the model's device and in the type of its weights."""

    inputs: Tensor
    """(B, C, *S), or (B, D) for tabular rows."""
    targets: Tensor
    """(B,) int64, the classes to explain."""
    ids: tuple[str, ...]
    """One name per sample; random draws derive from `seed` and the name."""
    seed: int
    batch_size: int
    """Inputs per call of the model."""
    arrays: bool = False
    """Whether inputs were passed as NumPy arrays; a model that is not a module gets them as such."""
    tokens: bool = False
    """Whether inputs are token ids (B, T) or (B, 2, T) as floating-point numbers, each token a feature."""

    def __len__(self) -> int:
        return len(self.ids)

    def generators(self, *purpose: str | float) -> list[torch.Generator]:
        """Return one generator per sample, on the CPU: draws are the same on every device."""
        return [torch.Generator().manual_seed(stream(self.seed, name, *purpose)) for name in self.ids]

    def normal(self, shape: Sequence[int], *purpose: str | float) -> Tensor:
        """Draw standard normal numbers (B, *shape), each sample's from its own generator."""
        draws = [torch.randn(tuple(shape), generator=g) for g in self.generators(*purpose)]
        return torch.stack(draws).to(self.inputs)

    def split(self, samples: int) -> list[Request]:
        """Return batches of that many samples, in order; the last may have fewer."""
        parts = [slice(start, start + samples) for start in range(0, len(self), samples)]
        return [replace(self, inputs=self.inputs[s], targets=self.targets[s], ids=self.ids[s]) for s in parts]


def make_request(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None,
    seed: int,
    batch_size: int | None = None,
) -> Request:
    """Check the samples to explain and move them to the model's device and type."""
    values, names = check_inputs(inputs, ids)
    classes = check_labels(targets, names, "targets")
    if classes.dtype.kind == "f":
        raise TypeError("`targets` must be integers, the classes to explain; got floating-point numbers.")
    device, dtype = find_device(model, None)
    cast = values.to(device=device, dtype=dtype or values.dtype)
    if torch.finfo(cast.dtype).max < torch.finfo(values.dtype).max and not cast.isfinite().all():
        raise ValueError(f"`inputs` must be finite as {cast.dtype}, the type of the model's weights; some are not.")
    return Request(
        inputs=cast,
        targets=torch.from_numpy(classes).to(device),
        ids=names,
        seed=seed,
        batch_size=batch_size or choose_batch(values[0], device),
        arrays=not isinstance(inputs, Tensor),
    )


def check_reference(values: ArrayLike, name: str, inputs: Tensor) -> Tensor:
    """Return other inputs (M, …), such as baselines; each must have the shape of one input.

    A single channel may be left out, as where the channels of inputs are taken for positions.
    """
    others = as_tensor(values, name)
    if inputs.shape[1] == 1 and others.shape[1:] == inputs.shape[2:]:
        others = others[:, None]
    if others.shape[1:] != inputs.shape[1:] or len(others) == 0:
        raise ValueError(
            f"`{name}` must hold inputs of shape {tuple(inputs.shape[1:])}, as `inputs`; got shape "
            f"{tuple(others.shape)}."
        )
    return _check_finite(others.to(inputs), name)


def like_one_input(values: float | ArrayLike, name: str, inputs: Tensor) -> Tensor:
    """Return a number, or an array that fits one input, in the shape of one input."""
    fitting = _check_finite(as_tensor(values, name).to(inputs), name)
    try:
        return fitting.expand(inputs.shape[1:])
    except RuntimeError as error:
        raise ValueError(
            f"`{name}` must be a number or fit one input {tuple(inputs.shape[1:])}; got shape {tuple(fitting.shape)}."
        ) from error


def absent_values(given: float | ArrayLike | None, name: str, reference: ArrayLike | None, inputs: Tensor) -> Tensor:
    """Return what takes the place of absent features, shaped like one input: as given, the reference's mean, or 0."""
    if given is None and reference is not None:
        return check_reference(reference, "reference", inputs[:1].double()).mean(dim=0).to(inputs)
    return like_one_input(0.0 if given is None else given, name, inputs)


def _check_finite(values: Tensor, name: str) -> Tensor:
    if not values.isfinite().all():
        raise ValueError(f"`{name}` must be finite as {values.dtype}; it holds NaN or infinity.")
    return values


def at_least_one(**counts: int) -> None:
    """Refuse a count below 1, or beyond what can be done, by its name."""
    for name, value in counts.items():
        check_count(name, value, _MOST_ROWS if name == "batch_size" else _MOST)


def check_numbers(options: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse counts below one, and numbers out of range, among options of the types that a method declares."""
    for name, value in options.items():
        if value is not None and kinds.get(name) in (int, int | None) and name != "seed":
            at_least_one(**{name: value})
        if isinstance(value, float) and kinds.get(name) in (float, float | None):
            least = -_MOST if name == "baseline" else 0
            if not least <= value <= _MOST or 0 < abs(value) < _LEAST:
                raise ValueError(f"`{name}` must lie within [{least}, {_MOST}], 0 or beyond {_LEAST:g}; got {value!r}.")


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode without gradients of its weights; restore modes and gradients after."""
    weights = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    with evaluating(model), answering_logits(model), handing_copies(model):
        for weight, _, _ in weights:
            weight.requires_grad_(False)
        try:
            yield
        finally:
            for weight, trains, gradient in weights:
                weight.requires_grad_(trains)
                weight.grad = gradient


@contextmanager
def hooked(modules: Iterable[nn.Module], hook: Callable[[nn.Module, Any, Any], Any]) -> Iterator[None]:
    """Call a forward hook of modules within this context."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def in_batches(
    model: Model, request: Request, explain: Callable[[Request], Sequence[Tensor]], sign: str
) -> list[Tensor]:
    """Return maps (N, *S) in float32 of each explanation that `explain` makes of one batch."""
    batches = []
    with ExitStack() as stack:
        if isinstance(model, nn.Module):
            stack.callback(model.register_forward_pre_hook(_channels_last).remove)
        for batch in request.split(request.batch_size):
            try:
                explanations = explain(batch)
            except RuntimeError as error:
                if not wants_contiguous(error):
                    raise
                stack.close()
                explanations = explain(batch)
            batches.append([_finite_maps(to_maps(each, batch.inputs, sign), batch) for each in explanations])
    return [torch.cat(maps) for maps in zip(*batches, strict=True)]


def _finite_maps(maps: Tensor, batch: Request) -> Tensor:
    finite = maps.flatten(1).isfinite().all(dim=1)
    if not finite.all():
        first = batch.ids[int((~finite).nonzero()[0])]
        raise ValueError(
            f"`model` leads to NaN or infinity in the map of sample {first!r}: its answers or their gradients "
            "are not finite. Check the normalisation of `inputs`, and the model in float32."
        )
    return maps


def _channels_last(_: nn.Module, arguments: tuple[object, ...]) -> tuple[object, ...] | None:
    """Lay images out with their channels last in memory on the CPU, where convolutions are faster that way."""
    images = arguments[0] if arguments else None
    if not isinstance(images, Tensor) or images.dim() != 4 or images.device.type != "cpu":
        return None
    return images.contiguous(memory_format=torch.channels_last), *arguments[1:]


def to_maps(attributions: Tensor, inputs: Tensor, sign: str = "positive") -> Tensor:
    """Sum channels, and drop negative values unless they are `signed`."""
    values = attributions.detach()
    if inputs.dim() > 2 and values.dim() == inputs.dim():
        values = values.sum(dim=1)
    return SIGNS[sign](values).float()


def target_logits(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the logit (B,) of each sample's target class; refuse an output that is not logits of enough classes."""
    logits = model(inputs)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(inputs):
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"`model` must return logits (samples, classes); for {len(inputs)} inputs it returned {shape}."
            f"{advise_on_shape(logits)}"
        )
    least, most = int(targets.min()), int(targets.max())
    if least < 0 or most >= logits.shape[1]:
        raise ValueError(
            f"`targets` must lie within 0 … {logits.shape[1] - 1}, the model's classes; got {least} to {most}."
        )
    return logits.gather(1, targets[:, None])[:, 0]
