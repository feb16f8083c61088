"""Stored maps: attribution maps computed elsewhere, one for each sample.

Shapes: N samples, S = spatial shape: (H, W) for images, (T,) for signals, (D,) for tabular rows. One map is S.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
import safetensors
import torch
from numpy.lib.format import open_memmap
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from PIL import Image

from twinlens.data.images import opened_image, reading
from twinlens.data.samples import Samples, hash_array
from twinlens.data.sources import IMAGE_SUFFIXES
from twinlens.errors import DataError
from twinlens.models.preprocessing import Preprocessing
from twinlens.probing.maps import CHANNELS, Reading, to_float32
from twinlens.support.arrays import ArrayLike, as_array
from twinlens.support.files import check_regular, check_unpacked_size

_MAP_SUFFIXES = (".npy", ".png", ".jpg", ".jpeg")
_REMEDY = "Save the maps as plain arrays of real numbers, such as float32."


@dataclass(frozen=True, kw_only=True)
class StoredReading(Reading):
    """How stored maps are read."""

    size: Literal["input", "image"] | None = None
    """What maps cover: the model's input, or the whole image, with which they are then resized and cropped; by default
    as their size tells."""


AS_STORED = StoredReading()
UNCHANGED = Preprocessing()
"""Neither resizes nor crops."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredMaps:
    """Maps by the id of the sample they explain, read one at a time."""

    name: str
    """The path that was opened, in quotation marks, for errors."""
    locations: Mapping[str, str | int]
    """The file, key or position of each sample's map; samples without a map are absent."""
    reader: Callable[[Any], NDArray[Any]]
    """From a location to the map there."""
    prints: dict[str, bytes] = field(default_factory=dict)
    """A hash of each map, from when it was first read."""
    frames: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = field(default_factory=dict)
    """How a map is resized and cropped with its image, for each sample whose map has the size of its image."""

    def read(self, samples: Samples, index: int) -> NDArray[np.float32]:
        """Read the map of one sample as float32, framed like its input; `check_stored` has checked it."""
        sample, values = samples.ids[index], self.read_stored(samples, index)
        return self.frames[sample](values) if sample in self.frames else values

    def read_stored(self, samples: Samples, index: int) -> NDArray[np.float32]:
        """Read the map of one sample, in its stored shape, as float32."""
        sample = samples.ids[index]
        values = self.reader(self.locations[sample])
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"{self.name} must hold real numbers; that of sample '{sample}' is {values.dtype}. {_REMEDY}"
            )
        if values.dtype.kind == "f" and values.dtype.itemsize >= 8 and values.size:
            values = to_float32(torch.from_numpy(values.astype(np.float64))[None])[0].numpy()
        else:
            values = values.astype(np.float32)
        if self.prints.setdefault(sample, content := hash_array(values)) != content:
            raise DataError(
                f"{self.name}: the map of sample '{sample}' is not what it was when it was first read. Restore it, or "
                "start a new run."
            )
        return values


def open_maps(path: str, samples: Samples) -> StoredMaps:
    """Open the stored maps of samples; `check_stored` checks them.

    Args:
        path: one of
            a directory laid out like the images, each map under the path of its image with the extension .npy, .png
            (grey, 8 or 16 bits) or .jpg, .jpeg (grey), read as whole numbers; for data sets of arrays, under the id of
            its sample;
            FILE.npy, one array (N, *S) in the order of the samples, which is memory-mapped;
            FILE.safetensors or FILE.npz, with one array "maps" (N, *S) in that order, or one array S per sample id.
        samples: all samples of the data set, before any are left out.
    """
    name, kind = f"'{path}'", os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        return StoredMaps(name=name, locations=_find_files(path, samples), reader=_read_file)
    if kind not in (".npy", ".npz", ".safetensors"):
        raise DataError(
            f"`maps` must be a directory, or a .npy, .npz or .safetensors file; {name} is none of them. "
            "Check the spelling of the path."
        )
    archive = _Archive(path=os.path.abspath(path), kind=kind)
    with reading(path, _REMEDY):
        check_unpacked_size(path)
        keys = archive.keys
        shape = archive.shape if keys == {"maps"} else None
    if shape is not None:
        return StoredMaps(name=name, locations=_in_order(name, shape, samples), reader=archive.read)
    if "maps" in keys and "maps" not in samples.ids:
        raise DataError(
            f"{name} must hold either one array 'maps' or one array per sample id; it holds 'maps' and "
            f"{len(keys) - 1} more. Store the others elsewhere."
        )
    return StoredMaps(name=name, locations={i: i for i in samples.ids if i in keys}, reader=archive.read)


def maps_from_array(array: ArrayLike, name: str, samples: Samples) -> StoredMaps:
    """Return maps in memory, one array (N, *S) or (N, C, *S) in the order of the samples."""
    whole, title = as_array(array, f"maps.{name}"), f"`maps` {name!r}"
    return StoredMaps(name=title, locations=_in_order(title, whole.shape, samples), reader=whole.__getitem__)


def check_stored(
    maps: StoredMaps,
    samples: Samples,
    spatial: tuple[int, ...],
    reading: StoredReading = AS_STORED,
    preprocessing: Preprocessing = UNCHANGED,
) -> str:
    """Read every map once; each sample must have one, finite and not negative, of the size of its input or its image.

    A map of the size of its image is resized and cropped like the image, here and whenever it is read again.

    Args:
        maps: the maps.
        samples: the samples that they explain.
        spatial: the shape of an input, and of a map as it is measured.
        reading: how negative values, channels and sizes are read.
        preprocessing: how images become inputs.

    Returns:
        A digest of the ids, and of the values as they are measured.
    """
    missing = [sample for sample in samples.ids if sample not in maps.locations]
    if missing:
        raise DataError(
            f"`maps`: {maps.name} must hold a map of each of the {len(samples)} samples; {len(missing)} have none, the "
            f"first is '{missing[0]}'. Add them, or leave these samples out."
        )
    frame = partial(preprocessing.frame_map, interpolation=reading.resize or "bilinear")
    digest = hashlib.blake2b(digest_size=32)
    for index, sample in enumerate(samples.ids):
        values = stored = maps.read_stored(samples, index)
        if not np.isfinite(stored).all():
            raise DataError(
                f"{maps.name} must be finite in float32; the map of sample '{sample}' contains NaN or infinity. "
                "Repair it, or leave the sample out."
            )
        if _covers_image(maps.name, samples, index, stored.shape, spatial, preprocessing, reading.size):
            maps.frames[sample], values = frame, frame(stored)
        plain, one = _fits(values.shape, spatial, reading), values.shape[:1] == (1,)
        with_channels = _fits(values.shape[1:], spatial, reading) and (reading.channels is not None or one)
        if 0 in values.shape or not (plain or with_channels):
            raise DataError(
                f"{maps.name} must hold maps of size {_size(spatial)}, as the model sees its inputs, or of the size of "
                f"their images; that of sample '{sample}' is {_size(stored.shape)}. Say how to resize it (`resize`) or "
                "to reduce its channels (`channels`)."
            )
        lowest = values.min() if plain or one else CHANNELS[str(reading.channels)](torch.from_numpy(values)[None]).min()
        if reading.sign == "error" and lowest < 0:
            raise DataError(
                f"{maps.name} must not be negative; the map of sample '{sample}' goes down to {lowest:g}. "
                "Choose `sign`: 'positive' drops negative values, 'absolute' takes magnitudes, 'signed' judges both."
            )
        digest.update(json.dumps([sample, values.shape]).encode() + values.astype("<f4").tobytes())
    return digest.hexdigest()


def _covers_image(
    name: str,
    samples: Samples,
    index: int,
    shape: tuple[int, ...],
    spatial: tuple[int, ...],
    preprocessing: Preprocessing,
    size: str | None,
) -> bool:
    """Return whether a map has to be resized and cropped with its image; refuse one that may or may not."""
    own = shape[-2:]
    if size == "input" or len(spatial) != 2 or len(own) < 2 or 0 in own or preprocessing.keeps((own[1], own[0])):
        return False
    image = samples.read(index)
    alike = isinstance(image, Image.Image) and (image.height, image.width) == own
    if size == "image" and not alike:
        what = f"has {_size((image.height, image.width))}" if isinstance(image, Image.Image) else "is an array"
        raise DataError(
            f"{name} must hold maps of the size of each image, because `size` is 'image'; that of sample "
            f"'{samples.ids[index]}' is {_size(shape)}, and the sample {what}. Scale the maps, or leave `size` out."
        )
    if alike and size is None and own == spatial:
        raise DataError(
            f"{name}: the map of sample '{samples.ids[index]}' has {_size(own)} pixels, and so have its image and the "
            "model's input, for which the image is resized or cropped. Say what the map covers: `size` must be 'input' "
            "or 'image'."
        )
    return alike


def _fits(shape: tuple[int, ...], spatial: tuple[int, ...], reading: Reading) -> bool:
    return shape == spatial or (reading.resize is not None and len(shape) == len(spatial))


def _size(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "a single number"


def _in_order(name: str, shape: tuple[int, ...], samples: Samples) -> dict[str, int]:
    if not shape or shape[0] != len(samples):
        single = " Of a single map, add the batch dimension: maps[None]." if len(samples) == 1 else ""
        raise DataError(
            f"{name} must hold one map for each of the {len(samples)} samples of {samples.name}, in their order; "
            f"its shape is {shape}.{single or ' Store maps by sample id if some are missing.'}"
        )
    return {sample: position for position, sample in enumerate(samples.ids)}


def _find_files(folder: str, samples: Samples) -> dict[str, str]:
    root = os.path.abspath(folder)
    listed: dict[str, dict[str, list[str]]] = {}
    paths: dict[str, str] = {}
    owner: dict[str, str] = {}
    for sample in samples.ids:
        path = PurePosixPath(sample)
        if path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"Sample '{sample}' lies outside of its data set, and its map cannot be in '{folder}'. "
                "Store the maps by sample id in one .npz or .safetensors file."
            )
        stem = str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else sample
        folder_of_map, name = os.path.split(stem)
        if folder_of_map not in listed:
            listed[folder_of_map] = _list_maps(os.path.join(root, folder_of_map))
        files = [os.path.join(folder_of_map, each) for each in listed[folder_of_map].get(name, [])]
        if len(files) > 1:
            raise DataError(
                f"'{folder}' must hold one map per sample; '{sample}' has '{files[0]}' and '{files[1]}'. Remove one."
            )
        if files and stem in owner:
            raise DataError(
                f"'{folder}' must hold one map per sample; '{files[0]}' would stand for both '{owner[stem]}' and "
                f"'{sample}'. Store the maps by sample id in one .npz or .safetensors file."
            )
        owner[stem] = sample
        if files:
            paths[sample] = os.path.join(root, files[0])
    return paths


def _list_maps(folder: str) -> dict[str, list[str]]:
    """List the maps in a folder by their names without extension."""
    names: dict[str, list[str]] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(folder)):
            stem, extension = os.path.splitext(name)
            if extension.lower() in _MAP_SUFFIXES:
                names.setdefault(stem, []).append(name)
    return names


def _read_file(path: str) -> NDArray[Any]:
    if path.lower().endswith(".npy"):
        with reading(path, _REMEDY):
            check_regular(path)
            return np.array(open_memmap(path, mode="r"))
    with opened_image(path, path) as image:
        # Older versions of Pillow open a 16-bit grey PNG as "I".
        if image.mode not in ("L", "I;16", "I"):
            raise DataError(
                f"'{path}' must be a grey image of 8 or 16 bits; its mode is {image.mode}, and colours have no order. "
                "Store the map before it was coloured."
            )
        return np.asarray(image)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Archive:
    """Arrays in one file, which each process opens itself: an open file cannot be sent to another."""

    path: str
    kind: str

    def __getstate__(self) -> dict[str, str]:
        return {"path": self.path, "kind": self.kind}

    @cached_property
    def file(self) -> Any:
        if self.kind == ".npy":
            return open_memmap(self.path, mode="r")
        if self.kind == ".npz":
            npz: Any = NpzFile  # declared for open files; with a path it closes a file that is no archive
            return npz(self.path, allow_pickle=False)
        safe_open: Any = safetensors.safe_open
        return safe_open(self.path, framework="numpy")  # "pt" would allocate memory of the size of the file

    @cached_property
    def whole(self) -> Any:
        """(N, *S) all maps; on disk, except for .npz, which is compressed as a whole."""
        if self.kind == ".safetensors":
            return self.file.get_slice("maps")
        return self.file if self.kind == ".npy" else self.file["maps"]

    @property
    def keys(self) -> set[str]:
        return {"maps"} if self.kind == ".npy" else set(self.file.keys())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.whole.get_shape() if self.kind == ".safetensors" else self.whole.shape)

    def read(self, location: str | int) -> NDArray[Any]:
        """Read the map at a position of the whole array, or under a key."""
        with reading(self.path, _REMEDY):
            if isinstance(location, int):
                return np.asarray(self.whole[location : location + 1][0])
            return np.asarray(self.file.get_tensor(location) if self.kind == ".safetensors" else self.file[location])
