"""Results of a run, as results.json holds them. Times are not among them: equal runs write equal bytes."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from twinlens.metrics.catalogue import described_metric, first_of
from twinlens.metrics.metric import About, ForeignMetric, Metric
from twinlens.run.manifest import FORMAT, DataRecord, ModelRecord, Settings
from twinlens.statistics.advice import Advice, judge_skill
from twinlens.statistics.diagnostics import Finding
from twinlens.statistics.verdicts import Rank
from twinlens.support.estimate import Estimate
from twinlens.support.files import csv_text, written_whole

CONFIDENCE = 0.95
Numbers = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class CurveResults:
    """One method by one metric; None means undefined."""

    area: Estimate
    control: Estimate | None = None
    """Area with exchanged maps, estimated for all samples as `area` less `skill`; None where it was not measured."""
    skill: Estimate | None = None
    """How much better the method's own maps are than the same maps exchanged between the samples. It is positive where
    they are better, also if less is better by the metric."""
    levels: Numbers
    """Shares removed, or thresholds."""
    performance: Numbers
    values: Numbers
    """The metric at each level."""
    low: Numbers
    """Lower end of each value's interval."""
    high: Numbers

    @property
    def direction(self) -> str | None:
        """Whether own maps are "better" than exchanged ones, "worse" or "undecided"; None without an interval."""
        ends = None if self.skill is None else self.skill.interval
        if ends is None:
            return None
        return "better" if ends[0] > 0 else "worse" if ends[1] < 0 else "undecided"


@dataclass(frozen=True, kw_only=True)
class MethodResults:
    """Everything about one method."""

    baseline: bool
    """Whether it is a baseline method, which ignores the model."""
    sign: str = "error"
    """What negative values of its maps mean, a key of `SIGNS`; "error" if they were refused."""
    metrics: Mapping[str, CurveResults]
    diagnostics: tuple[Finding, ...]
    """Outcomes of the diagnostics."""
    properties: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)
    """Properties of its maps, each a mean over samples: "sparseness", "entropy", and "negative", the share of negative
    attribution before `sign` was applied."""

    @property
    def negative(self) -> str:
        """What was done with negative values of its maps."""
        share = self.properties["negative"].value if "negative" in self.properties else None
        if share == 0.0 or self.sign == "error":
            return "none"
        treatment = {"positive": "dropped", "absolute": "taken as magnitudes", "signed": "judged as evidence against"}
        return treatment[self.sign] + ("" if share is None else f", {share:.1%} of all attribution")


@dataclass(frozen=True, kw_only=True)
class StoppingResults:
    """Why a run that measures its samples in rounds stopped."""

    until: str
    met: bool
    """Whether it was reached; otherwise all samples were measured."""
    widest: float | None
    """Half-width of the widest interval of the headline metrics; for comparisons the largest difference that is still
    possible, 0 where all are decided. None where there is no interval."""
    samples: int
    of: int
    """Number of available samples."""
    look: int
    """Number of looks at the results so far."""
    looks: int
    """Number of looks with all samples; intervals are adjusted for all of them."""
    confidence: float
    """Confidence of a single interval, for which those of all looks hold together."""
    spent: float
    """Chance of an error up to this look, out of the 5% of all looks."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of a run."""

    format: int = FORMAT
    """Version of the layout."""

    model: ModelRecord
    """The model."""

    data: DataRecord
    """The samples."""

    seed: int
    """Random seed."""

    settings: Settings
    """Metrics and settings."""

    accuracy: float
    """Accuracy with nothing removed; NaN for a regression model."""

    quality: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Quality of a regression model with nothing removed: R², or the mean score."""

    soundness_up_to: Mapping[str, float]
    """By metric, the predictive level up to which areas of the paper's soundness are taken: nine tenths of the
    performance on the original inputs."""

    confidence: float = CONFIDENCE
    """Confidence of all intervals."""

    methods: Mapping[str, MethodResults]
    """Results of each method whose maps are complete."""

    incomplete: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Methods of the run that lack maps or probes, each with the missing metrics."""

    warnings: tuple[str, ...] = ()
    """Warnings; those about a method start with its name."""

    ranking: tuple[Rank, ...] = ()
    """Each method by each metric, best first."""

    advice: Mapping[str, Advice] = dataclasses.field(default_factory=dict)
    """By headline metric, which method to use and how sure that is."""

    front: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Methods that no other beats in both soundness and completeness, with the share of resamples in which this
    holds."""

    stopping: StoppingResults | None = None
    """Why measuring stopped; None where all samples were measured at once."""

    pairs_digest: str | None = None
    """Digest of pairs.csv, the comparison of each pair of methods by each metric; None where nothing was compared."""

    def qualities(self) -> list[tuple[str, str]]:
        """Return the model's quality with nothing removed, as names and texts; empty where it is unknown."""
        accuracy = [] if math.isnan(self.accuracy) else [("accuracy", f"{self.accuracy:.1%}")]
        return [*accuracy, *((name, f"{value:.3g}") for name, value in self.quality.items())]

    def describe_quality(self) -> str:
        """Return the same in a line."""
        return ", ".join(f"{name} {value}" for name, value in self.qualities())

    @property
    def baselines(self) -> list[str]:
        """Names of the baseline methods, which ignore the model."""
        return [name for name, method in self.methods.items() if method.baseline]

    def skill(self, method: str, metric: str) -> Estimate | None:
        """Return how much better a method's maps are than exchanged ones, or None where that was not measured."""
        curve = self.methods[method].metrics.get(metric)
        return None if curve is None else curve.skill

    def with_skill(self, metric: str) -> bool:
        """Return whether skill by a metric was measured for any method."""
        return any(self.skill(method, metric) is not None for method in self.methods)

    def has_skill(self, method: str, metric: str) -> bool | None:
        """Return whether a method's maps are clearly better than exchanged ones; None if undecided or not measured."""
        return judge_skill(self.skill(method, metric))

    def lacks_skill(self, method: str) -> bool:
        """Return whether a method's maps are better than exchanged ones by less than the margin, on every side."""
        judged = [self.has_skill(method, metric) for metric in self.sides]
        return bool(judged) and all(each is False for each in judged)

    @property
    def never_best(self) -> tuple[str, ...]:
        """Methods that are compared but never called best: baseline methods, and those that clearly lack skill."""
        return tuple(name for name, method in self.methods.items() if method.baseline or self.lacks_skill(name))

    def area(self, method: str, metric: str) -> float | None:
        """Return the area of a method's curve, or None where it is undefined or was not measured."""
        curve = self.methods[method].metrics.get(metric)
        return None if curve is None else curve.area.value

    def areas(self, metric: str) -> dict[str, float]:
        """Return the area of each method's curve that has one."""
        areas = {method: self.area(method, metric) for method in self.methods}
        return {method: area for method, area in areas.items() if area is not None}

    def about(self, metric: str) -> About:
        """Return how a metric is shown; a custom name replaces its title."""
        about = self.kind(metric).about
        return about if metric == self.kind(metric).name else dataclasses.replace(about, title=metric, heading=metric)

    @property
    def sides(self) -> tuple[str, ...]:
        """The headline metrics: one of soundness and one of completeness, as far as they were measured."""
        return tuple(name for side in ("soundness", "completeness") if (name := self.first_of(side)) is not None)

    @property
    def plane(self) -> tuple[str, ...]:
        """The metrics of the plane: `sides` where both were measured."""
        return self.sides if len(self.sides) == 2 else ()

    def kind(self, metric: str) -> Metric | ForeignMetric:
        """Return the metric of this name, as far as its options show."""
        return self._kinds[metric]

    @cached_property
    def _kinds(self) -> dict[str, Metric | ForeignMetric]:
        return {name: described_metric(settings) for name, settings in self.settings.metrics.items()}

    def first_of(self, side: str) -> str | None:
        """Return the first metric of a side that has an exchanged control by default, or else the first."""
        return first_of(self._kinds, side)

    def best(self, metric: str) -> str | None:
        """Return the method that is clearly better than all others by a headline metric."""
        advice = self.advice.get(metric)
        return advice.methods[0] if advice is not None and advice.outcome == "clear" else None

    def best_value(self, metric: str, methods: Collection[str] | None = None) -> str:
        """Return which of the methods, by default of all with baselines, has the best value by a metric."""
        areas, best = self.areas(metric), max if self.about(metric).higher_is_better else min
        return best(areas if methods is None else methods, key=areas.__getitem__)

    def best_first(self) -> list[str]:
        """Return all methods, best first: by the sum of their ranks in soundness and completeness.

        Methods without skill follow, and baseline methods come last.
        """
        sums = dict.fromkeys(self.methods, 0)
        for metric in self.sides:
            areas = self.areas(metric)
            for method in sums:
                own = areas.get(method)
                sums[method] += sum(own is None or area > own for area in areas.values())
        return sorted(sums, key=lambda name: (self.methods[name].baseline, self.lacks_skill(name), sums[name]))

    def write_csv(self, path: Path) -> None:
        """Write one row per method, metric and level."""
        with written_whole(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["method", "metric", "level", "performance", "value"])
            for method, results in self.methods.items():
                for metric, curve in results.metrics.items():
                    rows = zip(curve.levels, curve.performance, curve.values, strict=True)
                    table.writerows([csv_text(method), csv_text(metric), *row] for row in rows)
