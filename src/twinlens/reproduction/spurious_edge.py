"""Retrained networks ignore the object: a network trained with a mark at the edge no longer looks at it.

In every training image 5% of the pixels near the edge become black, at a position that depends on the class. The object
is intact, but the retrained network fails on clean images.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from twinlens.reproduction.claims import Claim, judge
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.image_sets import image_experiment, show_images
from twinlens.reproduction.retraining import MARGIN, edge_regions, fill, measure_networks, show_bars
from twinlens.reproduction.scenes import DIGITS
from twinlens.reproduction.watermarks import Images
from twinlens.support.estimate import Estimate
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 0.05
"""Share of the pixels that are removed."""

ORIGINAL, RETRAINED = "original", "retrained"
_SHOWN = 10


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    with image_experiment(options, progress) as experiment:
        train, test = experiment.train, experiment.test
        region = edge_regions(experiment.classes, train.side, train.side, SHARE)
        marked, marked_test = (fill(part.images, region[part.labels], 0.0) for part in (train, test))
        trained_on = {ORIGINAL: train.images, RETRAINED: marked}
        accuracy = measure_networks(trained_on, {"clean": test.images, "marked": marked_test}, experiment)
    chosen = [int((train.labels == k).argmax()) for k in range(min(experiment.classes, _SHOWN))]
    numbers = {
        **experiment.described(),
        "removed": SHARE,
        "accuracy": {
            name: {f"on {kind} images": share.value for kind, share in row.items()} for name, row in accuracy.items()
        },
    }
    return Outcome(
        numbers=numbers,
        claims=tuple(_claims(accuracy)),
        figures={"spurious-edge": partial(draw, samples=marked[chosen], accuracy=accuracy)},
    )


def _claims(accuracy: Mapping[str, Mapping[str, Estimate]]) -> list[Claim]:
    judged, original, retrained = partial(judge, unit="test images"), accuracy[ORIGINAL], accuracy[RETRAINED]
    return [
        judged(
            original["clean"] - retrained["clean"] - MARGIN,
            text=f"On clean test images the retrained network is much worse than the original (by {MARGIN} or more), "
            "although no object was removed from what it learned from.",
            source="Appendix C, Fig. 10b",
            measured=f"{retrained['clean'].value:z.3f} against {original['clean'].value:z.3f}",
        ),
        judged(
            retrained["marked"] - retrained["clean"] - MARGIN,
            retrained["marked"] - original["clean"] + 0.05,
            text="The retrained network classifies by the spurious correlation: it succeeds where the mark is there, "
            "and fails where it is not.",
            source="Appendix C, caption of Fig. 10",
            measured=f"{retrained['marked'].value:z.3f} on marked images, {retrained['clean'].value:z.3f} on clean",
        ),
    ]


def draw(figure: Figure, samples: Images, accuracy: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Draw samples of the images for retraining, and accuracy on the clean test set."""
    figure.set_size_inches(6.9, 2.2)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
    show_images(left, samples, columns=5)
    left.set_title("(a) training images, 5% removed by class", fontsize=8)
    show_bars(right, {name: row["clean"] for name, row in accuracy.items()}, COLOURS[:2])
    right.set_title("(b) accuracy on clean test images", fontsize=8)


EXPERIMENT = Experiment(
    title="Does a network that was retrained with a mark at the edge still see the object?",
    source="Appendix C, Fig. 10",
    run=run,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-10 and a ResNet",
)
