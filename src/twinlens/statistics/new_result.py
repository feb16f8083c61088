"""One result of a run as it comes, for logs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.support.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class NewResult:
    """One method by one metric, as `on_result` receives it."""

    method: str
    """Name of the method."""

    metric: str
    """Name of the metric."""

    estimate: Estimate
    """The area of the curve."""

    control: Estimate | None
    """The same for maps exchanged between samples; None where it was not measured."""

    skill: Estimate | None
    """How much better the method's own maps are than exchanged ones; None where it was not measured."""

    samples: int
    """Number of samples measured so far."""

    final: bool
    """Whether it is a result of the run; with `until`, False for every look that may draw more samples."""

    def numbers(self) -> dict[str, float]:
        """Return the numbers that are defined, under the names of the columns of `Evaluation.summary`.

        Example:
            >>> area = Estimate(value=0.75, low=0.5, high=0.875, samples=64)
            >>> NewResult(
            ...     method="gradcam", metric="soundness_rank", estimate=area, control=None, skill=None, samples=64,
            ...     final=True,
            ... ).numbers()
            {'value': 0.75, 'low': 0.5, 'high': 0.875}
        """
        area, control, skill = self.estimate, self.control, self.skill
        numbers = {"value": area.value, "low": area.low, "high": area.high}
        if control is not None:
            numbers["control"] = control.value
        if skill is not None:
            numbers |= {"skill": skill.value, "skill_low": skill.low, "skill_high": skill.high, "p": skill.p}
        return {name: number for name, number in numbers.items() if number is not None}
