"""The contract of a metric: a frozen value that names the probes it needs, reads them, and knows how it is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from twinlens.imputation.imputers import Imputer, LinearImputer, find_imputer
from twinlens.metrics.curves import Curve
from twinlens.metrics.performance import Performance, check_performance
from twinlens.metrics.protocols import Protocol as FinePrint
from twinlens.metrics.protocols import find_protocol
from twinlens.metrics.steps import STEPS, check_steps, step_schedules
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule
from twinlens.support.fields import check_types, convert, fields_of

_SHARED = ("performance", "protocol", "epsilon", "levels")


@dataclass(frozen=True, kw_only=True)
class About:
    """How tables and charts present a metric."""

    title: str
    """Title of its chart."""

    heading: str
    """Its name over a narrow column, with line breaks."""

    summary: str
    """What it measures, in a line."""

    across: str
    """Label of the horizontal axis; {measure} is the performance measure."""

    along: str = "loss of {measure}"
    """Label of the vertical axis."""

    scale: str = (
        "A drop of {measure} from its value on the original inputs, averaged over the curve: 0 where nothing is lost, "
        "below 0 where the model does better without the removed features."
    )
    """Unit and range of the area."""

    purpose: str = "for this metric"
    """When to use it, as the beginning of a sentence."""

    higher_is_better: bool = True
    """Whether a larger area is better for the map."""

    chance: float | None = None
    """The area of random maps; None where it depends on model and data."""

    side: Literal["soundness", "completeness"] | None = None
    """The side of the soundness–completeness plane that it measures, if any."""

    stairs: bool = False
    """Whether its curve is drawn as stairs over the performance reached, instead of lines over levels."""

    decreasing: bool = False
    """Whether the horizontal axis is drawn from the largest level to the smallest."""

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def arrow(self) -> str:
        """The better direction."""
        return "↑" if self.higher_is_better else "↓"

    @property
    def short(self) -> str:
        """The heading in one line, with its arrow.

        Example:
            >>> About(title="", heading="ROAD" + chr(10) + "gain", summary="", across="").short
            'ROAD gain ↑'
        """
        return f"{self.heading.replace(chr(10), ' ')} {self.arrow}"

    @property
    def direction(self) -> str:
        """The better direction in words."""
        return "more is better" if self.higher_is_better else "less is better"

    def reading(self, measure: str) -> tuple[str, str]:
        """Return what it measures with the better direction, and its scale.

        Example:
            >>> About(title="", heading="", summary="what is lost", across="", scale="{measure}, 0 to 1.").reading("r2")
            ('What is lost; more is better.', 'r2, 0 to 1.')
        """
        meaning = f"{self.summary[:1].upper()}{self.summary[1:]}; {self.direction}."
        return meaning, self.scale.format(measure=measure)

    def axes(self, measure: str) -> tuple[str, str]:
        """Return the labels of both axes."""
        return self.across.format(measure=measure), self.along.format(measure=measure)


@runtime_checkable
class Metric(Protocol):
    """A metric as a value: a frozen dataclass, whose fields are its options.

    The shortest way to a custom metric is to inherit from one of ours and to override its name, how it is shown, and
    what differs: levels, imputer, measure, or `read`. docs/reference/metrics.md has an example.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Its name with default options, by which results.json identifies it."""

    @property
    def about(self) -> About:
        """How it is shown."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Options that it takes from the run where it is requested by name, such as "performance"."""

    @property
    def controlled(self) -> bool:
        """Whether a run measures its exchanged control by default."""

    @property
    def has_interval(self) -> bool:
        """Whether its areas have an interval."""

    @property
    def by_predictive_level(self) -> bool:
        """Whether its area is taken over predictive levels, up to one that all methods share."""

    @property
    def needs_performance(self) -> bool:
        """Whether it follows the performance measure; otherwise it reads the log-odds of the target."""

    @property
    def performance(self) -> Performance:
        """The performance measure."""

    @property
    def imputer(self) -> Imputer | None:
        """How removed features are filled in; None for the run's imputer."""

    @property
    def protocol(self) -> str | FinePrint:
        """The protocol."""

    def bound(self, main: Imputer, *, neighbours: bool) -> Metric:
        """Return the metric with an imputer: its own, or the run's `main`."""

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps that it needs of maps with this many features."""

    def read(self, tables: Sequence[ProbeTable]) -> Curve:
        """Compute the curve from one table per sweep."""


@dataclass(frozen=True, kw_only=True)
class PerformanceMetric:
    """What all our metrics share: they follow the performance of a model on imputed inputs."""

    performance: Performance = "accuracy"
    """The performance measure: accuracy, top5, balanced_accuracy (decided over the data set), score, probability, logit
    (decided for each sample), r2 or neg_mse (regression); in Python also a function of the probe table."""

    imputer: Imputer | None = None
    """How removed features are filled in: linear, constant, mean or blur; in a run, the run's imputer by default."""

    protocol: str | FinePrint = "paper"
    """The details that the paper leaves open: "paper" follows the paper's text, "soco" its authors' published code."""

    shared: ClassVar[tuple[str, ...]] = ("performance", "protocol")
    controlled = True
    has_interval = True
    by_predictive_level = False
    needs_performance = True
    own_imputer: ClassVar[Imputer | None] = None
    """Used instead of the run's imputer where features have neighbours."""

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            if field.name == "imputer":
                value = None if value is None else find_imputer(value)
            elif field.name == "levels" and value is not None:
                value = convert(value, tuple[float, ...], "levels")
            else:
                value = convert(value, field.type, field.name)
            object.__setattr__(self, field.name, value)
        check_performance(self.performance)
        find_protocol(self.protocol)

    def bound(self, main: Imputer, *, neighbours: bool) -> Self:
        """Return the metric with an imputer: its own, or the run's `main`."""
        if self.imputer is not None:
            return self
        return dataclasses.replace(self, imputer=self.own_imputer if self.own_imputer and neighbours else main)

    def _sweeps(self, *schedules: Schedule) -> tuple[Sweep, ...]:
        imputer = self.imputer or self.own_imputer or LinearImputer()
        return tuple(Sweep(schedule=schedule, imputer=imputer) for schedule in schedules)


@dataclass(frozen=True, kw_only=True)
class StepMetric(PerformanceMetric):
    """What the metrics share that can read the steps of a ranking, all from one pair of sweeps."""

    steps: int | None = None
    """Number of steps of equal size that the features are cut into; 20 by default."""

    step_name: ClassVar[str]
    step_about: ClassVar[About]

    evidence: Literal["for", "against"] = "for"
    """Of steps: "for" judges positive values as evidence for the target; "against" judges negative values as evidence
    against it, which needs sign="signed"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evidence == "against" and not self.by_steps:
            raise ValueError("`evidence` 'against' belongs to the estimators 'rank' and 'share', and this is 'paper'.")
        if self.by_steps and self.steps is None:
            object.__setattr__(self, "steps", STEPS)
        if self.steps is not None:
            check_steps(self.steps)

    def _refuse_for_steps(self, *names: str) -> None:
        """Refuse options of the paper's estimator where steps are read, which would ignore them."""
        defaults = {field.name: field.default for field in fields_of(type(self))}
        for name in names:
            if self.by_steps and getattr(self, name) != defaults[name]:
                raise ValueError(f"`{name}` belongs to estimator 'paper'; estimators by steps take `steps` instead.")

    @property
    def by_steps(self) -> bool:
        """Whether it reads the effects of steps on the log-odds of the target instead of a performance measure."""
        return True

    @property
    def needs_performance(self) -> bool:  # type: ignore[override]
        """Whether it follows the performance measure."""
        return not self.by_steps

    @property
    def shared(self) -> tuple[str, ...]:  # type: ignore[override]
        """Options that it takes from the run where it is requested by name."""
        names = {field.name for field in fields_of(type(self))}
        return () if self.by_steps else tuple(name for name in _SHARED if name in names)

    def _pair(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the pair of sweeps for maps with this many features."""
        part = "positive" if self.evidence == "for" else "negative"
        pair = step_schedules(features, self.steps or STEPS)
        return self._sweeps(*(dataclasses.replace(schedule, part=part) for schedule in pair))

    @property
    def name(self) -> str:
        """Its name in `METRICS`."""
        return self.step_name if self.evidence == "for" else f"{self.step_name}_against"

    @property
    def about(self) -> About:
        """How it is shown; evidence against the target is no side of the plane."""
        if self.evidence == "for":
            return self.step_about
        about = self.step_about
        return dataclasses.replace(
            about,
            title=f"{about.title} (against)",
            heading=f"{about.heading}\n(against)",
            summary=f"evidence against the target, from negative values: {about.summary}",
            side=None,
        )


@dataclass(frozen=True, kw_only=True)
class ForeignMetric:
    """A metric of another package, as results.json describes it; the package need not be installed."""

    name: str
    """Its name."""

    about: About
    """How it is shown."""

    controlled: bool = False
    """Metrics that are installed come first."""

    needs_performance: bool = True
    """Custom metrics are shown with their performance measure."""
