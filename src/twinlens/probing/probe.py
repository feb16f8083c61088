"""Probing: call the model on every sample at every level, and record its answers.

This is the only expensive part of an evaluation. No decision is made here: metrics read the table afterwards.

Shapes: N samples, L levels, F features, B rows of a batch, each a (sample, level) pair.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.imputation.imputers import Imputer, LinearImputer, TokenImputer, check_imputed, find_imputer, takes_tokens
from twinlens.probing.answers import Target
from twinlens.probing.execution import choose_batch, wants_channels_last
from twinlens.probing.maps import PARTS, Features, Reading, check_maps, feature_shape, map_kinds, warn_of_zeros
from twinlens.probing.model_call import (
    ANSWER,
    Labels,
    Model,
    Respondent,
    blaming,
    check_inputs,
    check_labels,
    evaluating,
)
from twinlens.probing.probe_table import ProbeSettings, ProbeTable
from twinlens.probing.ranking import (
    Ranking,
    Schedule,
    check_segments,
    count_removed,
    keep_features,
    kept_mass,
    rank_features,
    unranked,
)
from twinlens.probing.shap_values import contributions_to_targets, is_explanation, read_contributions
from twinlens.probing.tokens import are_tokens, called_with_tokens, pack_tokens
from twinlens.support.arguments import checked, fill_options
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.fields import Default, check_count
from twinlens.support.memory import is_out_of_memory, keeps_freed_memory, teach_allocator
from twinlens.support.progress import Progress, shown_progress
from twinlens.support.randomness import stream
from twinlens.support.signatures import lists_options

_CHUNK, _CHUNK_FEATURES = 16, 2**24  # samples whose rankings are on the device at a time, and their features
_MOST_ROWS = 2**31
_KEPT_RANKS = 2**25  # features whose ranks are kept from one sweep to the next: 400 MB, two images of 4096 × 4096


class ProbeOptions(TypedDict, total=False):
    """How maps are read and how the model is called, for every function that probes a model."""

    sign: Annotated[Literal["error", "positive", "absolute", "signed"], Default("error")]
    """What a negative attribution means: "error" refuses it, "positive" drops it, "absolute" takes magnitudes. "signed"
    keeps it for metrics with evidence="against"; the others drop it."""

    channels: Annotated[Literal["sum", "mean", "max", "absolute_sum", "norm"] | None, Default(None)]
    """How the channels of maps (N, C, *S) are reduced: "sum", "mean", "max", "absolute_sum" or "norm"."""

    resize: Annotated[Literal["bilinear", "nearest"] | None, Default(None)]
    """How maps of another size are brought to that of the inputs: "bilinear" or "nearest"; refused by default."""

    output: Annotated[str, Default("auto")]
    """What the model returns: "logits", "probabilities", or "multi_label", an independent logit for each class, where
    labels name the explained class; "auto" expects probabilities of a callable on NumPy arrays and logits otherwise."""

    target: Annotated[Target | None, Default(None)]
    """A function from the model's output to one score per sample, for detection, segmentation and other tasks without
    a class. Labels are then ignored, and `performance` is "score"."""

    features: Annotated[Features, Default("positions")]
    """What a feature is: a position with all of its channels, or with "channels" one channel of a position, such as one
    lead of an ECG at one moment. Maps are then (N, C, *S), and a value is imputed from its own channel."""

    segments: Annotated[ArrayLike | None, Default(None)]
    """(N, *S) integers that join positions of a map into features, such as superpixels or words. The value of a segment
    is the mean of its positions, levels count segments, and each is imputed as a whole. Positions with a negative
    number are no features and always stay. By default each position is a feature."""

    ids: Annotated[Sequence[str | int] | None, Default(None)]
    """One name per sample, by which ties and noise are drawn; 0 … N-1 by default."""

    seed: Annotated[int, Default(0)]
    """Seed of ties and noise."""

    batch_size: Annotated[int | None, Default(None)]
    """Rows per call of the model; chosen by input size and device by default. A batch that does not fit into memory is
    halved."""

    device: Annotated[str | torch.device | None, Default(None)]
    """Where to compute; the model's own device by default."""

    progress: Annotated[bool | Progress, Default(False)]
    """Show a progress bar, or pass an object that receives the progress."""


@checked
@lists_options
def probe(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    maps: ArrayLike,
    *,
    schedule: Schedule,
    imputer: Imputer = LinearImputer(),
    original: ProbeTable | None = None,
    **how: Unpack[ProbeOptions],
) -> ProbeTable:
    """Remove features by the schedule, impute them, and record the model's answers.

    Args:
        model: an `nn.Module` or any callable from a batch to logits (B, K). A callable that is not a module gets NumPy
            arrays if `inputs` is one, like scikit-learn's `predict_proba`, and tensors otherwise. A regression model
            returns one value per sample.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the model expects them (normalised); for text, token ids
            (N, T) or the output of a tokenizer, with `TokenImputer`.
        labels: (N,) target classes as integers; floating-point labels mean regression.
        maps: attribution maps, (N, *S), (N, 1, *S), or (N, C, *S) with `channels`.
        schedule: which features are removed at which level.
        imputer: fills in removed features.
        original: an earlier table of the same samples with a level that removes nothing. Where nothing is removed,
            its answers are reused.

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
    imputer = find_imputer(imputer)
    prober = Prober(model, inputs, labels, imputer=imputer, **how)
    # Where nothing is removed, ranks do not matter.
    ranked = prober.rank(maps, warn=any(schedule.levels), part=schedule.part)
    return prober.sweep(ranked, schedule, imputer, original=original)


class RankedMaps:
    """Checked maps of samples, each ranked once for all sweeps."""

    def __init__(self, maps: Tensor, ids: tuple[str, ...], seed: int, segments: Tensor | None = None) -> None:
        self.maps, self.ids, self.seed, self.segments = maps, ids, seed, segments
        self._kept: dict[int, Ranking] = {}
        self._parts: dict[str, RankedMaps] = {}

    def part(self, name: str) -> RankedMaps:
        """Return the positive or the negative part of the maps, ranked once."""
        if name not in self._parts:
            self._parts[name] = RankedMaps(PARTS[name](self.maps), self.ids, self.seed, self.segments)
        return self._parts[name]

    @property
    def features(self) -> int | None:
        """How many features each map has; None where segments differ in number."""
        return self.maps[0].numel() if self.segments is None else None

    def ranking(self, samples: slice, device: torch.device) -> Ranking:
        """Rank the features of some samples on a device."""
        if samples.start in self._kept:
            return self._kept[samples.start]
        # float64 is needed for exact sums, and Apple's devices do not have it.
        where = "cpu" if device.type == "mps" else device
        own = None if self.segments is None else self.segments[samples].to(where)
        ranking = rank_features(self.maps[samples].to(where), ids=self.ids[samples], seed=self.seed, segments=own)
        if self.maps.numel() <= _KEPT_RANKS:
            self._kept[samples.start] = ranking
        return ranking


class Prober:
    """Samples and a model, checked once, to be probed with any number of maps and schedules."""

    def __init__(
        self,
        model: Model,
        inputs: ArrayLike | Mapping[str, Any],
        labels: Labels,
        *,
        imputer: Imputer | None = None,
        **options: Unpack[ProbeOptions],
    ) -> None:
        self.how = how = fill_options(ProbeOptions, options)
        if isinstance(inputs, Mapping):
            model, inputs = called_with_tokens(model), pack_tokens(inputs)
        self.model = model
        if how["batch_size"] is not None:
            check_count("batch_size", how["batch_size"], _MOST_ROWS)
        self.reading = Reading(sign=how["sign"], channels=how["channels"], resize=how["resize"])
        self.inputs, self.ids = check_inputs(inputs, how["ids"], tokens=True)
        self.spatial = feature_shape(self.inputs.shape, how["features"])
        segments = how["segments"]
        if segments is None and isinstance(imputer, TokenImputer):
            segments = imputer.segments(self.inputs)
        self.segments = None if segments is None else check_segments(segments, self.spatial, self.ids)
        self.respondent = Respondent(
            model,
            labels=check_labels(labels, self.ids),
            ids=self.ids,
            output=how["output"],
            on_numpy=not isinstance(inputs, Tensor),
            device=how["device"],
            target=how["target"],
        )
        self.rows = how["batch_size"] or choose_batch(self.inputs[0], self.respondent.device, kept=keeps_freed_memory())
        teach_allocator()

    def take(self, rows: Sequence[int]) -> Prober:
        """Return a prober of some of the samples, which are not checked again."""
        part, index = copy.copy(self), list(rows)
        part.inputs, part.ids = self.inputs[index], tuple(self.ids[row] for row in index)
        part.segments = None if self.segments is None else self.segments[index]
        part.respondent = self.respondent.take(index)
        return part

    def rank(self, maps: ArrayLike, *, warn: bool = True, part: str = "positive") -> RankedMaps:
        """Check maps against the inputs, and rank them once for all sweeps; `warn` if the part is zero everywhere."""
        reading = self.reading
        if is_explanation(maps):
            maps, reading = (
                contributions_to_targets(maps, self.respondent.labels, self.inputs),
                read_contributions(reading),
            )
        values = check_maps(maps, self.spatial, ids=self.ids, reading=reading)
        if part == "negative" and self.reading.sign != "signed":
            raise ValueError(
                f"`sign` must be 'signed' to judge evidence against the target; got {self.reading.sign!r}."
            )
        if warn:
            warn_of_zeros(values, "soundness", part)
        return self.rank_checked(values)

    def rank_checked(self, maps: Tensor) -> RankedMaps:
        """Rank maps (N, *S) that were checked before."""
        return RankedMaps(maps, self.ids, self.how["seed"], self.segments)

    def sweep(
        self,
        ranked: RankedMaps,
        schedule: Schedule,
        imputer: Imputer,
        *,
        original: ProbeTable | None = None,
        advance: Callable[[int], object] | None = None,
    ) -> ProbeTable:
        """Probe all samples at all levels of a schedule; `advance` receives the number of newly finished rows."""
        if are_tokens(self.inputs) and not takes_tokens(imputer):
            raise TypeError(
                "`inputs` are integers, which are taken for token ids: pass imputer=tl.TokenImputer(mask_id). Convert "
                "other inputs to floating-point numbers, normalised as the model expects."
            )
        settings = ProbeSettings(
            schedule=schedule,
            # The repr of a plain function holds its address, which differs from process to process.
            imputer=getattr(imputer, "__qualname__", repr(imputer)),
            seed=self.how["seed"],
            spatial=self.spatial,
            reading=self.reading,
            segmented=self.segments is not None,
        )
        answers = None
        if original is not None:
            whole = original.level_without_removal(self.ids)
            answers = np.stack([getattr(original, name)[:, whole] for name in ANSWER], axis=1).astype(np.float64)
        task, ranked = f"{schedule.order} by {schedule.by}", ranked.part(schedule.part)
        with evaluating(self.model), torch.inference_mode(), shown_progress(self.how["progress"]) as shown:
            if advance is None:
                shown.begin({task: len(self.ids) * len(schedule.levels)})
                advance = partial(shown.advance, task)
            sweep = _Sweep(self, ranked, imputer, settings, answers, advance)
            size = max(1, min(_CHUNK, _CHUNK_FEATURES // math.prod(self.spatial)))
            for start in range(0, len(self.ids), size):
                sweep.chunk(start, size)
        return ProbeTable(
            settings=settings,
            ids=self.ids,
            labels=self.respondent.labels,
            map_kinds=tuple(map_kinds(ranked.maps)),
            features=None if self.segments is None else self.segments.flatten(1).amax(dim=1).numpy() + 1,
            segments=self.segments,
            **sweep.columns,
        )


@dataclass
class _Sweep:
    """The loop over samples and levels. It fills `columns`; a batch that is too large shrinks those of the prober."""

    prober: Prober
    ranked: RankedMaps
    imputer: Imputer
    settings: ProbeSettings
    original: Floats | None
    """(N, 4) the model's answers to the original inputs, if available."""
    advance: Callable[[int], object]

    def __post_init__(self) -> None:
        self.respondent, self.impute = self.prober.respondent, self.imputer
        if isinstance(self.imputer, LinearImputer) and wants_channels_last(self.prober.model):
            self.impute = partial(self.imputer, channels_last=True)
        shape = (len(self.prober.ids), len(self.settings.schedule.levels))
        whole = {"removed", "target_rank"} if self.respondent.regression else {"removed", "target_rank", "predicted"}
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty(shape, dtype=np.int64 if name in whole else np.float64)
            for name in ("removed", "kept_mass", *ANSWER)
        }

    def chunk(self, start: int, size: int) -> None:
        """Probe up to `size` samples at all levels."""
        schedule, device = self.settings.schedule, self.respondent.device
        samples = slice(start, start + size)
        idle = not any(schedule.levels) and self.ranked.segments is None and not self.ranked.maps[samples].any()
        ranking = unranked(self.ranked.maps[samples], device) if idle else self.ranked.ranking(samples, device)
        removed = count_removed(ranking, schedule)
        mass = kept_mass(ranking, removed, schedule.order)
        rank, counts = ranking.rank.to(device), removed.to(device, ranking.rank.dtype)
        features = None if self.ranked.segments is None else ranking.features[:, 0].to(device)
        inputs = self.prober.inputs[samples].to(device)

        called = np.ones(removed.shape, dtype=bool) if self.original is None else removed.cpu().numpy() > 0
        if schedule.part == "negative" and self.original is not None:  # a map without negative values is not judged
            called &= ranking.peak.cpu().numpy() > 0
        pairs = np.argwhere(called)
        answers = [torch.empty(0, len(ANSWER), dtype=self.respondent.real, device=device)]
        done = 0
        while done < len(pairs):
            part = pairs[done : done + self.prober.rows]
            try:
                answers.append(self._batch(inputs, (rank, counts, features), part[:, 0], part[:, 1], start))
            except (RuntimeError, MemoryError) as error:
                self._halve(error)
                continue
            done += len(part)
            self.advance(len(part))
        self.advance(called.size - len(pairs))
        self.columns["removed"][samples] = removed.cpu().numpy()
        self.columns["kept_mass"][samples] = mass.cpu().numpy()
        table = np.empty((*called.shape, len(ANSWER)))
        if self.original is not None:
            table[:] = self.original[samples, None]
        table[called] = torch.cat(answers).to("cpu", torch.float64).numpy()
        self.respondent.check(table, self.prober.ids[samples], schedule.levels)
        for k, name in enumerate(ANSWER):
            self.columns[name][samples] = table[..., k]

    def _batch(
        self,
        inputs: Tensor,
        ranked: tuple[Tensor, Tensor, Tensor | None],
        sample: NDArray[np.int64],
        level: NDArray[np.int64],
        start: int,
    ) -> Tensor:
        """Impute one batch of (sample, level) pairs and call the model on it."""
        rank, counts, features = ranked
        settings, names = self.settings, self.prober.ids[start:]
        levels = settings.schedule.levels
        i, m = (torch.from_numpy(index).to(inputs.device) for index in (sample, level))
        alone = slice(sample[0], sample[0] + 1) if sample[0] == sample[-1] else None

        def rows(values: Tensor) -> Tensor:
            """Select rows: index_select is several times as fast as values[i], and the row of one sample a view."""
            return values.index_select(0, i) if alone is None else values[alone]

        many = None if features is None else features[i]
        keep = keep_features(rows(rank), counts[i, m], settings.schedule.order, many)
        keep = keep.reshape(-1, *settings.spatial)
        streams = [stream(settings.seed, names[a], levels[b]) for a, b in zip(sample, level, strict=True)]
        if isinstance(self.imputer, LinearImputer):
            chosen = rows(inputs).expand(len(i), *inputs.shape[1:])
        else:  # a custom imputer may write into its inputs
            chosen = inputs.index_select(0, i)
        with blaming("imputer"):
            imputed = self.impute(chosen, keep, streams)
        return self.respondent.ask(check_imputed(imputed, chosen), i + start)

    def _halve(self, error: Exception) -> None:
        if not is_out_of_memory(error):
            raise error
        if self.prober.rows == 1:
            raise MemoryError(
                "One input does not fit into memory, even alone. Use a smaller model or input."
            ) from error
        self.prober.rows //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
