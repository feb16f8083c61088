"""The two protocols: details in which the paper's text and its authors' code differ."""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.errors import unknown
from twinlens.probing.ranking import ROUNDINGS
from twinlens.support.fields import check_types


def percent_levels(first: int, last: int) -> tuple[float, ...]:
    """List levels one percent apart, first to last.

    Example:
        >>> percent_levels(98, 95)
        (0.98, 0.97, 0.96, 0.95)
    """
    return tuple(percent / 100 for percent in range(first, last - 1, -1))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Details of the metrics in which the paper's text and its authors' code differ.

    To change a single point, pass `dataclasses.replace(PROTOCOLS["paper"], start_level=0.04)`.
    """

    name: str
    """How results name the protocol."""

    levels: tuple[float, ...]
    """Default shares removed in a soundness sweep."""

    score: str
    """What performance="score" means: the target's "probability" or its raw "logit"."""

    strict: bool
    """Whether a step is judged false if the gain is < epsilon; otherwise, if it is <= epsilon."""

    lag: bool
    """Whether a level's value is taken before that level's own features were judged."""

    start_level: float | None
    """No step is judged while the mean performance is at most this."""

    mass_offset: float
    """Added to the attribution mass that a soundness value is divided by."""

    count_offset: float
    """Added to the number of samples that an accuracy is divided by."""

    rounding: str
    """How a share of features becomes a count: "round" or "floor"."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, names in (("score", ("probability", "logit")), ("rounding", ROUNDINGS)):
            if getattr(self, name) not in names:
                raise unknown(name, getattr(self, name), names)
        for name in ("mass_offset", "count_offset"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must lie within [0, 1); got {getattr(self, name)!r}.")


PROTOCOLS = {
    "paper": Protocol(
        name="paper",
        levels=percent_levels(98, 1),
        score="probability",
        strict=True,
        lag=False,
        start_level=None,
        mass_offset=0.0,
        count_offset=0.0,
        rounding="round",
    ),
    "soco": Protocol(
        name="soco",
        levels=percent_levels(98, 3),
        score="logit",
        strict=False,
        lag=True,
        start_level=0.04,
        mass_offset=1e-6,
        count_offset=1e-6,
        rounding="floor",
    ),
}
"""`paper` follows the text of the paper, `soco` its authors' published code."""


def find_protocol(protocol: str | Protocol) -> Protocol:
    """Return a protocol by its name, or as it was passed."""
    if isinstance(protocol, Protocol):
        return protocol
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS, or_else=", or a Protocol")
    return PROTOCOLS[protocol]
