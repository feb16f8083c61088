"""Comparison of runs: does a method do better with one model, or on one data set, than with another?

Runs that share their samples are resampled alike, and variation between samples cancels out of the difference. Other
runs are resampled independently. All differences in a metric are tested together, as those of methods within a run are.

Shapes: R resamples, K differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from twinlens.statistics.comparison import decide_differences
from twinlens.statistics.margin import describe_undecided, fewest_controlled
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.statistics.verdicts import BETTER, Contrast
from twinlens.support.estimate import Estimate, fewer_groups
from twinlens.support.resampling import FEWEST

Quantity = Literal["area", "skill"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunValues:
    """One number of one method in two runs."""

    metric: str
    method: str
    quantity: Quantity
    runs: tuple[str, str]
    values: tuple[Estimate, Estimate]
    """The number in each run, with equally many replicates."""
    paired: bool
    """Whether both were resampled alike, on the same samples."""
    higher_is_better: bool


@dataclass(frozen=True, kw_only=True)
class RunPair(Contrast):
    """One method compared between two runs by one metric."""

    method: str
    """The method."""

    quantity: Quantity
    """The compared number: the "area" of the curve, or the "skill", which is positive where own maps are better."""

    paired: bool
    """Whether both runs were resampled alike, on the samples that they share."""

    samples: tuple[int, int]
    """Number of compared samples in each run."""

    higher_is_better: bool
    """Whether a larger number is better."""

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        what = self.metric if self.quantity == "area" else f"skill in {self.metric}"
        if self.decided:
            larger = (self.difference.value or 0.0) > 0
            better, worse = (self.first, self.second) if larger == self.higher_is_better else (self.second, self.first)
            is_better = f"is {BETTER.get(self.metric, f'better in {self.metric}')}"
            verb = is_better if self.quantity == "area" else f"has more {what}"
            return f"{self.method} {verb} on {better} than on {worse} by {self.difference.magnitude}."
        subject = f"{what} between {self.first} and {self.second}"
        if self.difference.value is None:
            return f"{self.method}: {subject} is not decided (not reached)."
        fewest = FEWEST if self.quantity == "area" else fewest_controlled()
        return f"{self.method}: {describe_undecided(self.difference, subject, samples=self._count, fewest=fewest)}."

    @property
    def _count(self) -> str:
        """The number of samples in words; of a skill, of those measured with exchanged maps."""
        one, other = self.samples
        numbers = f"{one:,}" if self.paired else f"{one:,} and {other:,}"
        return f"{numbers} samples" if self.quantity == "area" else f"{numbers} samples of the control"

    def row(self) -> dict[str, object]:
        """Return the difference as a row of a table."""
        own = {"paired": self.paired, "samples": self.samples, "higher_is_better": self.higher_is_better}
        return {"metric": self.metric, "method": self.method, "quantity": self.quantity} | super().row() | own


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
        """Return one row per difference; notes are in `frame.attrs["notes"]`."""
        frame = pd.DataFrame([pair.row() for pair in self.pairs])
        numbers = ("difference", "low", "high", "p_value", "p_adjusted") if len(frame) else ()
        frame = frame.astype(dict.fromkeys(numbers, float))
        frame.attrs["notes"] = list(self.notes)
        return frame


def compare_runs(
    numbers: Sequence[RunValues], *, confidence: float = 0.95, looks: Looks = ONE_LOOK
) -> tuple[RunPair, ...]:
    """Test differences between runs, all areas by a metric together, and all skills, adjusted for all looks."""
    families: dict[tuple[str, str], list[RunValues]] = {}
    for number in numbers:
        families.setdefault((number.metric, number.quantity), []).append(number)
    return tuple(pair for family in families.values() for pair in _compare_family(family, confidence, looks))


def _compare_family(numbers: Sequence[RunValues], confidence: float, looks: Looks) -> list[RunPair]:
    """Test differences together.

    Runs of other samples were resampled independently, and both contribute to the spread of the difference.
    """
    values = np.array([[math.nan if run.value is None else run.value for run in each.values] for each in numbers])
    replicates = np.stack([np.stack([np.asarray(run.replicates) for run in each.values]) for each in numbers], axis=2)
    # Of two runs, the smaller one determines how much new samples would change the difference.
    samples = np.array([min(run.samples for run in each.values) for each in numbers])
    groups = [fewer_groups(*each.values) for each in numbers]
    tested = decide_differences(
        values[:, 0] - values[:, 1],
        replicates[0] - replicates[1],
        samples=samples,
        groups=np.array([count if own is None else own for count, own in zip(samples, groups, strict=True)]),
        reach=np.array([max(run.reach or 0.0 for run in each.values) for each in numbers]),
        confidence=confidence,
        looks=looks,
    )
    return [
        RunPair(
            metric=each.metric,
            method=each.method,
            quantity=each.quantity,
            first=each.runs[0],
            second=each.runs[1],
            difference=difference,
            p_alone=p_alone,
            paired=each.paired,
            samples=(each.values[0].samples, each.values[1].samples),
            higher_is_better=each.higher_is_better,
        )
        for each, (difference, p_alone) in zip(numbers, tested, strict=True)
    ]
