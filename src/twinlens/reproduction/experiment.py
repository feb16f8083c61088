"""What all experiments share: their options, what they return, and how options without an effect are refused."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from twinlens.reproduction.claims import Claim
from twinlens.support.fields import check_types, convert
from twinlens.support.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP_READINGS = ("noise", "protocol", "bits")
"""Options about readings of the paper, for experiments that compare methods on a trained network."""


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """The options of all experiments; an experiment refuses those that it does not use."""

    out: Path
    """Directory of the experiment."""

    paper: bool = False
    """Use the paper's sizes and settings instead of those that take minutes on two cores."""

    data: str | None = None
    """Data as for evaluate, or images to train on. Default: data that comes with installed packages."""

    classes: str | None = None
    """File with the index of each class name, for a folder of images."""

    model: str | None = None
    """Model as for evaluate, for experiments on a trained network."""

    weights: str | None = None
    """File with the weights of that model."""

    allow_code: bool = False
    """Load models in the torch.export format (FILE.pt2), which can run code stored in the file."""

    limit: int | None = None
    """Number of samples, or of trials for synthetic data."""

    leave_out: tuple[str, ...] = ()
    """Methods to leave out, such as slow ones; claims about them are left out, too."""

    noise: Literal["deviation", "variance", "both"] = "deviation"
    """What the paper's 0.3 for noisy copies means: the standard deviation, as in the authors' code, or the variance, as
    in the text. "both" judges both readings."""

    protocol: Literal["paper", "soco", "both"] = "paper"
    """Follow the paper's text, or "soco", its authors' code: its metrics, and maps of magnitudes in 8 bits. "both"
    judges both readings."""

    bits: int | None = None
    """Store maps in so many bits before they are measured: 8 for images, as the authors do."""

    epochs: int | None = None
    """Epochs of each training, for experiments that train networks; 35 with `paper` and 6 otherwise by default."""

    compile: bool = False
    """Call the trained network through torch.compile: faster for long runs; the last digits may differ."""

    seed: int = 0
    """Random seed."""

    device: str | None = None
    """Device for training and inference: cpu, cuda, cuda:1, …. Default: a GPU if available."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(convert(self.out, str | os.PathLike[str], "out")))
        check_types(self)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"`limit` must be at least 1; got {self.limit}.")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"`epochs` must be at least 1; got {self.epochs}.")
        if self.bits is not None and not 1 <= self.bits <= 16:
            raise ValueError(f"`bits` must lie within 1 and 16, such as 8; got {self.bits}.")

    @property
    def embedded(self) -> bool:
        """Whether model and data come with installed packages, and the small sizes of a smoke run apply."""
        return self.model is None and self.data is None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of an experiment."""

    numbers: Mapping[str, Any]  # as results.json holds them
    claims: tuple[Claim, ...]
    figures: Mapping[str, Callable[[Figure], None]]  # functions that draw them, the most important first


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the paper."""

    title: str  # the question it asks; the claims are the answers
    source: str  # where the paper describes it
    run: Callable[[ExperimentOptions, Progress], Outcome]
    stand_in: str = ""  # what replaces the paper's data and model in a smoke run; empty if nothing does

    def smoke(self, options: ExperimentOptions) -> str:
        """Return what replaces the paper's data and model with these options; empty unless it is a smoke run."""
        return self.stand_in if options.embedded and not options.paper else ""


def refuse_options(options: ExperimentOptions, unused: Iterable[str], because: str) -> None:
    """Refuse options that an experiment does not use, because they would have no effect."""
    for name in unused:
        if (value := getattr(options, name)) != getattr(ExperimentOptions, name):
            raise ValueError(
                f"`{name}` is not used by this experiment, because {because}; got {value!r}. Leave it out."
            )


def require_both(options: ExperimentOptions, pairs: Mapping[str, str]) -> None:
    """Refuse an option that has no effect without another one."""
    for name, other in pairs.items():
        if getattr(options, name) is not None and getattr(options, other) is None:
            raise ValueError(f"`{name}` needs your own {other}. Pass --{other}, too.")


def plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON can hold them, None where they are not defined."""
    return [None if math.isnan(value) else round(float(value), 10) for value in values]
