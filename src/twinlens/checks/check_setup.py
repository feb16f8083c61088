"""What a check is made on: the methods of a run, and its samples, maps and model, each opened when it is needed.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.data.inputs import load_inputs
from twinlens.data.samples import Samples, subset
from twinlens.data.sources import open_data
from twinlens.errors import RunError, first_line, unknown
from twinlens.imputation.imputers import IMPUTERS
from twinlens.models.loading import RANDOM, LoadedModel
from twinlens.outcome import Evaluation
from twinlens.probing.ranking import check_levels
from twinlens.run.check_records import MethodCheck
from twinlens.run.method_sources import find_methods
from twinlens.run.setup import load_again, model_spec, reopen, reopen_samples
from twinlens.run.work import load_reference
from twinlens.support.fields import check_count, check_types
from twinlens.support.progress import Progress, Quiet

T = TypeVar("T")

_WORKERS = 2
_ARRAY = re.compile(r"\(.*\) [0-9a-f]{32}")  # how run.json describes an option that is an array
_MOST = 10**6  # of samples, sets, epochs and trainings


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """What a check can be asked beside the run and the methods; checked when it is made."""

    limit: int = 100
    """Number of samples, drawn by the run's seed; for null-player and class-sensitivity, of images to generate."""

    boxes: str | None = None
    """Boxes around the objects: FILE.csv with the columns image,xmin,ymin,xmax,ymax[,label], or a folder of Pascal VOC
    XML files; in pixels of the original images."""

    any_label: bool = False
    """Take all boxes of an image, whatever their labels; otherwise those of the sample's class."""

    tolerance: float = 0.0
    """Distance from a box, in pixels of the input, that the pointing game still counts as inside."""

    similarity: Literal["spearman", "pearson"] = "spearman"
    """How maps are compared."""

    levels: tuple[float, ...] | None = None
    """Shares of features that are removed, increasing."""

    radius: float = 0.05
    """Largest perturbation of an input value, in standard deviations of its input; of tabular rows, of its column."""

    change: float = 0.05
    """Most that a perturbation may change the target's probability for the model's answer to count as the same."""

    perturbations: int = 4
    """Perturbations of each sample."""

    subsets: int = 100
    """Random sets of features for each sample and share."""

    imputer: Literal["constant", "linear", "blur"] = "constant"
    """What stands in the place of removed features; constant is zero, as published."""

    metric: Literal["deletion", "insertion", "road_morf", "road_lerf"] = "deletion"
    """What the best order is searched for, by the target's probability."""

    segments: str | None = None
    """What is ordered: "grid:49" for parts of equal size, or "slic:50" for superpixels; the run's own, or grid:49, by
    default."""

    width: int = 2
    """Sets of segments of each size that the search follows: 1 is greedy, more look ahead and cost as much more."""

    train: str | None = None
    """Training data, given as --data of evaluate is."""

    epochs: int = 10
    """Epochs of each training."""

    retrainings: int = 1
    """How often a network is trained for each share."""

    out: str | None = None
    """Directory that keeps each trained network's accuracy, so that ROAR can go on after an interruption."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("limit", "subsets", "epochs", "retrainings", "perturbations", "width"):
            check_count(name, getattr(self, name), _MOST)
        if not self.radius > 0 or not self.change >= 0:
            raise ValueError(
                f"`radius` must be positive and `change` at least 0; got {self.radius:g} and {self.change:g}."
            )
        if not self.tolerance >= 0:
            raise ValueError(f"`tolerance` must be a distance >= 0, in pixels; got {self.tolerance:g}.")
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=False))
        assert self.imputer in IMPUTERS

    def needed(self, name: Literal["boxes", "train"]) -> str:
        """Return an option that a check cannot do without."""
        value: str | None = getattr(self, name)
        if value is None:
            raise ValueError(f"`{name}` is missing: pass --{name}.")
        return value


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckSubject:
    """A run that is open for a check."""

    evaluation: Evaluation
    """The run."""

    names: tuple[str, ...]
    """The methods to check."""

    options: CheckOptions = field(default_factory=CheckOptions)
    """What is asked."""

    model_given: str | None = None
    """Spec of the model, where the caller named it again."""

    allow_code: bool = False
    """As in `load_model`."""

    progress: Progress = field(default_factory=Quiet)
    """Receives the progress."""

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.evaluation.run.manifest.seed

    @cached_property
    def opened(self) -> tuple[LoadedModel, Samples]:
        """The model and all samples of the run."""
        return reopen(self.evaluation, model=self.model_given, allow_code=self.allow_code)

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.opened[0].module

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """(N,) the samples of the run that are checked."""
        samples = self.opened[1]
        place = {name: k for k, name in enumerate(samples.ids)}
        return np.array([place[name] for name in subset(samples, self.options.limit, self.seed).ids])

    @cached_property
    def samples(self) -> Samples:
        """The samples that are checked."""
        return self.opened[1].take(self.places)

    @cached_property
    def inputs(self) -> Tensor:
        """(N, C, *S) their inputs."""
        return load_inputs(self.samples, self.opened[0], _WORKERS)

    @cached_property
    def training_samples(self) -> Samples:
        """The training data."""
        return open_data(self.options.needed("train"), classes=self.evaluation.run.manifest.source.classes)

    @cached_property
    def training_data(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Inputs and labels of the training data."""
        return load_inputs(self.training_samples, self.opened[0], _WORKERS), self.training_samples.labels

    def seen_in_training(self) -> int:
        """Count the samples that are among the training data, by their content."""
        known = {self.training_samples.fingerprint(int(place)) for place in self.training_samples.positions}
        return sum(self.samples.fingerprint(int(place)) in known for place in self.samples.positions)

    @cached_property
    def build(self) -> Callable[[], nn.Module]:
        """Builds the run's network, untrained."""
        evaluation, allow_code = self.evaluation, self.allow_code
        spec = model_spec(evaluation, self.model_given)

        def build() -> nn.Module:
            return load_again(evaluation, spec, weights=RANDOM, allow_code=allow_code).module

        return build

    def stored_maps(self, name: str) -> Tensor:
        """Read the maps of the samples that are checked, (N, *S)."""
        return self.evaluation.maps(name)[self.places]

    def method(self, name: str) -> tuple[str, dict[str, Any]]:
        """Return a method as `attribute` takes it: its name in `METHODS` and its options.

        Raises:
            RunError: if its maps come from elsewhere, so that they cannot be made for another model or input.
        """
        record = self.evaluation.run.manifest.methods[name]
        arrays = [key for key, value in record.options.items() if isinstance(value, str) and _ARRAY.fullmatch(value)]
        if record.method is None or arrays:
            what = f"its option {arrays[0]} is an array" if record.method else "its maps come from elsewhere"
            raise RunError(f"{name} cannot be made again from run.json: {what}.")
        [found] = find_methods({name: {"method": record.method, **record.options}}).values()
        options = dict(found.options)
        if found.needs_reference:
            options["reference"] = self._reference
        return record.method, options

    def measure(self, test: Callable[..., T], name: str, **more: Any) -> T:
        """Make a test that explains the samples by a method, with arguments of its own."""
        method, options = self.method(name)
        return test(
            self.model,
            inputs=self.inputs,
            targets=self.samples.labels,
            method=method,
            ids=self.samples.ids,
            seed=self.seed,
            **more,
            **options,
        )

    @cached_property
    def _reference(self) -> Tensor:
        return load_reference(self.opened[1], self.opened[0], self.seed, _WORKERS)

    def each(self, measure: Callable[[str], MethodCheck]) -> tuple[dict[str, MethodCheck], tuple[str, ...]]:
        """Measure each method; one that fails becomes a note, and does not stop the others.

        Raises:
            RunError: if all of them fail.
        """
        found, failures = dict[str, MethodCheck](), dict[str, Exception]()
        self.progress.begin(dict.fromkeys(self.names, 1))
        for name in self.names:
            try:
                found[name] = measure(name)
            except (ValueError, TypeError, RuntimeError) as error:
                failures[name] = error
            self.progress.advance(name, 1)
        notes = tuple(f"{name} is missing: {first_line(error)}" for name, error in failures.items())
        if not found:
            raise RunError(" ".join(notes)) from next(iter(failures.values()))
        return found, notes


def choose_methods(evaluation: Evaluation, methods: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the methods to check: those named, or all that are complete."""
    known: Mapping[str, object] = evaluation.results.methods
    for name in methods or ():
        if name not in known:
            raise unknown("methods", name, known)
    chosen = tuple(dict.fromkeys(methods or known))
    if not chosen:
        raise RunError(f"{evaluation.run} has no method that is complete.")
    return chosen


def original_sizes(evaluation: Evaluation) -> list[tuple[int, int]]:
    """Return the width and height of each sample's original image."""
    manifest = evaluation.run.manifest
    height, width = manifest.data.spatial
    own = manifest.model.preprocessing
    if own.resize is None and own.crop is None:  # as the model sees it
        return [(width, height)] * manifest.data.samples
    samples, sizes = reopen_samples(evaluation), []
    for place in range(len(samples)):
        image = samples.read(place)
        sizes.append((width, height) if isinstance(image, np.ndarray) else image.size)
    return sizes
