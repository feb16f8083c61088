"""Options of a run, each declared once, at its field.

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
from functools import cached_property
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from torch import nn

from twinlens.data.samples import Samples
from twinlens.errors import short_repr, unknown
from twinlens.imputation.imputers import Imputer, find_imputer
from twinlens.metrics.catalogue import MetricRequests, find_metrics, headline
from twinlens.metrics.metric import Metric
from twinlens.metrics.performance import Performance, check_performance
from twinlens.metrics.protocols import Protocol as FinePrint
from twinlens.metrics.protocols import find_protocol
from twinlens.models.loading import PRETRAINED, LoadedModel
from twinlens.probing.answers import Target
from twinlens.probing.maps import Features, ReadingOptions
from twinlens.probing.ranking import check_levels
from twinlens.statistics.new_result import NewResult
from twinlens.support.fields import check_count, check_types, fields_of
from twinlens.support.progress import Progress
from twinlens.support.signatures import show_options

ModelSource = str | nn.Module | LoadedModel | Callable[[Any], Any] | Any
"""A spec, a module, a function from a batch to its outputs, or a fitted scikit-learn estimator."""

DataSource = str | os.PathLike[str] | Samples | tuple[Any, Any] | Any
"""A spec, samples, inputs and labels as two arrays, or a torch data set or loader."""

Methods = str | Sequence[str] | Mapping[str, str | Callable[..., Any] | Mapping[str, Any]]
"""Names of methods; or a mapping from your own names to a method, a function, an object of another library, or a
mapping with a "method" and its options."""

DEFAULT_METHODS = ("integrated_gradients", "gradcam", "saliency", "random")
_COUNTS = {
    "limit": 2**53,
    "resamples": 10**6,
    "batch_size": 2**31,
    "threads": 1024,
    "shard_size": 2**31,
    "workers": 1024,
}
"""Options that are counts, each with its maximum: larger values end in memory errors and overflows."""
_FEWEST_RESAMPLES = 500  # needed to resolve 1 in 200, the level of one of many looks
_MARGIN = 0.02  # difference between methods that does not matter, unless `until` names another


@dataclass(frozen=True)
class Job:
    """One of N processes that share the work of a run."""

    number: int
    """Its number, from 1 to N."""

    of: int
    """N, the number of processes."""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @staticmethod
    def read(text: str) -> Job:
        """Parse K/N."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        job = Job(int(match[1]), int(match[2])) if match else None
        if job is None or not 1 <= job.number <= job.of:
            raise ValueError(f"`part` must be K/N with 1 <= K <= N, such as 3/16; got {short_repr(text)}.")
        return job


@dataclass(frozen=True)
class Until:
    """The stopping rule of a run that draws its samples in rounds."""

    margin: float
    """Largest half-width of the headline's intervals, or the difference between methods that does not matter."""

    decided: bool
    """Whether to stop once every comparison is decided or within the margin."""

    def __str__(self) -> str:
        return f"decided:{self.margin:g}" if self.decided else f"{self.margin:g}"

    @staticmethod
    def read(rule: float | str) -> Until:
        """Parse a half-width, "decided" or "decided:MARGIN"."""
        word, colon, margin = str(rule).partition(":")
        if decided := word == "decided":
            word = margin if colon else f"{_MARGIN:g}"
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if isinstance(rule, bool) or not 0 < value < 1:
            raise ValueError(
                "`until` must be a half-width within (0, 1), such as 0.02, or 'decided', or 'decided:0.05' with the "
                f"difference that does not matter; got {short_repr(rule)}."
            )
        return Until(value, decided)


@dataclass(frozen=True, kw_only=True)
class ModelDataOptions:
    """Model and data."""

    weights: str = PRETRAINED
    """Weights of a model given by its spec: a file (.safetensors or a state dict), "default", or "none" for random
    weights."""

    classes: str | None = None
    """File that maps class names to indices: .json, .txt or .csv."""

    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the model's preprocessing: resize, crop, squash, interpolation, mean, std."""

    output: Literal["auto", "logits", "probabilities", "multi_label"] = "auto"
    """What the model returns: logits, probabilities, or multi_label, one independent logit per class. By default
    probabilities for scikit-learn estimators and functions on NumPy arrays, logits otherwise."""

    target: Target | None = None
    """Python only: a function from the model's output to one score per sample, for detection, segmentation and other
    tasks without classes. Labels are then ignored, and `performance` is "score"."""

    feature_names: tuple[str, ...] | None = None
    """Names of the columns of a table or the channels of a signal, for the report; by default those of a data frame, a
    CSV file, or the data frame to which the estimator was fitted."""

    sampling_rate: float | None = None
    """Time steps of a signal per second, for the report."""

    tokenizer: Any = None
    """Python only: turns texts into token ids, and token ids into words for the report. A tokenizer of transformers;
    for words alone also a function from the ids of a sample to one string each, or a vocabulary: words by id. Models
    given as hf:DIR bring their own."""

    limit: int | None = None
    """Number of samples, drawn by the seed; with `until`, the maximum. All samples by default."""

    skip_bad: bool = False
    """Skip samples that cannot be read instead of stopping with an error."""

    allow_code: bool = False
    """Allow torch.export models (FILE.pt2), which can run code stored in the file."""


@dataclass(frozen=True, kw_only=True)
class MapsOptions(ReadingOptions):
    """Maps."""

    maps: Mapping[str, Any] = field(default_factory=dict)
    """Your own maps: from a name to a folder, a .npy, .npz or .safetensors file, or in Python an array (N, *S) or a
    `shap.Explanation` in the order of the samples; or to a mapping of "maps" and how to read them (sign, channels,
    resize, size). Maps of the size of the original images are resized and cropped with them."""

    features: Features = "positions"
    """What a feature is: a position with all of its channels, or with "channels" one channel of a position, such as one
    lead of an ECG at one moment. Maps are then (N, C, *S), and a value is imputed from its own channel."""

    segments: Any = None
    """Group positions into features: "slic" or "slic:100" for superpixels, "grid:49" for equal tiles, "words" for the
    words of a text instead of its tokens, or in Python an integer array (N, *S) in the order of the samples, negative
    where a position is never removed. Maps are averaged over each segment, and segments are removed and imputed as a
    whole."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(MapsOptions):
    """Evaluation."""

    metrics: MetricRequests = "default"
    """Names of metrics or groups, metrics as values, or a mapping from your own names to values; [] makes maps only.
    Groups: "headline" is soundness_rank and completeness_share; "default" adds calibration, ROAD and the paper's pair,
    its soundness at coarse levels; "paper" is soundness and completeness at the paper's levels; "all" is everything.
    With sign="signed" these groups, except "paper", bring "against": soundness_rank_against and
    completeness_share_against."""

    protocol: str | FinePrint = "paper"
    """Details of metrics given by name: "paper" follows the paper's text, "soco" its authors' published code."""

    levels: Sequence[float] | None = None
    """Shares of features removed by the paper's soundness, in decreasing order; those of the metric by default."""

    epsilon: float = 0.01
    """Smallest gain in performance for which the paper's soundness counts a step as predictive."""

    performance: Performance = "accuracy"
    """Performance measure of metrics given by name: accuracy, probability, logit, score, top5 or balanced_accuracy;
    r2, neg_mse or score for regression and with `target`."""

    imputer: str | Mapping[str, Any] | Imputer | None = None
    """How removed features are filled in: linear, constant, mean, blur or token. By default linear for images, the mean
    of the samples for tabular rows, and the mask token for text. Deletion and insertion on images have their own."""

    control: Literal["shuffled", "all", "none"] = "shuffled"
    """Also measure metrics on maps exchanged between samples, and report the skill: how much better a method's own maps
    are. "shuffled" covers all metrics except the paper's soundness at its own levels, which takes long; "all" includes
    it."""

    control_share: float | None = None
    """Share of the samples measured with exchanged maps; 1 narrows the interval of the skill and takes longer. By
    default half of the samples, and all of them in a run of up to 64."""

    seed: int = 0
    """Random seed."""

    resamples: int = 1000
    """Number of bootstrap resamples for intervals and comparisons."""

    until: float | str | None = None
    """Draw samples in growing rounds until the results are precise enough. A number such as 0.02 is the largest
    half-width of the headline's intervals; "decided" stops once all pairs of methods, and each method and its exchanged
    maps, differ clearly or by less than 0.02 ("decided:0.05": by less than 0.05). Intervals are wider to allow for
    several looks. All samples at once by default."""

    show: Sequence[str] = ()
    """Ids of samples to show in the report in addition to those it selects."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Execution."""

    out: str | os.PathLike[str] | None = None
    """Run directory, or an address such as s3://bucket/run. An existing run is resumed. A temporary directory by
    default."""

    batch_size: int | None = None
    """Inputs per call of the model; chosen by input size and device by default."""

    memory_format: Literal["contiguous", "channels_last"] | None = None
    """Memory layout of images; channels_last for convolutional models by default."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format for probes; maps are always computed in float32. "auto" uses the device's native format if a trial
    agrees with float32 on 99.5% of the predictions and within 0.02 of every probability, and float32 otherwise and for
    short runs."""

    compile: bool | None = None
    """Call the model through torch.compile. That takes 10 to 15 seconds and is faster on some machines only: off by
    default."""

    device: str | None = None
    """Device: cpu, cuda, cuda:1, …; a GPU if there is one by default. A module stays on its device."""

    threads: int | None = None
    """CPU threads per torch operation, which can change the last bits of results; torch's own setting by default."""

    shard_size: int | None = None
    """Samples per shard, the unit of storage and resume; chosen by input size by default."""

    workers: int = 2
    """Threads that read images."""

    strict: bool = False
    """Raise an error if any method fails; otherwise the results hold the others, and `failures` the reasons."""

    progress: bool | Progress = True
    """Show progress bars in a terminal or notebook; or an object that receives the progress."""

    on_result: Callable[[NewResult], object] | None = None
    """Python only: a function that receives each result as soon as it is computed, a `twinlens.NewResult`; of
    every round with `until`. If it raises an error, there is a warning, and it is not called again."""


@dataclass(frozen=True, kw_only=True)
class DistributionOptions:
    """Distribution."""

    engine: Literal["local", "ray"] = "local"
    """Where to run: in this process, or on a Ray cluster."""

    address: str | None = None
    """Address of a running Ray cluster: auto or HOST:PORT; a new cluster on this machine by default."""

    cpus_per_unit: float | None = None
    """CPUs per Ray worker; one by default."""

    gpus_per_unit: float | None = None
    """GPUs per Ray worker, such as 1 or 0.25; none by default."""

    part: str | None = None
    """Run job K of N in a directory shared with the other jobs, as in a job array: 3/16 is the third of sixteen. The
    last job to finish writes the results."""


@dataclass(frozen=True, kw_only=True)
class Options(DistributionOptions, ExecutionOptions, EvaluationOptions, ModelDataOptions):
    """All options of `evaluate`, checked on construction.

    Example:
        >>> Options(metrics="deletion").metric_values["deletion"].levels[:3]
        (0.1, 0.2, 0.3)
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
        if self.control_share is not None and not 0 < self.control_share <= 1:
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
        self._check_job()
        self._check_until(self.metric_values)

    def _check_job(self) -> None:
        if self.job is None:
            return
        if self.engine != "local":
            raise ValueError(
                f"`part` belongs to engine 'local', and `engine` is {self.engine!r}. Leave one of them out."
            )
        if self.out is None:
            raise ValueError("`part` needs `out`, a directory that all jobs of the run share; got none.")

    def _check_until(self, metrics: Mapping[str, Metric]) -> None:
        if self.until is None:
            return
        object.__setattr__(self, "until", str(Until.read(self.until)))
        if self.part is not None:
            raise ValueError(
                "`until` looks at the results of each round before it draws the next, and `part` runs one job without "
                "the others. Leave one of them out, or use engine 'ray'."
            )
        if not headline(metrics):
            raise ValueError(
                "`until` needs a metric with an interval, and none of `metrics` has one. Add soundness_rank or "
                "completeness_share."
            )
        if self.resamples < _FEWEST_RESAMPLES:
            raise ValueError(
                f"`resamples` must be at least {_FEWEST_RESAMPLES} with `until`, whose intervals have to hold at every "
                f"look; got {self.resamples}."
            )

    @cached_property
    def job(self) -> Job | None:
        """The job of this process; None if it does the whole run."""
        return None if self.part is None else Job.read(self.part)

    @cached_property
    def metric_values(self) -> dict[str, Metric]:
        """The metrics by name; those given by name use the shared options."""
        shared = {name: getattr(self, name) for name in ("protocol", "levels", "epsilon", "performance")}
        return find_metrics(self.metrics, shared, signed=self.sign == "signed")


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class TakesOptions(Protocol[P, R_co]):
    """A function of a model, data and methods with the fields of `Options` as keywords."""

    def __call__(
        self, model: ModelSource, data: DataSource, methods: Methods = ..., *args: P.args, **options: P.kwargs
    ) -> R_co:
        """Call it."""


def takes_options(
    kind: Callable[P, Options],
) -> Callable[[Callable[[ModelSource, DataSource, Methods, Options], R_co]], TakesOptions[P, R_co]]:
    """Turn the `options` argument of a function into keyword arguments, checked by mypy and shown by `help`."""

    def decorate(function: Callable[[ModelSource, DataSource, Methods, Options], R_co]) -> TakesOptions[P, R_co]:
        names = [option.name for option in fields_of(Options)]

        @functools.wraps(function)
        def call(
            model: ModelSource,
            data: DataSource,
            methods: Methods = DEFAULT_METHODS,
            *args: P.args,
            **options: P.kwargs,
        ) -> R_co:
            for name in options:
                if name not in names:
                    raise TypeError(str(unknown("options", name, names)))
            return function(model, data, methods, kind(*args, **options))

        show_options(call, fields_of(Options), instead_of="options")
        return call

    return decorate
