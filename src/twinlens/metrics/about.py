"""How a metric is shown, wherever it is shown: terminal, tables, figures and page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinlens.support.fields import check_types


@dataclass(frozen=True, kw_only=True)
class About:
    """What tables and charts say of a metric."""

    title: str
    """Title of its chart."""

    heading: str
    """Its name over a narrow column, with line breaks."""

    summary: str
    """What it measures, in a line."""

    across: str
    """What stands along the horizontal axis; {measure} is the measure of performance."""

    along: str = "loss of {measure}"
    """What stands along the vertical axis."""

    scale: str = (
        "A drop of {measure} against the untouched inputs, averaged over the curve: 0 where nothing is lost, below 0 "
        "where the model does better without what was removed."
    )
    """Unit and range of the number that stands for the whole curve."""

    purpose: str = "for this metric"
    """When to go by it, as the beginning of a sentence."""

    higher_is_better: bool = True
    """Whether a larger area speaks for the map."""

    side: Literal["soundness", "completeness"] | None = None
    """The side of the soundness–completeness plane that it measures, if any."""

    stairs: bool = False
    """Whether its curve is drawn as stairs over the performance reached, instead of lines over levels."""

    decreasing: bool = False
    """Whether the horizontal axis is drawn from the largest level to the smallest."""

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return "↑" if self.higher_is_better else "↓"

    @property
    def short(self) -> str:
        """The heading in one line, with its arrow.

        Example:
            >>> About(title="", heading="sound-" + chr(10) + "ness", summary="", across="").short
            'soundness ↑'
        """
        return f"{self.heading.replace('-' + chr(10), '').replace(chr(10), ' ')} {self.arrow}"

    @property
    def direction(self) -> str:
        """The same in words."""
        return "more is better" if self.higher_is_better else "less is better"

    def reading(self, measure: str) -> tuple[str, str]:
        """Say what it measures and which direction is better, and on which scale.

        Example:
            >>> About(title="", heading="", summary="what is lost", across="", scale="{measure}, 0 to 1.").reading("r2")
            ('What is lost; more is better.', 'r2, 0 to 1.')
        """
        said = f"{self.summary[:1].upper()}{self.summary[1:]}; {self.direction}."
        return said, self.scale.format(measure=measure)

    def axes(self, measure: str) -> tuple[str, str]:
        """Return what stands along both axes."""
        return self.across.format(measure=measure), self.along.format(measure=measure)
