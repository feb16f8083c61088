"""Images to train and test on: digits in drawn scenes, CIFAR, or your own arrays.

Images are enlarged and watermarked on demand: CIFAR-100 at 224 × 224 pixels would take 30 GB at once.

Shapes: N images of H × W pixels with C channels, uint8; B images of a batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from twinlens.data.images import reading
from twinlens.data.sources import cifar_images
from twinlens.errors import DataError
from twinlens.models.training import Batches
from twinlens.probing.execution import using_threads
from twinlens.reproduction.experiment import MAP_READINGS, ExperimentOptions, refuse_options, require_both
from twinlens.reproduction.scenes import DIGITS, digits_in_scenes
from twinlens.reproduction.watermarks import Images, Watermarked
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress, Quiet
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER_SIDE = 224
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_TOGETHER = 500  # images in memory at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Labelled images, with watermarks or without."""

    images: Images  # (N, h, w, C) in their original size
    labels: NDArray[np.int64]  # (N,) their classes; with watermarks, those that the watermarks show
    size: int | None = None  # pixels of each side as networks see them; None for the original size
    mark: Callable[..., Watermarked] | None = None  # adds watermarks to images with these `ids`

    def __len__(self) -> int:
        return len(self.images)

    @property
    def side(self) -> int:
        """Pixels of each side as networks see them."""
        return self.size or int(self.images.shape[1])

    def take(self, index: Sequence[int] | NDArray[Any]) -> Watermarked:
        """Return some images, enlarged and marked."""
        some, ids = np.asarray(index), [str(k) for k in index]
        images = enlarge(self.images[some], self.side)
        if self.mark is not None:
            return self.mark(images, ids=ids)
        nowhere = np.zeros(images.shape[:3], dtype=bool)
        return Watermarked(images=images, labels=self.labels[some], region=nowhere, ids=tuple(ids))

    def mean(self) -> NDArray[np.float64]:
        """Return the mean colour (C,)."""
        batches = np.array_split(np.arange(len(self)), -(-len(self) // _TOGETHER))
        sums = [self.take(batch).images.sum(axis=(0, 1, 2), dtype=np.float64) for batch in batches]
        return np.asarray(np.sum(sums, axis=0) / (len(self) * self.side**2))

    def inputs(self, mean: NDArray[np.float64]) -> Tensor | LazyInputs:
        """Return the images as networks see them; enlarged ones batch by batch."""
        if self.side == self.images.shape[1]:
            return as_inputs(self.take(range(len(self))).images, mean)
        return LazyInputs(images=self, mean=mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class LazyInputs(Batches):
    """Inputs of a network, computed on demand; used for training and testing like a tensor (N, C, H, W)."""

    images: ImageSet
    mean: NDArray[np.float64]  # (C,) the colour that becomes zero

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, C, H, W)."""
        return len(self.images), self.images.images.shape[3], self.images.side, self.images.side

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor | NDArray[Any]) -> Tensor:
        return as_inputs(self.images.take(np.asarray(index)).images, self.mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageExperiment:
    """The images, options and progress of an experiment that trains its own networks."""

    name: str
    train: ImageSet
    test: ImageSet
    classes: int
    options: ExperimentOptions
    progress: Progress = field(default_factory=Quiet)

    @property
    def side(self) -> int:
        """Pixels of each side in experiments with watermarks: 224 in the paper, where watermarks have 60."""
        return max(self.train.side, PAPER_SIDE if self.options.paper else 0)

    def describe(self, **more: int) -> dict[str, Any]:
        """Return the name and the numbers of images, as results.json holds them."""
        return {"data": self.name, "images": {"train": len(self.train), "test": len(self.test), **more}}


@contextmanager
def image_experiment(
    options: ExperimentOptions, progress: Progress, *, pretrained: bool = False
) -> Iterator[ImageExperiment]:
    """Open the images of an experiment that trains its own networks, and refuse options that it does not use.

    Torch uses one thread within the block, unless `options.paper` is set: small images need no more. With `pretrained`
    the experiment can use a trained network for real images.
    """
    unused = ("classes", "leave_out", "compile", *MAP_READINGS, *(() if pretrained else ("model", "weights")))
    refuse_options(options, unused, "it trains its own networks")
    require_both(options, {"weights": "model", "model": "data"})
    with using_threads(None if options.paper else 1):
        progress.begin({"opening images": 1})
        experiment = replace(open_images(options), progress=progress)
        progress.advance("opening images", 1)
        yield experiment


def open_images(options: ExperimentOptions) -> ImageExperiment:
    """Open the images that an experiment trains on: `limit` for training, and a quarter of that for testing."""
    spec = options.data
    if spec is None:
        name, classes = DIGITS, 10
        train, test = digits_in_scenes("train", options.seed), digits_in_scenes("test", options.seed)
    elif spec.startswith(("cifar10:", "cifar100:")):
        images, labels, names = cifar_images(spec, held_out=False)
        train, test = (images, labels), cifar_images(spec, held_out=True)[:2]
        name, classes = spec.split(":", 1)[0], len(names)
    elif spec.lower().endswith(".npz"):
        name = os.path.splitext(os.path.basename(spec))[0]
        train, test = _archive(spec)
        classes = int(max(train[1].max(), test[1].max())) + 1
    else:
        raise DataError(
            f"`data` must be cifar10:DIR, cifar100:DIR or a .npz file with the arrays {', '.join(_ARRAYS)}, since "
            f"networks are trained and tested on it; got {spec!r}."
        )
    if options.limit is not None and options.limit < 4 * classes:
        raise ValueError(
            f"`limit` must be at least {4 * classes}, four training images for each of the {classes} classes; got "
            f"{options.limit}."
        )
    return ImageExperiment(
        name=name,
        train=_limited(*train, options.limit, stream(options.seed, "limit", "train")),
        test=_limited(*test, options.limit and options.limit // 4, stream(options.seed, "limit", "test")),
        classes=classes,
        options=options,
    )


def _archive(spec: str) -> list[tuple[Images, NDArray[np.int64]]]:
    """Read the images and labels for training and for testing from a .npz file."""
    with reading(spec, "Save plain arrays of numbers with numpy.savez."), open(spec, "rb") as file:
        archive = NpzFile(file, allow_pickle=False)
        for name in _ARRAYS:
            if name not in archive.files:
                raise DataError(f"'{spec}' must hold the arrays {', '.join(_ARRAYS)}; {name} is missing.")
        arrays: Mapping[str, NDArray[Any]] = {name: archive[name] for name in _ARRAYS}
    for name in ("x_train", "x_test"):
        images = arrays[name]
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != images.shape[2] or not len(images):
            raise DataError(
                f"'{spec}' must hold square images in {name}, uint8 (N, H, W, C); got {images.dtype} of shape "
                f"{images.shape}."
            )
    return [(arrays[f"x_{kind}"], arrays[f"y_{kind}"].reshape(-1).astype(np.int64)) for kind in ("train", "test")]


def _limited(images: Images, labels: NDArray[np.int64], limit: int | None, seed: int) -> ImageSet:
    """Draw `limit` images in their original order, or take all."""
    if limit is None:
        return ImageSet(images=images, labels=labels)
    some = np.sort(np.random.default_rng(seed).permutation(len(images))[:limit])
    return ImageSet(images=images[some], labels=labels[some])


def as_inputs(images: Images, mean: NDArray[np.float64]) -> Tensor:
    """Return images as networks see them, (N, C, H, W): minus the mean of the training images, at half contrast.

    Zero is the mean colour then, and the baseline of integrated gradients.
    """
    values = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float()
    return (values - torch.from_numpy(mean).float()[:, None, None]) / 64


def enlarge(images: Images, size: int) -> Images:
    """Resize images (B, h, w, C) to `size` pixels each side, bilinearly."""
    if images.shape[1] == size:
        return images
    values = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).float()
    large = torch.nn.functional.interpolate(values, size=(size, size), mode="bilinear", align_corners=False)
    return large.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def show_images(axes: Axes, images: Images, *, columns: int) -> None:
    """Draw images (N, H, W, C) as a sheet, separated by grey lines because images may be white themselves."""
    rows = -(-len(images) // columns)
    _, height, width, channels = images.shape
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, channels), 190, dtype=np.uint8)
    for k, image in enumerate(images):
        y, x = k // columns * (height + 1) + 1, k % columns * (width + 1) + 1
        sheet[y : y + height, x : x + width] = image
    axes.imshow(sheet if channels == 3 else sheet[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()


def show_bars(
    axes: Axes, estimates: Mapping[str, Estimate], colours: Sequence[str], *, chance: float | None = None
) -> None:
    """Draw shares as bars with their numbers and intervals, and chance as a line."""
    values, low, high = np.array([[one.value, one.low, one.high] for one in estimates.values()], dtype=float).T
    ends = values - low, high - values
    bars = axes.bar(list(estimates), values, 0.65, yerr=ends, color=colours, error_kw={"elinewidth": 0.8})
    axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_ylim(0, 1.12)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=6.5)
    if chance is not None:
        axes.axhline(chance, color="0.4", linestyle=":", linewidth=0.9)
        axes.annotate(
            "chance",
            (1, chance),
            (1, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=6,
            color="0.4",
            annotation_clip=False,
        )
