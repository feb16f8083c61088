"""Semi-natural data favour whoever knows how they were made: Rect and Pooling under Attr%, each best on its own set.

Images get new labels, and watermarks that tell them: a number in a black square, or stripes that are a binary code. Two
methods are crafted from maps of integrated gradients, one for squares and one for stripes.

Shapes: N images of H × W pixels, S methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from twinlens.attribution import attribute
from twinlens.core.plotting import COLOURS
from twinlens.core.progress import Progress
from twinlens.core.randomness import stream
from twinlens.core.resampling import Interval
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.pictures import Pictures, as_inputs, on_pictures, show_images, train_network
from twinlens.experiments.watermarks import Images, Watermarked, number_watermarks, stripe_watermarks
from twinlens.laboratory.localisation import attribution_inside
from twinlens.models.networks import VGG16
from twinlens.models.training import accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WATERMARKS = {"number": number_watermarks, "stripe": stripe_watermarks}
METHODS = {"Rect": "rect", "Pooling": "pooling", "IG": "integrated_gradients"}
EXPLAINED = 400
"""Test images that are explained at most."""


def watermarked(pictures: Pictures, kind: str, seed: int) -> tuple[Watermarked, Watermarked]:
    """Put watermarks into training and test images, as many classes as the images have."""
    mark = WATERMARKS[kind]
    return (
        mark(pictures.train, classes=pictures.classes, seed=stream(seed, kind, "train")),
        mark(pictures.test, classes=pictures.classes, seed=stream(seed, kind, "test")),
    )


@on_pictures
def run(pictures: Pictures, options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    found: dict[str, dict[str, Any]] = {}
    samples: dict[str, list[Images | Tensor]] = {}
    for kind in WATERMARKS:
        train, test = watermarked(pictures, kind, options.seed)
        mean = np.asarray(train.images.mean(axis=(0, 1, 2)))
        network = train_network(
            train.images,
            train.labels,
            mean,
            classes=pictures.classes,
            options=options,
            paper_network=VGG16,
            progress=progress,
            task=f"training on {kind} watermarks",
        )
        inputs = as_inputs(test.images, mean)
        # Class 0 has no stripe, and so no region that a map could meet.
        drawn = np.random.default_rng(stream(options.seed, "explained")).permutation(len(inputs))
        some = drawn[test.region[drawn].any(axis=(1, 2))][:EXPLAINED]
        ids = [test.ids[k] for k in some]
        shares: dict[str, Interval[float]] = {}
        shown: list[Images | Tensor] = [test.images[some[:4]]]
        task = f"explaining {kind} watermarks"
        progress.begin({task: len(METHODS)})
        for name, method in METHODS.items():
            progress.advance(task, 0, name)
            maps = attribute(network, inputs[some], test.labels[some], method, ids=ids, seed=options.seed)
            shares[name] = attribution_inside(maps.cpu(), test.region[some], ids=ids).interval(seed=options.seed)
            shown.append(maps[:4].cpu())
            progress.advance(task, 1, name)
        found[kind] = {"accuracy": accuracy(network, inputs, test.labels), "samples": len(some), "attr": shares}
        samples[kind] = shown
    numbers = {
        "data": pictures.name,
        "images": {"train": len(pictures.train), "test": len(pictures.test)},
        "sets": {
            kind: {
                "accuracy": row["accuracy"],
                "explained": row["samples"],
                "attr": {name: _described(share) for name, share in row["attr"].items()},
            }
            for kind, row in found.items()
        },
    }
    return Outcome(
        numbers=numbers,
        claims=tuple(_claims(found)),
        figures={"semi-natural": partial(draw, samples=samples, found=found)},
    )


def _described(share: Interval[float]) -> dict[str, float | None]:
    return {"mean": share.value, "low": share.low, "high": share.high}


def _claims(found: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    claims = []
    for kind, best, other in (("number", "Rect", "Pooling"), ("stripe", "Pooling", "Rect")):
        first, second = found[kind]["attr"][best], found[kind]["attr"][other]
        claims.append(
            Claim(
                text=f"On {kind} watermarks, {best}, which was crafted for them, has the higher Attr%, and {other} "
                "performs poorly (intervals do not overlap).",
                source="Section 3.2, Fig. 3b",
                measured=f"{best} {first}, {other} {second}",
                holds=first.low > second.high,
            )
        )
    worst = min(row["accuracy"] for row in found.values())
    claims.append(
        Claim(
            text="The watermarks are easily learned (accuracy of 99% or more).",
            source="Appendix C: 99.4% on number watermarks",
            measured=", ".join(f"{row['accuracy']:.1%} on {kind} watermarks" for kind, row in found.items()),
            holds=worst >= 0.99,
        )
    )
    return claims


def draw(figure: Figure, samples: Mapping[str, list[Any]], found: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw both sets with the crafted maps beside, and Attr% of both methods on both."""
    figure.set_size_inches(6.9, 2.9)
    halves: Any = figure.subfigures(1, 2, width_ratios=(1.25, 1))
    left, right = halves
    grid = left.subplots(len(samples), 3)
    for row, (kind, (images, rect, pooling, _)) in zip(grid, samples.items(), strict=True):
        show_images(row[0], images, columns=2)
        for axes, maps in zip(row[1:], (rect, pooling), strict=True):
            show_images(axes, _as_images(maps), columns=2)
        row[0].set_title(f"{kind} watermarks", fontsize=7)
    for axes, name in zip(grid[0][1:], ("Rect", "Pooling"), strict=True):
        axes.set_title(name, fontsize=7)
    left.suptitle("(a) semi-natural sets, and maps of crafted methods", fontsize=8)
    axes = right.subplots()
    for k, name in enumerate(("Rect", "Pooling")):
        shares = [found[kind]["attr"][name] for kind in found]
        x = np.arange(len(shares)) + 0.36 * (k - 0.5)
        reach = [[s.value - s.low for s in shares], [s.high - s.value for s in shares]]
        bars = axes.bar(
            x, [s.value for s in shares], 0.32, yerr=reach, color=COLOURS[k], label=name, error_kw={"elinewidth": 0.8}
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
    axes.set_xticks(range(len(found)), [f"{kind} watermarks" for kind in found])
    axes.set_ylim(0, 1.08)
    axes.set_ylabel("Attr%")
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    axes.legend(loc="upper center", ncols=2)
    right.suptitle("(b) share of attribution inside", fontsize=8)


def _as_images(maps: Tensor) -> Images:
    """Return maps as grey images, each with its own scale."""
    values = maps.numpy()
    peak = values.max(axis=(1, 2), keepdims=True)
    scaled = 255 * values / np.where(peak > 0, peak, 1)
    return np.repeat(scaled.astype(np.uint8)[..., None], 3, axis=3)


EXPERIMENT = Experiment(
    title="Do semi-natural data favour methods that know how they were made?",
    source="Section 3.2, Fig. 3, appendix C",
    run=run,
)
