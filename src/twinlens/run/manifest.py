"""The manifest: what a run is, by content. run.json holds it.

The identity of a run is what was measured: the model, the data, the maps, the seed, and the schedule and imputer of
every sweep. Settings such as epsilon or the estimator are not part of it: other settings read the same probes.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from twinlens.data.samples import Skipped
from twinlens.errors import RunError, short_repr
from twinlens.imputation.imputers import Imputer, UnavailableImputer, describe_imputer
from twinlens.metrics.catalogue import describe_metric, rebuild_metric
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep
from twinlens.models.preprocessing import Preprocessing
from twinlens.options import EvaluationOptions
from twinlens.probing.answers import CLASSIFICATION, PLAIN
from twinlens.probing.execution import Agreement, Execution
from twinlens.probing.maps import Features
from twinlens.probing.ranking import Schedule
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.support.fields import JSON, check_count, to_json

FORMAT = 6
_MOST_SHARDS, _MOST_VALUES = 1_000_000, 2**34  # of a run, and of one input
_LISTED = 6  # values that a message lists one by one
_SMALL = 64  # samples up to which all of them are measured with exchanged maps by default


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model of a run."""

    name: str
    """The spec, or the class of the module."""
    digest: str
    """Hash of its structure and weights."""
    preprocessing: Preprocessing
    classes: tuple[str, ...] | None
    """Names of the classes by index, if known."""
    output: str = PLAIN
    """Where its logits are: "logits" if it returns them, or a field such as ".logits"; "one logit" for two classes."""
    scale: str = PLAIN
    """Their scale: "logits", "probabilities", or "multi_label" logits."""
    target: str | None = None
    """The function from its output to one score per sample, with a hash."""
    task: str = CLASSIFICATION
    """"classification" or "regression"."""


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """The samples of a run."""

    name: str
    """The data set, such as "mnist" or "folder:birds"."""
    digest: str
    """Hash of ids, labels and content."""
    samples: int
    shape: tuple[int, ...]
    """Shape of one preprocessed input: (C, *S), or (D,) for tabular rows."""
    skipped: tuple[Skipped, ...]
    segments: str | None = None
    """How positions are grouped into features: "slic:64", or a hash of an array; None if each is a feature."""
    tokens: bool = False
    """Whether inputs are token ids."""
    feature_kind: Features = "positions"
    """What a feature is: a position with all of its channels, or one channel of a position."""

    @property
    def spatial(self) -> tuple[int, ...]:
        """Shape S of one map, (C, *S) if each channel has features of its own."""
        return self.shape if self.feature_kind == "channels" else self.shape[1:] or self.shape

    @property
    def features(self) -> int | None:
        """Number of features of one map; None with segments, whose number varies."""
        return math.prod(self.spatial) if self.segments is None else None

    @property
    def has_neighbours(self) -> bool:
        """Whether features have neighbours, unlike tabular rows and tokens."""
        return len(self.shape) > 1 and not self.tokens


@dataclass(frozen=True, kw_only=True)
class RoundsRecord:
    """The rounds in which a run draws its samples; `DataRecord` holds the current one."""

    sizes: tuple[int, ...]
    """Number of samples after each round; the last has all of them."""
    digest: str
    """Hash of all samples in the order of the draw."""


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    """Where the maps of one method come from."""

    method: str | None = None
    """Its name in `METHODS`; None for your own maps and functions."""
    function: str | None = None
    source: str | None = None
    """Hash of that function's source."""
    maps: str | None = None
    """Hash of stored maps."""
    options: Mapping[str, JSON] = dataclasses.field(default_factory=dict)
    """Options of the method, with hashes of arrays."""

    @property
    def sign(self) -> str:
        """What negative values of its maps mean, a key of `SIGNS`."""
        return str(self.options.get("sign", "positive" if self.method else "error"))


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """Probes with one schedule and imputer."""

    name: str
    schedule: Schedule
    """Which features were removed at which level."""
    imputer: Mapping[str, JSON]
    """How removed features were filled in; see `describe_imputer`."""
    exchanged: float = 0.0
    """Share of the samples probed with the map of another sample; 0 for own maps."""

    def is_kind_of(self, sweep: Sweep) -> bool:
        """Return whether the probes are of the kind that a metric needs, at any levels."""
        same = dataclasses.replace(self.schedule, levels=sweep.schedule.levels) == sweep.schedule
        return same and self.exchanged == sweep.exchanged and dict(self.imputer) == describe_imputer(sweep.imputer)


@dataclass(frozen=True, kw_only=True)
class ExecutionRecord:
    """How the model is called. It never changes during a run, because the last bits depend on it."""

    batch_size: int
    memory_format: str
    compiled: bool
    threads: int | None
    device: str
    shard_size: int
    precision: str = "float32"
    trials: tuple[Agreement, ...] = ()
    """Agreement of other precisions and of the compiled model with float32."""

    @property
    def execution(self) -> Execution:
        """The same as the caller of the model takes it."""
        return Execution(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Execution)})


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """The specs of model and data, with which they can be opened again; None for Python objects."""

    model: str | None
    weights: str
    data: str | None
    classes: str | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the probes are evaluated; other settings give other results of the same run."""

    metrics: Mapping[str, Mapping[str, JSON]]
    """Metrics with all their options; see `describe_metric`."""
    imputer: Mapping[str, JSON]
    """The imputer of metrics without their own; see `describe_imputer`."""
    control: str
    """Which metrics are also measured on exchanged maps: "shuffled" for those with short sweeps, "all" or "none"."""
    control_share: float
    """Share of the samples measured with exchanged maps."""
    resamples: int
    until: str | None = None
    """When to stop: a half-width, or "decided" with a margin; see `Until`."""
    show: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_keys("imputer", self.imputer, ("name",))
        for name, metric in self.metrics.items():
            _check_keys(f"metrics.{name}", metric, ("metric", "performance", "imputer"))
            if isinstance(imputer := metric["imputer"], dict):
                _check_keys(f"metrics.{name}.imputer", imputer, ("name",))

    @staticmethod
    def of(metrics: Mapping[str, Metric], imputer: Imputer, options: EvaluationOptions, *, samples: int) -> Settings:
        """Describe metrics and options, for a run of this many samples in all its rounds."""
        return Settings(
            metrics={name: describe_metric(metric) for name, metric in metrics.items()},
            imputer=describe_imputer(imputer),
            control=options.control if samples > 1 else "none",  # a single map cannot be exchanged
            control_share=options.control_share or (1.0 if samples <= _SMALL else 0.5),
            resamples=options.resamples,
            until=None if options.until is None else str(options.until),
            show=tuple(options.show),
        )

    def exchanged(self, metric: Metric, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps of a metric on exchanged maps."""
        share = self.control_share
        return tuple(dataclasses.replace(sweep, exchanged=share) for sweep in metric.sweeps(features))

    def sweeps(self, metrics: Mapping[str, Metric], features: int | None) -> list[Sweep]:
        """List the probes that metrics need, on own and on exchanged maps."""
        own = [sweep for metric in metrics.values() for sweep in metric.sweeps(features)]
        controlled = [
            metric
            for metric in metrics.values()
            if self.control == "all" or (self.control == "shuffled" and metric.controlled)
        ]
        return [*own, *(sweep for metric in controlled for sweep in self.exchanged(metric, features))]

    def values(self) -> dict[str, Metric]:
        """Rebuild the metrics, except custom ones and those with a custom performance function."""
        metrics = {name: rebuild_metric(description) for name, description in self.metrics.items()}
        return {name: metric for name, metric in metrics.items() if metric is not None}

    def values_with(self, imputer: Imputer) -> dict[str, Metric]:
        """Rebuild the metrics, with `imputer` for those that used it; without those of other custom imputers."""
        described, metrics = describe_imputer(imputer), dict[str, Metric]()
        for name, metric in self.values().items():
            if not isinstance(metric.imputer, UnavailableImputer):
                metrics[name] = metric
            elif dict(metric.imputer.description) == described:
                metrics[name] = dataclasses.replace(metric, imputer=imputer)
        return metrics


def _check_keys(name: str, part: Mapping[str, JSON], keys: tuple[str, ...]) -> None:
    if missing := [key for key in keys if key not in part]:
        raise ValueError(f"`settings.{name}` must have {missing[0]!r}; it is missing.")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a run is."""

    format: int = FORMAT
    """Version of the layout."""
    model: ModelRecord
    data: DataRecord
    seed: int
    execution: ExecutionRecord
    source: SourceRecord
    methods: Mapping[str, MethodRecord]
    sweeps: tuple[SweepRecord, ...]
    settings: Settings
    """The last settings; not part of the identity."""
    versions: Mapping[str, str]
    """Versions of the packages that made it; several for a run that was resumed with others."""
    rounds: RoundsRecord | None = None
    """The rounds in which samples are drawn; None if all are measured at once."""

    def __post_init__(self) -> None:
        data, execution = self.data, self.execution
        check_count("execution.shard_size", execution.shard_size, 2**40)
        check_count("execution.batch_size", execution.batch_size, 2**31)
        check_count("data.samples", data.samples, _MOST_SHARDS * execution.shard_size)
        check_count("data.shape", min((len(data.shape), *data.shape)), _MOST_VALUES)
        check_count("data.shape", math.prod(data.shape), _MOST_VALUES)
        if self.rounds and not (0, *self.rounds.sizes) == (*sorted({0, *self.rounds.sizes}),):
            raise ValueError(f"`rounds.sizes` must be positive and increase; got {short_repr(self.rounds.sizes)}.")

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self._shard_starts) - 1

    @cached_property
    def _shard_starts(self) -> tuple[int, ...]:
        """The first position of each shard, and the end of the last; no shard has samples of two rounds."""
        samples, size = self.data.samples, self.execution.shard_size
        ends = [end for end in (self.rounds.sizes if self.rounds else ()) if end < samples]
        return (*(k for start, end in pairwise([0, *ends, samples]) for k in range(start, end, size)), samples)

    def positions(self, shard: int) -> range:
        """Return the positions of the samples of one shard."""
        return range(*self._shard_starts[shard : shard + 2])

    def shard_row(self, position: int) -> tuple[int, int]:
        """Return the shard of a sample and its row in that shard."""
        shard = bisect_right(self._shard_starts, position) - 1
        return shard, position - self._shard_starts[shard]

    @property
    def looks(self) -> Looks:
        """How often results are looked at, which widens intervals and p-values."""
        return ONE_LOOK if self.rounds is None else Looks(self.rounds.sizes)

    def joined(self, stored: Manifest, where: str) -> Manifest:
        """Return the manifest of an existing run with new methods and sweeps, or refuse another measurement."""
        changes = differences(self.identity(), stored.identity())
        for name, method in self.methods.items():
            if name in stored.methods:
                changes += differences(to_json(method), to_json(stored.methods[name]), f"methods.{name}")
        if changes:
            more = f" ({len(changes) - 3} more)" if len(changes) > 3 else ""
            raise RunError(
                f"`out` {where!r} holds another run: {'; '.join(changes[:3])}{more}. Choose another directory, or use "
                "the same options."
            )
        names = {sweep.name for sweep in stored.sweeps}
        return dataclasses.replace(
            self,
            methods={**stored.methods, **self.methods},
            sweeps=(*stored.sweeps, *(sweep for sweep in self.sweeps if sweep.name not in names)),
            versions=_all_versions(stored.versions, self.versions, where),
        )

    def identity(self) -> dict[str, JSON]:
        """Return what two calls must agree on to share a run."""
        names = ("format", "model", "data", "seed", "execution", "rounds")
        return {name: to_json(getattr(self, name)) for name in names}


def _all_versions(stored: Mapping[str, str], here: Mapping[str, str], where: str) -> dict[str, str]:
    """Return stored versions, and after them the installed ones that are new, of which it warns."""
    new = {name: number for name, number in here.items() if number not in stored.get(name, number).split(", ")}
    if new:
        changes = ", ".join(f"{name} {stored[name]} and now {number}" for name, number in new.items())
        warnings.warn(f"`out` {where!r} was made with {changes}. Numbers may differ slightly.", stacklevel=2)
    return {**here, **stored, **{name: f"{stored[name]}, {number}" for name, number in new.items()}}


def differences(here: JSON, stored: JSON, name: str = "", *, places: tuple[str, str] = ("there", "here")) -> list[str]:
    """List the differences between two descriptions by field; `places` names them, the stored one first."""
    if isinstance(stored, dict) and isinstance(here, dict):
        keys = [*stored, *(key for key in here if key not in stored)]
        prefix = f"{name}." if name else ""
        return [
            line for key in keys for line in differences(here.get(key), stored.get(key), prefix + key, places=places)
        ]
    if here == stored:
        return []
    return [f"{name} is {_short(stored)} {places[0]} and {_short(here)} {places[1]}"]


def _short(value: JSON) -> str:
    if isinstance(value, list) and len(value) > _LISTED:
        return f"[{value[0]}, {value[1]}, … {value[-2]}, {value[-1]}] ({len(value)} values)"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
