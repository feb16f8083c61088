"""Exhibits: the few samples that tell most about a run, stored with it, so that a report needs the run alone.

Shapes: N samples, M methods, F features of a coarse map, E exhibits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from twinlens.curves import SoundnessCurve
from twinlens.engines import Job, load_inputs
from twinlens.files import at_hand, written_whole
from twinlens.ordering import stream
from twinlens.results import Evaluation
from twinlens.runs import Run
from twinlens.table import Floats

FILE = "exhibits.safetensors"
_COUNT = 8
_COARSE = 28  # side to which maps are averaged before they are compared: pixels of two methods never agree exactly


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One chosen sample."""

    id: str
    """Name of the sample."""

    position: int
    """Its place among the samples of the run."""

    label: int
    """Its class."""

    reason: str
    """Why it was chosen, in a few words."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exhibits:
    """The chosen samples of a run."""

    samples: tuple[Exhibit, ...]
    """Which they are."""

    inputs: Tensor
    """(E, C, *S) or (E, D): their inputs, as the model sees them."""

    images: bool
    """Whether inputs were images, so that the model's preprocessing can be undone to show them."""


def write_exhibits(job: Job, evaluation: Evaluation, named: Sequence[str] = ()) -> None:
    """Chooses the most telling samples of a run and stores their inputs in its directory.

    These are samples on which the methods disagree most, agree most, and attribute most to what was judged false. The
    same run always gives the same file.

    Args:
        job: the run's job, through which inputs can still be read.
        evaluation: the run's results.
        named: ids of samples that are to be shown in any case.
    """
    for name in named:
        if name not in job.samples.ids:
            raise ValueError(
                f"`named` must hold ids of samples of this run, such as {job.samples.ids[0]!r}; got {name!r}."
            )
    chosen = choose(evaluation, job.samples.ids, named)
    part = job.samples.take(list(chosen))
    exhibits = [
        {"id": name, "position": position, "label": int(label), "reason": chosen[position]}
        for name, position, label in zip(part.ids, chosen, part.labels, strict=True)
    ]
    images = isinstance(part.read(0), Image.Image)
    inputs = load_inputs(part, job.model, job.workers).contiguous()
    with written_whole(job.run.path / FILE) as unfinished:
        # One key of metadata: the order of several is not the same from process to process.
        save_file({"inputs": inputs}, unfinished, metadata={"exhibits": json.dumps([images, exhibits])})


def read_exhibits(run: Run) -> Exhibits | None:
    """Reads the exhibits of a run, or gives None where it has none."""
    path = run.path / FILE
    if not path.exists():
        return None
    with at_hand(path) as there, safe_open(there, "pt") as file:
        images, samples = json.loads(file.metadata()["exhibits"])
        return Exhibits(
            samples=tuple(Exhibit(**sample) for sample in samples), inputs=file.get_tensor("inputs"), images=images
        )


def choose(evaluation: Evaluation, ids: Sequence[str], named: Sequence[str] = ()) -> dict[int, str]:
    """Gives the positions of the most telling samples, each with the reason why."""
    scores = {
        "Methods disagree": -agreement(evaluation, ids),
        "High false attribution": false_share(evaluation, ids),
        "Methods agree": agreement(evaluation, ids),
    }
    queues = {reason: _best_first(values, ids) for reason, values in scores.items()}
    queues["Drawn by the seed"] = _drawn(evaluation, ids)
    chosen = {list(ids).index(name): "Asked for by name" for name in dict.fromkeys(named)}
    wanted = min(len(ids), max(_COUNT, len(chosen) + _COUNT // 2))
    # In turn, so that each reason has its share; the draw fills what they leave open.
    turns = ["Methods disagree", "High false attribution", "Methods agree"] * len(ids) + ["Drawn by the seed"] * len(
        ids
    )
    for reason in turns:
        while len(chosen) < wanted and queues[reason]:
            position = queues[reason].pop(0)
            if position not in chosen:
                chosen[position] = reason
                break
    order = list(dict.fromkeys(["Asked for by name", *turns]))
    return dict(sorted(chosen.items(), key=lambda item: order.index(item[1])))


def _best_first(scores: Floats, ids: Sequence[str]) -> list[int]:
    """Gives the positions with a score, highest first; equal ones by id."""
    known = [int(position) for position in np.flatnonzero(np.isfinite(scores))]
    return sorted(known, key=lambda position: (-round(float(scores[position]), 9), ids[position]))


def _drawn(evaluation: Evaluation, ids: Sequence[str]) -> list[int]:
    seed = evaluation.run.manifest["options"]["seed"]
    return sorted(range(len(ids)), key=lambda position: stream(seed, "exhibit", ids[position]))


def agreement(evaluation: Evaluation, ids: Sequence[str]) -> Floats:
    """Gives the mean rank correlation (N,) of each sample's maps over pairs of methods; NaN for a single method."""
    run, size = evaluation.run, evaluation.run.manifest["execution"]["shard_size"]
    methods = [name for name in evaluation.methods if run.maps_part(name, 0).exists()]
    if len(methods) < 2:
        return np.full(len(ids), np.nan)
    shards = range(-(-len(ids) // size))
    return np.concatenate([_correlation([run.load_maps(name, shard) for name in methods]) for shard in shards])


def _correlation(maps: list[Tensor]) -> Floats:
    """Gives the mean correlation (N,) of the ranks of M maps (N, *S) each."""
    ranks = torch.stack([_coarse(values).argsort(dim=1).argsort(dim=1).double() for values in maps], dim=1)  # (N, M, F)
    centred = ranks - ranks.mean(dim=2, keepdim=True)
    unit = centred / centred.norm(dim=2, keepdim=True).clamp(min=1e-12)
    products = unit @ unit.transpose(1, 2)
    pairs = len(maps) * (len(maps) - 1)
    total = products.sum(dim=(1, 2)) - products.diagonal(dim1=1, dim2=2).sum(dim=1)
    return np.asarray((total / pairs).numpy())


def _coarse(maps: Tensor) -> Tensor:
    if maps.dim() == 3 and max(maps.shape[1:]) > _COARSE:
        return torch.nn.functional.adaptive_avg_pool2d(maps[:, None], _COARSE).flatten(1)
    return maps.flatten(1)


def false_share(evaluation: Evaluation, ids: Sequence[str]) -> Floats:
    """Gives the share (N,) of each sample's attribution that was judged false in the end, the mean over methods."""
    methods = [name for name, content in evaluation.results["methods"].items() if "soundness" in content["metrics"]]
    if not methods:
        return np.full(len(ids), np.nan)
    curves = (evaluation.curve(name, "soundness") for name in methods)
    ends = [1 - curve.per_sample[:, -1] for curve in curves if isinstance(curve, SoundnessCurve)]
    known = np.isfinite(ends)
    counts = known.sum(axis=0)
    return np.where(counts > 0, np.where(known, ends, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
