"""Validation on a linear model whose truth is known: do both metrics notice what was done to a map?

The paper's set has 200 independent features and the sign of their sum as the label. What is not predictive there speaks
against the label, so that attribution introduced on it lowers the measured completeness as well. In a second set every
second weight is zero, and attribution is introduced on features that the model does not read, as the theory assumes;
accuracy does not suffer from these, and soundness by accuracy does not see them.

The model is a sum, so that a sweep is a cumulative sum over the ranking, and thousands of trials take seconds. Their
numbers are those of `soundness` and `completeness`.

Shapes: N samples, F features, L levels, T trials, V predictive levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.core.arrays import Floats
from twinlens.core.ordering import rank_features
from twinlens.core.plotting import COLOURS
from twinlens.core.progress import Progress
from twinlens.core.randomness import stream
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.subject import plain, refuse_options
from twinlens.laboratory.tasks import linear
from twinlens.metrics.protocols import PROTOCOLS
from twinlens.metrics.removal import THRESHOLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAMPLES, FEATURES, TRIALS = 1000, 200, 1000
LEVELS = PROTOCOLS["paper"].levels
PREDICTIVE = tuple(percent / 100 for percent in range(50, 101, 5))
EPSILON = 0.01
SHARE = 0.5
"""Share of the features in question from which a trial removes attribution, or on which it introduces some."""

TRUTH, REMOVE, INTRODUCE = "ground truth", "remove", "introduce"
_LINES = {TRUTH: COLOURS[0], REMOVE: COLOURS[1], INTRODUCE: COLOURS[2]}
_NOTICEABLE = 0.005  # a difference below this is none: the figures would not show it
_TINY = 1e-300
_BLOCK = 250
_LAST = np.array([FEATURES - round(FEATURES * level) - 1 for level in LEVELS])  # place of the last feature kept


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearSet:
    """A linear model, its data, and the truth about it."""

    evidence: Floats
    """(N, F) what each feature adds to the score of its sample's label."""

    information: Floats
    """(N, F) the exact map: Shapley values, none below zero."""

    predictive: NDArray[np.bool_]
    """(N, F) which features speak for the label."""

    introducible: NDArray[np.bool_]
    """(N, F) on which features a trial may introduce attribution."""

    ties: NDArray[np.int32]
    """(N, F) in which order equal values are ranked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Both curves of one map."""

    accuracy: Floats
    """(L,) accuracy at each level of the soundness sweep."""

    soundness: Floats
    """(L,) soundness at each level."""

    completeness: Floats
    """(9,) loss of accuracy at each threshold."""

    true_soundness: float
    """Share of the attribution that lies on predictive features, by definition."""

    def at(self, level: float) -> float:
        """Return the soundness at a predictive level, NaN where it is not reached."""
        reached = np.flatnonzero(self.accuracy >= level)
        return float(self.soundness[reached[0]]) if reached.size else float("nan")


def linear_set(samples: int = SAMPLES, *, every: int = 1, seed: int = 0) -> LinearSet:
    """Draw Gaussian samples, labelled by the sign of the sum of every first, second, … feature.

    Where the model reads all features, attribution can only be introduced on evidence against the label; where it does
    not, on features that it does not read.
    """
    inputs = linear(samples, features=FEATURES, seed=seed).inputs.numpy()
    weights = (np.arange(FEATURES) % every == 0).astype(np.float64)
    towards = np.where(inputs @ weights > 0, 1.0, -1.0)[:, None]
    evidence = towards * inputs * weights
    ids = [str(sample) for sample in range(samples)]
    return LinearSet(
        evidence=evidence,
        information=np.clip(evidence, 0, None),
        predictive=evidence > 0,
        introducible=evidence < 0 if every == 1 else np.broadcast_to(weights == 0, evidence.shape),
        ties=rank_features(torch.zeros(samples, FEATURES), ids=ids, seed=seed).rank.numpy(),
    )


SETS = {"paper": 1, "zero weights": 2}
"""The sets by name: 1 where the model reads every feature, 2 where it reads every second."""


def modify(data: LinearSet, change: str, trial: int, *, seed: int = 0) -> Floats:
    """Make the maps (N, F) of one trial.

    Attribution is taken from half of the features, or given to half of those on which it may be introduced: to each any
    amount up to the map's maximum.
    """
    drawn = np.random.default_rng(stream(seed, change, trial)).random(data.information.shape)
    if change == REMOVE:
        return np.where(drawn < SHARE, 0.0, data.information)
    # What was drawn below the share is, over the share, a number between 0 and 1 again.
    peak = data.information.max(axis=1, keepdims=True) / SHARE
    return np.where((drawn < SHARE) & data.introducible, peak * drawn, data.information)


def measure(data: LinearSet, maps: Floats) -> Measured:
    """Measure soundness and completeness of maps (N, F), each without a tie but at zero."""
    # A few samples at a time stay in the processor's cache.
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(maps), _BLOCK)]
    masses, kept, left = (np.concatenate(parts) for parts in zip(*(_sweep(data, maps, b) for b in blocks), strict=True))
    accuracy = kept.mean(axis=0)
    is_false = np.diff(accuracy, prepend=0.0) < EPSILON
    false = np.cumsum(np.diff(masses, axis=1, prepend=0.0) * is_false, axis=1)
    return Measured(
        accuracy=accuracy,
        soundness=((masses - false) / masses).mean(axis=0),
        completeness=left[:, 0].mean() - left[:, 1:].mean(axis=0),
        true_soundness=float(((maps * data.predictive).sum(axis=1) / maps.sum(axis=1)).mean()),
    )


def _sweep(data: LinearSet, maps: Floats, block: slice) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Sweep a few samples through all levels and thresholds.

    Returns:
        (B, L) attribution mass that each level keeps, whether a sample is recognised by what a level keeps, and (B, 10)
        by what is left when nothing is removed, and without the features above each threshold.
    """
    values = maps[block] / maps[block].max(axis=1, keepdims=True)
    # With ties broken by hand, the fastest sort will do, which is not a stable one.
    order = np.argsort(np.where(values > 0, values, _TINY * data.ties[block]), axis=1)[:, ::-1]
    place = order + FEATURES * np.arange(len(order))[:, None]
    values = np.take(values, place)
    evidence = np.cumsum(np.take(data.evidence[block], place), axis=1)
    removed = np.stack([(values > threshold).sum(axis=1) for threshold in (1.0, *THRESHOLDS)], axis=1)
    lost = np.take_along_axis(np.pad(evidence, ((0, 0), (1, 0))), removed, axis=1)
    return np.cumsum(values, axis=1)[:, _LAST], evidence[:, _LAST] > 0, evidence[:, -1:] - lost > 0


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment; `limit` is the number of trials of each kind."""
    refuse_options(options, ["data", "classes", "model", "weights"], "it draws its own data for a known model")
    trials = TRIALS if options.limit is None else options.limit
    numbers: dict[str, Any] = {
        "samples": SAMPLES,
        "features": FEATURES,
        "trials": trials,
        "predictive_levels": list(PREDICTIVE),
        "thresholds": list(THRESHOLDS),
        "sets": {},
    }
    progress.begin({_task(name, change): trials for name in SETS for change in (REMOVE, INTRODUCE)})
    for name, every in SETS.items():
        data = linear_set(every=every, seed=options.seed)
        found = {TRUTH: _summary([measure(data, data.information)])}
        for change in (REMOVE, INTRODUCE):
            curves = []
            for trial in range(trials):
                curves.append(measure(data, modify(data, change, trial, seed=options.seed)))
                progress.advance(_task(name, change), 1)
            found[change] = _summary(curves)
        numbers["sets"][name] = found
    figures = {"synthetic": lambda figure: draw(figure, numbers["sets"])}
    return Outcome(numbers=numbers, claims=tuple(_claims(numbers["sets"])), figures=figures)


def _task(name: str, change: str) -> str:
    return f"{name} set, {change}"


def _summary(curves: list[Measured]) -> dict[str, Any]:
    """Return mean and variance over trials; at predictive levels, over the trials that reach them."""
    soundness = np.array([[curve.at(level) for level in PREDICTIVE] for curve in curves])
    completeness = np.stack([curve.completeness for curve in curves])
    reached = np.isfinite(soundness)
    count = np.where(reached.any(axis=0), reached.sum(axis=0), np.nan)
    mean = np.sum(soundness, axis=0, where=reached) / count
    variance = np.sum((soundness - mean) ** 2, axis=0, where=reached) / count
    return {
        "soundness": {"mean": plain(mean), "variance": plain(variance), "reached": plain(reached.mean(axis=0))},
        "completeness": {"mean": plain(completeness.mean(axis=0)), "variance": plain(completeness.var(axis=0))},
        "true_soundness": float(np.mean([curve.true_soundness for curve in curves])),
    }


def _mean(found: Mapping[str, Any], change: str, metric: str) -> Floats:
    """Return the mean curve, NaN where a level was not reached."""
    return np.array(found[change][metric]["mean"], dtype=np.float64)


def _claims(sets: Mapping[str, Any]) -> Iterator[Claim]:
    for name, found in sets.items():
        yield from _claims_of_set(name, found)


def _claims_of_set(name: str, found: Mapping[str, Any]) -> Iterator[Claim]:
    where = "the paper's set" if name == "paper" else "the set with zero weights"
    truth, removed, introduced = (_mean(found, change, "soundness") for change in (TRUTH, REMOVE, INTRODUCE))
    lowest = float(np.nanmin(truth))
    yield Claim(
        text=f"On {where}, the exact map has soundness 1.",
        source="Fig. 5a",
        measured=f"at least {lowest:z.3f} at predictive levels {PREDICTIVE[0]:g} to {PREDICTIVE[-1]:g}",
        holds=lowest > 1 - _NOTICEABLE,
    )
    apart = float(np.nanmax(np.abs(removed - truth)))
    yield Claim(
        text=f"On {where}, removing attribution leaves soundness as it is.",
        source="Section 5.1, Fig. 5a",
        measured=f"the mean curves are at most {apart:z.3f} apart",
        holds=apart < _NOTICEABLE,
    )
    lower = truth - introduced
    yield Claim(
        text=f"On {where}, introducing attribution lowers soundness.",
        source="Section 5.1, Fig. 5a",
        measured=f"lower by {np.nanmin(lower):z.3f} to {np.nanmax(lower):z.3f}, on average {np.nanmean(lower):z.3f}; "
        f"by definition it is {found[INTRODUCE]['true_soundness']:z.3f}",
        holds=bool(np.nanmean(lower) > _NOTICEABLE and np.nanmin(lower) > -_NOTICEABLE),
    )
    truth, removed, introduced = (_mean(found, change, "completeness") for change in (TRUTH, REMOVE, INTRODUCE))
    fewer, more = removed - truth, introduced - truth
    yield Claim(
        text=f"On {where}, removing attribution lowers completeness.",
        source="Section 5.1, what is expected",
        measured=f"mean change {fewer.mean():+z.3f}, from {fewer.min():+z.3f} to {fewer.max():+z.3f}",
        holds=bool(fewer.mean() < -_NOTICEABLE and fewer.max() < _NOTICEABLE),
    )
    yield Claim(
        text=f"On {where}, introducing attribution does not lower completeness.",
        source="Section 5.1, what is expected",
        measured=f"mean change {more.mean():+z.3f}, from {more.min():+z.3f} to {more.max():+z.3f}",
        holds=bool(more.min() > -_NOTICEABLE),
    )
    if name == "paper":
        yield Claim(
            text=f"On {where}, removing outperforms the exact map in completeness, and introducing falls behind it.",
            source="Section 5.1, the prose about Fig. 5b, which says the reverse of what it expects",
            measured=f"remove {fewer.mean():+z.3f}, introduce {more.mean():+z.3f} on average",
            holds=bool(fewer.mean() > _NOTICEABLE and more.mean() < -_NOTICEABLE),
        )


def draw(figure: Figure, sets: Mapping[str, Any]) -> None:
    """Draw soundness and completeness side by side, one row per set, with the standard deviation over trials."""
    figure.set_size_inches(6.9, 2.4 * len(sets))
    grid = figure.subplots(len(sets), 2, squeeze=False)
    for axes, (name, found) in zip(grid, sets.items(), strict=True):
        _draw_curves(axes[0], found, "soundness", PREDICTIVE)
        _draw_curves(axes[1], found, "completeness", THRESHOLDS)
        title = "the paper's set" if name == "paper" else "every second weight zero"
        axes[0].set_title(f"Soundness, {title}", fontsize=8)
        axes[1].set_title(f"Completeness, {title}", fontsize=8)
        axes[0].set_xlabel("predictive level (accuracy)")
        axes[1].set_xlabel("attribution threshold")
        axes[1].set_ylabel("loss of accuracy")
        axes[1].invert_xaxis()
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _draw_curves(axes: Axes, found: Mapping[str, Any], metric: str, across: tuple[float, ...]) -> None:
    styles = {TRUTH: ("-", "o"), REMOVE: ("--", "s"), INTRODUCE: (":", "^")}
    for change, curve in found.items():
        mean, variance = (np.array(curve[metric][name], dtype=np.float64) for name in ("mean", "variance"))
        dash, marker = styles[change]
        axes.errorbar(
            across, mean, yerr=np.sqrt(variance), label=change, color=_LINES[change], linestyle=dash, marker=marker,
            capsize=2, elinewidth=0.8,
        )  # fmt: skip
    axes.set_ylabel(metric)
    axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    title="Do both metrics notice what is removed from exact maps, and what is introduced into them?",
    source="Section 5.1, Fig. 5, appendix on validation tests",
    run=run,
)
