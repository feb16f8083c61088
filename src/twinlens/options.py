"""What a run can be asked: each option declared once, at its field.

The arguments of `evaluate`, the flags of the command line, the keys of run.toml, what run.json stores and the table in
docs/reference/options.md all come from these declarations. Options of a metric are declared at the metric, those of a
method at its function.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from torch import nn

from twinlens.data.samples import Samples
from twinlens.errors import short_repr, unknown
from twinlens.imputation.imputers import Imputer, find_imputer
from twinlens.metrics.catalogue import DEFAULT_METRICS, MetricRequests, find_metrics, headline
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import Performance, check_performance
from twinlens.metrics.protocols import Protocol as FinePrint
from twinlens.metrics.protocols import find_protocol
from twinlens.models.loading import PRETRAINED, LoadedModel
from twinlens.probing.answers import Target
from twinlens.probing.maps import ReadingOptions
from twinlens.probing.ranking import check_levels
from twinlens.support.fields import check_count, check_types, fields_of
from twinlens.support.progress import Progress
from twinlens.support.signatures import show_options

ModelSource = str | nn.Module | LoadedModel | Callable[[Any], Any] | Any
"""A spec, a module, a function from a batch to its answers, or a fitted estimator of scikit-learn."""

DataSource = str | os.PathLike[str] | Samples | tuple[Any, Any] | Any
"""A spec, samples, inputs and labels as two arrays, or a data set or loader of torch."""

Methods = str | Sequence[str] | Mapping[str, str | Callable[..., Any] | Mapping[str, Any]]
"""Names; or from names of the user's to a name, a function or an object of another library, or a table of both."""

DEFAULT_METHODS = ("integrated_gradients", "gradcam", "saliency", "random")
_COUNTS = {
    "limit": 2**53,
    "resamples": 10**6,
    "batch_size": 2**31,
    "threads": 1024,
    "shard_size": 2**31,
    "workers": 1024,
}
"""Options that count something, and the most that each can be: beyond it are memory errors and overflows."""
_FEWEST_RESAMPLES = 500  # that tell one in two hundred, the level of one of many looks
_MARGIN = 0.02  # difference between methods that does not matter, unless `until` names another


@dataclass(frozen=True)
class Part:
    """One of several processes that share the units of a run.

    Example:
        >>> Part.read("3/16")
        Part(number=3, of=16)
    """

    number: int
    """Which one, from 1."""

    of: int
    """How many there are."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @staticmethod
    def read(text: str) -> Part:
        """Read K/N, refusing whatever is not the K-th of N."""
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        part = Part(int(found[1]), int(found[2])) if found else None
        if part is None or not 1 <= part.number <= part.of:
            raise ValueError(f"`part` must be K/N with 1 <= K <= N, such as 3/16; got {short_repr(text)}.")
        return part


@dataclass(frozen=True)
class Until:
    """When a run has samples enough.

    Example:
        >>> Until.read(0.02), Until.read("decided:0.05")
        (Until(margin=0.02, decided=False), Until(margin=0.05, decided=True))
        >>> str(Until.read("decided"))
        'decided:0.02'
    """

    margin: float
    """Half-width that no interval of the headline may exceed, or the difference that does not matter."""

    decided: bool
    """Whether it is enough that all comparisons are decided, or differ by less than the margin."""

    def __str__(self) -> str:
        return f"decided:{self.margin:g}" if self.decided else f"{self.margin:g}"

    @staticmethod
    def read(given: float | str) -> Until:
        """Read a half-width, "decided" or "decided:MARGIN", refusing whatever is none of them."""
        word, colon, margin = str(given).partition(":")
        if decided := word == "decided":
            word = margin if colon else f"{_MARGIN:g}"
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if isinstance(given, bool) or not 0 < value < 1:
            raise ValueError(
                "`until` must be a half-width within (0, 1), such as 0.02, or 'decided', or 'decided:0.05' with the "
                f"difference that does not matter; got {short_repr(given)}."
            )
        return Until(value, decided)


@dataclass(frozen=True, kw_only=True)
class SubjectOptions:
    """Model and data."""

    weights: str = PRETRAINED
    """Weights for a model given by its spec: a file (.safetensors or a state dict), "default", or "none" for an
    untrained model."""

    classes: str | None = None
    """File with the index of each class name: .json, .txt or .csv."""

    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Preprocessing` that replace the model's own: resize, crop, squash, interpolation, mean, std."""

    output: Literal["auto", "logits", "probabilities", "multi_label"] = "auto"
    """What the model returns: logits, probabilities, or multi_label, a logit for each class that may be present beside
    others, of which labels name the one that is explained; probabilities of an estimator of scikit-learn or a function
    on NumPy arrays, and logits of everything else by default."""

    target: Target | None = None
    """In Python, a function from what the model returns to one score per sample, for detection, segmentation and
    whatever else has no class; labels then play no part, and `performance` is "score"."""

    limit: int | None = None
    """Evaluate this many samples, drawn by the seed, or with `until` at most as many; all by default."""

    skip_bad: bool = False
    """Leave out samples that cannot be read; otherwise they are an error."""

    allow_code: bool = False
    """Open a model of torch.export (FILE.pt2), which can run code that the file holds; otherwise it is refused."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(ReadingOptions):
    """What to evaluate."""

    metrics: MetricRequests = DEFAULT_METRICS
    """Names of metrics, metrics as values, or a table from names of your own to either; none makes the maps alone."""

    maps: Mapping[str, Any] = field(default_factory=dict)
    """Maps made elsewhere: from a name to a folder, .npy, .npz or .safetensors file, or in Python to an array (N, *S)
    in the order of the samples; or to a table of "maps" and how they are read, by sign, channels and resize."""

    segments: Any = None
    """Features that are more than single places: "slic" or "slic:100" for superpixels of images, "grid:49" for parts of
    equal size, or in Python (N, *S) integers in the order of the samples, negative where a place always stays. Maps are
    averaged over each segment, levels count segments, and they are imputed as a whole."""

    protocol: str | FinePrint = "paper"
    """Fine print of metrics given by name: "paper" follows the paper's text, "soco" the code that its authors
    published."""

    levels: Sequence[float] | None = None
    """Shares removed in the sweep of soundness, decreasing; those of the protocol by default."""

    epsilon: float = 0.01
    """Gain of performance below which a step of soundness adds false attribution."""

    performance: Performance = "accuracy"
    """Measure of performance for metrics given by name: accuracy, probability, logit, score, top5,
    balanced_accuracy; r2, neg_mse or score for regression and for a `target`."""

    imputer: str | Mapping[str, Any] | Imputer | None = None
    """What stands in the place of removed features: linear, constant, mean or blur; linear for images, the mean
    of the samples for tabular rows by default. On images deletion and insertion have their own."""

    control: Literal["shuffled", "all", "none"] = "shuffled"
    """Measure each metric on maps exchanged between the samples, too, and with it the skill: what a method knows of
    *this* input. "shuffled" does so for all metrics but the paper's soundness, whose sweep is long, "all" for that as
    well, "none" for none."""

    control_share: float = 0.5
    """Share of the samples on which exchanged maps are measured; 1 makes skill more certain and takes longer."""

    seed: int = 0
    """Seed of all that is random."""

    resamples: int = 1000
    """Resamples behind intervals and comparisons."""

    until: float | str | None = None
    """Draw samples in growing rounds until they are enough: a number such as 0.02 is the half-width that no interval of
    the headline may exceed; "decided" waits until every pair of methods, and every method against its exchanged maps,
    is decided or differs by less than 0.02, "decided:0.05" by less than 0.05. Intervals are wider, because they are
    looked at several times. All samples by default."""

    show: Sequence[str] = ()
    """Ids of samples that the report shows in any case, beside those that it selects itself."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """How."""

    out: str | os.PathLike[str] | None = None
    """Run directory, or an address such as s3://bucket/run; a run that is there goes on. A temporary directory by
    default."""

    batch_size: int | None = None
    """Inputs per call of the model; by the size of an input and the device by default."""

    memory_format: Literal["contiguous", "channels_last"] | None = None
    """Order of an image's values in memory; channels_last for a model that convolves by default."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """What the model computes probes in; maps are always made in float32. "auto" takes what the device computes in
    natively, if a trial on real probes agrees with float32 on 99.5% of the predictions and within 0.02 of every
    probability, and float32 otherwise and for short runs."""

    compile: bool | Literal["auto"] = "auto"
    """Call the model through torch.compile; "auto" does so where the probes ahead pay for it."""

    device: str | None = None
    """Where to compute: cpu, cuda, cuda:1, …; a GPU where there is one by default, and a module stays where it is."""

    threads: int | None = None
    """Threads within one operation of torch on the CPU, which may change last bits; as many as torch has by default."""

    shard_size: int | None = None
    """Samples per part of the run; by the size of an input by default."""

    workers: int = 2
    """Threads that read images."""

    strict: bool = False
    """Raise an error if any method fails; otherwise the results hold those that did not, and `failures` why the others
    did."""

    progress: bool | Progress = True
    """Whether to show progress bars on a terminal or in a notebook, or what receives the progress."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where."""

    engine: Literal["local", "ray"] = "local"
    """Where units of work run: in this process, or on all machines of a Ray cluster."""

    address: str | None = None
    """Address of a running Ray cluster, such as auto or HOST:PORT; a cluster of this machine alone by default."""

    cpus_per_unit: float | None = None
    """CPUs of each worker of a cluster; one by default."""

    gpus_per_unit: float | None = None
    """GPUs of each worker of a cluster; shares such as 0.25 are possible. None by default."""

    part: str | None = None
    """Do one part of a run, such as 3/16 for the third of sixteen, beside other processes that do theirs in the same
    directory: job arrays. Whoever finishes last makes the results."""


@dataclass(frozen=True, kw_only=True)
class Options(EngineOptions, ExecutionOptions, QuestionOptions, SubjectOptions):
    """Everything that `evaluate` can be asked beside the model, the data and the methods; checked when it is made.

    Example:
        >>> Options(metrics="completeness").metric_values()
        {'completeness': Completeness(thresholds=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1), relative=True,
        performance='accuracy', imputer=None, protocol='paper')}
        >>> Options(skip_bad="no")
        Traceback (most recent call last):
            ...
        TypeError: `skip_bad` must be true or false; got 'no'.
    """

    def __post_init__(self) -> None:
        check_types(self, but=("metrics", "imputer"))
        for name, most in _COUNTS.items():
            if (count := getattr(self, name)) is not None:
                check_count(name, count, most)
        if not 0 < self.control_share <= 1:
            raise ValueError(f"`control_share` must lie within (0, 1]; got {self.control_share:g}.")
        if self.out is not None and ("\0" in os.fspath(self.out) or os.fspath(self.out).endswith("://")):
            raise ValueError(f"`out` must be the path of a directory; got {os.fspath(self.out)!r}.")
        check_performance(self.performance)
        find_protocol(self.protocol)
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=True))
        if self.imputer is not None:
            object.__setattr__(self, "imputer", find_imputer(self.imputer))
        for name in ("address", "cpus_per_unit", "gpus_per_unit"):
            if self.engine == "local" and (value := getattr(self, name)) is not None:
                raise ValueError(
                    f"`{name}` belongs to engine 'ray', and `engine` is 'local'; got {value!r}. Leave it out."
                )
        self._check_part()
        self._check_until(self.metric_values())

    def _check_part(self) -> None:
        if self.part is None:
            return
        Part.read(self.part)
        if self.engine != "local":
            raise ValueError(
                f"`part` belongs to engine 'local', and `engine` is {self.engine!r}. Leave one of them out."
            )
        if self.out is None:
            raise ValueError("`part` needs `out`, a directory that all parts of the run share; got none.")

    def _check_until(self, metrics: Mapping[str, Metric]) -> None:
        if self.until is None:
            return
        object.__setattr__(self, "until", str(Until.read(self.until)))
        if self.part is not None:
            raise ValueError(
                "`until` looks at the results of each round before it draws the next, and `part` does a share of the "
                "work without the others. Leave one of them out; engine 'ray' can do with `until`."
            )
        if not headline(metrics):
            raise ValueError(
                "`until` needs a metric with an interval, and none of `metrics` has one. Add soundness_two_sided or "
                "completeness."
            )
        if self.resamples < _FEWEST_RESAMPLES:
            raise ValueError(
                f"`resamples` must be at least {_FEWEST_RESAMPLES} with `until`, whose intervals have to hold at every "
                f"look; got {self.resamples}."
            )

    @property
    def own_part(self) -> Part | None:
        """The part of the run that this process does; None for all of it."""
        return None if self.part is None else Part.read(self.part)

    def metric_values(self) -> dict[str, Metric]:
        """Return the metrics by their names; those given by name take the options that they share."""
        shared = {name: getattr(self, name) for name in ("protocol", "levels", "epsilon", "performance")}
        return find_metrics(self.metrics, shared)


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class TakesOptions(Protocol[P, R_co]):
    """A function of a model, data and methods, whose keywords are the fields of `Options`."""

    def __call__(
        self, model: ModelSource, data: DataSource, methods: Methods = ..., *args: P.args, **options: P.kwargs
    ) -> R_co:
        """Call it."""


def takes_options(
    kind: Callable[P, Options],
) -> Callable[[Callable[[ModelSource, DataSource, Methods, Options], R_co]], TakesOptions[P, R_co]]:
    """Give a function that takes `Options` their fields as keyword arguments, checked by mypy and shown by `help`."""

    def decorate(function: Callable[[ModelSource, DataSource, Methods, Options], R_co]) -> TakesOptions[P, R_co]:
        known = [option.name for option in fields_of(Options)]

        @functools.wraps(function)
        def call(
            model: ModelSource,
            data: DataSource,
            methods: Methods = DEFAULT_METHODS,
            *args: P.args,
            **options: P.kwargs,
        ) -> R_co:
            for name in options:
                if name not in known:
                    raise TypeError(str(unknown("options", name, known)))
            return function(model, data, methods, kind(*args, **options))

        show_options(call, fields_of(Options), instead_of="options")
        return call

    return decorate
