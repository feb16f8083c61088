"""Semi-natural data favour methods that know how they were made: Rect and Pooling have the best Attr% on their own set.

Images get new labels, and watermarks that show them: a number in a black square, or stripes that are a binary code. Two
methods are crafted from maps of integrated gradients, one for squares and one for stripes.

Shapes: N images of H × W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from twinlens.checks.localisation import attribution_inside
from twinlens.report.styles import BUILT_IN
from twinlens.reproduction.claims import Claim, judge, list_values
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.image_sets import (
    ImageExperiment,
    ImageSet,
    as_inputs,
    image_experiment,
    show_bars,
    show_images,
)
from twinlens.reproduction.networks import VGG16, explain, measure_accuracy, train_network
from twinlens.reproduction.scenes import DIGITS
from twinlens.reproduction.watermarks import (
    Images,
    draw_labels,
    number_watermarks,
    stripe_watermarks,
)
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WATERMARKS = {"number": number_watermarks, "stripe": stripe_watermarks}
METHODS = {
    "Rect": "rect",
    "Pooling": "pooling",
    "IG": "integrated_gradients",
    "GradCAM": "gradcam",
    "DeepSHAP": "deepshap",
}
TAILORED = {"number": "Rect", "stripe": "Pooling"}
EXPLAINED = 400
"""Most test images that are explained."""

_SHOWN = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class MarkedResults:
    """Results on one set of watermarks: Attr% is the share of attribution inside the watermark."""

    accuracy: Estimate  # of the network, on all test images
    explained: int  # number of test images with maps
    shares: Mapping[str, Estimate]  # Attr% by method
    images: Images  # a few test images
    maps: Mapping[str, Tensor]  # their maps by method


def add_watermarks(experiment: ImageExperiment, kind: str, *, alone: bool = False) -> tuple[ImageSet, ImageSet]:
    """Add watermarks to training and test images, or to a blank canvas; as many classes as the images have."""
    sets, classes = [], experiment.classes
    for part, images in (("train", experiment.train.images), ("test", experiment.test.images)):
        ground = np.full_like(images, 128) if alone else images  # black and white both show on grey
        seed = stream(experiment.options.seed, kind, part)
        labels = draw_labels([str(k) for k in range(len(images))], classes, seed)
        mark = partial(WATERMARKS[kind], classes=classes, seed=seed)
        sets.append(ImageSet(images=ground, labels=labels, size=experiment.side, mark=mark))
    return sets[0], sets[1]


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    with image_experiment(options, progress) as experiment:
        results = {kind: _measure(kind, experiment) for kind in WATERMARKS}
    numbers = {
        **experiment.describe(),
        "sets": {
            kind: {
                "accuracy": own.accuracy.value,
                "explained": own.explained,
                "attr": to_json(own.shares),
            }
            for kind, own in results.items()
        },
    }
    return Outcome(
        numbers=numbers, claims=tuple(_claims(results)), figures={"semi-natural": partial(draw, results=results)}
    )


def _measure(kind: str, experiment: ImageExperiment) -> MarkedResults:
    """Train a network on watermarks, and measure which share of attribution lies inside them."""
    train, test = add_watermarks(experiment, kind)
    mean = train.mean()
    network = train_network(train, mean, experiment, VGG16, f"training on {kind} watermarks")
    # Class 0 has no stripe, and so no region that a map could match.
    order = np.random.default_rng(stream(experiment.options.seed, "explained")).permutation(len(test))
    explained = test.take(order[(kind != "stripe") | (test.labels[order] > 0)][:EXPLAINED])
    inputs = as_inputs(explained.images, mean)
    shares, samples, ids, task = {}, {}, explained.ids, f"explaining {kind} watermarks"
    for name, maps in explain(network, inputs, explained.labels, METHODS, experiment, ids=ids, task=task):
        inside = attribution_inside(maps.cpu(), explained.region, ids=ids)
        shares[name], samples[name] = Estimate.of_mean(inside.values, ids), maps[:_SHOWN].cpu()
    accuracy = measure_accuracy(network, test.inputs(mean), test.labels)
    images = explained.images[:_SHOWN]
    return MarkedResults(accuracy=accuracy, explained=len(inputs), shares=shares, images=images, maps=samples)


def _claims(results: Mapping[str, MarkedResults]) -> Iterator[Claim]:
    decide = partial(judge, unit="test images")
    for kind, best in TAILORED.items():
        shares, other = results[kind].shares, next(name for name in TAILORED.values() if name != best)
        yield decide(
            shares[best] - shares[other],
            text=f"On {kind} watermarks, {best}, which was crafted for them, has a higher Attr% than {other}.",
            source="Section 3.2, Fig. 2b",
            measured=list_values({name: shares[name] for name in (best, other)}),
        )
        # Averaging within bands moves no attribution into a stripe: Pooling has the Attr% of the maps it is made from.
        rivals = [name for name in shares if name not in TAILORED.values() and (kind, name) != ("stripe", "IG")]
        yield decide(
            *(shares[best] - shares[name] for name in rivals),
            text=f"On {kind} watermarks, the tailored {best} outperforms methods that are not: {', '.join(rivals)}.",
            source="Section 3.2, which compares Rect and Pooling alone",
            measured=list_values(shares),
            ours=True,
        )
    yield decide(
        *(own.accuracy - 0.99 for own in results.values()),
        text="The watermarks are easily learned: accuracy above 99%.",
        source="Appendix D.1: 99.4% on number watermarks",
        measured=", ".join(f"{own.accuracy.value:.1%} on {kind} watermarks" for kind, own in results.items()),
        ours=True,
    )


def draw(figure: Figure, results: Mapping[str, MarkedResults]) -> None:
    """Draw both sets beside maps of the crafted methods, and Attr% of all methods on both."""
    figure.set_size_inches(6.9, 3.1)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1.3, 1))[0]
    grid = left.subplots(len(results), 3)
    for row, (kind, own) in zip(grid, results.items(), strict=True):
        show_images(row[0], own.images, columns=2)
        row[0].set_title(f"{kind} watermarks", fontsize=7)
        for axes, name in zip(row[1:], TAILORED.values(), strict=True):
            show_images(axes, _as_images(own.maps[name]), columns=2)
            axes.set_title(name if own is results["number"] else "", fontsize=7)
    left.suptitle("(a) semi-natural sets, and maps of crafted methods", fontsize=8)
    for axes, (kind, own) in zip(right.subplots(len(results), 1, sharex=True), results.items(), strict=True):
        show_bars(axes, own.shares, [BUILT_IN[METHODS[name]].colour for name in own.shares])
        axes.set_ylabel(f"Attr%, {kind}", fontsize=7)
        axes.tick_params(axis="x", labelsize=6)
    right.suptitle("(b) share of attribution inside the watermark", fontsize=8)


def _as_images(maps: Tensor) -> Images:
    """Return maps as grey images, each with its own scale."""
    values = maps.numpy()
    peak = values.max(axis=(1, 2), keepdims=True)
    scaled = 255 * values / np.where(peak > 0, peak, 1)
    return np.repeat(scaled.astype(np.uint8)[..., None], 3, axis=3)


EXPERIMENT = Experiment(
    title="Do semi-natural data favour methods that know how they were made?",
    source="Section 3.2, Fig. 2, Fig. 11, appendix D",
    run=run,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-100 and VGG16",
)
