"""Probing: ask the model about every sample at every level, and write down what it says.

This is the only expensive part of an evaluation. No decision is taken here: metrics are computed from the table
afterwards, because the paper's accuracy mode needs the accuracy of the whole data set at each level.

Shapes: N samples, L levels, F features, K classes, B rows of a batch, each a (sample, level) pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from twinlens.imputation import Imputer, LinearImputer
from twinlens.maps import ArrayLike, as_tensor, check_ids, check_maps, map_kinds, spatial_shape
from twinlens.ordering import Schedule, count_removed, keep_features, kept_mass, rank_features, stream
from twinlens.table import ProbeSettings, ProbeTable

Model = nn.Module | Callable[[Any], Any]
Labels = ArrayLike | Sequence[int] | Sequence[float]

OUTPUTS = ("auto", "logits", "probabilities")
_CHUNK = 16  # samples whose rankings and answers are on the device at a time
_BATCH_VALUES = 5_000_000  # input values per automatic batch: 33 images of 224 × 224 × 3
_ANSWER = ("predicted", "probability", "logit", "target_rank")


def probe(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    schedule: Schedule,
    imputer: Imputer = LinearImputer(),
    sign: str = "error",
    channels: str | None = None,
    output: str = "auto",
    untouched: ProbeTable | None = None,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    progress: bool | Callable[[int], None] = False,
) -> ProbeTable:
    """Removes features by the schedule, imputes them, and records the model's answers.

    Args:
        model: an `nn.Module` or any callable from a batch to logits (B, K). A callable that is not a module is
            given NumPy arrays if `inputs` is one, as scikit-learn's `predict_proba`, and tensors otherwise.
            A regression model gives one value per sample.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the model expects them (normalised).
        labels: (N,) target classes as integers; floating-point labels mean regression.
        maps: attribution maps, (N, *S), (N, 1, *S), or (N, C, *S) with `channels`.
        schedule: which features are removed at which level.
        imputer: what stands in the place of removed features.
        sign: what a negative attribution means: "error", "positive" or "absolute"; see `twinlens.maps`.
        channels: how the channels of the maps are reduced, such as "sum"; see `twinlens.maps`.
        output: "logits" or "probabilities"; "auto" expects probabilities of a callable on NumPy arrays and
            logits of everything else.
        untouched: an earlier table of the same samples with a level that removes nothing; wherever nothing is
            removed, its answers stand, and the model is not asked again.
        ids: one name per sample, by which ties and noise are drawn; 0 … N-1 where none are given.
        seed: seed of ties and noise.
        batch_size: rows per call of the model; chosen by the size of an input where none is given. A batch that
            does not fit into memory is halved.
        device: where to compute; the model's own device where none is given.
        progress: whether to show a progress bar; or a function that is told of every so many finished rows.

    Returns:
        The probe table, one row per sample and level.

    Example:
        >>> def model(x):
        ...     return torch.stack([x.sum(1), -x.sum(1)], dim=1)
        >>> x = torch.tensor([[1.0, 2.0, 3.0]])
        >>> table = probe(model, x, [0], x, imputer=lambda x, keep, streams: x * keep,
        ...               schedule=Schedule(by="area", order="morf", levels=(0.0, 0.4, 0.7)))
        >>> table.logit
        array([[6., 3., 1.]])
    """
    given, names = check_inputs(inputs, ids)
    spatial = spatial_shape(given.shape)
    values = check_maps(maps, spatial, ids=names, sign=sign, channels=channels)
    respondent = _Respondent(
        model,
        targets=check_labels(labels, names),
        ids=names,
        output=output,
        on_numpy=not isinstance(inputs, Tensor),
        device=device,
    )
    settings = ProbeSettings(
        schedule=schedule,
        # The repr of a plain function holds its address, which differs from process to process.
        imputer=getattr(imputer, "__qualname__", repr(imputer)),
        seed=seed,
        spatial=spatial,
        sign=sign,
        channels=channels,
    )
    bar = tqdm(total=len(names) * len(schedule.levels), disable=progress is not True, unit="probe")
    sweep = _Sweep(
        inputs=given,
        maps=values,
        imputer=imputer,
        respondent=respondent,
        settings=settings,
        rows=_check_batch_size(batch_size, given),
        known=None if untouched is None else _untouched_answers(untouched, names),
        advance=progress if callable(progress) else bar.update,
    )
    with evaluating(model), torch.inference_mode(), bar:
        for start in range(0, len(names), _CHUNK):
            sweep.chunk(start)
    return ProbeTable(
        settings=settings,
        ids=names,
        labels=respondent.targets,
        map_kinds=tuple(map_kinds(values)),
        **sweep.columns,
    )


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Puts a module into evaluation mode, and every part of it back into its own mode afterwards."""
    modes = [(part, part.training) for part in model.modules()] if isinstance(model, nn.Module) else []
    if isinstance(model, nn.Module):
        with suppress(NotImplementedError):  # of a program of torch.export, whose mode is that in which it was exported
            model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@dataclass(kw_only=True)
class _Sweep:
    """The loop over samples and levels. It fills `columns`; `rows` shrinks when a batch turns out too large."""

    inputs: Tensor
    maps: Tensor
    imputer: Imputer
    respondent: _Respondent
    settings: ProbeSettings
    rows: int
    known: NDArray[np.float64] | None
    """(N, 4) what the model answers where nothing is removed, if that is known already."""
    advance: Callable[[int], object]

    def __post_init__(self) -> None:
        shape = (len(self.maps), len(self.settings.schedule.levels))
        whole = {"removed", "target_rank"} if self.respondent.regression else {"removed", "target_rank", "predicted"}
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty(shape, dtype=np.int64 if name in whole else np.float64)
            for name in ("removed", "kept_mass", *_ANSWER)
        }

    def chunk(self, start: int) -> None:
        """Probes up to `_CHUNK` samples at all levels."""
        schedule, device = self.settings.schedule, self.respondent.device
        samples = slice(start, start + _CHUNK)
        names, maps = self.respondent.ids[samples], self.maps[samples]
        # float64 is needed for exact sums, and Apple's devices do not have it.
        ranking = rank_features(maps.to("cpu" if device.type == "mps" else device), ids=names, seed=self.settings.seed)
        removed = count_removed(ranking, schedule)
        mass = kept_mass(ranking, removed, schedule.order)
        rank, counts = ranking.rank.to(device), removed.to(device, ranking.rank.dtype)
        inputs = self.inputs[samples].to(device)

        asked = np.ones(removed.shape, dtype=bool) if self.known is None else removed.cpu().numpy() > 0
        pairs = np.argwhere(asked)
        answers = [torch.empty(0, len(_ANSWER), dtype=self.respondent.real, device=device)]
        done = 0
        while done < len(pairs):
            part = pairs[done : done + self.rows]
            try:
                answers.append(self._batch(inputs, rank, counts, part[:, 0], part[:, 1], start))
            except (RuntimeError, MemoryError) as error:
                self._halve(error)
                continue
            done += len(part)
            self.advance(len(part))
        self.advance(asked.size - len(pairs))
        self.columns["removed"][samples] = removed.cpu().numpy()
        self.columns["kept_mass"][samples] = mass.cpu().numpy()
        table = np.empty((*asked.shape, len(_ANSWER)))
        if self.known is not None:
            table[:] = self.known[samples, None]
        table[asked] = torch.cat(answers).to("cpu", torch.float64).numpy()
        self.respondent.check(table, names, schedule.levels)
        for k, name in enumerate(_ANSWER):
            self.columns[name][samples] = table[..., k]

    def _batch(
        self,
        inputs: Tensor,
        rank: Tensor,
        counts: Tensor,
        sample: NDArray[np.int64],
        level: NDArray[np.int64],
        start: int,
    ) -> Tensor:
        """Imputes one batch of (sample, level) pairs and asks the model about it."""
        settings, names = self.settings, self.respondent.ids[start:]
        levels = settings.schedule.levels
        i, m = (torch.from_numpy(index).to(inputs.device) for index in (sample, level))
        # index_select copies rows several times as fast as rank[i] does.
        keep = keep_features(rank.index_select(0, i), counts[i, m], settings.schedule.order)
        keep = keep.reshape(-1, *self.maps.shape[1:])
        streams = [stream(settings.seed, names[a], levels[b]) for a, b in zip(sample, level, strict=True)]
        return self.respondent.ask(self.imputer(inputs.index_select(0, i), keep, streams), i + start)

    def _halve(self, error: Exception) -> None:
        text = str(error).lower()
        if not (isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text):
            raise error
        if self.rows == 1:
            raise MemoryError(
                "One input does not fit into memory, even alone. Use a smaller model or input."
            ) from error
        self.rows //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class _Respondent:
    """The model, called in its own way (tensors or arrays, logits or probabilities), its answers checked."""

    def __init__(
        self,
        model: Model,
        *,
        targets: NDArray[Any],
        ids: tuple[str, ...],
        output: str,
        on_numpy: bool,
        device: str | torch.device | None,
    ) -> None:
        if output not in OUTPUTS:
            raise ValueError(f"`output` must be one of {', '.join(map(repr, OUTPUTS))}; got {output!r}.")
        self.model, self.targets, self.ids = model, targets, ids
        self.on_numpy = on_numpy and not isinstance(model, nn.Module)
        self.probabilities = output == "probabilities" or (output == "auto" and self.on_numpy)
        self.regression = targets.dtype.kind == "f"
        self.device, self.dtype = find_device(model, device)
        self.real = torch.float32 if self.device.type == "mps" else torch.float64
        self.target = torch.from_numpy(targets).to(self.device)
        self.classes: int | None = None

    def ask(self, batch: Tensor, index: Tensor) -> Tensor:
        """Gives (B, 4) for a batch of the samples at `index`: the columns named in `_ANSWER`."""
        if self.on_numpy:
            answer = torch.as_tensor(np.asarray(self.model(batch.numpy())))
        else:
            answer = self.model(batch if self.dtype is None else batch.to(self.dtype))
        if not isinstance(answer, Tensor):
            raise TypeError(
                f"`model` must return a tensor of logits; got {type(answer).__name__}. "
                "Wrap it, as in lambda x: model(x).logits."
            )
        answer = answer.to(self.real)
        if self.regression:
            return self._values(answer, len(batch))
        if answer.dim() != 2 or len(answer) != len(batch) or answer.shape[1] < 2:
            raise ValueError(
                f"`model` must return one row of at least two logits per input; for {len(batch)} inputs it returned "
                f"shape {tuple(answer.shape)}. For a single logit z return [0, z]; for a regression model pass "
                "floating-point labels."
            )
        self._check_classes(answer.shape[1])
        target = self.target[index][:, None]
        if self.probabilities:
            _check_probabilities(answer)
            probability = answer.gather(1, target)
            logit = probability.clamp(min=torch.finfo(self.real).tiny).log()
        else:
            logit = answer.gather(1, target)
            probability = (logit - answer.logsumexp(dim=1, keepdim=True)).exp()
        logit = logit.masked_fill(~answer.isfinite().all(dim=1, keepdim=True), torch.nan)  # refused by `check`
        own = answer.gather(1, target)
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
        outside = np.flatnonzero((self.targets < 0) | (self.targets >= classes))
        if outside.size:
            raise ValueError(
                f"`labels` must lie within 0 … {classes - 1}, the model's classes; sample {self.ids[outside[0]]!r} has "
                f"{self.targets[outside[0]]}, and {outside.size} of {len(self.ids)} labels are outside."
            )

    def check(self, answers: NDArray[np.float64], names: Sequence[str], levels: Sequence[float]) -> None:
        """Refuses answers about whole samples (n, L, 4) that are not finite."""
        bad = np.argwhere(~np.isfinite(answers[..., _ANSWER.index("predicted" if self.regression else "logit")]))
        if bad.size:
            sample, level = bad[0]
            raise ValueError(
                f"`model` returned NaN or infinity for sample {names[sample]!r} at level {levels[level]:g}. Check the "
                "normalisation of `inputs`, and the model in float32."
            )


def find_device(model: Model, device: str | torch.device | None) -> tuple[torch.device, torch.dtype | None]:
    """Gives the device to compute on and the floating-point type of the model's weights, if it has any."""
    wanted = None if device is None else torch.device(device)
    if not isinstance(model, nn.Module):
        return wanted or torch.device("cpu"), None
    weights = list(chain(model.parameters(), model.buffers()))
    floating = next((w.dtype for w in weights if w.is_floating_point()), None)
    if not weights:
        return wanted or torch.device("cpu"), floating
    own = weights[0].device
    if wanted is not None and (wanted.type != own.type or wanted.index not in (None, own.index)):
        raise ValueError(
            f"`device` is {str(wanted)!r}, but the model is on {str(own)!r}. Call model.to({str(wanted)!r})."
        )
    return own, floating


def check_inputs(inputs: ArrayLike, ids: Sequence[str | int] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Gives inputs as a tensor, floating-point and finite, and the ids of the samples as strings."""
    given = as_tensor(inputs, "inputs")
    if not given.is_floating_point():
        raise TypeError(f"`inputs` must be floating-point, normalised as the model expects; got {given.dtype}.")
    spatial_shape(given.shape)  # refuses what is empty
    names = check_ids(ids, len(given))
    for name, sample in zip(names, given, strict=True):
        if not torch.isfinite(sample).all():
            raise ValueError(f"`inputs` must be finite; sample {name!r} contains NaN or infinity.")
    return given, names


def check_labels(labels: Labels, ids: Sequence[str]) -> NDArray[Any]:
    """Gives one label per sample, as int64, or as float64 for regression."""
    targets = as_tensor(labels, "labels").cpu().numpy()
    if targets.shape != (len(ids),):
        raise ValueError(
            f"`labels` must hold one number for each of the {len(ids)} samples; got shape {targets.shape}. "
            "Of one-hot labels take argmax(1)."
        )
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        first = ids[int(np.flatnonzero(~np.isfinite(targets))[0])]
        raise ValueError(f"`labels` must be finite; that of sample {first!r} is not.")
    return targets.astype(np.float64 if targets.dtype.kind == "f" else np.int64)


def _untouched_answers(table: ProbeTable, ids: tuple[str, ...]) -> NDArray[np.float64]:
    """Gives the answers (N, 4) of a table where nothing was removed."""
    whole = np.flatnonzero((table.removed == 0).all(axis=0))
    if table.ids != ids or not whole.size:
        raise ValueError("`untouched` must hold the same samples in the same order, at a level that removes nothing.")
    return np.stack([getattr(table, name)[:, whole[0]] for name in _ANSWER], axis=1).astype(np.float64)


def _check_batch_size(batch_size: int | None, inputs: Tensor) -> int:
    if batch_size is None:
        return max(1, min(4096, _BATCH_VALUES // inputs[0].numel()))
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1; got {batch_size}.")
    return int(batch_size)


def _check_probabilities(answer: Tensor) -> None:
    total = answer.sum(dim=1)
    if bool((answer < 0).any()) or bool(((total - 1).abs() > 1e-3).any()):
        raise ValueError(
            "`model` must return probabilities, >= 0 and summing to 1 in each row; it returned something else. "
            "If these are logits, pass output='logits'."
        )
