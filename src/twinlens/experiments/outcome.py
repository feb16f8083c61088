"""What all experiments of the paper have in common: their options, what they claim, and what they find."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinlens.core.fields import convert, fields_of
from twinlens.core.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """The options of all experiments, checked when they are made; an experiment refuses those that it does not use.

    Example:
        >>> ExperimentOptions(out=Path("here"), limit=0)
        Traceback (most recent call last):
            ...
        ValueError: `limit` must be at least 1; got 0.
    """

    out: Path
    """Directory of the experiment."""

    paper: bool = False
    """Take the paper's own sizes and settings instead of those that take minutes on two cores."""

    data: str | None = None
    """Data as for evaluate, or images to train on; what comes inside packages by default."""

    classes: str | None = None
    """File with the index of each class name, for a folder of images."""

    model: str | None = None
    """Model as for evaluate, for experiments on a trained network."""

    weights: str | None = None
    """File with the weights of that model."""

    allow_code: bool = False
    """Open a model of torch.export (FILE.pt2), which can run code that the file holds; otherwise it is refused."""

    limit: int | None = None
    """Number of samples, or of trials for synthetic data."""

    seed: int = 0
    """Seed of all that is random."""

    device: str | None = None
    """Where networks are trained and called: cpu, cuda, cuda:1, …; a GPU where there is one by default."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(convert(self.out, str | os.PathLike[str], "out")))
        for option in fields_of(ExperimentOptions):
            object.__setattr__(self, option.name, convert(getattr(self, option.name), option.type, option.name))
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"`limit` must be at least 1; got {self.limit}.")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper about an experiment, held against what was measured."""

    text: str
    """The claim, in our words."""

    source: str
    """Where the paper makes it, such as "Fig. 5a"."""

    measured: str
    """What was measured here, with numbers."""

    holds: bool | None
    """Whether it holds here; None where the data cannot tell."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment found."""

    numbers: Mapping[str, Any]
    """Everything that was measured, as results.json holds it."""

    claims: tuple[Claim, ...]
    """The paper's claims about it."""

    figures: Mapping[str, Callable[[Figure], None]] = field(default_factory=dict)
    """By name, the function that draws each figure; the page shows the first one largest."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the paper."""

    title: str
    """The question that it asks, in a line; the claims are the answers."""

    source: str
    """Where the paper has it."""

    run: Callable[[ExperimentOptions, Progress], Outcome]
    """The function that carries it out."""
