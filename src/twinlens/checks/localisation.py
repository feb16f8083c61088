"""Localisation: how much of a map lies inside the region that is known to be predictive.

A map of zeros and an empty region have no value: the score of such a sample is NaN.

Shapes: N samples, S = spatial shape, F features.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.sample_scores import SHARE, SampleScores
from twinlens.data.boxes import Box, boxes_of_samples, draw_regions, read_boxes
from twinlens.errors import DataError
from twinlens.outcome import Evaluation
from twinlens.probing.maps import Reading, check_ids, check_maps, warn_of_zeros
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.run.reopening import reopen_samples
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor


@checked
def attribution_inside(
    maps: ArrayLike,
    region: ArrayLike,
    *,
    sign: str = "error",
    channels: str | None = None,
    ids: Sequence[str | int] | None = None,
) -> SampleScores:
    """Compute Attr% (Zhou et al. 2022): the share of a map's attribution inside a region.

    Args:
        maps: attribution maps, (N, *S).
        region: (N, *S) bool, True where features are predictive.
        sign: what negative attribution means; see `twinlens.probing.maps`.
        channels: how channels of the maps are reduced.
        ids: sample ids.

    Example:
        >>> maps = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
        >>> attribution_inside(maps, torch.tensor([[False, True, True]] * 2)).values
        array([0.75,  nan])
    """
    values, inside, names = _check(maps, region, sign, channels, ids)
    total = values.sum(axis=1)
    shares = np.full(len(names), np.nan)
    defined = (total > 0) & inside.any(axis=1)
    np.divide((values * inside).sum(axis=1), total, out=shares, where=defined)
    return SampleScores(name="Attr%", values=shares, ids=names, limits=SHARE)


@checked
def pointing_game(
    maps: ArrayLike,
    region: ArrayLike,
    *,
    tolerance: float = 0,
    sign: str = "error",
    channels: str | None = None,
    ids: Sequence[str | int] | None = None,
) -> SampleScores:
    """Play the pointing game (Zhang et al. 2018): is the largest value of a map inside the region?

    If several features share the largest value, the score is the share of them that is inside. `tolerance` is the
    distance from the region, in pixels, that still counts as inside; 15 in Zhang et al. Other arguments as for
    `attribution_inside`.

    Example:
        >>> maps = torch.tensor([[1.0, 3.0, 0.0], [2.0, 0.0, 2.0]])
        >>> region = torch.tensor([[False, True, False], [True, False, False]])
        >>> pointing_game(maps, region).values
        array([1. , 0.5])
    """
    if not tolerance >= 0:
        raise ValueError(f"`tolerance` must be a distance >= 0, in pixels; got {tolerance!r}.")
    values, inside, names = _check(maps, region, sign, channels, ids)
    empty = ~inside.any(axis=1)
    if tolerance > 0:
        spatial = as_tensor(region, "region").shape[1:]
        near = [distance_transform_edt(~one.reshape(spatial)) <= tolerance for one in inside]
        inside = np.stack(near).reshape(inside.shape)
    peaks = values == values.max(axis=1, keepdims=True)
    hits = (peaks & inside).sum(axis=1) / peaks.sum(axis=1)
    hits[empty | (values.max(axis=1) == 0)] = np.nan
    return SampleScores(name="pointing game", values=hits, ids=names, limits=SHARE)


def _check(
    maps: ArrayLike, region: ArrayLike, sign: str, channels: str | None, ids: Sequence[str | int] | None
) -> tuple[Floats, NDArray[np.bool_], tuple[str, ...]]:
    """Return maps and regions as (N, features), and the ids."""
    inside = as_tensor(region, "region")
    if inside.dtype != torch.bool or inside.dim() < 2 or 0 in inside.shape:
        raise ValueError(
            "`region` must be boolean (samples, *spatial), True where features are predictive, none of them empty; "
            f"got {inside.dtype} of shape {tuple(inside.shape)}."
        )
    names = check_ids(ids, len(inside))
    reading = Reading(sign=sign, channels=channels)  # type: ignore[arg-type]  # which refuses other names
    values = check_maps(maps, tuple(inside.shape[1:]), ids=names, reading=reading)
    warn_of_zeros(values, "where they point")
    if not inside.any():
        warnings.warn(f"`region` is empty for all {len(names)} samples: nothing can lie inside.", stacklevel=3)
    return values.flatten(1).double().cpu().numpy(), inside.flatten(1).cpu().numpy(), names


@partial(
    CheckDefinition,
    title="Localisation: Attr% and the pointing game",
    source="Attr%: Zhou et al. 2022, Do feature attribution methods correctly attribute features?; pointing game: "
    "Zhang et al. 2018, Top-down neural attention by excitation backprop",
    columns=(CheckColumn(title="Attr%", better="higher"), CheckColumn(title="pointing game", better="higher")),
    options=("boxes", "any_label", "tolerance"),
)
def localisation_check(run: CheckedRun) -> CheckResult:
    """Does a map mark the object?

    Attr% is the share of a map's attribution inside the boxes, the pointing game the share of maps whose largest value
    is inside. Compare with the area of the boxes. A model may rightly look elsewhere: at the water below the boat.
    """
    evaluation, options = run.evaluation, run.options
    manifest = evaluation.run.manifest
    if len(manifest.data.spatial) != 2 or not manifest.data.has_neighbours:
        raise ValueError(f"`boxes` need images; the run's inputs have shape {manifest.data.shape}.")
    ids = evaluation.ids()
    boxes = boxes_of_samples(read_boxes(options.required("boxes")), ids)
    if not options.any_label:
        boxes = _of_own_class(boxes, evaluation.run.load_original(manifest.shards).labels, manifest.model.classes)
    height, width = manifest.data.spatial
    region = draw_regions(boxes, _original_sizes(evaluation), manifest.model.preprocessing, (height, width))

    def measure(name: str) -> MethodCheck:
        maps = evaluation.maps(name)
        inside = attribution_inside(maps, region, ids=ids)
        pointing = pointing_game(maps, region, tolerance=options.tolerance, ids=ids)
        return MethodCheck(values=run.estimates([inside, pointing]))

    visible = region.flatten(1).double().mean(dim=1).numpy()
    empty = int((visible == 0).sum())
    notes = [
        f"Boxes cover {visible[visible > 0].mean():.1%} of an input on average, the expected Attr% of random maps."
    ]
    if empty:
        notes.append(f"{empty} of {len(ids)} samples have no box within the model's input, and no value.")
    return run.each_method(measure, samples=len(ids), notes=notes)


def _of_own_class(
    boxes: Mapping[int, list[Box]], labels: NDArray[Any], classes: Sequence[str] | None
) -> dict[int, list[Box]]:
    """Select boxes without a label, and those labelled with the name or number of their sample's class."""
    selected = {}
    for position, candidates in boxes.items():
        number = int(labels[position])
        names = {str(number), *(classes[number : number + 1] if classes else ())}
        if own := [box for box in candidates if box.label is None or box.label in names]:
            selected[position] = own
    if not selected:
        [first, *_] = [box for candidates in boxes.values() for box in candidates]
        raise DataError(
            f"`boxes` must have labels that are names or numbers of the run's classes, such as "
            f"{classes[0] if classes else 0!r}; got {first.label!r} ({first.origin}). Correct them, or pass "
            "--any-label."
        )
    return selected


def _original_sizes(evaluation: Evaluation) -> list[tuple[int, int]]:
    """Return the width and height of each sample's original image."""
    manifest = evaluation.run.manifest
    height, width = manifest.data.spatial
    preprocessing = manifest.model.preprocessing
    if preprocessing.resize is None and preprocessing.crop is None:  # inputs have the size of the images
        return [(width, height)] * manifest.data.samples
    samples = reopen_samples(evaluation)
    images = (samples.read(position) for position in range(len(samples)))
    return [(width, height) if isinstance(image, np.ndarray) else image.size for image in images]
