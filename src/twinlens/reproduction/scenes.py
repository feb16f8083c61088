"""Pictures that experiments train networks on: handwritten digits in drawn scenes, or CIFAR.

Shapes: N images of H × W pixels with C channels, uint8; K classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.data.images import reading
from twinlens.data.sources import cifar_images
from twinlens.errors import DataError
from twinlens.models.mnist_cnn import mnist_digits
from twinlens.models.training import PAPER, Training, recognised, train
from twinlens.probing.execution import using_threads
from twinlens.reproduction.claims import Estimate, mean_of
from twinlens.reproduction.experiment_setup import refuse_lonely, refuse_options
from twinlens.reproduction.marked_sets import LazyInputs
from twinlens.reproduction.networks import SmallCNN
from twinlens.reproduction.outcome import ExperimentOptions, Outcome
from twinlens.reproduction.watermarks import Images, drawn_images
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIGITS = "digits in drawn scenes"
QUICK = Training(epochs=6, batch_size=64, rate=0.01, weight_decay=1e-4, schedule="one_cycle")
"""A short training, where the paper's 35 epochs would take too long."""

PAPER_SIDE = 224
_BRIGHTNESS = 0.75  # of a scene, so that white digits stand out
_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_OPENING = "opening images"


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures:
    """Images for training and for testing."""

    name: str
    """Name of the data set."""

    train: Images
    """(N, H, W, C) to learn from."""

    train_labels: NDArray[np.int64]
    """(N,)."""

    test: Images
    """(M, H, W, C) to measure on."""

    test_labels: NDArray[np.int64]
    """(M,)."""

    classes: int
    """Number of classes."""

    def side(self, options: ExperimentOptions) -> int:
        """Pixels of each side as networks see them: 224 in the paper's experiments with watermarks, which are 60."""
        return max(int(self.train.shape[1]), PAPER_SIDE if options.paper else 0)

    @property
    def mean(self) -> NDArray[np.float64]:
        """(C,) mean of the training images, 0 to 255."""
        return np.asarray(self.train.mean(axis=(0, 1, 2)))


def on_pictures(
    *, pretrained: bool = False
) -> Callable[
    [Callable[[Pictures, ExperimentOptions, Progress], Outcome]], Callable[[ExperimentOptions, Progress], Outcome]
]:
    """Open the pictures for an experiment that trains networks of its own, and refuse options without a use.

    Args:
        pretrained: whether it takes a trained network, too, for images as they are.
    """
    unused = ("classes", "noise", "leave_out", "compile", *(() if pretrained else ("model", "weights")))

    def opening(
        experiment: Callable[[Pictures, ExperimentOptions, Progress], Outcome],
    ) -> Callable[[ExperimentOptions, Progress], Outcome]:
        @wraps(experiment)
        def run(options: ExperimentOptions, progress: Progress) -> Outcome:
            refuse_options(options, unused, "it trains networks of its own")
            refuse_lonely(options, {"weights": "model", "model": "data"})
            with few_threads(options):
                progress.begin({_OPENING: 1})
                pictures = open_pictures(options)
                progress.advance(_OPENING, 1)
                return experiment(pictures, options, progress)

        return run

    return opening


def open_pictures(options: ExperimentOptions) -> Pictures:
    """Open the images that an experiment trains on.

    Args:
        options: `data` is None for digits in drawn scenes, "cifar10:DIR", "cifar100:DIR", or FILE.npz with the arrays
            x_train, y_train, x_test and y_test; `limit` is the number of training images, and a quarter of that is the
            number of test images.
    """
    spec = options.data
    if spec is None:
        found = _digits(options.seed)
    elif spec.startswith(("cifar10:", "cifar100:")):
        train_images, train_labels, classes = cifar_images(spec, held_out=False)
        test_images, test_labels, _ = cifar_images(spec, held_out=True)
        found = Pictures(
            name=spec.split(":", 1)[0],
            train=train_images,
            train_labels=train_labels,
            test=test_images,
            test_labels=test_labels,
            classes=len(classes),
        )
    elif spec.lower().endswith(".npz"):
        found = _archive(spec)
    else:
        raise DataError(
            f"`data` must be cifar10:DIR, cifar100:DIR or a .npz file with the arrays {', '.join(_ARRAYS)}, since "
            f"networks are trained and tested on it; got {spec!r}."
        )
    return found if options.limit is None else _limited(found, options.limit, options.seed)


def _digits(seed: int) -> Pictures:
    parts = {}
    for kind, held_out in (("train", False), ("test", True)):
        digits, labels = mnist_digits(held_out=held_out)
        ink = np.pad(digits, ((0, 0), (2, 2), (2, 2)))[..., None].astype(np.float32) / 255
        # Drawing is slow: each scene is drawn once and used in its eight orientations, which look like other scenes.
        scenes = drawn_images(-(-len(digits) // 8), 32, seed=stream(seed, "scenes", kind))
        turned = [np.rot90(flipped, k, (1, 2)) for flipped in (scenes, scenes[:, :, ::-1]) for k in range(4)]
        ground = np.concatenate(turned)[: len(digits)]
        # Digits come sorted by class, and scenes by orientation.
        ground = ground[np.random.default_rng(stream(seed, "places", kind)).permutation(len(digits))]
        parts[kind] = (_BRIGHTNESS * ground * (1 - ink) + 255 * ink).astype(np.uint8), labels
    return Pictures(
        name=DIGITS,
        train=parts["train"][0],
        train_labels=parts["train"][1],
        test=parts["test"][0],
        test_labels=parts["test"][1],
        classes=10,
    )


def _archive(spec: str) -> Pictures:
    with reading(spec, "Save plain arrays of numbers with numpy.savez."), open(spec, "rb") as file:
        archive = NpzFile(file, allow_pickle=False)
        for name in _ARRAYS:
            if name not in archive.files:
                raise DataError(f"'{spec}' must hold the arrays {', '.join(_ARRAYS)}; {name} is missing.")
        train_images, train_labels, test_images, test_labels = (archive[name] for name in _ARRAYS)
    for name, images in (("x_train", train_images), ("x_test", test_images)):
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != images.shape[2] or not len(images):
            raise DataError(
                f"'{spec}' must hold square images in {name}, uint8 (N, H, W, C); got {images.dtype} of shape "
                f"{images.shape}."
            )
    labels = [labels.reshape(-1).astype(np.int64) for labels in (train_labels, test_labels)]
    return Pictures(
        name=os.path.splitext(os.path.basename(spec))[0],
        train=train_images,
        train_labels=labels[0],
        test=test_images,
        test_labels=labels[1],
        classes=int(max(part.max() for part in labels)) + 1,
    )


def _limited(pictures: Pictures, limit: int, seed: int) -> Pictures:
    if limit < 4 * pictures.classes:
        raise ValueError(
            f"`limit` must be at least {4 * pictures.classes}, four training images for each of the "
            f"{pictures.classes} classes; got {limit}."
        )
    chosen = {}
    for kind, count, wanted in (("train", len(pictures.train), limit), ("test", len(pictures.test), limit // 4)):
        drawn = np.random.default_rng(stream(seed, "limit", kind)).permutation(count)
        chosen[kind] = np.sort(drawn[:wanted])
    return replace(
        pictures,
        train=pictures.train[chosen["train"]],
        train_labels=pictures.train_labels[chosen["train"]],
        test=pictures.test[chosen["test"]],
        test_labels=pictures.test_labels[chosen["test"]],
    )


def measure_accuracy(network: nn.Module, inputs: Tensor | LazyInputs, labels: NDArray[np.int64]) -> Estimate:
    """Estimate the accuracy of a network over test images, which are the same in all sets; not over trainings."""
    correct = recognised(network, inputs, labels).astype(np.float64)
    return mean_of(correct, [str(k) for k in range(len(correct))], over="test images")


def train_network(
    inputs: Tensor | LazyInputs,
    labels: NDArray[np.int64],
    *,
    classes: int,
    options: ExperimentOptions,
    paper_network: Callable[[int, int], nn.Module],
    progress: Progress,
    task: str,
) -> nn.Module:
    """Train a network: the paper's with `options.paper`, and a small one otherwise.

    Args:
        inputs: (N, C, H, W) images to learn from; see `as_inputs`.
        labels: (N,) their classes.
        classes: number of classes.
        options: those of the experiment.
        paper_network: builds the paper's network from the numbers of channels and classes.
        progress: receives the epochs.
        task: name of the task that they belong to.
    """
    _, channels, size, _ = inputs.shape
    small = partial(SmallCNN, channels, classes, size=size, width=8)
    training = PAPER if options.paper else QUICK
    progress.begin({task: training.epochs})
    return train(
        partial(paper_network, channels, classes) if options.paper else small,
        inputs,
        labels,
        training=training,
        seed=options.seed,
        device=options.device,
        advance=lambda done, total: progress.advance(task, 1, f"epoch {done} of {total}"),
    )


def few_threads(options: ExperimentOptions) -> AbstractContextManager[None]:
    """Let torch use one thread, because small images need no more; with `options.paper` as many as it likes."""
    return using_threads(None if options.paper else 1)


def show_images(axes: Axes, images: Images, *, columns: int) -> None:
    """Draw images (N, H, W, C) as a sheet with grey lines around them, because images may be white themselves."""
    rows = -(-len(images) // columns)
    _, height, width, channels = images.shape
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, channels), 190, dtype=np.uint8)
    for k, image in enumerate(images):
        y, x = k // columns * (height + 1) + 1, k % columns * (width + 1) + 1
        sheet[y : y + height, x : x + width] = image
    axes.imshow(sheet if channels == 3 else sheet[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()


def show_bars(axes: Axes, values: Mapping[str, float], colours: Mapping[str, str]) -> None:
    """Draw accuracies as bars with their numbers."""
    bars = axes.bar(list(values), list(values.values()), color=[colours[name] for name in values], width=0.65)
    axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_ylim(0, 1.08)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=7)
