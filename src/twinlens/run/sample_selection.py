"""The few samples that tell most about a run, stored with it, so that a report needs the run alone.

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
from twinlens.errors import unknown
from twinlens.run.directory import Run
from twinlens.run.manifest import Manifest
from twinlens.run.work import EvaluationJob
from twinlens.support.arrays import Floats
from twinlens.support.correlation import mean_rank_correlation
from twinlens.support.fields import from_json, to_json
from twinlens.support.randomness import stream
from twinlens.support.tensor_files import load_tensors, save_tensors

FILE = "selected.safetensors"
_COUNT = 8
_COARSE = 28  # side to which maps are averaged before they are compared: pixels of two methods never agree exactly


@dataclass(frozen=True, kw_only=True)
class SelectedSample:
    """One selected sample."""

    id: str
    """Name of the sample."""

    position: int
    """Its place among the samples of the run."""

    label: int | float
    """Its class, or its value."""

    reason: str
    """Why it was selected, in a few words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectedSamples:
    """The selected samples of a run."""

    samples: tuple[SelectedSample, ...]
    """Which they are."""

    inputs: Tensor
    """(E, C, *S) or (E, D): their inputs, as the model sees them."""

    segments: Tensor | None
    """(E, *S): which places make one feature; None where each is one."""

    images: bool
    """Whether inputs were images, so that the model's preprocessing can be undone to show them."""


def check_shown(named: Sequence[str], ids: Sequence[str]) -> None:
    """Refuse ids of samples that are not in the run."""
    known = set(ids)
    for name in named:
        if name not in known:
            raise (
                unknown("show", name, ids)
                if len(ids) <= 20
                else ValueError(f"`show` must hold ids of samples of this run, such as {ids[0]!r}; got {name!r}.")
            )


def write_selection(job: EvaluationJob, false_share: Mapping[str, Floats], named: Sequence[str] = ()) -> None:
    """Select the most telling samples of a run and store their inputs in its directory.

    These are samples on which the methods disagree most, agree most, and attribute most to what was judged false. The
    same run always gives the same file.

    Args:
        job: the run's job, through which inputs can still be read.
        false_share: (N,) of each method, the share of each sample's attribution that was judged false.
        named: ids of samples that are to be shown in any case.
    """
    selected = select_samples(job.run, job.samples.ids, false_share, named)
    part = job.samples.take(list(selected))
    samples = [
        SelectedSample(id=name, position=position, label=label.item(), reason=selected[position])
        for name, position, label in zip(part.ids, selected, part.labels, strict=True)
    ]
    images = isinstance(part.read(0), Image.Image)
    inputs = load_inputs(part, job.model, job.workers)
    tensors = {"inputs": inputs}
    if job.segments is not None:
        tensors["segments"] = job.segments.of(part, inputs)
    job.run.check_there()
    save_tensors(job.run.path / FILE, tensors, about={"images": images, "samples": to_json(samples)})


def read_selection(run: Run[Manifest]) -> SelectedSamples | None:
    """Read the selected samples of a run; None where it has none."""
    path = run.path / FILE
    if not path.exists():
        return None
    tensors, about = load_tensors(path)
    samples = tuple(from_json(SelectedSample, sample, "selected") for sample in about["samples"])
    return SelectedSamples(
        samples=samples, inputs=tensors["inputs"], segments=tensors.get("segments"), images=about["images"]
    )


def select_samples(
    run: Run[Manifest], ids: Sequence[str], false_share: Mapping[str, Floats], named: Sequence[str] = ()
) -> dict[int, str]:
    """Return the positions of the most telling samples, each with the reason why."""
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
    place = {name: position for position, name in enumerate(ids)}
    # A run that draws its samples in rounds may have ended before it came to one of them.
    chosen = {place[name]: "Asked for by name" for name in dict.fromkeys(named) if name in place}
    wanted = min(len(ids), max(_COUNT, len(chosen) + _COUNT // 2))
    # In turn, so that each reason has its share; the draw fills what they leave open.
    turns = [*[*scores] * len(ids), *["Drawn by the seed"] * len(ids)]
    for reason in turns:
        while len(chosen) < wanted and queues[reason]:
            position = queues[reason].pop(0)
            if position not in chosen:
                chosen[position] = reason
                break
    order = list(dict.fromkeys(["Asked for by name", *turns]))
    return dict(sorted(chosen.items(), key=lambda item: order.index(item[1])))


def _best_first(scores: Floats, ids: Sequence[str]) -> list[int]:
    """Return the positions with a score, highest first; equal ones by id."""
    known = [int(position) for position in np.flatnonzero(np.isfinite(scores))]
    return sorted(known, key=lambda position: (-round(float(scores[position]), 9), ids[position]))


def agreement_of_methods(run: Run[Manifest], samples: int) -> Floats:
    """Mean rank correlation (N,) of each sample's maps over pairs of methods; NaN for a single method."""
    shards = range(run.manifest.shards)
    methods = [name for name in run.manifest.methods if all(run.maps_part(name, shard).exists() for shard in shards)]
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
    known = np.isfinite(each)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, each, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
