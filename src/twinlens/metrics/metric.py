"""What a metric is, ours or yours: a frozen value that says which probes it needs and how it reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from twinlens.imputation.imputers import Imputer
from twinlens.metrics.about import About
from twinlens.metrics.curves import Curve
from twinlens.metrics.performance import Performance
from twinlens.metrics.protocols import Protocol as FinePrint
from twinlens.metrics.sweeps import Sweep
from twinlens.probing.probe_table import ProbeTable


@runtime_checkable
class Metric(Protocol):
    """A metric as a value: a frozen dataclass, whose fields are its options.

    The shortest way to one of your own is to inherit from one of ours and to change its name, how it is shown, and what
    differs: levels, imputer, measure, or `read`. docs/reference/metrics.md has an example.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """Its name with default options, by which results.json tells it from others."""

    @property
    def about(self) -> About:
        """How it is shown."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Options that it takes from the run where it is given by name, such as "performance"."""

    @property
    def controlled(self) -> bool:
        """Whether a run measures it on exchanged maps by default, too."""

    @property
    def has_interval(self) -> bool:
        """Whether its areas have an interval."""

    @property
    def by_predictive_level(self) -> bool:
        """Whether its area is taken over predictive levels, up to one that all methods share."""

    @property
    def performance(self) -> Performance:
        """The measure of performance."""

    @property
    def imputer(self) -> Imputer | None:
        """What stands in the place of removed features; None for the run's own."""

    @property
    def protocol(self) -> str | FinePrint:
        """The fine print."""

    def bound(self, main: Imputer, *, neighbours: bool) -> Metric:
        """Return the metric with an imputer: its own, or the run's `main`."""

    def sweeps(self, features: int | None) -> tuple[Sweep, ...]:
        """Return the probes that it needs of maps with so many features."""

    def read(self, tables: Sequence[ProbeTable]) -> Curve:
        """Compute the curve from one table per sweep."""


@dataclass(frozen=True, kw_only=True)
class ForeignMetric:
    """A metric that is not ours: results.json says how it is shown, whether or not it is at hand."""

    name: str
    """Its name."""

    about: About
    """How it is shown."""

    controlled: bool = False
    """So that metrics at hand go first."""
