"""Results: what came out of a run. results.json holds them, and no times, so that equal runs give equal bytes."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twinlens.core.files import csv_text, written_whole
from twinlens.metrics.about import About
from twinlens.metrics.catalogue import METRICS, Metric
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import Soundness
from twinlens.running.manifest import FORMAT, DataRecord, ModelRecord, Question
from twinlens.statistics.comparison import Pair, Standing

CONFIDENCE = 0.95
Numbers = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class CurveResults:
    """One method by one metric; None stands for what is not defined."""

    area: float | None
    """Area of the curve."""

    area_interval: tuple[float, float] | None
    """Its interval."""

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

    question: Question
    """What was asked."""

    accuracy: float
    """Accuracy with nothing removed."""

    soundness_up_to: Mapping[str, float]
    """By metric, the predictive level that all methods reach, up to which areas of soundness are taken."""

    confidence: float = CONFIDENCE
    """Of all intervals."""

    methods: Mapping[str, MethodResults]
    """What was found about each method whose maps are complete."""

    incomplete: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Methods of the run that lack maps or probes, each with the metrics that are missing."""

    warnings: tuple[str, ...]
    """What a reader should know, with the method's name first."""

    ranking: tuple[Standing, ...]
    """Each method by each metric, best first."""

    pairs: tuple[Pair, ...]
    """Each pair of methods by each metric."""

    front: Mapping[str, float]
    """Methods that no other beats in both soundness and completeness, to the share of resamples in which this holds."""

    verdicts: tuple[str, ...]
    """One sentence per pair of methods."""

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
        """The first metric of soundness and the first of completeness, whichever were measured."""
        return tuple(name for kind in (Soundness, Completeness) if (name := self.first_of(kind)) is not None)

    @property
    def plane(self) -> tuple[str, ...]:
        """The metrics of the plane: `sides` where both were measured."""
        return self.sides if len(self.sides) == 2 else ()

    def kind(self, metric: str) -> Metric:
        """Return the metric that was measured under this name, with default options."""
        return METRICS[str(self.question.metrics[metric]["metric"])]

    def first_of(self, kind: type[Metric]) -> str | None:
        """Return the name of the first metric of a kind."""
        return next((name for name in self.question.metrics if isinstance(self.kind(name), kind)), None)

    def best(self, metric: str) -> list[str]:
        """Return the methods with the best area: one, more where they tie, none where none is defined."""
        areas = self.areas(metric)
        if not areas:
            return []
        best = (max if self.about(metric).higher_is_better else min)(areas.values())
        return [method for method, area in areas.items() if area == best]

    def best_first(self) -> list[str]:
        """Return all methods, best first: by the sum of their ranks in soundness and completeness."""
        sums = dict.fromkeys(self.methods, 0)
        for metric in self.sides:
            areas = self.areas(metric)
            for method in sums:
                own = areas.get(method)
                sums[method] += sum(own is None or area > own for area in areas.values())
        return sorted(sums, key=sums.__getitem__)

    def write_csv(self, path: Path) -> None:
        """Write one row per method, metric and level."""
        with written_whole(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["method", "metric", "level", "performance", "value"])
            for method, found in self.methods.items():
                for metric, curve in found.metrics.items():
                    rows = zip(curve.levels, curve.performance, curve.values, strict=True)
                    table.writerows([csv_text(method), csv_text(metric), *row] for row in rows)
