"""Semi-natural data rank methods differently from real data: ROAD on real, watermarked and synthetic images.

A network is trained on real images, on the same images with number watermarks and new labels, and on watermarks alone.
Four methods explain each network and are ranked by ROAD, in both orders, and by our own pair of metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from twinlens.attribution import BASELINES
from twinlens.metrics.curves import Curve, RemovalCurve
from twinlens.metrics.measuring import probe_samples, road
from twinlens.metrics.removal import SHARES
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.step_curve import completeness_share, soundness_rank
from twinlens.models.loading import PRETRAINED, load_model
from twinlens.probing.model_call import best_device
from twinlens.report.styles import MARKERS, styles_of
from twinlens.reproduction.claims import Claim, area_of, judge, list_values
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome, plain
from twinlens.reproduction.image_sets import ImageExperiment, ImageSet, LazyInputs, image_experiment
from twinlens.reproduction.networks import VGG16, explain, measure_accuracy, train_network
from twinlens.reproduction.scenes import DIGITS
from twinlens.reproduction.semi_natural import add_watermarks
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arrays import Integers
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
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
"""Most test images that are explained, and their number in a smoke run."""

HIGH = 0.5
"""From this share on, many pixels are removed."""

PAIR = {"soundness as a rank": soundness_rank, "completeness as a share": completeness_share}
"""Our own pair of metrics, which reads one pair of sweeps."""

_REST = ("GradCAM", "IG", "DeepSHAP")
_ORDERED = {"morf": "most relevant first", "lerf": "least relevant first"}
_SHORT = {"morf": "MoRF", "lerf": "LeRF"}


def make_sets(experiment: ImageExperiment) -> dict[str, tuple[ImageSet, ImageSet]]:
    """Return images to train and test on: real ones, the same with watermarks, and the watermarks alone."""
    train, test = (replace(part, size=experiment.side) for part in (experiment.train, experiment.test))
    return {
        REAL: (train, test),
        MARKED: add_watermarks(experiment, "number"),
        SYNTHETIC: add_watermarks(experiment, "number", alone=True),
    }


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    with image_experiment(options, progress, pretrained=True) as experiment:
        learned, curves, areas = {}, {}, {}
        for name, (train, test) in make_sets(experiment).items():
            network, inputs = _network(name, train, test, experiment)
            learned[name] = measure_accuracy(network, inputs, test.labels)
            measured = _measure(name, network, inputs, test.labels, experiment)
            curves[name] = {method: own for method, (own, _) in measured.items()}
            areas[name] = {
                method: {m: area_of(curve) for m, curve in own.items()} for method, (_, own) in measured.items()
            }
    losses = Losses(curves)
    numbers = {
        **experiment.describe(explained=losses.samples),
        "learned": {name: share.value for name, share in learned.items()},
        "road": {
            order: {name: {method: losses.describe(name, method, order) for method in METHODS} for name in curves}
            for order in ORDERS
        },
        "pair": to_json(areas),
    }
    cannot = "" if options.data else f"{DIGITS} are no real data"
    claims = [claim for order in ORDERS for claim in _claims(losses, order, cannot)]
    return Outcome(
        numbers=numbers,
        claims=(*claims, *_fine_claims(losses), *_pair_claims(areas, cannot), _learned(learned, cannot)),
        figures={"semi-natural-road": partial(draw, curves=curves)},
    )


def _network(
    name: str, train: ImageSet, test: ImageSet, experiment: ImageExperiment
) -> tuple[nn.Module, Tensor | LazyInputs]:
    """Train a network on a set, or load the one for real images; returned with the test images as its inputs."""
    options = experiment.options
    if name == REAL and options.model is not None:
        model = load_model(
            options.model,
            weights=options.weights or PRETRAINED,
            device=best_device(options.device),
            allow_code=options.allow_code,
        )
        return model.module, torch.stack([model.preprocessing(Image.fromarray(image)) for image in test.images])
    mean = train.mean()
    return train_network(train, mean, experiment, VGG16, f"training on {name} images"), test.inputs(mean)


def _measure(
    name: str, network: nn.Module, inputs: Tensor | LazyInputs, labels: Integers, experiment: ImageExperiment
) -> dict[str, tuple[dict[str, RemovalCurve], dict[str, Curve]]]:
    """Explain some test images by each method, and measure the maps: ROAD in both orders, and our own pair."""
    seed = experiment.options.seed
    order = np.random.default_rng(stream(seed, "explained")).permutation(len(inputs))
    some = np.sort(order[: EXPLAINED if experiment.options.data else FEW])
    explained, targets, ids = inputs[some], labels[some], [f"{k:05d}" for k in some]
    measured: dict[str, tuple[dict[str, RemovalCurve], dict[str, Curve]]] = {}
    for title, maps in explain(
        network, explained, targets, METHODS, experiment, ids=ids, task=f"ROAD on {name} images"
    ):
        case = network, explained, targets, maps
        removal: dict[str, RemovalCurve] = {
            order: road(*case, order=order, levels=LEVELS, ids=ids, seed=seed) for order in ORDERS
        }
        steps = probe_samples(Soundness(estimator="rank"), *case, {"ids": ids, "seed": seed})
        measured[title] = removal, {metric: read(*steps) for metric, read in PAIR.items()}
    return measured


class Losses:
    """Resampled curves, and the accuracy that they lose over ranges of levels."""

    def __init__(self, curves: Mapping[str, Mapping[str, Mapping[str, RemovalCurve]]]) -> None:
        self._curves = {
            (name, method, order): bootstrap(curve)
            for name, row in curves.items()
            for method, own in row.items()
            for order, curve in own.items()
        }

    def mean(self, name: str, method: str, order: str, levels: Sequence[float]) -> Estimate:
        """Estimate the mean loss of accuracy over some levels."""
        resampled = self._curves[name, method, order]
        some = [resampled.curve.position(level) for level in levels]
        return Estimate.of(
            float(resampled.curve.values[some].mean()), resampled.values[:, some].mean(axis=1), samples=self.samples
        )

    def apart(self, one: str, other: str, order: str, methods: Sequence[str]) -> Estimate:
        """Estimate by how much accuracy differs between two sets, in the mean over methods and the paper's levels."""
        pairs = [[self._curves[name, method, order] for name in (one, other)] for method in methods]
        some = [pairs[0][0].curve.position(level) for level in SHARES]
        measured = [np.abs(a.curve.performance - b.curve.performance)[some].mean() for a, b in pairs]
        again = [np.abs(a.performance - b.performance)[:, some].mean(axis=1) for a, b in pairs]
        return Estimate.of(float(np.mean(measured)), np.mean(again, axis=0), samples=self.samples)

    def describe(self, name: str, method: str, order: str) -> dict[str, Any]:
        """Return a curve as results.json holds it."""
        curve = self._curves[name, method, order].curve
        means = {part: self.mean(name, method, order, levels) for part, levels in (("loss", SHARES), ("fine", FINE))}
        return {"levels": plain(curve.levels), "accuracy": plain(curve.performance), **to_json(means)}

    @property
    def samples(self) -> int:
        """Number of test images that are explained."""
        return len(next(iter(self._curves.values())).curve.table)


def _claims(losses: Losses, order: str, cannot: str) -> Iterator[Claim]:
    """Judge the claims about one order of removal; the paper does not state which one its figures use."""
    rank, gradients = partial(_rank, losses, order), ("IG", "DeepSHAP")
    yield rank(
        MARKED,
        ["Rect"],
        _REST,
        levels=[level for level in SHARES if level >= HIGH],
        text=f"On semi-natural data Rect is best, at least where many pixels are removed ({HIGH:.0%} and more)",
        source="Section 3.2, Fig. 3a",
    )
    text = "On real data Rect is worst"
    yield rank(REAL, _REST, ["Rect"], text=text, source="Section 3.2, Fig. 3b", cannot=cannot)
    text = "On real data GradCAM beats IG and DeepSHAP"
    yield rank(REAL, ["GradCAM"], gradients, text=text, source="Appendix D.1, Fig. 12a", cannot=cannot)
    for name, letter in ((MARKED, "b"), (SYNTHETIC, "c")):
        text = f"On {name} data IG and DeepSHAP beat GradCAM"
        yield rank(name, gradients, ["GradCAM"], text=text, source=f"Appendix D.1, Fig. 12{letter}")
    near, far = (losses.apart(MARKED, name, order, _REST) for name in (SYNTHETIC, REAL))
    yield judge(
        far / 2 - near,
        text="On semi-natural data ROAD is very similar to that on synthetic data, and different on real data: less "
        "than half as far apart.",
        reading=_ORDERED[order],
        source="Appendix D.1, caption of Fig. 12",
        measured=f"mean difference of accuracy {near.value:z.3f} to synthetic, {far.value:z.3f} to real data",
        unit="test images",
        cannot=cannot,
    )


def _fine_claims(losses: Losses) -> Iterator[Claim]:
    """Judge the same where watermarks are removed in part: the paper's first level removes all 8% of the image."""
    about: dict[str, Any] = {"source": "Appendix D.1", "levels": FINE, "ours": True}
    for name in (MARKED, SYNTHETIC):
        text = f"On {name} data IG and DeepSHAP beat GradCAM where 1% to 8% of the pixels are removed"
        yield _rank(losses, "morf", name, ["IG", "DeepSHAP"], ["GradCAM"], text=text, **about)


def _pair_claims(areas: Mapping[str, Mapping[str, Mapping[str, Estimate]]], cannot: str) -> Iterator[Claim]:
    """Judge by our own pair whether Rect is best on semi-natural data and worst on real data."""
    for metric in PAIR:
        for name, place, sign, letter, why in ((MARKED, "best", 1.0, "a", ""), (REAL, "worst", -1.0, "b", cannot)):
            own = {method: values[metric] for method, values in areas[name].items()}
            yield judge(
                *((own["Rect"] - own[method]) * sign for method in _REST),
                text=f"On {name} data Rect is {place} in {metric}.",
                source=f"Section 3.2, Fig. 3{letter}",
                measured=list_values(own),
                unit="test images",
                ours=True,
                cannot=why,
            )


def _rank(
    losses: Losses,
    order: str,
    name: str,
    better: Sequence[str],
    worse: Sequence[str],
    *,
    text: str,
    levels: Sequence[float] = SHARES,
    **about: Any,
) -> Claim:
    """Judge whether each of the better methods beats each of the worse on a set, by the mean loss over levels."""
    sign = 1.0 if order == "morf" else -1.0
    loss = {method: losses.mean(name, method, order, levels) for method in (*better, *worse)}
    return judge(
        *((loss[a] - loss[b]) * sign for a in better for b in worse),
        text=f"{text}.",
        reading=_ORDERED[order],
        measured=f"mean loss of accuracy: {list_values(loss)}",
        unit="test images",
        **about,
    )


def _learned(learned: Mapping[str, Estimate], cannot: str) -> Claim:
    marks = (MARKED, SYNTHETIC)
    return judge(
        *(learned[name] - 0.98 for name in marks),
        *(learned[name] - learned[REAL] for name in marks),
        text="Watermarks are learned almost perfectly (above 98%), better than the real task.",
        source="Appendix D.1: 70.4%, 99.4% and 99.9%",
        measured=", ".join(f"{share.value:.1%} on {name} data" for name, share in learned.items()),
        unit="test images",
        cannot=cannot,
    )


def draw(figure: Figure, curves: Mapping[str, Mapping[str, Mapping[str, RemovalCurve]]]) -> None:
    """Draw ROAD of all methods: a column for each data set, a row for each order."""
    figure.set_size_inches(6.9, 4.4)
    grid = figure.subplots(len(ORDERS), len(curves), sharey=True, sharex=True)
    styles = styles_of(METHODS.values(), BASELINES)
    for row, order in zip(grid, ORDERS, strict=True):
        for axes, letter, (name, methods) in zip(row, "abc", curves.items(), strict=True):
            for method, own in methods.items():
                style, curve = styles[METHODS[method]], own[order]
                x, y = np.append(0.0, curve.levels), np.append(curve.baseline, curve.performance)
                low, high = curve.band()
                ends = np.clip([curve.baseline - high, curve.baseline - low], 0, 1)
                axes.plot(100 * x, y, label=method, color=style.colour, marker=MARKERS[style.symbol], markersize=3)
                axes.fill_between(100 * curve.levels, *ends, color=style.colour, alpha=0.12, linewidth=0)
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
