"""The manifest: what a run is, by content. run.json holds it.

The identity of a run is what was measured: the model, the data, the maps, the seed, and of every sweep its schedule and
imputer. The question, such as epsilon or the estimator, is not part of it: another question reads the same probes.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from twinlens.data.samples import Skipped
from twinlens.errors import RunError
from twinlens.imputation.imputers import Imputer, UnavailableImputer, describe_imputer
from twinlens.metrics.catalogue import describe_metric, rebuild_metric
from twinlens.metrics.metric import Metric
from twinlens.metrics.sweeps import Sweep
from twinlens.models.preprocessing import Preprocessing
from twinlens.options import QuestionOptions
from twinlens.probing.answers import CLASSIFICATION, PLAIN
from twinlens.probing.execution import Agreement, Execution
from twinlens.probing.ranking import Schedule
from twinlens.statistics.sequential import ONE_LOOK, Looks
from twinlens.support.fields import JSON, to_json

FORMAT = 5


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The model of a run."""

    name: str
    """The spec, or the class of the module."""

    digest: str
    """Hash of its structure and weights."""

    preprocessing: Preprocessing
    """What images go through first."""

    classes: tuple[str, ...] | None
    """Names of the classes by index, where they are known."""

    output: str = PLAIN
    """Where its logits are: "logits", which it returns, or a field, such as ".logits"; "one logit" of two classes."""

    scale: str = PLAIN
    """What they are: "logits", "probabilities", or "multi_label" logits."""

    target: str | None = None
    """The function that makes one score per sample of what it returns, and a hash of it."""

    task: str = CLASSIFICATION
    """"classification"; "regression" where labels or scores are values."""


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """The samples of a run."""

    name: str
    """What was opened, such as "mnist" or "folder:birds"."""

    digest: str
    """Hash of ids, labels and content."""

    samples: int
    """Number of samples."""

    shape: tuple[int, ...]
    """Shape of one input as the model sees it: (C, *S), or (D,) for tabular rows."""

    skipped: tuple[Skipped, ...]
    """Samples that could not be read and were left out."""

    segments: str | None = None
    """What joins places of a map to features: "slic:64", or a hash of what was given; None where each is one."""

    tokens: bool = False
    """Whether inputs are token ids."""

    @property
    def spatial(self) -> tuple[int, ...]:
        """Shape S of one map."""
        return self.shape[1:] or self.shape

    @property
    def features(self) -> int | None:
        """Number of features of one map; None where segments make it differ from sample to sample."""
        return math.prod(self.spatial) if self.segments is None else None

    @property
    def has_neighbours(self) -> bool:
        """Whether features have neighbours to be imputed from, as all but tabular rows and tokens do."""
        return len(self.shape) > 1 and not self.tokens


@dataclass(frozen=True, kw_only=True)
class RoundsRecord:
    """The rounds in which a run draws its samples; `DataRecord` tells which one it is in."""

    sizes: tuple[int, ...]
    """Samples after each round, of which the last has all that there are."""

    digest: str
    """Hash of all of them, in the order in which they are drawn."""


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    """Where the maps of one method come from."""

    method: str | None = None
    """Its name in `METHODS`; None for maps and functions of the user's."""

    function: str | None = None
    """Name of a function of the user's."""

    source: str | None = None
    """Hash of that function's source."""

    maps: str | None = None
    """Hash of maps that were made elsewhere."""

    options: Mapping[str, JSON] = dataclasses.field(default_factory=dict)
    """Options of the method; arrays by their content."""


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """Probes of one kind that the run holds."""

    name: str
    """Name of its folder."""

    schedule: Schedule
    """Which features were removed at which level."""

    imputer: Mapping[str, JSON]
    """What stood in the place of removed features; see `describe_imputer`."""

    exchanged: float = 0.0
    """Share of the samples that were probed by the map of another sample, as the control; 0 for own maps of all."""

    def is_kind_of(self, sweep: Sweep) -> bool:
        """Tell whether the probes are of the kind that a metric needs, whatever the levels."""
        same = dataclasses.replace(self.schedule, levels=sweep.schedule.levels) == sweep.schedule
        return same and self.exchanged == sweep.exchanged and dict(self.imputer) == describe_imputer(sweep.imputer)


@dataclass(frozen=True, kw_only=True)
class ExecutionRecord:
    """How the model was called; a run keeps to it, because last bits depend on it."""

    batch_size: int
    """Inputs per call."""

    memory_format: str
    """Order of an image's values in memory."""

    compiled: bool
    """Whether the model went through torch.compile."""

    threads: int | None
    """Threads within one operation of torch on the CPU."""

    device: str
    """Where the model was."""

    shard_size: int
    """Samples per part."""

    precision: str = "float32"
    """What the model computed probes in."""

    trials: tuple[Agreement, ...] = ()
    """How other precisions, and the compiled model, agreed with float32."""

    @property
    def execution(self) -> Execution:
        """How to call the model."""
        return Execution(
            batch_size=self.batch_size,
            memory_format=self.memory_format,
            compiled=self.compiled,
            threads=self.threads,
            precision=self.precision,
        )


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """How the model and the data were named, so that they can be opened again; None for objects at hand."""

    model: str | None
    """Spec of the model."""

    weights: str
    """Its weights."""

    data: str | None
    """Spec of the data."""

    classes: str | None
    """File with the class names."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of the probes; another question makes other results of the same run."""

    metrics: Mapping[str, Mapping[str, JSON]]
    """Metrics with all their options; see `describe_metric`."""

    imputer: Mapping[str, JSON]
    """The imputer of metrics that have none of their own; see `describe_imputer`."""

    control: str
    """Which metrics are measured on exchanged maps, too: "shuffled" those with short sweeps, "all" or "none"."""

    control_share: float
    """Share of the samples that this is done for."""

    resamples: int
    """Resamples behind intervals and comparisons."""

    until: str | None = None
    """When samples are enough: a half-width, or "decided" with a margin; see `Until`."""

    show: tuple[str, ...] = ()
    """Samples that the report shows in any case."""

    @staticmethod
    def of(metrics: Mapping[str, Metric], imputer: Imputer, options: QuestionOptions, *, samples: int) -> Question:
        """Describe metrics with their imputers, and what else is asked of the probes of so many samples."""
        return Question(
            metrics={name: describe_metric(metric) for name, metric in metrics.items()},
            imputer=describe_imputer(imputer),
            control=options.control if samples > 1 else "none",  # one map has nothing to be exchanged with
            control_share=options.control_share,
            resamples=options.resamples,
            until=None if options.until is None else str(options.until),
            show=tuple(options.show),
        )

    def asking(self, metrics: Mapping[str, Metric], imputer: Imputer, resamples: int | None) -> Question:
        """Return the question with other metrics; all else stays, but for the resamples where they are given."""
        return dataclasses.replace(
            self,
            metrics={name: describe_metric(metric) for name, metric in metrics.items()},
            imputer=describe_imputer(imputer),
            resamples=resamples or self.resamples,
        )

    def exchanged(self, metric: Metric, features: int | None) -> tuple[Sweep, ...]:
        """Return the sweeps of a metric on exchanged maps."""
        share = self.control_share
        return tuple(dataclasses.replace(sweep, exchanged=share) for sweep in metric.sweeps(features))

    def sweeps(self, metrics: Mapping[str, Metric], features: int | None) -> list[Sweep]:
        """List the probes that metrics need: on own maps, and for the control on exchanged ones."""
        own = [sweep for metric in metrics.values() for sweep in metric.sweeps(features)]
        controlled = [
            metric
            for metric in metrics.values()
            if self.control == "all" or (self.control == "shuffled" and metric.controlled)
        ]
        return [*own, *(sweep for metric in controlled for sweep in self.exchanged(metric, features))]

    def values(self) -> dict[str, Metric]:
        """Make the metrics again, but for those that are, or measure by a function of, the user's."""
        found = {name: rebuild_metric(description) for name, description in self.metrics.items()}
        return {name: metric for name, metric in found.items() if metric is not None}

    def values_with(self, imputer: Imputer) -> dict[str, Metric]:
        """Make the metrics again, with `imputer` for those that had it; others that miss theirs are left out."""
        described, found = describe_imputer(imputer), dict[str, Metric]()
        for name, metric in self.values().items():
            if not isinstance(metric.imputer, UnavailableImputer):
                found[name] = metric
            elif dict(metric.imputer.description) == described:
                found[name] = dataclasses.replace(metric, imputer=imputer)
        return found


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a run is."""

    format: int = FORMAT
    """Version of the layout."""

    model: ModelRecord
    """The model."""

    data: DataRecord
    """The samples."""

    seed: int
    """Seed of all that is random."""

    execution: ExecutionRecord
    """How the model is called."""

    source: SourceRecord
    """Where model and data came from."""

    methods: Mapping[str, MethodRecord]
    """Where the maps of each method come from."""

    sweeps: tuple[SweepRecord, ...]
    """The probes."""

    question: Question
    """What was asked last; not part of the identity."""

    versions: Mapping[str, str]
    """Versions of the packages that made it."""

    rounds: RoundsRecord | None = None
    """In which rounds samples are drawn; None where all are there from the start."""

    exchange_within: int | None = None
    """Size of the blocks of samples that exchange their maps for the control; None for all of them at once."""

    @property
    def shards(self) -> int:
        """Number of parts that the samples are cut into."""
        return len(self._shard_starts) - 1

    @cached_property
    def _shard_starts(self) -> tuple[int, ...]:
        """Where each shard begins, and the last one ends; no shard has samples of two rounds."""
        samples, size = self.data.samples, self.execution.shard_size
        ends = [end for end in (self.rounds.sizes if self.rounds else ()) if end < samples]
        return (*(k for start, end in pairwise([0, *ends, samples]) for k in range(start, end, size)), samples)

    def positions(self, shard: int) -> range:
        """Return the positions of the samples of one shard."""
        return range(*self._shard_starts[shard : shard + 2])

    def place(self, position: int) -> tuple[int, int]:
        """Return the shard of a sample, and its row there."""
        shard = bisect_right(self._shard_starts, position) - 1
        return shard, position - self._shard_starts[shard]

    @property
    def looks(self) -> Looks:
        """How often results are looked at, which intervals and p-values have to pay for."""
        return ONE_LOOK if self.rounds is None else Looks(self.rounds.sizes)

    def joined(self, there: Manifest, where: str) -> Manifest:
        """Return the manifest of a run that goes on with this one, refusing what would make it another run.

        Args:
            there: the manifest of the run.
            where: the directory, for the error.
        """
        different = differences(self.identity(), there.identity())
        different += [
            line
            for name, method in self.methods.items()
            if name in there.methods
            for line in differences(to_json(method), to_json(there.methods[name]), f"methods.{name}")
        ]
        refuse_differences(different, where)
        known = {sweep.name for sweep in there.sweeps}
        return dataclasses.replace(
            self,
            methods={**there.methods, **self.methods},
            sweeps=(*there.sweeps, *(sweep for sweep in self.sweeps if sweep.name not in known)),
            versions=there.versions,
        )

    def identity(self) -> dict[str, JSON]:
        """Return what two calls have to agree in to work on one run."""
        names = ("format", "model", "data", "seed", "execution", "rounds")
        return {name: to_json(getattr(self, name)) for name in names}


def differences(here: JSON, there: JSON, name: str = "", *, places: tuple[str, str] = ("there", "here")) -> list[str]:
    """List what differs between two descriptions, by the names of their fields.

    Args:
        here: one description.
        there: the other, which is named first.
        name: what the fields belong to.
        places: what to call where they were found.

    Example:
        >>> differences({"seed": 1}, {"seed": 0})
        ['seed is 0 there and 1 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        before = f"{name}." if name else ""
        return [
            line for key in keys for line in differences(here.get(key), there.get(key), before + key, places=places)
        ]
    if here == there:
        return []
    return [f"{name} is {_short(there)} {places[0]} and {_short(here)} {places[1]}"]


def refuse_differences(different: Sequence[str], where: str) -> None:
    """Refuse to go on with a run that is another one."""
    if different:
        more = f" ({len(different) - 3} more)" if len(different) > 3 else ""
        raise RunError(
            f"`out` {where!r} holds another run: {'; '.join(different[:3])}{more}. Choose another directory, or "
            "ask for the same."
        )


def _short(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
