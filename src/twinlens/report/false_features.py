"""Pictures of false attribution: where soundness judged features of each sample's map false, one PNG each.

Shapes: B samples of a shard, H × W pixels.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from twinlens.data.sources import IMAGE_SUFFIXES
from twinlens.errors import RunError, unknown
from twinlens.report.scene import load_selected_maps
from twinlens.run.stored_run import StoredRun
from twinlens.support.arguments import checked
from twinlens.support.files import as_path, is_local

INDEX = "index.csv"
"""The id, the method and the file of each picture."""
_LONGEST = 150  # characters of a file name


@checked
def write_false_features(
    evaluation: StoredRun, directory: str | os.PathLike[str], *, metric: str | None = None
) -> list[Path]:
    """Write which features of each map were judged to be falsely attributed, as DIRECTORY/METHOD/ID.png.

    Pictures have the size of the model's input and one channel: 255 where a pixel has attribution and was judged false,
    0 elsewhere. In file names, characters other than letters, digits and . _ + - become a hyphen; index.csv has the
    file of each id and method. The model is not called.

    Args:
        evaluation: a run on images with a measure of soundness.
        directory: the output directory, created if necessary.
        metric: the measure that judged; by default the run's first one, as on the page.

    Returns:
        The pictures.
    """
    folder, data = as_path(directory), evaluation.results.data
    if not is_local(folder):
        raise ValueError(f"`directory` must be on this machine; got {str(directory)!r}.")
    judging = [name for name in evaluation.metrics if evaluation.results.about(name).side == "soundness"]
    if metric is not None and metric not in judging:
        raise unknown("metric", metric, judging)
    if not judging:
        raise ValueError(
            f"`evaluation` must have a measure of soundness, which judges features; {evaluation.run} has "
            f"{', '.join(evaluation.metrics) or 'none'}. Evaluate soundness_rank there."
        )
    if len(data.spatial) != 2 or not data.has_neighbours:
        raise ValueError(
            f"`evaluation` must be of images; its maps have shape {data.spatial}. In Python, use "
            "evaluation.curve(method, metric).false_features(maps)."
        )
    if data.segments is not None:
        raise ValueError("`evaluation` has segments as features, which a run does not store for all samples.")
    ids, chosen = evaluation.ids(), metric or judging[0]
    names = file_names(ids)
    rows: list[tuple[str, str, str]] = []
    for method in evaluation.methods:
        if chosen not in evaluation.results.methods[method].metrics:
            continue
        (folder / method).mkdir(parents=True, exist_ok=True)
        for position, false in _false_features(evaluation, method, chosen):
            file = f"{method}/{names[position]}.png"
            Image.fromarray(np.where(false, 255, 0).astype(np.uint8)).save(folder / file)
            rows.append((ids[position], method, file))
    with (folder / INDEX).open("w", encoding="utf-8", newline="") as index:
        csv.writer(index).writerows([("id", "method", "file"), *rows])
    return [folder / file for *_, file in rows]


def _false_features(evaluation: StoredRun, method: str, metric: str) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield the position of each sample, and which pixels (H, W) were judged false, with one shard in memory."""
    curve, manifest = evaluation.curve(method, metric), evaluation.run.manifest
    for shard in range(manifest.shards):
        positions = list(manifest.positions(shard))
        maps = load_selected_maps(evaluation, method, positions, curve.table.settings.schedule.part)
        false = None if maps is None else curve.take(positions).false_features(maps)
        if false is None:
            raise RunError(f"{evaluation.run} lacks maps of {method!r}. Evaluate it again there to make them.")
        yield from zip(positions, false.cpu().numpy(), strict=True)


def file_names(ids: Sequence[str]) -> list[str]:
    """Return a file name for each id, without extension; all of them differ.

    Example:
        >>> file_names(["dog/1.jpg", "dog/2.jpg", "v1.5"])
        ['dog-1', 'dog-2', 'v1.5']
        >>> file_names(["dog/1.jpg", "dog-1", "../é"])
        ['dog-1-75fee2dd', 'dog-1-60975429', 'x-752364f8']
    """
    plain = []
    for name in ids:
        path = PurePosixPath(name)
        stem = str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else name
        plain.append(re.sub(r"[^A-Za-z0-9_.+-]+", "-", stem).strip("-."))
    counts = Counter(name.lower() for name in plain)  # some systems ignore case
    return [
        name
        if counts[name.lower()] == 1 and 0 < len(name) <= _LONGEST
        else f"{name[:_LONGEST] or 'x'}-{hashlib.blake2b(full.encode(), digest_size=4).hexdigest()}"
        for name, full in zip(plain, ids, strict=True)
    ]
