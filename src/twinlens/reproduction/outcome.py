"""What all experiments of the paper have in common: their options, what they claim, and what they find."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from twinlens.support.fields import check_types, convert
from twinlens.support.progress import Progress

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

    leave_out: tuple[str, ...] = ()
    """Methods that are not measured, such as those that take too long; nothing is claimed about them then."""

    noise: Literal["variance", "deviation"] = "variance"
    """What the paper's 0.3 of noisy copies is: the variance, as it reads, or the standard deviation."""

    compile: bool = False
    """Call a trained network through torch.compile: a long run takes less time, and last bits are others."""

    seed: int = 0
    """Seed of all that is random."""

    device: str | None = None
    """Where networks are trained and called: cpu, cuda, cuda:1, …; a GPU where there is one by default."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(convert(self.out, str | os.PathLike[str], "out")))
        check_types(self)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"`limit` must be at least 1; got {self.limit}.")


Verdict = Literal["holds", "does not hold", "open", "by construction"]
"""What became of a claim. "open": the data cannot tell; "by construction": it could not have failed."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim about an experiment, held against what was measured; `judge` and `by_construction` make them."""

    text: str
    """The claim, in our words."""

    source: str
    """Where the paper makes it, such as "Fig. 6a"."""

    measured: str
    """What was measured here, with numbers."""

    verdict: Verdict
    """What became of it."""

    estimate: float | None = None
    """The number that decided: above zero it speaks for the claim. None where none is defined."""

    low: float | None = None
    """Lower end of the estimate's interval."""

    high: float | None = None
    """Upper end."""

    over: str = ""
    """What the interval was resampled over, such as "250 test images"."""

    ours: bool = False
    """Whether the claim is our own; all others are the paper's."""

    reason: str = ""
    """Why it is open, or holds by construction."""

    @property
    def margin(self) -> str:
        """The estimate with its interval, which shows on which side of zero it lies; empty where there is none.

        Example:
            >>> decided = {"verdict": "does not hold", "estimate": -0.01, "low": -0.0198, "high": -0.0002}
            >>> Claim(text="Wine is water.", source="Fig. 2", measured="no", **decided).margin
            '-0.010 [-0.020, -0.0002]'
        """
        if self.estimate is None or self.low is None or self.high is None:
            return ""
        return f"{self.estimate:+z.3f} [{_signed(self.low)}, {_signed(self.high)}]"


def _signed(end: float) -> str:
    """Round to three digits, or to as many as keep a small number from becoming zero."""
    return f"{end:+.1g}" if 5e-6 < abs(end) < 5e-4 else f"{end:+z.3f}"


def count_verdicts(claims: Iterable[Claim]) -> str:
    """Count claims by verdict.

    Example:
        >>> one = Claim(text="Water is wet.", source="Fig. 1", measured="wet", verdict="holds")
        >>> count_verdicts([one, one, Claim(text="Wine is water.", source="Fig. 2", measured="no", verdict="open")])
        '2 of 3 hold, 1 open'
    """
    verdicts = [claim.verdict for claim in claims]
    others = [
        f"{count} {'do not' if verdict == 'does not hold' else verdict}"
        for verdict in get_args(Verdict)[1:]
        if (count := verdicts.count(verdict))
    ]
    return ", ".join([f"{verdicts.count('holds')} of {len(verdicts)} hold", *others]) if verdicts else "none"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an experiment found."""

    numbers: Mapping[str, Any]
    """Everything that was measured, as results.json holds it."""

    claims: tuple[Claim, ...]
    """The paper's claims about it, and our own."""

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

    stand_in: str = ""
    """What stands for the paper's data and model by default, which makes that a smoke run; empty where the default is
    the paper's own set-up."""

    def smoke(self, options: ExperimentOptions) -> str:
        """Return what stands for the paper's data and model with these options; empty where that is for real."""
        own = options.data is not None or options.model is not None or options.paper
        return "" if own else self.stand_in
