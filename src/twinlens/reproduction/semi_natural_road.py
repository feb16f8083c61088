"""Semi-natural data rank methods otherwise than real data: ROAD of four methods on real, marked and synthetic images.

A network is trained on images as they are, on the same images with number watermarks and new labels, and on watermarks
alone. Four methods explain each network and are ranked by ROAD, in both orders. A trained network of yours can take
the place of the one for real images.

Shapes: N images, L shares removed, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from twinlens.integrations.explanations import attribute
from twinlens.metrics.curves import RemovalCurve, more_is_better
from twinlens.metrics.measuring import road
from twinlens.metrics.removal import SHARES
from twinlens.models.loading import PRETRAINED, load_model
from twinlens.probing.model_call import best_device
from twinlens.reproduction.claims import Estimate, judge
from twinlens.reproduction.experiment_setup import plain
from twinlens.reproduction.marked_sets import LazyInputs, MarkedSet
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.reproduction.scenes import DIGITS, Pictures, measure_accuracy, on_pictures
from twinlens.reproduction.semi_natural import train_on, watermarked
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arrays import Floats
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"GradCAM": "gradcam", "IG": "integrated_gradients", "DeepSHAP": "deepshap", "Rect": "rect"}
REAL, MARKED, SYNTHETIC = "real", "semi-natural", "purely synthetic"
ORDERS: tuple[Literal["morf", "lerf"], ...] = ("morf", "lerf")
FINE = tuple(percent / 100 for percent in range(1, 9))
"""Shares at which a watermark, 8% of the image, is removed in part."""

LEVELS = (*FINE, *SHARES)
EXPLAINED, FEW = 1_000, 100
"""Test images that are explained at most, and in a smoke run."""

HIGH = 0.5
"""From this share on, many pixels are removed."""

_REST = ("GradCAM", "IG", "DeepSHAP")
_ORDERED = {"morf": "most relevant first", "lerf": "least relevant first"}
_SHORT = {"morf": "MoRF", "lerf": "LeRF"}


def make_sets(pictures: Pictures, options: ExperimentOptions) -> dict[str, tuple[MarkedSet, MarkedSet]]:
    """Return images to train and to test on: as they are, with watermarks, and the same watermarks alone."""
    size = pictures.side(options)
    return {
        REAL: (
            MarkedSet(images=pictures.train, labels=pictures.train_labels, size=size),
            MarkedSet(images=pictures.test, labels=pictures.test_labels, size=size),
        ),
        MARKED: watermarked(pictures, "number", options),
        SYNTHETIC: watermarked(pictures, "number", options, alone=True),
    }


@on_pictures(pretrained=True)
def run(pictures: Pictures, options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    learned: dict[str, Estimate] = {}
    curves: dict[str, dict[str, dict[str, RemovalCurve]]] = {}
    for name, (images, test) in make_sets(pictures, options).items():
        network, as_seen = _network(name, images, pictures, options, progress)
        inputs = as_seen(test)
        learned[name] = measure_accuracy(network, inputs, test.labels)
        drawn = np.random.default_rng(stream(options.seed, "explained")).permutation(len(inputs))
        some = np.sort(drawn[: EXPLAINED if options.data else FEW])
        explained, labels = inputs[some], test.labels[some]
        task, ids = f"ROAD on {name} images", [f"{k:05d}" for k in some]
        progress.begin({task: len(METHODS)})
        curves[name] = {}
        for title, method in METHODS.items():
            progress.advance(task, 0, title)
            maps = attribute(network, explained, labels, method, ids=ids, seed=options.seed)
            curves[name][title] = {
                order: road(network, explained, labels, maps, order=order, levels=LEVELS, ids=ids, seed=options.seed)
                for order in ORDERS
            }
            progress.advance(task, 1, title)
    losses = Losses(curves)
    numbers = {
        "data": pictures.name,
        "images": {"train": len(pictures.train), "test": len(pictures.test), "explained": losses.samples},
        "learned": {name: share.value for name, share in learned.items()},
        "road": {
            order: {name: {method: losses.described(name, method, order) for method in METHODS} for name in curves}
            for order in ORDERS
        },
    }
    cannot = "" if options.data else f"{DIGITS} are no real data"
    return Outcome(
        numbers=numbers,
        claims=(
            *(claim for order in ORDERS for claim in _claims(losses, order, cannot)),
            *_fine_claims(losses),
            _learned(learned, cannot),
        ),
        figures={"semi-natural-road": partial(draw, curves=curves)},
    )


def _network(
    name: str, images: MarkedSet, pictures: Pictures, options: ExperimentOptions, progress: Progress
) -> tuple[nn.Module, Callable[[MarkedSet], Tensor | LazyInputs]]:
    """Train a network on a set, or load the one that is meant for real data; with how it sees images."""
    if name == REAL and options.model is not None:
        loaded = load_model(
            options.model,
            weights=options.weights or PRETRAINED,
            device=best_device(options.device),
            allow_code=options.allow_code,
        )
        see = loaded.preprocessing
        return loaded.module, lambda test: torch.stack([see(Image.fromarray(one)) for one in test.images])
    network, mean = train_on(images, pictures, options, progress, task=f"training on {name} images")
    return network, lambda test: test.inputs(mean)


class Losses:
    """Resampled curves, and the accuracy that they lose over ranges of levels."""

    def __init__(self, curves: Mapping[str, Mapping[str, Mapping[str, RemovalCurve]]]) -> None:
        self._drawn = {
            (name, method, order): bootstrap(curve)
            for name, row in curves.items()
            for method, own in row.items()
            for order, curve in own.items()
        }

    def mean(self, name: str, method: str, order: str, levels: Sequence[float]) -> Estimate:
        """Estimate the mean loss of accuracy over some levels."""
        drawn = self._drawn[name, method, order]
        some = [drawn.curve.position(level) for level in levels]
        return self._estimate(drawn.curve.values[some].mean(), drawn.values[:, some].mean(axis=1))

    def apart(self, one: str, other: str, order: str, methods: Sequence[str]) -> Estimate:
        """Estimate by how much accuracy differs between two sets, in the mean over methods and the paper's levels."""
        pairs = [[self._drawn[name, method, order] for name in (one, other)] for method in methods]
        some = [pairs[0][0].curve.position(level) for level in SHARES]
        measured = [np.abs(a.curve.performance - b.curve.performance)[some].mean() for a, b in pairs]
        again = [np.abs(a.performance - b.performance)[:, some].mean(axis=1) for a, b in pairs]
        return self._estimate(np.mean(measured), np.mean(again, axis=0))

    def described(self, name: str, method: str, order: str) -> dict[str, Any]:
        """Return a curve as results.json holds it."""
        curve = self._drawn[name, method, order].curve
        loss = {part: self.mean(name, method, order, levels) for part, levels in (("loss", SHARES), ("fine", FINE))}
        return {
            "levels": plain(curve.levels),
            "accuracy": plain(curve.performance),
            **{part: mean.numbers() for part, mean in loss.items()},
        }

    @property
    def samples(self) -> int:
        """Number of test images that were explained."""
        return len(next(iter(self._drawn.values())).curve.table)

    def _estimate(self, value: float, replicates: Floats) -> Estimate:
        return Estimate(value=float(value), replicates=replicates, samples=self.samples, over="test images")


def _claims(losses: Losses, order: str, cannot: str) -> Iterator[Claim]:
    """Judge the claims about one order of removal; the paper does not say which its figures have."""
    ranked = partial(_ranked, losses, order)
    high = tuple(level for level in SHARES if level >= HIGH)
    yield ranked(
        MARKED,
        ["Rect"],
        _REST,
        levels=high,
        text=f"On semi-natural data Rect is best, at least where many pixels are removed ({HIGH:.0%} and more)",
        source="Section 3.2, Fig. 3a",
    )
    yield ranked(REAL, _REST, ["Rect"], text="On real data Rect is worst", source="Section 3.2, Fig. 3b", cannot=cannot)
    yield ranked(
        REAL,
        ["GradCAM"],
        ["IG", "DeepSHAP"],
        text="On real data GradCAM beats IG and DeepSHAP",
        source="Appendix D.1, Fig. 12a",
        cannot=cannot,
    )
    for name, letter in ((MARKED, "b"), (SYNTHETIC, "c")):
        yield ranked(
            name,
            ["IG", "DeepSHAP"],
            ["GradCAM"],
            text=f"On {name} data IG and DeepSHAP beat GradCAM",
            source=f"Appendix D.1, Fig. 12{letter}",
        )
    near, far = (losses.apart(MARKED, name, order, _REST) for name in (SYNTHETIC, REAL))
    yield judge(
        far / 2 - near,
        text="On semi-natural data ROAD is very similar to that on synthetic data, and different on real data: less "
        f"than half as far apart ({_ORDERED[order]}).",
        source="Appendix D.1, caption of Fig. 12",
        measured=f"mean difference of accuracy {near.value:z.3f} to synthetic, {far.value:z.3f} to real data",
        cannot=cannot,
    )


def _fine_claims(losses: Losses) -> list[Claim]:
    """Judge the same where watermarks are removed in part: the paper's first level takes all 8% of the image."""
    return [
        _ranked(
            losses,
            "morf",
            name,
            ["IG", "DeepSHAP"],
            ["GradCAM"],
            levels=FINE,
            text=f"On {name} data IG and DeepSHAP beat GradCAM where 1% to 8% of the pixels are removed",
            source="Appendix D.1",
            ours=True,
        )
        for name in (MARKED, SYNTHETIC)
    ]


def _ranked(
    losses: Losses,
    order: str,
    name: str,
    better: Sequence[str],
    worse: Sequence[str],
    *,
    text: str,
    source: str,
    levels: Sequence[float] = SHARES,
    cannot: str = "",
    ours: bool = False,
) -> Claim:
    """Claim that on a set each of the better methods is before each of the worse, by the mean loss over levels."""
    sign = 1.0 if more_is_better(order) else -1.0
    loss = {method: losses.mean(name, method, order, levels) for method in (*better, *worse)}
    listed = ", ".join(f"{method} {mean.value:z.3f}" for method, mean in loss.items())
    return judge(
        *((loss[a] - loss[b]) * sign for a in better for b in worse),
        text=f"{text} ({_ORDERED[order]}).",
        source=source,
        measured=f"mean loss of accuracy: {listed}",
        cannot=cannot,
        ours=ours,
    )


def _learned(learned: Mapping[str, Estimate], cannot: str) -> Claim:
    marks = (MARKED, SYNTHETIC)
    return judge(
        *(learned[name] - 0.98 for name in marks),
        *(learned[name] - learned[REAL] for name in marks),
        text="Watermarks are learned almost perfectly (above 98%), better than the real task.",
        source="Appendix D.1: 70.4%, 99.4% and 99.9%",
        measured=", ".join(f"{share.value:.1%} on {name} data" for name, share in learned.items()),
        cannot=cannot,
    )


def draw(figure: Figure, curves: Mapping[str, Mapping[str, Mapping[str, RemovalCurve]]]) -> None:
    """Draw ROAD of all methods: a column for each data set, a row for each order."""
    figure.set_size_inches(6.9, 4.4)
    grid = figure.subplots(len(ORDERS), len(curves), sharey=True, sharex=True)
    for row, order in zip(grid, ORDERS, strict=True):
        for axes, letter, (name, methods) in zip(row, "abc", curves.items(), strict=True):
            for colour, marker, (method, own) in zip(COLOURS, "os^D", methods.items(), strict=False):
                curve = own[order]
                x, y = np.append(0.0, curve.levels), np.append(curve.baseline, curve.performance)
                low, high = curve.band()
                ends = curve.baseline - high, curve.baseline - low
                axes.plot(100 * x, y, label=method, color=colour, marker=marker, markersize=3)
                axes.fill_between(100 * curve.levels, *ends, color=colour, alpha=0.12, linewidth=0)
            axes.set_title(f"({letter}) {name} data, {_SHORT[order]}", fontsize=7)
            axes.set_ylim(0, 1.05)
        row[0].set_ylabel("accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("pixels removed (%)", fontsize=7)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


EXPERIMENT = Experiment(
    title="Is the ranking by ROAD on semi-natural data that on real data?",
    source="Section 3.2, Fig. 3, Fig. 12, appendix D",
    run=run,
    stand_in=f"{DIGITS} and a small network stand for CIFAR-100 and VGG16",
)
