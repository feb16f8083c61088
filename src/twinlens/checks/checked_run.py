"""A run under check: its methods, and its samples, maps and model, each opened when first used.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.checks.check_definition import CheckOptions, CheckResult
from twinlens.checks.sample_scores import SampleScores
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples, subset
from twinlens.data.segments import find_segments
from twinlens.data.sources import open_data
from twinlens.errors import DataError, RunError, first_line
from twinlens.models.loading import RANDOM, LoadedModel
from twinlens.outcome import Evaluation, open_evaluation
from twinlens.run.check_records import MethodCheck
from twinlens.run.method_sources import find_methods
from twinlens.run.reopening import load_again, model_spec, reopen
from twinlens.run.work import load_reference
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress, Quiet

T = TypeVar("T")

_WORKERS = 2
_ARRAY = re.compile(r"\(.*\) [0-9a-f]{32}")  # how run.json describes an option that is an array


@dataclass(frozen=True, kw_only=True)
class NetworkBuilder:
    """Builds a run's network with random weights. Unlike a function, it has the same digest in every process."""

    path: str
    spec: str
    allow_code: bool

    def __call__(self) -> nn.Module:
        """Build the network."""
        return load_again(open_evaluation(self.path), self.spec, weights=RANDOM, allow_code=self.allow_code).module


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedRun:
    """A run that is open for a check of the methods in `names`."""

    evaluation: Evaluation
    names: tuple[str, ...]
    options: CheckOptions
    model_spec: str | None = None
    allow_code: bool = False
    progress: Progress = field(default_factory=Quiet)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.evaluation.run.manifest.seed

    @cached_property
    def opened(self) -> tuple[LoadedModel, Samples]:
        """The model and all samples of the run."""
        return reopen(self.evaluation, model=self.model_spec, allow_code=self.allow_code)

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.opened[0].module

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(N,) positions of the checked samples among those of the run."""
        samples = self.opened[1]
        position = {name: k for k, name in enumerate(samples.ids)}
        return np.array([position[name] for name in subset(samples, self.options.limit, self.seed).ids])

    @cached_property
    def samples(self) -> Samples:
        """The checked samples."""
        return self.opened[1].take(self.positions)

    @cached_property
    def inputs(self) -> Tensor:
        """(N, C, *S) their inputs."""
        return load_inputs(self.samples, self.opened[0], _WORKERS)

    @property
    def segments_request(self) -> str | None:
        """The run's segments as `evaluate` takes them; None where features are positions or tokens."""
        data = self.evaluation.run.manifest.data
        if data.segments is None or data.tokens:
            return None
        if not data.segments.startswith(("slic:", "grid:")):
            raise RunError(f"{self.evaluation.run} has segments that came from Python, and cannot make them again.")
        return data.segments

    @cached_property
    def segments(self) -> Tensor | None:
        """(N, *S) the segments of the checked samples, if the run has any."""
        request = self.segments_request
        return None if request is None else find_segments(request, self.samples).of(self.samples, self.inputs)

    @cached_property
    def training_samples(self) -> Samples:
        """The training data."""
        path = self.options.required("train")
        training = open_data(path, classes=self.evaluation.run.manifest.source.classes)
        own, theirs = self.opened[1].classes, training.classes
        if own is not None and theirs is not None and own != theirs:  # indices would mean other classes
            index, name = next((k, name) for k, name in enumerate(theirs) if name not in own[k : k + 1])
            raise DataError(
                f"`train` {path!r} must have the classes of the run's data; class {index} is {name!r} there, and "
                f"{own[index] if index < len(own) else 'none'!r} here."
            )
        return training

    @cached_property
    def training_data(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Inputs and labels of the training data."""
        return load_inputs(self.training_samples, self.opened[0], _WORKERS), self.training_samples.labels

    def count_in_training(self) -> int:
        """Count the checked samples that are also in the training data, by content."""
        training = self.training_samples
        seen = {training.fingerprint(int(position)) for position in training.positions}
        return sum(self.samples.fingerprint(int(position)) in seen for position in self.samples.positions)

    @property
    def build(self) -> NetworkBuilder:
        """A function that builds the run's network with random weights."""
        spec = model_spec(self.evaluation, self.model_spec)
        return NetworkBuilder(path=str(self.evaluation.path), spec=spec, allow_code=self.allow_code)

    def stored_maps(self, name: str) -> Tensor:
        """Read a method's maps of the checked samples, (N, *S)."""
        return self.evaluation.maps(name)[self.positions]

    def method(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return a method's name in `METHODS` and its options; RunError if its maps were imported."""
        record = self.evaluation.run.manifest.methods[name]
        arrays = [key for key, value in record.options.items() if isinstance(value, str) and _ARRAY.fullmatch(value)]
        if record.method is None or arrays:
            reason = f"its option {arrays[0]} is an array" if record.method else "its maps were imported"
            raise RunError(f"{name} cannot be computed again from run.json: {reason}.")
        [method] = find_methods({name: {"method": record.method, **record.options}}).values()
        options = dict(method.options)
        if method.needs_reference(self.evaluation.run.manifest.data.shape):
            options["reference"] = self._reference
        return record.method, options

    @cached_property
    def _reference(self) -> Tensor:
        return load_reference(self.opened[1], self.opened[0], self.seed, _WORKERS)

    def test(self, function: Callable[..., T], name: str, **arguments: Any) -> T:
        """Call a test such as `max_sensitivity` on the checked samples."""
        method, options = self.method(name)
        samples = {"inputs": self.inputs, "targets": self.samples.labels, "ids": self.samples.ids}
        return function(self.model, **samples, method=method, seed=self.seed, **arguments, **options)

    def score(self, function: Callable[..., SampleScores], name: str, **arguments: Any) -> MethodCheck:
        """Call a test with one score per sample, and return their mean."""
        return MethodCheck(values=self.estimates([self.test(function, name, **arguments)]))

    def estimates(self, scores: Iterable[SampleScores]) -> tuple[Estimate, ...]:
        """Estimate means, resampled by the run's seed."""
        return tuple(each.estimate(seed=self.seed) for each in scores)

    def each_method(
        self,
        measure: Callable[[str], MethodCheck],
        *,
        samples: int | None = None,
        steps: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> CheckResult:
        """Measure each method by its name; `measure` may fill `steps`.

        A method that fails becomes a note and does not stop the others.

        Raises:
            RunError: if all methods fail.
        """
        results, failures = dict[str, MethodCheck](), dict[str, Exception]()
        self.progress.begin(dict.fromkeys(self.names, 1))
        for name in self.names:
            try:
                results[name] = measure(name)
            except (ValueError, TypeError, RuntimeError) as error:
                failures[name] = error
            self.progress.advance(name, 1)
        missing = [f"{name} is missing: {first_line(error)}" for name, error in failures.items()]
        if not results:
            raise RunError(" ".join(missing)) from next(iter(failures.values()))
        count = len(self.samples) if samples is None else samples
        return CheckResult(methods=results, samples=count, steps=tuple(steps), notes=(*notes, *missing))
