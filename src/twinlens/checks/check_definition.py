"""Declaration of checks: description, options, and the function that measures the methods of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from twinlens.checks.sample_scores import Similarity
from twinlens.probing.ranking import check_levels
from twinlens.run.check_records import CheckText, MethodCheck
from twinlens.support.fields import check_count, check_types

if TYPE_CHECKING:
    from twinlens.checks.checked_run import CheckedRun

_MOST = 10**6  # samples, sets, epochs and trainings


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Measurements of a check; `steps` names the steps, for a check with steps."""

    methods: Mapping[str, MethodCheck]
    """The result of each method, or of each other row."""
    samples: int
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    line: str | None = None
    """The result in a sentence, for a check that is about the run as a whole."""


@dataclass(frozen=True, kw_only=True)
class CheckDefinition(CheckText):
    """A check, declared by the function that measures it.

    The docstring of the function is shown with the results: its first line is the question, the rest explains how to
    read the numbers.
    """

    measure: Callable[[CheckedRun], CheckResult] = field(kw_only=False)
    """Measures the methods of a run."""

    options: tuple[str, ...]
    """Names of the fields of `CheckOptions` that it uses."""

    question: str = field(init=False)
    reading: str = field(init=False)

    def __post_init__(self) -> None:
        question, _, reading = (inspect.getdoc(self.measure) or "").partition("\n\n")
        object.__setattr__(self, "question", question)
        object.__setattr__(self, "reading", " ".join(reading.split()))


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of all checks; each check uses some of them."""

    limit: int = 100
    """Number of samples, drawn by the run's seed."""

    boxes: str | None = None
    """Boxes around the objects: FILE.csv with the columns image,xmin,ymin,xmax,ymax[,label], or a folder of Pascal VOC
    XML files, in pixels of the original images; or a folder of masks, images in which the object is not black."""

    any_label: bool = False
    """Use all boxes of an image; by default, only those labelled with the sample's class."""

    tolerance: float = 0.0
    """Distance from a box, in pixels of the input, that the pointing game still counts as inside."""

    similarity: Similarity = "spearman"
    """How maps are compared."""

    levels: tuple[float, ...] | None = None
    """Shares of features that are removed, increasing."""

    radius: float = 0.05
    """Largest perturbation of an input value, in standard deviations of its input; of tabular rows, of its column."""

    change: float = 0.05
    """Largest change of the target's probability for which the model's output still counts as the same."""

    perturbations: int = 4
    """Perturbations of each sample."""

    subsets: int = 100
    """Random sets of features for each sample and share."""

    fall: float = 0.01
    """A fall of the accuracy, or of the target's probability, counts if it is larger than this; of its log-odds, if it
    is larger than four times this."""

    imputer: Literal["constant", "linear", "blur"] = "constant"
    """How removed features are filled in; constant is zero, as published."""

    imputers: tuple[str, ...] | None = None
    """Imputers to compare with the run's own: linear, mean, blur, constant, or FILE.py:FUNCTION, your own function
    (inputs, keep, streams); by default all of these names that the inputs allow."""

    metric: Literal["deletion", "insertion", "road_morf", "road_lerf"] = "deletion"
    """The metric to optimise, computed from the target's probability."""

    segments: str | None = None
    """What is ordered: "grid:49" for parts of equal size, or "slic:50" for superpixels; by default the run's own
    segments, or grid:49."""

    width: int = 2
    """Beam width of the search: 1 is greedy; larger values look ahead and cost proportionally more."""

    train: str | None = None
    """Training data, in the format of --data of evaluate."""

    epochs: int = 10
    """Epochs of each training."""

    retrainings: int = 1
    """How often a network is trained for each share."""

    engine: Literal["local", "ray"] = "local"
    """Where maps are measured again: in this process, or on a Ray cluster, that of RAY_ADDRESS or a new one."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("limit", "subsets", "epochs", "retrainings", "perturbations", "width"):
            check_count(name, getattr(self, name), _MOST)
        if not self.radius > 0 or not self.change >= 0:
            raise ValueError(
                f"`radius` must be positive and `change` at least 0; got {self.radius:g} and {self.change:g}."
            )
        if not self.fall >= 0:
            raise ValueError(f"`fall` must be >= 0, such as 0.01; got {self.fall:g}.")
        if not self.tolerance >= 0:
            raise ValueError(f"`tolerance` must be a distance >= 0, in pixels; got {self.tolerance:g}.")
        if self.levels is not None:
            object.__setattr__(self, "levels", check_levels("levels", self.levels, decreasing=False))

    def required(self, name: Literal["boxes", "train"]) -> str:
        """Return an option that a check requires; raise ValueError if it is not set."""
        value: str | None = getattr(self, name)
        if value is None:
            raise ValueError(f"`{name}` is missing: pass --{name}.")
        return value
