"""Retrained networks learn from the removal, and ignore the object.

Retraining: 70% of the pixels are removed from every image, by strategy 1 in the centre, by strategy 2 also at the edge,
where the position depends on the class. Spurious edge: the object stays, and 5% of the pixels near the edge become
black, at a position that depends on the class.

Shapes: N images of H × W pixels with C channels, H = W; K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinlens.reproduction.claims import Claim, judge
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.image_sets import (
    ImageExperiment,
    ImageSet,
    as_inputs,
    image_experiment,
    show_bars,
    show_images,
)
from twinlens.reproduction.networks import TinyResNet, measure_accuracy, train_network
from twinlens.reproduction.scenes import DIGITS
from twinlens.reproduction.watermarks import Images
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLEAN, FIRST, SECOND = "clean", "strategy 1", "strategy 2"
SHARE = 0.7  # of the pixels, removed by both strategies
EDGE_SHARE = 0.03  # of the pixels, removed by strategy 2 near the edge, included in `SHARE`
SPURIOUS_SHARE = 0.05  # of the pixels, black for the spurious edge
MARGIN = 0.15  # difference in accuracy that counts as very different
ALMOST = 0.85  # what counts as almost 90%
_GREY = "#85858a"
ORIGINAL, RETRAINED, MARKED = "original", "retrained", "marked"
Accuracy = Mapping[str, Mapping[str, Estimate]]
"""Accuracy by the set that a network was trained on, and the one it was tested on."""


def edge_regions(classes: int, side: int, share: float) -> NDArray[np.bool_]:
    """Return a region at the edge for each class, (K, H, W): the pixels nearest to a point of the border.

    The points are evenly spaced along the border, clockwise from the upper right corner.
    """
    count = round(share * side * side)
    along = np.arange(classes) / classes * 4
    corner, rest = along.astype(int) % 4, (along % 1)[:, None, None]
    # Corners clockwise from the upper right one, as shares of the sides.
    ys, xs = np.array([0, 1, 1, 0, 0]), np.array([1, 1, 0, 0, 1])
    y0, y1, x0, x1 = (ends[corner + step][:, None, None] for ends in (ys, xs) for step in (0, 1))
    y, x = np.mgrid[:side, :side]
    down, across = (y0 + (y1 - y0) * rest) * (side - 1), (x0 + (x1 - x0) * rest) * (side - 1)
    distance = np.hypot(y - down, x - across).reshape(classes, -1)
    nearest = np.argsort(distance.round(6), axis=1, kind="stable")[:, :count]
    region = np.zeros((classes, side * side), dtype=bool)
    np.put_along_axis(region, nearest, values=True, axis=1)
    return region.reshape(classes, side, side)


def removed_pixels(classes: int, side: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Choose the pixels to remove: (H, W) by strategy 1, and equally many (K, H, W) by strategy 2."""
    count = round(SHARE * side * side)
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    outwards = np.argsort(np.hypot(y, x).round(6).ravel(), kind="stable")
    first = np.zeros(side * side, dtype=bool)
    first[outwards[:count]] = True
    second = edge_regions(classes, side, EDGE_SHARE).reshape(classes, -1)
    for region in second:
        centre = outwards[~region[outwards]]
        region[centre[: count - int(region.sum())]] = True
    return first.reshape(side, side), second.reshape(classes, side, side)


def fill(images: Images, removed: NDArray[np.bool_], colour: NDArray[np.float64] | float) -> Images:
    """Replace removed pixels, (N, H, W) or (H, W), by a colour."""
    return np.where(removed[..., None], np.asarray(colour).round().astype(np.uint8), images)


def measure_networks(
    trained_on: Mapping[str, Images], tested_on: Mapping[str, Images], experiment: ImageExperiment
) -> dict[str, dict[str, Estimate]]:
    """Train one network per set of training images, and measure its accuracy on each set of test images."""
    mean = experiment.train.mean()
    inputs = {name: as_inputs(images, mean) for name, images in tested_on.items()}
    labels, accuracy = experiment.test.labels, {}
    for name, images in trained_on.items():
        train = ImageSet(images=images, labels=experiment.train.labels)
        network = train_network(train, mean, experiment, TinyResNet, f"training: {name}")
        accuracy[name] = {kind: measure_accuracy(network, each, labels) for kind, each in inputs.items()}
    return accuracy


def run_retraining(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment with two strategies of removal."""
    with image_experiment(options, progress) as experiment:
        first, second = removed_pixels(experiment.classes, experiment.train.side)
        mean = experiment.train.mean()
        train, test = (
            {
                CLEAN: part.images,
                FIRST: fill(part.images, first, mean),
                SECOND: fill(part.images, second[part.labels], mean),
            }
            for part in (experiment.train, experiment.test)
        )
        accuracy = measure_networks(train, test, experiment)
    chosen = np.unique(experiment.test.labels, return_index=True)[1][:9]
    samples = [test[name][chosen] for name in (FIRST, SECOND)]
    return Outcome(
        numbers=_numbers(experiment, SHARE, accuracy),
        claims=tuple(_claims(accuracy)),
        figures={"retraining": partial(draw, samples=samples, accuracy=accuracy, chance=1 / experiment.classes)},
    )


def run_spurious_edge(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment with a mark at the edge."""
    with image_experiment(options, progress) as experiment:
        train, test = experiment.train, experiment.test
        region = edge_regions(experiment.classes, train.side, SPURIOUS_SHARE)
        marked, marked_test = (fill(part.images, region[part.labels], 0.0) for part in (train, test))
        trained_on = {ORIGINAL: train.images, RETRAINED: marked}
        accuracy = measure_networks(trained_on, {CLEAN: test.images, MARKED: marked_test}, experiment)
    samples = marked[np.unique(train.labels, return_index=True)[1][:10]]
    return Outcome(
        numbers=_numbers(experiment, SPURIOUS_SHARE, accuracy),
        claims=tuple(_spurious_claims(accuracy)),
        figures={
            "spurious-edge": partial(draw_spurious, samples=samples, accuracy=accuracy, chance=1 / experiment.classes)
        },
    )


def _numbers(experiment: ImageExperiment, removed: float, accuracy: Accuracy) -> dict[str, Any]:
    shares = {name: {kind: share.value for kind, share in row.items()} for name, row in accuracy.items()}
    return {**experiment.describe(), "removed": removed, "accuracy": shares}


def _claims(accuracy: Accuracy) -> list[Claim]:
    decide, original = partial(judge, unit="test images"), accuracy[CLEAN]
    clean, first, second = (original[name] for name in (CLEAN, FIRST, SECOND))
    one, two = accuracy[FIRST][FIRST], accuracy[SECOND][SECOND]
    return [
        decide(
            clean / 2 - first,
            clean / 2 - second,
            text="The original network performs poorly on both perturbed test sets: less than half as well.",
            source="Section 3.1, Fig. 1c",
            measured=f"{first.value:z.3f} and {second.value:z.3f}; {clean.value:z.3f} on clean images",
        ),
        decide(
            clean - one - MARGIN,
            text="The network retrained without the centre (strategy 1) still performs badly on its test set: worse by "
            f"{MARGIN} or more.",
            source="Section 3.1, Fig. 1c: 0.66",
            measured=f"{one.value:z.3f}, against {clean.value:z.3f} of the original on clean images",
        ),
        decide(
            two - ALMOST,
            text="The network retrained with a class-dependent region at the edge (strategy 2) reaches almost 90%: "
            f"more than {ALMOST:.0%}.",
            source="Section 3.1, Fig. 1c: 0.88",
            measured=f"{two.value:z.3f}",
        ),
        decide(
            two - one - MARGIN,
            text=f"With as many pixels removed, the two retrained networks differ clearly, by {MARGIN} or more.",
            source="Section 3.1, Fig. 1: 0.66 against 0.88",
            measured=f"{one.value:z.3f} against {two.value:z.3f}",
        ),
    ]


def _spurious_claims(accuracy: Accuracy) -> list[Claim]:
    decide, original, retrained = partial(judge, unit="test images"), accuracy[ORIGINAL], accuracy[RETRAINED]
    return [
        decide(
            original[CLEAN] - retrained[CLEAN] - MARGIN,
            text=f"On clean test images the retrained network is much worse than the original (by {MARGIN} or more), "
            "although no object was removed from what it learned from.",
            source="Appendix C, Fig. 10b",
            measured=f"{retrained[CLEAN].value:z.3f} against {original[CLEAN].value:z.3f}",
        ),
        decide(
            retrained[MARKED] - retrained[CLEAN] - MARGIN,
            retrained[MARKED] - original[CLEAN] + 0.05,
            text="The retrained network classifies by the spurious correlation: it succeeds where the mark is there, "
            "and fails where it is not.",
            source="Appendix C, caption of Fig. 10",
            measured=f"{retrained[MARKED].value:z.3f} on marked images, {retrained[CLEAN].value:z.3f} on clean",
        ),
    ]


def draw(figure: Figure, samples: list[Images], accuracy: Accuracy, chance: float) -> None:
    """Draw samples of both sets, and the accuracy of the original and the retrained networks on them."""
    figure.set_size_inches(6.9, 2.4)
    *sheets, bars = figure.subplots(1, 3, width_ratios=(1, 1, 1.6))
    for axes, images, letter, name in zip(sheets, samples, "ab", (FIRST, SECOND), strict=True):
        show_images(axes, images, columns=3)
        axes.set_title(f"({letter}) {name}", fontsize=8)
    shown = {"original\nclean": accuracy[CLEAN][CLEAN]}
    shown |= {
        f"original\nset {letter}": accuracy[CLEAN][name] for letter, name in zip("ab", (FIRST, SECOND), strict=True)
    }
    shown |= {
        f"retrained\nset {letter}": accuracy[name][name] for letter, name in zip("ab", (FIRST, SECOND), strict=True)
    }
    show_bars(bars, shown, [_GREY, *COLOURS[:2] * 2], chance=chance)
    bars.set_title("(c) test accuracy", fontsize=8)


def draw_spurious(figure: Figure, samples: Images, accuracy: Accuracy, chance: float) -> None:
    """Draw samples of the images for retraining, and the accuracy of both networks on clean and marked test images."""
    figure.set_size_inches(6.9, 2.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    show_images(left, samples, columns=5)
    left.set_title("(a) training images, 5% removed by class", fontsize=8)
    shown = {f"{name}\n{kind}": row[kind] for kind in (CLEAN, MARKED) for name, row in accuracy.items()}
    show_bars(right, shown, [_GREY, COLOURS[1]] * 2, chance=chance)
    right.set_title("(b) accuracy on test images", fontsize=8)


RETRAINING = Experiment(
    title="Do retrained networks read the class from where pixels were removed?",
    source="Section 3.1, Fig. 1",
    run=run_retraining,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-10 and a ResNet",
)
SPURIOUS_EDGE = Experiment(
    title="Does a network that was retrained with a mark at the edge still see the object?",
    source="Appendix C, Fig. 10",
    run=run_spurious_edge,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-10 and a ResNet",
)
