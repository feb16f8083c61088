"""Semi-natural data rank methods otherwise than real data: ROAD of four methods on real, marked and synthetic images.

A network is trained on images as they are, on the same images with number watermarks and new labels, and on watermarks
alone. Four methods explain each network and are ranked by ROAD, most relevant pixels removed first.

Shapes: N images, L shares removed, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twinlens.attribution import attribute
from twinlens.core.arrays import Floats
from twinlens.core.plotting import COLOURS
from twinlens.core.progress import Progress
from twinlens.core.randomness import stream
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.pictures import Pictures, as_inputs, on_pictures, train_network
from twinlens.experiments.semi_natural import watermarked
from twinlens.experiments.subject import plain
from twinlens.experiments.watermarks import Images, blank_canvas, number_watermarks
from twinlens.metrics.curves import RemovalCurve
from twinlens.metrics.functions import road
from twinlens.models.networks import VGG16
from twinlens.models.training import accuracy
from twinlens.statistics.bootstrap import bootstrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {"GradCAM": "gradcam", "IG": "integrated_gradients", "DeepSHAP": "deepshap", "Rect": "rect"}
REAL, MARKED, SYNTHETIC = "real", "semi-natural", "purely synthetic"
EXPLAINED = 250
"""Test images that are explained at most."""

HIGH = 0.5
"""From this share on, many pixels are removed."""

_LEARNED = {REAL: 0.704, MARKED: 0.994, SYNTHETIC: 0.999}  # accuracy in the paper


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledSet:
    """One of the three data sets."""

    train: Images
    """(N, H, W, C)."""

    train_labels: NDArray[np.int64]
    """(N,)."""

    test: Images
    """(M, H, W, C)."""

    test_labels: NDArray[np.int64]
    """(M,)."""


def make_sets(pictures: Pictures, seed: int) -> dict[str, LabelledSet]:
    """Return the images as they are, with watermarks, and the same watermarks on a blank canvas."""
    train, test = watermarked(pictures, "number", seed)
    size, channels = pictures.train.shape[1], pictures.train.shape[3]
    alone = [
        number_watermarks(
            blank_canvas(len(part.ids), size, channels=channels),
            classes=pictures.classes,
            seed=stream(seed, "number", kind),
        )
        for kind, part in (("train", train), ("test", test))
    ]
    sets = {REAL: (pictures.train, pictures.train_labels, pictures.test, pictures.test_labels)}
    for name, (learned, measured) in ((MARKED, (train, test)), (SYNTHETIC, alone)):
        sets[name] = learned.images, learned.labels, measured.images, measured.labels
    return {name: LabelledSet(train=a, train_labels=b, test=c, test_labels=d) for name, (a, b, c, d) in sets.items()}


@on_pictures
def run(pictures: Pictures, options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    learned: dict[str, float] = {}
    curves: dict[str, dict[str, RemovalCurve]] = {}
    for name, images in make_sets(pictures, options.seed).items():
        mean = np.asarray(images.train.mean(axis=(0, 1, 2)))
        network = train_network(
            images.train,
            images.train_labels,
            mean,
            classes=pictures.classes,
            options=options,
            paper_network=VGG16,
            progress=progress,
            task=f"training on {name} images",
        )
        inputs = as_inputs(images.test, mean)
        learned[name] = accuracy(network, inputs, images.test_labels)
        drawn = np.random.default_rng(stream(options.seed, "explained")).permutation(len(inputs))
        some = np.sort(drawn[:EXPLAINED])
        explained, labels = inputs[some], images.test_labels[some]
        task, ids = f"ROAD on {name} images", [f"{k:05d}" for k in some]
        progress.begin({task: len(METHODS)})
        curves[name] = {}
        for title, method in METHODS.items():
            progress.advance(task, 0, title)
            maps = attribute(network, explained, labels, method, ids=ids, seed=options.seed)
            curves[name][title] = road(network, explained, labels, maps, ids=ids, seed=options.seed)
            progress.advance(task, 1, title)
    numbers = {
        "data": pictures.name,
        "images": {"train": len(pictures.train), "test": len(pictures.test), "explained": EXPLAINED},
        "learned": learned,
        "road": {name: {method: _described(curve) for method, curve in row.items()} for name, row in curves.items()},
    }
    return Outcome(
        numbers=numbers,
        claims=tuple(_claims(learned, curves)),
        figures={"semi-natural-road": partial(draw, curves=curves)},
    )


def _described(curve: RemovalCurve) -> dict[str, Any]:
    area = bootstrap(curve).area_interval()
    return {
        "levels": plain(curve.levels),
        "accuracy": plain(curve.performance),
        "loss": {"area": area.value, "low": area.low, "high": area.high},
    }


def _claims(learned: Mapping[str, float], curves: Mapping[str, Mapping[str, RemovalCurve]]) -> list[Claim]:
    resampled = {name: {method: bootstrap(curve) for method, curve in row.items()} for name, row in curves.items()}

    def areas(name: str) -> dict[str, Floats]:
        return {m: np.append(b.areas, curves[name][m].area()) for m, b in resampled[name].items()}

    def high(name: str) -> dict[str, Floats]:
        many = next(iter(curves[name].values())).levels >= HIGH - 1e-9
        return {
            m: np.append(b.values[:, many].mean(axis=1), curves[name][m].values[many].mean())
            for m, b in resampled[name].items()
        }

    rest = ("GradCAM", "IG", "DeepSHAP")
    return [
        _ranked(
            high(MARKED),
            ["Rect"],
            rest,
            text=f"On semi-natural data Rect is best, at least where many pixels are removed ({HIGH:.0%} and more).",
            source="Section 3.2, Fig. 4a",
        ),
        _ranked(areas(REAL), rest, ["Rect"], text="On real data Rect is worst.", source="Section 3.2, Fig. 4b"),
        _ranked(
            areas(REAL),
            ["GradCAM"],
            ["IG", "DeepSHAP"],
            text="On real data GradCAM beats IG and DeepSHAP.",
            source="Appendix C, ROAD figure (a)",
        ),
        *(
            _ranked(
                areas(name),
                ["IG", "DeepSHAP"],
                ["GradCAM"],
                text=f"On {name} data IG and DeepSHAP beat GradCAM.",
                source=f"Appendix C, ROAD figure ({letter})",
            )
            for name, letter in ((MARKED, "b"), (SYNTHETIC, "c"))
        ),
        _likeness(curves),
        Claim(
            text="Watermarks are learned almost perfectly, better than the real task.",
            source="Appendix C: 70.4%, 99.4% and 99.9%",
            measured=", ".join(f"{learned[name]:.1%} on {name} data" for name in _LEARNED),
            holds=min(learned[MARKED], learned[SYNTHETIC]) >= max(0.98, learned[REAL]),
        ),
    ]


def _ranked(
    losses: Mapping[str, Floats],
    better: list[str] | tuple[str, ...],
    worse: list[str] | tuple[str, ...],
    *,
    text: str,
    source: str,
) -> Claim:
    """Claim that each of the better methods loses more accuracy than each of the worse; the last number is measured.

    The claim is open unless 95% of the resamples agree.
    """
    gaps = np.stack([losses[a] - losses[b] for a in better for b in worse])
    certain = (gaps[:, :-1] > 0).mean(axis=1).min() >= 0.95
    refuted = (gaps[:, :-1] < 0).mean(axis=1).max() >= 0.95
    named = ", ".join(f"{method} {losses[method][-1]:z.3f}" for method in (*better, *worse))
    return Claim(
        text=text,
        source=source,
        measured=f"mean loss of accuracy: {named}",
        holds=True if certain else False if refuted else None,
    )


def _likeness(curves: Mapping[str, Mapping[str, RemovalCurve]]) -> Claim:
    """Claim that curves on semi-natural data are nearer to those on synthetic than to those on real data."""
    rest = [method for method in METHODS if method != "Rect"]
    curve = {name: np.stack([row[method].performance for method in rest]) for name, row in curves.items()}
    apart = {name: float(np.abs(curve[MARKED] - curve[name]).mean()) for name in (SYNTHETIC, REAL)}
    return Claim(
        text="On semi-natural data ROAD is very similar to that on synthetic data, and different on real data.",
        source="Appendix C, caption of the ROAD figure",
        measured=f"mean difference of accuracy {apart[SYNTHETIC]:z.3f} to synthetic, {apart[REAL]:z.3f} to real data",
        holds=apart[SYNTHETIC] < 0.5 * apart[REAL],
    )


def draw(figure: Figure, curves: Mapping[str, Mapping[str, RemovalCurve]]) -> None:
    """Draw ROAD of all methods, a panel for each data set."""
    figure.set_size_inches(6.9, 2.5)
    panels = figure.subplots(1, len(curves), sharey=True)
    for axes, letter, (name, row) in zip(panels, "abc", curves.items(), strict=True):
        for colour, marker, (method, curve) in zip(COLOURS, "os^D", row.items(), strict=False):
            x, y = np.append(0.0, curve.levels), np.append(curve.baseline, curve.performance)
            low, high = curve.interval()
            axes.plot(100 * x, y, label=method, color=colour, marker=marker)
            axes.fill_between(
                100 * curve.levels, curve.baseline - high, curve.baseline - low, color=colour, alpha=0.12, linewidth=0
            )
        axes.set_title(f"({letter}) {name} data", fontsize=8)
        axes.set_xlabel("pixels removed, most relevant first (%)", fontsize=7)
        axes.set_ylim(0, 1.05)
    panels[0].set_ylabel("accuracy")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


EXPERIMENT = Experiment(
    title="Is the ranking by ROAD on semi-natural data that on real data?",
    source="Section 3.2, Fig. 4, appendix C",
    run=run,
)
