"""What each check measures of the methods of a run.

Shapes: N samples, K steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.core.arrays import Floats
from twinlens.data.boxes import Box, boxes_of_samples, draw_regions, read_boxes
from twinlens.errors import DataError
from twinlens.experiments.check_subject import CheckSubject, original_sizes
from twinlens.laboratory.localisation import attribution_inside, interval_of_mean, pointing_game
from twinlens.running.checks import CheckValue, MethodCheck


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a check found."""

    methods: Mapping[str, MethodCheck]
    """Of each method."""

    samples: int
    """Number of samples."""

    steps: tuple[str, ...] = ()
    """Names of the steps, where there are some."""

    notes: tuple[str, ...] = ()
    """What a reader has to know."""


def _mean(values: Floats, ids: Sequence[str], seed: int) -> CheckValue:
    """Return the mean of values (N,) with its interval; NaN is left out."""
    return CheckValue.of(interval_of_mean(values, ids, seed=seed), int(np.isfinite(values).sum()))


def localisation(subject: CheckSubject) -> Measured:
    """Attr% and the pointing game, by boxes around objects; stored maps are all that is read."""
    evaluation, options, seed = subject.evaluation, subject.options, subject.seed
    manifest = evaluation.run.manifest
    if len(manifest.data.spatial) != 2 or not manifest.data.has_neighbours:
        raise ValueError(f"`boxes` need images; the run's inputs have shape {manifest.data.shape}.")
    ids = evaluation.ids()
    boxes = boxes_of_samples(read_boxes(options.needed("boxes")), ids)
    if not options.any_label:
        boxes = _of_own_class(boxes, evaluation.run.load_untouched(manifest.shards).labels, manifest.model.classes)
    height, width = manifest.data.spatial
    region = draw_regions(boxes, original_sizes(evaluation), manifest.model.preprocessing, (height, width))

    def measure(name: str) -> MethodCheck:
        maps = evaluation.maps(name)
        inside = attribution_inside(maps, region, ids=ids)
        pointing = pointing_game(maps, region, tolerance=options.tolerance, ids=ids)
        return MethodCheck(values=tuple(_mean(found.values, ids, seed) for found in (inside, pointing)))

    methods, notes = subject.each(measure)
    seen = region.flatten(1).double().mean(dim=1).numpy()
    without = int((seen == 0).sum())
    area = f"Boxes cover {seen[seen > 0].mean():.1%} of an input on average: what a map without aim scores."
    missing = f"{without} of {len(ids)} samples have no box that the model sees, and no value."
    return Measured(methods=methods, samples=len(ids), notes=(area, *([missing] if without else []), *notes))


def _of_own_class(
    boxes: Mapping[int, list[Box]], labels: NDArray[Any], classes: Sequence[str] | None
) -> dict[int, list[Box]]:
    """Return the boxes without a label, and those with the name or the number of their sample's class."""
    found = {}
    for place, own in boxes.items():
        number = int(labels[place])
        names = {str(number), *(classes[number : number + 1] if classes else ())}
        if kept := [box for box in own if box.label is None or box.label in names]:
            found[place] = kept
    if not found:
        [first, *_] = [box for own in boxes.values() for box in own]
        raise DataError(
            f"`boxes` must have labels that are names or numbers of the run's classes, such as "
            f"{classes[0] if classes else 0!r}; got {first.label!r} ({first.place}). Correct them, or pass --any-label."
        )
    return found
