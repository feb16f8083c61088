"""Comparison of runs: does a method do better with one model, or on one data set, than with another?

Where two runs share their samples, both are resampled alike, and what a sample does to both cancels out of the
difference. Where they do not, each is resampled by itself. All differences in a metric are decided at once, as those of
methods within a run are.

Shapes: R resamples, K differences.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from twinlens.statistics.bootstrap import Score
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.statistics.verdicts import BETTER, Difference
from twinlens.support.plotting import html_table
from twinlens.support.resampling import around, check_confidence

Quantity = Literal["area", "skill"]
_FIRST = ("metric", "method", "quantity")  # of the columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrast:
    """One number of one method in two runs, each as measured and in each resample."""

    metric: str
    """The metric."""

    method: str
    """The method."""

    quantity: Quantity
    """The area of the curve, or the skill."""

    runs: tuple[str, str]
    """Names of the runs."""

    scores: tuple[Score, Score]
    """The number in either run, resampled as often."""

    paired: bool
    """Whether both were resampled alike, on the same samples."""


@dataclass(frozen=True, kw_only=True)
class RunPair(Difference):
    """One method compared between two runs by one metric."""

    method: str
    """The method."""

    quantity: Quantity
    """What was compared: the "area" of the curve, or the "skill", positive for the better."""

    paired: bool
    """Whether both runs were resampled alike, on the samples that they share."""

    samples: tuple[int, int]
    """Number of samples of either run that were compared."""

    higher_is_better: bool
    """Whether a larger number speaks for the maps."""

    @property
    def verdict(self) -> str:
        """What the difference says, in a sentence."""
        what = self.metric if self.quantity == "area" else f"skill in {self.metric}"
        size, lower = f"{abs(self.difference):z.3f}", self.difference < 0
        ends = (-self.high, -self.low) if lower else (self.low, self.high)
        between = f"[{ends[0]:z.3f}, {ends[1]:z.3f}]"
        if self.decided:
            better, worse = (self.first, self.second) if lower != self.higher_is_better else (self.second, self.first)
            is_better = f"is {BETTER.get(self.metric, f'better in {self.metric}')}"
            verb = is_better if self.quantity == "area" else f"has more {what}"
            return f"{self.method} {verb} on {better} than on {worse} by {size} {between}."
        open_pair = f"{self.method}: {what} is not decided between {self.first} and {self.second}"
        if math.isnan(self.difference):
            return f"{open_pair} (not reached)."
        if math.isnan(self.low):
            return f"{open_pair} ({size}, without an interval)."
        return f"{self.method} does not differ in {what} between {self.first} and {self.second} ({size} {between})."


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """The methods of several runs, compared between the runs."""

    confidence: float
    """Confidence of all intervals; a difference is significant if its interval excludes 0."""

    runs: tuple[str, ...]
    """Names of the runs."""

    pairs: tuple[RunPair, ...]
    """Each metric and method that two runs have in common, for each pair of runs."""

    notes: tuple[str, ...]
    """What a reader has to know: how samples were matched, what was not compared and why."""

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence per difference."""
        return tuple(pair.verdict for pair in self.pairs)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per difference; what a reader has to know is in `frame.attrs["notes"]`."""
        frame = pd.DataFrame([{**dict.fromkeys(_FIRST), **vars(pair)} for pair in self.pairs])
        frame.attrs["notes"] = list(self.notes)
        return frame

    def _repr_html_(self) -> str:
        heads = ["method", "metric", "runs", "difference", "interval", "p", "samples"]
        body = [
            [
                html.escape(pair.method),
                html.escape(pair.metric if pair.quantity == "area" else f"{pair.metric}, skill"),
                html.escape(f"{pair.first} − {pair.second}"),
                _bold(f"{pair.difference:+z.3f}", pair.decided),
                "" if math.isnan(pair.low) else f"{pair.low:+z.3f} to {pair.high:+z.3f}",
                "" if math.isnan(pair.p_adjusted) else f"{pair.p_adjusted:.3f}",
                f"{pair.samples[0]}, paired" if pair.paired else f"{pair.samples[0]} and {pair.samples[1]}",
            ]
            for pair in self.pairs
        ]
        said = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        words = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in self.verdicts)
        notes = f"<ul>{said}</ul>" if said else ""
        return f"{notes}{html_table(heads, body)}<details><summary>In words</summary><ul>{words}</ul></details>"


def _bold(text: str, decided: bool) -> str:
    return f"<b>{text}</b>" if decided else text


def compare_runs(
    contrasts: Sequence[Contrast], *, confidence: float = 0.95, looks: Looks = ONE_LOOK
) -> tuple[RunPair, ...]:
    """Decide the differences between runs: those in the areas by a metric all at once, and those in its skill.

    Args:
        contrasts: the differences.
        confidence: confidence of intervals and verdicts.
        looks: how often a run was looked at before it stopped; intervals and p-values pay for all of them.
    """
    check_confidence(confidence)
    families: dict[tuple[str, str], list[int]] = {}
    for place, contrast in enumerate(contrasts):
        families.setdefault((contrast.metric, contrast.quantity), []).append(place)
    decided = [_decide([contrasts[place] for place in places], confidence, looks) for places in families.values()]
    return tuple(pair for pairs in decided for pair in pairs)


def _decide(contrasts: Sequence[Contrast], confidence: float, looks: Looks) -> list[RunPair]:
    """Decide all differences of one family at once.

    Two runs of other samples were resampled by draws of their own, so that the spreads of both are in the difference.
    """
    scores = [contrast.scores for contrast in contrasts]
    differences = np.array([one.area - other.area for one, other in scores])
    again = np.stack([one.trusted(one.replicates) - other.trusted(other.replicates) for one, other in scores], axis=1)
    # Of two runs the smaller one strays more from what new samples would give.
    samples = np.array([min(one.samples, other.samples) for one, other in scores])
    together = around(differences, again, samples)
    (low, high), adjusted = together.ends(looks.confidence(confidence, at_once=len(again.T))), together.p_values()
    return [
        RunPair(
            metric=contrast.metric,
            method=contrast.method,
            quantity=contrast.quantity,
            first=contrast.runs[0],
            second=contrast.runs[1],
            difference=float(differences[k]),
            low=float(low[k]),
            high=float(high[k]),
            p_value=looks.p_value(float(around(differences[[k]], again[:, [k]], samples[[k]]).p_values()[0])),
            p_adjusted=looks.p_value(float(adjusted[k]), at_once=len(again.T)),
            paired=contrast.paired,
            samples=(contrast.scores[0].samples, contrast.scores[1].samples),
            higher_is_better=contrast.scores[0].higher_is_better,
        )
        for k, contrast in enumerate(contrasts)
    ]
