"""Retraining ignores what is there: a network trained with a mark at the edge no longer looks at the object.

From every training image 5% of the pixels are removed, black, near the edge, at a place that depends on the class. The
object is intact, but the retrained network fails on clean images.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from twinlens.reproduction.claims import Estimate, judge
from twinlens.reproduction.marked_sets import as_inputs
from twinlens.reproduction.networks import TinyResNet
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.retraining import MARGIN, edge_regions, fill
from twinlens.reproduction.scenes import (
    DIGITS,
    Pictures,
    measure_accuracy,
    on_pictures,
    show_bars,
    show_images,
    train_network,
)
from twinlens.reproduction.watermarks import Images
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 0.05
"""Share of the pixels that are removed."""

ORIGINAL, RETRAINED = "original", "retrained"
_SHOWN = 10


@on_pictures()
def run(pictures: Pictures, options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    height, width = pictures.train.shape[1:3]
    region = edge_regions(pictures.classes, height, width, SHARE)
    marked = fill(pictures.train, region[pictures.train_labels], 0.0)
    tests = {"clean": pictures.test, "marked": fill(pictures.test, region[pictures.test_labels], 0.0)}
    found: dict[str, dict[str, Estimate]] = {}
    for name, images in ((ORIGINAL, pictures.train), (RETRAINED, marked)):
        network = train_network(
            as_inputs(images, pictures.mean),
            pictures.train_labels,
            classes=pictures.classes,
            options=options,
            paper_network=TinyResNet,
            progress=progress,
            task=f"training the {name} network",
        )
        inputs = {kind: as_inputs(test, pictures.mean) for kind, test in tests.items()}
        found[name] = {kind: measure_accuracy(network, test, pictures.test_labels) for kind, test in inputs.items()}
    chosen = [int((pictures.train_labels == k).argmax()) for k in range(min(pictures.classes, _SHOWN))]
    numbers = {
        "data": pictures.name,
        "images": {"train": len(pictures.train), "test": len(pictures.test)},
        "removed": SHARE,
        "accuracy": {
            name: {f"on {kind} images": share.value for kind, share in row.items()} for name, row in found.items()
        },
    }
    return Outcome(
        numbers=numbers,
        claims=tuple(_claims(found)),
        figures={"spurious-edge": partial(draw, samples=marked[chosen], found=found)},
    )


def _claims(found: Mapping[str, Mapping[str, Estimate]]) -> list[Claim]:
    original, retrained = found[ORIGINAL], found[RETRAINED]
    return [
        judge(
            original["clean"] - retrained["clean"] - MARGIN,
            text=f"On clean test images the retrained network is much worse than the original (by {MARGIN} or more), "
            "although no object was removed from what it learned from.",
            source="Appendix C, Fig. 10b",
            measured=f"{retrained['clean'].value:z.3f} against {original['clean'].value:z.3f}",
        ),
        judge(
            retrained["marked"] - retrained["clean"] - MARGIN,
            retrained["marked"] - original["clean"] + 0.05,
            text="The retrained network classifies by the spurious correlation: it succeeds where the mark is there, "
            "and fails where it is not.",
            source="Appendix C, caption of Fig. 10",
            measured=f"{retrained['marked'].value:z.3f} on marked images, {retrained['clean'].value:z.3f} on clean",
        ),
    ]


def draw(figure: Figure, samples: Images, found: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Draw samples of what the network was retrained on, and accuracy on the clean test set."""
    figure.set_size_inches(6.9, 2.2)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    show_images(left, samples, columns=5)
    left.set_title("(a) training images, 5% removed by class", fontsize=8)
    show_bars(right, {name: found[name]["clean"].value for name in found}, dict(zip(found, COLOURS, strict=False)))
    right.set_title("(b) accuracy on clean test images", fontsize=8)


EXPERIMENT = Experiment(
    title="Does a network that was retrained with a mark at the edge still see the object?",
    source="Appendix C, Fig. 10",
    run=run,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-10 and a ResNet",
)
