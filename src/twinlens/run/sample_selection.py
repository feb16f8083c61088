"""The samples that a report shows, selected and stored with the run.

Shapes: N samples, M methods, F features of a coarse map, E selected samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from twinlens.data.inputs import load_inputs
from twinlens.run.directory import Run
from twinlens.run.work import EvaluationWork
from twinlens.support.arrays import Floats
from twinlens.support.correlation import mean_rank_correlation
from twinlens.support.fields import from_json, to_json
from twinlens.support.randomness import stream
from twinlens.support.tensor_files import load_tensors, save_tensors

FILE = "selected.safetensors"
_COUNT = 8
_MOST_WORDS = 2**20  # of a vocabulary
_COARSE = 28  # side to which maps are averaged before they are compared: pixels of two methods never agree exactly


@dataclass(frozen=True, kw_only=True)
class SelectedSample:
    """One selected sample."""

    id: str
    position: int
    """Its position among the samples of the run."""
    label: int | float
    reason: str
    """Why it was selected."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectedSamples:
    """The selected samples of a run."""

    samples: tuple[SelectedSample, ...]
    inputs: Tensor
    """(E, C, *S) or (E, D): their preprocessed inputs."""
    segments: Tensor | None
    """(E, *S): the segment of each position; None without segments."""
    images: bool
    """Whether inputs are images, whose preprocessing can be undone."""
    feature_names: tuple[str, ...] | None = None
    """Names of the columns of tabular rows, or of the channels of other inputs."""
    sampling_rate: float | None = None
    """Time steps of a signal per second."""
    words: tuple[tuple[str, ...], ...] | None = None
    """E times the words of T tokens; None where only ids are known."""
    next_words: tuple[str, ...] | None = None
    """The tokens that may come next, by id, as the tokenizer writes them; None unless the model continues text."""


def write_selection(work: EvaluationWork, false_share: Mapping[str, Floats], named: Sequence[str] = ()) -> None:
    """Select samples to show, and store their inputs with the run.

    These are samples on which the methods disagree most, agree most, and have most false attribution: `false_share`
    holds its share (N,) by method. Samples in `named` are added.
    """
    selected = select_samples(work.run, work.samples.ids, false_share, named)
    part = work.samples.take(list(selected))
    samples = [
        SelectedSample(id=name, position=position, label=label.item(), reason=selected[position])
        for name, position, label in zip(part.ids, selected, part.labels, strict=True)
    ]
    images = isinstance(part.read(0), Image.Image)
    inputs = load_inputs(part, work.model, work.workers)
    tensors = {"inputs": inputs}
    if work.segments is not None:
        tensors["segments"] = work.segments.of(part, inputs)
    about = {"images": images, "samples": to_json(samples)}
    naming = part.naming
    about |= {"feature_names": to_json(naming.feature_names), "sampling_rate": naming.sampling_rate}
    if (words := naming.words_of(inputs)) is not None:
        # Each word once, and its number at each position: long texts stay small.
        vocabulary = {word: k for k, word in enumerate(sorted({word for text in words for word in text}))}
        tensors["words"] = torch.tensor([[vocabulary[word] for word in text] for text in words], dtype=torch.int32)
        about["vocabulary"] = [*vocabulary]
        if work.model.continues_text:
            classes = int(work.model.call(inputs[:1]).shape[1])
            numbers = torch.arange(min(classes, _MOST_WORDS))
            about["next_words"] = [*(naming.words_of(numbers[None]) or [[]])[0]]
    work.run.check_there()
    save_tensors(work.run.path / FILE, tensors, about=about)


def read_selection(run: Run) -> SelectedSamples | None:
    """Read the selected samples of a run; None where it has none."""
    path = run.path / FILE
    if not path.exists():
        return None
    tensors, about = load_tensors(path)
    samples = tuple(from_json(SelectedSample, sample, "selected") for sample in about["samples"])
    names, numbers, following = about.get("feature_names"), tensors.get("words"), about.get("next_words")
    return SelectedSamples(
        samples=samples,
        inputs=tensors["inputs"],
        segments=tensors.get("segments"),
        images=about["images"],
        feature_names=None if names is None else tuple(names),
        sampling_rate=about.get("sampling_rate"),
        words=None
        if numbers is None
        else tuple(tuple(about["vocabulary"][k] for k in text) for text in numbers.tolist()),
        next_words=None if following is None else tuple(following),
    )


def select_samples(
    run: Run, ids: Sequence[str], false_share: Mapping[str, Floats], named: Sequence[str] = ()
) -> dict[int, str]:
    """Return the positions of the samples to show, each with the reason."""
    agreement = agreement_of_methods(run, len(ids))
    scores = {
        "Methods disagree": -agreement,
        "High false attribution": _mean_over_methods(false_share, len(ids)),
        "Methods agree": agreement,
    }
    queues = {reason: _best_first(values, ids) for reason, values in scores.items()}
    queues["Drawn by the seed"] = sorted(
        range(len(ids)), key=lambda position: stream(run.manifest.seed, "exhibit", ids[position])
    )
    positions = {name: position for position, name in enumerate(ids)}
    # A run in rounds may have ended before it drew one of them.
    chosen = {positions[name]: "Asked for by name" for name in dict.fromkeys(named) if name in positions}
    count = min(len(ids), max(_COUNT, len(chosen) + _COUNT // 2))
    # In turn: each reason has its share, and the draw fills the rest.
    turns = [*[*scores] * len(ids), *["Drawn by the seed"] * len(ids)]
    for reason in turns:
        while len(chosen) < count and queues[reason]:
            position = queues[reason].pop(0)
            if position not in chosen:
                chosen[position] = reason
                break
    order = list(dict.fromkeys(["Asked for by name", *turns]))
    return dict(sorted(chosen.items(), key=lambda item: order.index(item[1])))


def _best_first(scores: Floats, ids: Sequence[str]) -> list[int]:
    """Return the positions with a score, highest first; equal ones by id."""
    scored = [int(position) for position in np.flatnonzero(np.isfinite(scores))]
    return sorted(scored, key=lambda position: (-round(float(scores[position]), 9), ids[position]))


def agreement_of_methods(run: Run, samples: int) -> Floats:
    """Mean rank correlation (N,) of each sample's maps over pairs of methods; NaN for a single method."""
    shards = range(run.manifest.shards)
    methods = [name for name in run.manifest.methods if all(run.maps_shard(name, shard).exists() for shard in shards)]
    if len(methods) < 2:
        return np.full(samples, np.nan)
    parts = [torch.stack([_coarse(run.load_maps(name, shard)) for name in methods], dim=1) for shard in shards]
    return np.concatenate([mean_rank_correlation(maps) for maps in parts])


def _coarse(maps: Tensor) -> Tensor:
    if maps.dim() == 3 and max(maps.shape[1:]) > _COARSE:
        return torch.nn.functional.adaptive_avg_pool2d(maps[:, None], _COARSE).flatten(1)
    return maps.flatten(1)


def _mean_over_methods(shares: Mapping[str, Floats], samples: int) -> Floats:
    if not shares:
        return np.full(samples, np.nan)
    each = np.stack(list(shares.values()))
    defined = np.isfinite(each)
    counts = defined.sum(axis=0)
    return np.where(counts > 0, np.where(defined, each, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
