"""How a model is called: its device and mode, its checked inputs and labels, and the meaning of its outputs.

Shapes: N samples, K classes, B rows of a batch, L levels.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.errors import first_line, unknown
from twinlens.probing.answers import (
    REGRESSION,
    SINGLE,
    Target,
    advise_on_shape,
    as_two,
    find_logits,
    score_of,
    task_of,
    warn_of_softmax,
)
from twinlens.probing.label_advice import label_advice
from twinlens.probing.maps import check_ids, spatial_shape
from twinlens.probing.tokens import are_tokens
from twinlens.support.arrays import ArrayLike, as_array, as_tensor, check_dense
from twinlens.support.memory import is_out_of_memory

Model = nn.Module | Callable[[Any], Any]
Labels = ArrayLike | Sequence[int] | Sequence[float]

OUTPUTS = ("auto", "logits", "probabilities", "multi_label")
ANSWER = ("predicted", "probability", "logit", "target_rank")
"""The columns recorded for each answer."""
_NAMED = re.compile(r"`\w+`")
_IN_PLACE = WeakSet[nn.Module]()  # models that were warned of


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Put a module into evaluation mode, and restore the mode of each of its parts afterwards."""
    training = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    if training and isinstance(model, nn.Module):
        with suppress(NotImplementedError):  # programs of torch.export have a fixed mode
            model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def handing_copies(model: Model) -> Iterator[None]:
    """Protect inputs from a model that works in place: it gets a copy of the first batch, or of all."""
    in_place: bool | None = None
    copies: list[Tensor] = []

    def copy_input(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if in_place is False or not arguments or not isinstance(arguments[0], Tensor):
            return None
        # Tensors made in inference mode count no changes.
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            copies[:] = [arguments[0].clone()]
        return copies[0], *arguments[1:]

    def look(module: nn.Module, arguments: Any, _: Any) -> None:
        nonlocal in_place
        if in_place is None and copies:  # another hook may have copied the copy
            in_place = any(each._version > 0 for each in (copies[0], arguments[0]) if not each.is_inference())
            if in_place and module not in _IN_PLACE:
                _IN_PLACE.add(module)
                warnings.warn("`model` changes its inputs in place, and is called with copies of them.", stacklevel=2)
        copies.clear()

    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):  # which take no hooks
        yield
        return
    handles = [model.register_forward_pre_hook(copy_input), model.register_forward_hook(look)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def refusing_exit(argument: str) -> Iterator[None]:
    """Turn a call of sys.exit in the caller's code into an error that names the argument."""
    try:
        yield
    except SystemExit as error:
        raise ValueError(
            f"`{argument}` called sys.exit({error.code!r}), which would end the whole program. Let it raise an "
            "exception instead."
        ) from error


@contextmanager
def blaming(argument: str) -> Iterator[None]:
    """Turn errors of the caller's code into errors that name the argument.

    Errors that name an argument are passed on, as are those of files and memory, which have other remedies.
    """
    try:
        with refusing_exit(argument):
            yield
    except (OSError, MemoryError, Warning):
        raise
    except Exception as error:
        if is_out_of_memory(error) or (isinstance(error, (ValueError, TypeError)) and _NAMED.match(str(error))):
            raise
        message = first_line(error).rstrip(".")
        raise ValueError(f"`{argument}` raised {type(error).__name__}: {message}.") from error


class Respondent:
    """A model with its calling convention (tensors or arrays, logits or probabilities); its outputs are checked."""

    def __init__(
        self,
        model: Model,
        *,
        labels: NDArray[Any],
        ids: tuple[str, ...],
        output: str,
        on_numpy: bool,
        device: str | torch.device | None,
        target: Target | None = None,
    ) -> None:
        if output not in OUTPUTS:
            raise unknown("output", output, OUTPUTS)
        self.model, self.ids, self.target = model, ids, target
        self.labels = labels if target is None else labels.astype(np.float64)
        self.on_numpy = on_numpy and not isinstance(model, nn.Module)
        self.probabilities = output == "probabilities" or (output == "auto" and self.on_numpy)
        self.multi_label = output == "multi_label"
        self.undeclared = output == "auto" and not self.probabilities
        self.regression = task_of(self.labels) == REGRESSION
        self.device, self.dtype = find_device(model, device)
        self.real = torch.float32 if self.device.type == "mps" else torch.float64
        self.label = torch.from_numpy(self.labels).to(self.device)
        self.classes: int | None = None

    def take(self, rows: Sequence[int]) -> Respondent:
        """Return the same model for some of the samples."""
        part, index = copy.copy(self), list(rows)
        part.ids, part.labels = tuple(self.ids[row] for row in index), self.labels[index]
        part.label = self.label[index]
        return part

    def ask(self, batch: Tensor, index: Tensor) -> Tensor:
        """Call the model on a batch of the samples at `index`; return (B, 4), the columns named in `ANSWER`."""
        with blaming("model"):
            if self.on_numpy:
                answer = torch.as_tensor(np.asarray(self.model(batch.numpy())))
            else:
                answer = self.model(batch if self.dtype is None or are_tokens(batch) else batch.to(self.dtype))
        if self.target is not None:
            with blaming("target"):
                answer = score_of(answer, self.target, len(batch))
        answer, where = find_logits(answer)
        if not isinstance(answer, Tensor):
            raise TypeError(
                f"`model` must return a tensor of logits, or an object that has them as `logits` or as its first item; "
                f"got {type(answer).__name__}. Wrap it, as in lambda x: model(x).scores."
            )
        answer = check_real(check_dense(answer, "model")).to(self.real)
        if self.regression:
            return self._values(answer, len(batch))
        if where.endswith(SINGLE) and len(answer) == len(batch) and np.isin(self.labels, (0, 1)).all():
            one = answer.reshape(-1)
            answer = torch.stack([1 - one, one], dim=1) if self.probabilities else as_two(one)
        if answer.dim() != 2 or len(answer) != len(batch) or answer.shape[1] < 2:
            raise ValueError(
                f"`model` must return one row of at least two logits per input; for {len(batch)} inputs it returned "
                f"shape {tuple(answer.shape)}."
                + (
                    advise_on_shape(answer)
                    or " For a single logit of two classes pass labels 0 and 1; for a regression model pass "
                    "floating-point labels."
                )
            )
        if self.classes is None and self.undeclared:
            warn_of_softmax(answer)
        self._check_classes(answer.shape[1])
        target = self.label[index][:, None]
        own = answer.gather(1, target)
        if self.multi_label:
            absent = own <= 0  # class -1 is then predicted
            return torch.cat([torch.where(absent, -1, target), own.sigmoid(), own, absent], dim=1)
        if self.probabilities:
            _check_probabilities(answer)
            probability, logit = own, own.clamp(min=torch.finfo(self.real).tiny).log()
        else:
            probability, logit = (own - answer.logsumexp(dim=1, keepdim=True)).exp(), own
        logit = logit.masked_fill(~answer.isfinite().all(dim=1, keepdim=True), torch.nan)  # refused by `check`
        # A class of equal score but lower index comes first, as for argmax.
        earlier = torch.arange(answer.shape[1], device=self.device) < target
        rank = ((answer > own) | ((answer == own) & earlier)).sum(dim=1, keepdim=True)
        return torch.cat([answer.argmax(dim=1, keepdim=True), probability, logit, rank], dim=1)

    def _values(self, answer: Tensor, count: int) -> Tensor:
        if answer.shape not in ((count,), (count, 1)):
            raise ValueError(
                f"`model` must return one value per input, because `labels` are floating-point; for {count} inputs it "
                f"returned shape {tuple(answer.shape)}. For classification pass integer labels."
            )
        nothing = torch.full((count, 1), torch.nan, dtype=self.real, device=self.device)
        return torch.cat([answer.reshape(-1, 1), nothing, nothing, torch.full_like(nothing, -1)], dim=1)

    def _check_classes(self, classes: int) -> None:
        if self.classes == classes:
            return
        self.classes = classes
        outside = np.flatnonzero((self.labels < 0) | (self.labels >= classes))
        if outside.size:
            raise ValueError(
                f"`labels` must lie within 0 … {classes - 1}, the model's classes; sample {self.ids[outside[0]]!r} has "
                f"{self.labels[outside[0]]}, and {outside.size} of {len(self.ids)} labels are outside."
            )

    def check(self, answers: NDArray[np.float64], names: Sequence[str], levels: Sequence[float]) -> None:
        """Refuse answers (n, L, 4) that are not finite."""
        bad = np.argwhere(~np.isfinite(answers[..., ANSWER.index("predicted" if self.regression else "logit")]))
        if bad.size:
            sample, level = bad[0]
            raise ValueError(
                f"`model` returned NaN or infinity for sample {names[sample]!r} at level {levels[level]:g}. Check the "
                "normalisation of `inputs`, and the model in float32."
            )


def check_real(answer: Tensor) -> Tensor:
    """Refuse complex outputs of a model, of which torch would keep the real part."""
    if answer.is_complex():
        raise TypeError(f"`model` must return real numbers; got {answer.dtype}. Return their absolute or real values.")
    return answer


def best_device(device: str | None) -> str:
    """Return the requested device, by default a GPU if one is available."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(check_device(device))


def check_device(device: str | torch.device) -> torch.device:
    """Return a device; refuse one that torch does not support or that is not available.

    Example:
        >>> check_device("gpu")
        Traceback (most recent call last):
            ...
        ValueError: `device` must be an available one, such as 'cpu' or 'cuda:1'; got 'gpu'.
    """
    try:
        checked = torch.device(device)
        # Allocating memory is the only test that works for every kind of device.
        usable = checked.type != "meta" and torch.empty(1, device=checked).device.type == checked.type
    except (RuntimeError, AssertionError, TypeError, NotImplementedError, ImportError):
        usable = False
    if not usable:
        raise ValueError(f"`device` must be an available one, such as 'cpu' or 'cuda:1'; got {str(device)!r}.")
    return checked


def find_device(model: Model, device: str | torch.device | None) -> tuple[torch.device, torch.dtype | None]:
    """Return the device to compute on and the floating-point type of the model's weights, if it has any."""
    requested = None if device is None else check_device(device)
    if not isinstance(model, nn.Module):
        if not callable(model):
            loaded = isinstance(getattr(model, "module", None), nn.Module)
            remedy = " Pass its `module`, and inputs as that expects them." if loaded else ""
            raise TypeError(f"`model` must be an nn.Module or a function; got {type(model).__name__}.{remedy}")
        return requested or torch.device("cpu"), None
    weights = list(chain(model.parameters(), model.buffers()))
    floating = next((w.dtype for w in weights if w.is_floating_point()), None)
    if not weights:
        return requested or torch.device("cpu"), floating
    own = weights[0].device
    if own.type == "meta":
        raise ValueError("`model` must have its weights in memory; they are on device meta. Load them.")
    if requested is not None and (requested.type != own.type or requested.index not in (None, own.index)):
        raise ValueError(
            f"`device` is {str(requested)!r}, but the model is on {str(own)!r}. Call model.to({str(requested)!r})."
        )
    return own, floating


def check_inputs(
    inputs: ArrayLike, ids: Sequence[str | int] | None, *, tokens: bool = False
) -> tuple[Tensor, tuple[str, ...]]:
    """Return inputs as a tensor, floating-point and finite, and the ids of the samples as strings.

    With `tokens`, they may also be token ids (N, T) or (N, C, T).
    """
    values = as_tensor(inputs, "inputs")
    if not values.is_floating_point() and not (tokens and are_tokens(values)):
        raise TypeError(f"`inputs` must be floating-point, normalised as the model expects; got {values.dtype}.")
    spatial_shape(values.shape)  # refuses empty inputs
    names = check_ids(ids, len(values))
    for name, sample in zip(names, values, strict=True):
        if not torch.isfinite(sample).all():
            raise ValueError(f"`inputs` must be finite; sample {name!r} contains NaN or infinity.")
    return values, names


def check_labels(labels: Labels, ids: Sequence[str], name: str = "labels") -> NDArray[Any]:
    """Return one label per sample, as int64, or as float64 for regression; errors call them `name`."""
    targets = as_array(labels, name)
    if targets.shape == (len(ids), 1):
        targets = targets.reshape(-1)
    if targets.shape != (len(ids),):
        raise ValueError(
            f"`{name}` must hold one number for each of the {len(ids)} samples; got shape {targets.shape}."
            f"{label_advice(labels, len(ids), name)}"
        )
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        first = ids[int(np.flatnonzero(~np.isfinite(targets))[0])]
        raise ValueError(f"`{name}` must be finite; that of sample {first!r} is not.")
    return targets.astype(np.float64 if targets.dtype.kind == "f" else np.int64)


def _check_probabilities(answer: Tensor) -> None:
    total = answer.sum(dim=1)
    if bool((answer < 0).any()) or bool(((total - 1).abs() > 1e-3).any()):
        raise ValueError(
            "`model` must return probabilities, >= 0 and summing to 1 in each row; it returned something else. "
            "If these are logits, pass output='logits'."
        )
