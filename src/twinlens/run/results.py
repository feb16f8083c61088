"""Results: what came out of a run. results.json holds them, and no times, so that equal runs give equal bytes."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twinlens.metrics.catalogue import described_metric, first_of
from twinlens.metrics.metric import About, ForeignMetric, Metric
from twinlens.run.check_records import CheckValue
from twinlens.run.manifest import FORMAT, DataRecord, ModelRecord, Settings
from twinlens.statistics.verdicts import Standing
from twinlens.support.files import csv_text, written_whole

CONFIDENCE = 0.95
Numbers = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class ControlResults:
    """What is left of one method by one metric when its maps are exchanged between the samples."""

    value: float | None
    """Area of the curve of exchanged maps, estimated for all samples: that of own maps less the skill."""

    skill: float | None
    """How much better own maps are than exchanged ones: what the method knows of the input at hand. It is positive for
    the better, also where less is better."""

    low: float | None
    """Lower end of the skill's interval."""

    high: float | None
    """Upper end."""

    p: float | None
    """Two-sided p-value of no skill."""

    samples: int
    """Number of samples that were probed by both."""

    @property
    def direction(self) -> str | None:
        """Whether the interval says that own maps are "better" than exchanged ones, "worse", or "undecided"."""
        if self.low is None or self.high is None:
            return None
        return "better" if self.low > 0 else "worse" if self.high < 0 else "undecided"


@dataclass(frozen=True, kw_only=True)
class CurveResults:
    """One method by one metric; None stands for what is not defined."""

    area: float | None
    """Area of the curve."""

    area_interval: tuple[float, float] | None
    """Its interval."""

    control: ControlResults | None
    """The same with exchanged maps; None where that was not measured."""

    levels: Numbers
    """Shares removed, or thresholds."""

    performance: Numbers
    """Performance at each level."""

    values: Numbers
    """The metric at each level."""

    low: Numbers
    """Lower end of each value's interval."""

    high: Numbers
    """Upper end."""


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One thing that was looked at; see `twinlens.diagnose`."""

    kind: str
    """What was looked at."""

    value: float | None
    """What was found."""

    message: str | None
    """A warning with its remedy."""


@dataclass(frozen=True, kw_only=True)
class MethodResults:
    """Everything about one method."""

    control: bool
    """Whether it is a control, which does not look at the model."""

    metrics: Mapping[str, CurveResults]
    """Its curves."""

    diagnostics: tuple[Diagnostic, ...]
    """What speaks against taking them at face value."""

    properties: Mapping[str, CheckValue] = dataclasses.field(default_factory=dict)
    """What its maps are like by themselves, a mean over samples each: "sparseness" and "entropy"."""


@dataclass(frozen=True, kw_only=True)
class StoppingResults:
    """Why a run that draws its samples in rounds has ended where it did."""

    until: str
    """What was to be reached."""

    met: bool
    """Whether it is; otherwise the samples have run out."""

    widest: float | None
    """Half-width of the widest interval of the headline; of comparisons the largest difference that is still possible
    where none is decided, and 0 where all are. None where there is nothing to judge by."""

    samples: int
    """Samples that were measured."""

    of: int
    """Samples that there are."""

    look: int
    """How often results were looked at."""

    looks: int
    """How often they would have been with all samples; intervals pay for all of them."""

    confidence: float
    """The confidence at which intervals of a single number are drawn, so that those of all looks hold at once."""

    spent: float
    """Chance of an error up to this look, of the one in twenty that all looks have together."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that came out of a run."""

    format: int = FORMAT
    """Version of the layout."""

    model: ModelRecord
    """The model."""

    data: DataRecord
    """The samples."""

    seed: int
    """Seed of all that is random."""

    settings: Settings
    """What was asked."""

    accuracy: float
    """Accuracy with nothing removed; NaN for a regression model."""

    quality: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What stands in the place of accuracy for a regression model, with nothing removed: r2, or the mean score."""

    soundness_up_to: Mapping[str, float]
    """By metric, the predictive level up to which areas of the paper's soundness are taken: nine tenths of the
    performance on the untouched inputs."""

    confidence: float = CONFIDENCE
    """Of all intervals."""

    methods: Mapping[str, MethodResults]
    """What was found about each method whose maps are complete."""

    incomplete: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Methods of the run that lack maps or probes, each with the metrics that are missing."""

    warnings: tuple[str, ...] = ()
    """What a reader should know, with the method's name first."""

    ranking: tuple[Standing, ...] = ()
    """Each method by each metric, best first."""

    rivals: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By each metric that methods were compared by, those that the best one is not clear of."""

    front: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Methods that no other beats in both soundness and completeness, to the share of resamples in which this holds."""

    stopping: StoppingResults | None = None
    """Why no more samples were drawn; None where all were measured at once."""

    pairs_digest: str | None = None
    """Digest of pairs.csv, which has each pair of methods by each metric; None where nothing was compared."""

    def qualities(self) -> list[tuple[str, str]]:
        """List how well the model does with nothing removed, as names and texts; nothing where that is not known."""
        known = [] if math.isnan(self.accuracy) else [("accuracy", f"{self.accuracy:.1%}")]
        return [*known, *((name, f"{value:.3g}") for name, value in self.quality.items())]

    def describe_quality(self) -> str:
        """Describe the same in a line."""
        return ", ".join(f"{name} {value}" for name, value in self.qualities())

    @property
    def controls(self) -> list[str]:
        """Names of the methods that do not look at the model."""
        return [name for name, found in self.methods.items() if found.control]

    def control(self, method: str, metric: str) -> ControlResults | None:
        """Return what a method scores with exchanged maps, or None where that was not measured."""
        curve = self.methods[method].metrics.get(metric)
        return None if curve is None else curve.control

    def knows(self, method: str, metric: str) -> bool | None:
        """Tell whether a method's own maps do better than exchanged ones; None where that was not measured."""
        control = self.control(method, metric)
        return None if control is None or control.direction is None else control.direction == "better"

    def knows_nothing(self, method: str) -> bool:
        """Tell whether exchanged maps do as well as a method's own on every side that they were measured for."""
        known = [known for metric in self.sides if (known := self.knows(method, metric)) is not None]
        return bool(known) and not any(known)

    @property
    def beside(self) -> tuple[str, ...]:
        """Methods that are compared and never called best: controls, and those that know nothing of the input."""
        return tuple(name for name, found in self.methods.items() if found.control or self.knows_nothing(name))

    def area(self, method: str, metric: str) -> float | None:
        """Return the area of a method's curve, or None where it is not defined or was not measured."""
        curve = self.methods[method].metrics.get(metric)
        return None if curve is None else curve.area

    def areas(self, metric: str) -> dict[str, float]:
        """Return the area of each method's curve that has one."""
        areas = {method: self.area(method, metric) for method in self.methods}
        return {method: area for method, area in areas.items() if area is not None}

    def about(self, metric: str) -> About:
        """Return how a metric is shown; one with a name of the user's is shown under that."""
        about = self.kind(metric).about
        return about if metric == self.kind(metric).name else dataclasses.replace(about, title=metric, heading=metric)

    @property
    def sides(self) -> tuple[str, ...]:
        """The headline: a metric of soundness, with a control if there is one, and the first one of completeness."""
        return tuple(name for side in ("soundness", "completeness") if (name := self.first_of(side)) is not None)

    @property
    def plane(self) -> tuple[str, ...]:
        """The metrics of the plane: `sides` where both were measured."""
        return self.sides if len(self.sides) == 2 else ()

    def kind(self, metric: str) -> Metric | ForeignMetric:
        """Return the metric that was measured under this name, with default options."""
        return described_metric(self.settings.metrics[metric])

    def first_of(self, side: str) -> str | None:
        """Return the name of the first metric of a side that has a control by default, or else of the first."""
        return first_of({name: self.kind(name) for name in self.settings.metrics}, side)

    def candidates(self, metric: str) -> dict[str, float]:
        """Return the areas of the methods that may be called best: no controls, none without skill."""
        areas = self.areas(metric)
        return {
            m: area for m, area in areas.items() if not self.methods[m].control and self.knows(m, metric) is not False
        }

    def highest(self, metric: str) -> str | None:
        """Return the method with the best area among those that may be called best."""
        areas = self.candidates(metric)
        best = max if self.about(metric).higher_is_better else min
        return best(areas, key=areas.__getitem__) if areas else None

    def best(self, metric: str) -> str | None:
        """Return the method that is better than every other one that may be called best, beyond doubt."""
        decided = len(self.candidates(metric)) > 1 and self.rivals.get(metric) == ()
        return self.highest(metric) if decided else None

    def best_first(self) -> list[str]:
        """Return all methods, best first: by the sum of their ranks in soundness and completeness.

        Those that know nothing of the input come behind the others, and controls last.
        """
        sums = dict.fromkeys(self.methods, 0)
        for metric in self.sides:
            areas = self.areas(metric)
            for method in sums:
                own = areas.get(method)
                sums[method] += sum(own is None or area > own for area in areas.values())
        return sorted(sums, key=lambda name: (self.methods[name].control, self.knows_nothing(name), sums[name]))

    def write_csv(self, path: Path) -> None:
        """Write one row per method, metric and level."""
        with written_whole(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["method", "metric", "level", "performance", "value"])
            for method, found in self.methods.items():
                for metric, curve in found.metrics.items():
                    rows = zip(curve.levels, curve.performance, curve.values, strict=True)
                    table.writerows([csv_text(method), csv_text(metric), *row] for row in rows)
