"""Validation on a linear model with known ground truth: do both metrics notice how a map was modified?

The paper's set has 200 independent features; the label is the sign of their sum. "Randomly add attribution" is read in
two ways: on evidence against the label, and on any feature. In a second set, our own, every second weight is zero, and
attribution is introduced on features that the model does not read. The model is a sum: a sweep is a cumulative sum over
the ranking, and thousands of trials take seconds. The numbers are those of `soundness` and `completeness`. Our own pair
of metrics is measured on the first trial, by calling the model.

Shapes: N samples, F features, L levels, B samples of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.imputation.imputers import ConstantImputer
from twinlens.laboratory.tasks import linear
from twinlens.metrics.measuring import probe_samples
from twinlens.metrics.protocols import PROTOCOLS
from twinlens.metrics.removal import THRESHOLDS
from twinlens.metrics.soundness import Soundness
from twinlens.metrics.step_curve import completeness_share, soundness_rank
from twinlens.probing.ranking import rank_features
from twinlens.reproduction.claims import Claim, area_of, format_value, judge, list_values
from twinlens.reproduction.experiment import (
    MAP_READINGS,
    Experiment,
    ExperimentOptions,
    Outcome,
    plain,
    refuse_options,
)
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.fields import to_json
from twinlens.support.plotting import COLOURS
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAMPLES, FEATURES, TRIALS = 1000, 200, 1000
LEVELS = PROTOCOLS["paper"].levels
PREDICTIVE = tuple(percent / 100 for percent in range(50, 101, 5))
EPSILON = 0.01
SHARE = 0.5
"""Share of the features that a trial removes attribution from, or introduces it on."""

TRUTH, REMOVE, INTRODUCE, ANYWHERE = "ground truth", "remove", "introduce", "introduce anywhere"
COMPLETENESS = {
    "completeness": "relative",
    "completeness_once": "relative to the exact map",
    "completeness_absolute": "absolute",
}
"""The curves of completeness with their thresholds: for maps scaled to 1, scaled before the change, or not scaled."""

INTRODUCED = {INTRODUCE: "evidence against the label", ANYWHERE: "any feature"}
"""Where attribution is introduced on the paper's set; on the other one, on features that the model does not read."""

_PAIR = {"soundness as a rank": soundness_rank, "completeness as a share": completeness_share}
_STYLES = {
    TRUTH: (COLOURS[0], "-", "o"),
    REMOVE: (COLOURS[1], "--", "s"),
    INTRODUCE: (COLOURS[2], ":", "^"),
    ANYWHERE: (COLOURS[3], "-.", "v"),
}
_NOTICEABLE = 0.005  # smaller differences would not show in the figures, and count as none
_TINY = 1e-300
_BLOCK = 250
_LAST = np.array([FEATURES - round(FEATURES * level) - 1 for level in LEVELS])  # rank of the last feature kept


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearSet:
    """Samples of a linear model and their ground truth."""

    evidence: Floats  # (N, F) contribution of each feature to the score of its sample's label
    information: Floats  # (N, F) the exact map: Shapley values, none below zero
    introducible: Mapping[str, NDArray[np.bool_]]  # (N, F) where a change may introduce attribution, by its name
    ties: NDArray[np.int32]  # (N, F) order in which equal values are ranked


Curves = dict[str, Floats]
"""Both curves of a map, or of one map per trial, by name: "accuracy" and "soundness_by_level" (L,), "soundness" at
predictive levels, loss of accuracy at each threshold as in `COMPLETENESS`, and "true_soundness" by definition."""


def linear_set(samples: int = SAMPLES, *, every: int = 1, seed: int = 0) -> LinearSet:
    """Draw Gaussian samples, labelled by the sign of the sum of every first, second, … feature."""
    inputs = linear(samples, features=FEATURES, seed=seed).inputs.numpy()
    weights = (np.arange(FEATURES) % every == 0).astype(np.float64)
    towards = np.where(inputs @ weights > 0, 1.0, -1.0)[:, None]
    evidence = towards * inputs * weights
    ids = [str(sample) for sample in range(samples)]
    return LinearSet(
        evidence=evidence,
        information=np.clip(evidence, 0, None),
        introducible=(
            {INTRODUCE: evidence < 0, ANYWHERE: np.ones_like(evidence, dtype=bool)}
            if every == 1
            else {INTRODUCE: np.broadcast_to(weights == 0, evidence.shape)}
        ),
        ties=rank_features(torch.zeros(samples, FEATURES), ids=ids, seed=seed).rank.numpy(),
    )


SETS = {"paper": 1, "zero weights": 2}
"""The sets by name: with 1 the model reads every feature, with 2 every second."""

_WHERE = {"paper": "the paper's set", "zero weights": "the set with zero weights"}


def modify(data: LinearSet, change: str, trial: int, *, seed: int = 0) -> Floats:
    """Return the maps (N, F) of one trial, or the exact ones; random amounts up to a map's maximum are introduced."""
    if change == TRUTH:
        return data.information
    numbers = np.random.default_rng(stream(seed, change, trial)).random(data.information.shape)
    if change == REMOVE:
        return np.where(numbers < SHARE, 0.0, data.information)
    # A number drawn below the share, divided by the share, is again uniform between 0 and 1.
    peak = data.information.max(axis=1, keepdims=True) / SHARE
    return data.information + np.where((numbers < SHARE) & data.introducible[change], peak * numbers, 0.0)


def measure(data: LinearSet, maps: Floats) -> Curves:
    """Measure soundness and completeness of maps (N, F) without ties except at zero."""
    # Small blocks stay in the processor's cache.
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(maps), _BLOCK)]
    masses, kept, left = (np.concatenate(parts) for parts in zip(*(_sweep(data, maps, b) for b in blocks), strict=True))
    accuracy = kept.mean(axis=0)
    is_false = np.diff(accuracy, prepend=0.0) < EPSILON
    false = np.cumsum(np.diff(masses, axis=1, prepend=0.0) * is_false, axis=1)
    soundness = ((masses - false) / masses).mean(axis=0)
    reached = accuracy >= np.array(PREDICTIVE)[:, None]
    losses = np.split(left[:, 0].mean() - left[:, 1:].mean(axis=0), 3)
    true = (maps * (data.information > 0)).sum(axis=1) / maps.sum(axis=1)
    return {
        "accuracy": accuracy,
        "soundness_by_level": soundness,
        "soundness": np.where(reached.any(axis=1), soundness[reached.argmax(axis=1)], np.nan),
        **dict(zip(COMPLETENESS, losses, strict=True)),
        "true_soundness": true.mean(),
    }


def _sweep(data: LinearSet, maps: Floats, block: slice) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Sweep a block of samples through all levels and thresholds.

    Returns:
        (B, L) attribution mass that each level keeps, (B, L) whether the sample is classified correctly at that level,
        and (B, 28) whether it is with nothing removed, and without the features above each threshold of each kind.
    """
    peak = maps[block].max(axis=1, keepdims=True)
    values = maps[block] / peak
    # Ties are broken explicitly, and the fastest sort, which is not stable, is sufficient.
    order = np.argsort(np.where(values > 0, values, _TINY * data.ties[block]), axis=1)[:, ::-1]
    values = np.take_along_axis(values, order, axis=1)
    evidence = np.cumsum(np.take_along_axis(data.evidence[block], order, axis=1), axis=1)
    once = data.information[block].max(axis=1, keepdims=True) / peak
    scales = np.concatenate([np.ones_like(peak), once, 1 / peak], axis=1)
    thresholds = np.minimum((scales[:, :, None] * np.array(THRESHOLDS)).reshape(len(values), -1), 1.0)
    thresholds = np.concatenate([np.ones_like(peak), thresholds], axis=1)
    # Count the values above each threshold with one search: rows fall from 1 to 0, and an offset of 2 separates them.
    apart = 2.0 * np.arange(len(values))[:, None]
    removed = np.searchsorted((apart - values).ravel(), (apart - thresholds).ravel()).reshape(thresholds.shape)
    removed -= FEATURES * np.arange(len(values))[:, None]
    lost = np.take_along_axis(np.pad(evidence, ((0, 0), (1, 0))), removed, axis=1)
    return np.cumsum(values, axis=1)[:, _LAST], evidence[:, _LAST] > 0, evidence[:, -1:] - lost > 0


def measure_pair(data: LinearSet, maps: Floats, *, seed: int) -> dict[str, Estimate]:
    """Estimate our own pair of metrics for maps (N, F), over samples."""
    metric = Soundness(estimator="rank", imputer=ConstantImputer(0.0))
    labels = np.ones(len(maps), dtype=np.int64)
    steps = probe_samples(metric, _log_odds, data.evidence, labels, maps, {"seed": seed, "output": "logits"})
    return {name: area_of(read(*steps)) for name, read in _PAIR.items()}


def _log_odds(evidence: Floats) -> Floats:
    # Scores have log-odds of the size that networks have.
    total = evidence.sum(axis=1) * 4 / np.sqrt(FEATURES)
    return np.stack([np.zeros_like(total), total], axis=1)


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment; `limit` is the number of trials of each kind."""
    unused = ["data", "classes", "model", "weights", "leave_out", "epochs", "compile", *MAP_READINGS]
    refuse_options(options, unused, "it draws its own data for a known model")
    trials = TRIALS if options.limit is None else options.limit
    data = {name: linear_set(every=every, seed=options.seed) for name, every in SETS.items()}
    cases = [(name, change) for name, own in data.items() for change in (REMOVE, *own.introducible)]
    progress.begin({f"{name} set, {change}": trials for name, change in cases})
    curves = {name: {TRUTH: _stacked([measure(own, own.information)])} for name, own in data.items()}
    for name, change in cases:
        each = []
        for trial in range(trials):
            each.append(measure(data[name], modify(data[name], change, trial, seed=options.seed)))
            progress.advance(f"{name} set, {change}", 1)
        curves[name][change] = _stacked(each)
    pair = {
        name: {
            change: measure_pair(own, modify(own, change, 0, seed=options.seed), seed=options.seed)
            for change in (TRUTH, REMOVE, *own.introducible)
        }
        for name, own in data.items()
    }
    sets = {name: {change: _summary(trials) for change, trials in own.items()} for name, own in curves.items()}
    numbers: dict[str, Any] = {
        "samples": SAMPLES,
        "features": FEATURES,
        "trials": trials,
        "predictive_levels": list(PREDICTIVE),
        "thresholds": list(THRESHOLDS),
        "sets": sets,
        "pair": to_json(pair),
    }
    claims = [claim for name, own in curves.items() for claim in _claims(name, own)]
    return Outcome(
        numbers=numbers,
        claims=(*claims, *(claim for name, own in pair.items() for claim in _pair_claims(name, own))),
        figures={"synthetic": lambda figure: draw(figure, sets)},
    )


def _stacked(trials: Sequence[Curves]) -> Curves:
    return {name: np.stack([trial[name] for trial in trials]) for name in trials[0]}


def _summary(curves: Curves) -> dict[str, Any]:
    """Return mean and variance over trials; for soundness, over the trials that reach a predictive level."""
    soundness = np.ma.masked_invalid(curves["soundness"])
    mean, variance = (over.filled(np.nan) for over in (soundness.mean(axis=0), soundness.var(axis=0)))
    reached = np.isfinite(curves["soundness"])
    return {
        "soundness": {"mean": plain(mean), "variance": plain(variance), "reached": plain(reached.mean(axis=0))},
        **{
            name: {"mean": plain(curves[name].mean(axis=0)), "variance": plain(curves[name].var(axis=0))}
            for name in COMPLETENESS
        },
        "true_soundness": float(curves["true_soundness"].mean()),
    }


def _rise(curves: Mapping[str, Curves], change: str, metric: str) -> Estimate:
    """Estimate over trials by how much a change raises a metric, on average over its levels."""
    rises = np.nanmean(curves[change][metric] - curves[TRUTH][metric], axis=1)
    return Estimate.of_mean(rises, [str(trial) for trial in range(len(rises))])


def _claims(name: str, curves: Mapping[str, Curves]) -> Iterator[Claim]:
    ours = name != "paper"
    decide = partial(judge, ours=ours, unit="trials", relevant=0.0)  # margins include what is noticeable
    where, on = _WHERE[name], _introduced(name)
    for change, text in ((TRUTH, "the exact map has soundness 1"), (REMOVE, "removing leaves soundness as it is")):
        lowest = curves[change]["soundness"].min()
        yield Claim(
            verdict="by construction",
            text=f"On {where}, {text}.",
            source="Section 5.1, Fig. 6a",
            measured=f"at least {lowest:z.3f} at predictive levels {PREDICTIVE[0]:g} to {PREDICTIVE[-1]:g}",
            reason="only evidence for the label is marked, which brings accuracy to 1 at the first level, and what "
            "does so counts as sound",
            ours=ours,
        )
    introduced = [change for change in curves if change in on]
    for change in introduced:
        rise = _rise(curves, change, "soundness")
        true = curves[change]["true_soundness"].mean()
        yield decide(
            -rise - _NOTICEABLE,
            text=f"On {where}, introducing attribution lowers soundness.",
            reading=f"on {on[change]}",
            source="Section 5.1, Fig. 6a",
            measured=f"mean change {format_value(rise, '+z.3f')}; by definition soundness is {true:z.3f}",
        )
    for metric, thresholds in COMPLETENESS.items():
        for change in (REMOVE, *introduced):
            rise = _rise(curves, change, metric)
            if change == REMOVE:
                margins, what = [-rise - _NOTICEABLE], "removing attribution lowers completeness"
                reading = f"thresholds {thresholds}"
            elif ours:  # features that are not read have no information to be complete about
                margins = [_NOTICEABLE - rise, _NOTICEABLE + rise]
                what = "introducing it leaves completeness as it is"
                reading = f"on {on[change]}, thresholds {thresholds}"
            else:
                margins, what = [rise - _NOTICEABLE], "introducing attribution improves completeness"
                reading = f"on {on[change]}, thresholds {thresholds}"
            yield decide(
                *margins,
                text=f"On {where}, {what}.",
                reading=reading,
                source="Section 5.1: what is expected",
                measured=f"mean change {format_value(rise, '+z.3f')}",
            )


def _pair_claims(name: str, pair: Mapping[str, Mapping[str, Estimate]]) -> Iterator[Claim]:
    """Judge by our own pair of metrics whether soundness notices what is introduced, and completeness what is not."""
    sound, complete = _PAIR
    on = _introduced(name)
    for change in pair:
        if change == TRUTH:
            continue
        metric = complete if change == REMOVE else sound
        exact, changed = pair[TRUTH][metric], pair[change][metric]
        yield judge(
            exact - changed,
            text=f"On {_WHERE[name]}, {'removing' if change == REMOVE else 'introducing'} attribution lowers {metric}.",
            reading=f"on {on[change]}" if change in on else "",
            source="Section 5.1, Fig. 6",
            measured=list_values({TRUTH: exact, change: changed}),
            ours=True,
        )


def _introduced(name: str) -> Mapping[str, str]:
    return INTRODUCED if name == "paper" else {INTRODUCE: "features that the model does not read"}


def draw(figure: Figure, sets: Mapping[str, Any]) -> None:
    """Draw soundness and completeness with the standard deviation over trials, without what is 1 everywhere.

    Completeness with absolute thresholds is near 1 for all maps, and so is soundness of the set with zero weights.
    """
    figure.set_size_inches(6.9, 2.5)
    panels = [("paper", "soundness", "Soundness")]
    panels += [("paper", metric, f"Completeness,\n{COMPLETENESS[metric]}") for metric in list(COMPLETENESS)[:2]]
    panels += [("zero weights", "completeness", "Completeness, relative,\nevery second weight zero")]
    grid = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, metric, title) in zip(grid, panels, strict=True):
        sound = metric == "soundness"
        _draw_curves(axes, sets[name], metric, PREDICTIVE if sound else THRESHOLDS)
        axes.set_title(title, fontsize=7)
        axes.set_xlabel("predictive level" if sound else "threshold")
        if not sound:
            axes.invert_xaxis()
    grid[0].set_ylabel("soundness, or accuracy lost")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _draw_curves(axes: Axes, curves: Mapping[str, Any], metric: str, across: tuple[float, ...]) -> None:
    for change, curve in curves.items():
        mean, variance = (np.array(curve[metric][name], dtype=np.float64) for name in ("mean", "variance"))
        colour, dash, marker = _STYLES[change]
        ends = np.minimum(np.sqrt(variance), [mean, 1 - mean])  # neither metric leaves 0 to 1
        axes.errorbar(
            across, mean, yerr=ends, label=change, color=colour, linestyle=dash, marker=marker,
            capsize=2, elinewidth=0.8,
        )  # fmt: skip
    axes.set_ylim(0, 1.05)


EXPERIMENT = Experiment(
    title="Do both metrics notice what is removed from exact maps, and what is introduced into them?",
    source="Section 5.1, Fig. 6, appendix G.1",
    run=run,
)
