"""Advice: which method to use on one side, how sure that is, and how many samples would decide.

A method is recommended only if three things are clear, by intervals that hold for all pairs of methods at once: it is
better than every baseline method, its own maps are better than maps from other inputs (skill), and no method that could
still have skill is better. Without a baseline method nothing is recommended. "Clear" means that an interval excludes 0.
What is not clear is undecided, and not absent: a method lacks skill only if the interval of its skill lies within the
margin, or below 0. Methods that differ by less than the margin are recommended together, even if one is clearly better
by less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from twinlens.statistics.margin import fewest_controlled, samples_needed, within_margin
from twinlens.statistics.verdicts import Contrast
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import FEWEST


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What one metric says about the choice of a method."""

    outcome: Literal[
        "clear", "several", "undecided", "no skill", "baseline", "no baseline", "no interval", "few samples"
    ]
    """"clear": use the method; "several": use any of the methods; "undecided": more samples may decide; "no skill": the
    methods are better than maps from other inputs by less than the margin, if at all; "baseline": no method is clearly
    better than all baseline methods; "no baseline": none was measured; "few samples": too few, or too few with
    exchanged maps, for an interval."""

    methods: tuple[str, ...]
    """The methods that the outcome is about, best first."""

    against: str | None = None
    """The baseline method, or the method of undecided skill, that prevents a recommendation."""

    samples: int | None = None
    """About how many samples would decide, or how many it takes for an interval; None where nothing is open, or more
    samples would not help."""


def advise(
    areas: Mapping[str, Estimate],
    skills: Mapping[str, Estimate],
    contrasts: Collection[Contrast],
    *,
    baselines: Collection[str],
    higher_is_better: bool = True,
) -> Advice | None:
    """Return what to use by one metric, or None where no method but baselines has a value.

    Args:
        areas: the value of each method.
        skills: how much better each method's maps are than exchanged ones; empty where that was not measured.
        contrasts: the difference of each pair of methods, with intervals that hold for all of them.
        baselines: names of the baseline methods.
        higher_is_better: whether a larger value is better.
    """
    choice = _Choice(areas, skills, contrasts, baselines, higher_is_better)
    return choice.advice() if choice.methods else None


class _Choice:
    """The numbers behind an advice, with "better" as the positive direction."""

    def __init__(
        self,
        areas: Mapping[str, Estimate],
        skills: Mapping[str, Estimate],
        contrasts: Collection[Contrast],
        baselines: Collection[str],
        higher_is_better: bool,
    ) -> None:
        sign = 1 if higher_is_better else -1
        values = {name: sign * area.value for name, area in areas.items() if area.value is not None}
        ranked = sorted(values, key=lambda name: -values[name])
        self.methods = [name for name in ranked if name not in baselines]
        self.baselines = [name for name in ranked if name in baselines]
        self.areas, self.skills = areas, skills
        self.differences: dict[tuple[str, str], Estimate] = {}
        for contrast in contrasts:
            pair = (contrast.first, contrast.second) if higher_is_better else (contrast.second, contrast.first)
            self.differences[pair] = contrast.difference
            self.differences[pair[::-1]] = _turned(contrast.difference)

    def advice(self) -> Advice:
        """Return the advice; there is a method with a value."""
        estimate = self.areas[self.methods[0]]
        controlled = [skill.samples for name, skill in self.skills.items() if name in self.methods]
        fewest = fewest_controlled() if controlled else FEWEST
        if min(estimate.samples, *controlled, fewest) < fewest:
            return Advice(outcome="few samples", methods=tuple(self.methods), samples=fewest)
        if estimate.interval is None:
            return Advice(outcome="no interval", methods=tuple(self.methods))
        if not self.baselines:
            return Advice(outcome="no baseline", methods=tuple(self.methods))
        above = [name for name in self.methods if all(self.beats(name, other) for other in self.baselines)]
        if not above:
            return self._held_back()
        skilled = [name for name in above if self.has_skill(name)]
        if not skilled:
            open_skill = [name for name in above if not self.without_skill(name)]
            nothing = Advice(outcome="no skill", methods=tuple(above))
            return self._undecided(open_skill) if open_skill else nothing
        best = skilled[0]
        rivals = [name for name in self.methods if name != best and self._rivals(name, best)]
        return self._among(best, rivals, skilled)

    def _among(self, best: str, rivals: list[str], skilled: list[str]) -> Advice:
        """Advise on the best method with skill, beside those that may be better or are as good."""
        unknown = [name for name in rivals if name not in skilled and not self.beats(best, name)]
        hidden = [name for name in unknown if self.beats(name, best) and not self.near(name, best)]
        if hidden:
            return self._undecided([hidden[0], best])
        equals = [name for name in rivals if name in skilled]
        if not equals and not unknown:
            return Advice(outcome="clear", methods=(best,))
        pairs = [self.differences.get((best, name)) for name in (*equals, *unknown)]
        needed = [samples_needed(pair) for pair in pairs if pair is not None and not within_margin(pair)]
        samples = max((each for each in needed if each is not None), default=None)
        return Advice(outcome="several", methods=(best, *equals), against=next(iter(unknown), None), samples=samples)

    def _held_back(self) -> Advice:
        """Advise where no method is clearly better than all baselines."""
        best = self.methods[0]
        baseline = next(name for name in self.baselines if not self.beats(best, name))
        difference = self.differences.get((best, baseline))
        lost = difference is None or difference.high is None or difference.high < 0 or within_margin(difference)
        samples = None if lost or difference is None else samples_needed(difference)
        return Advice(outcome="baseline", methods=(best,), against=baseline, samples=samples)

    def _undecided(self, names: list[str]) -> Advice:
        needed = [
            samples_needed(self.skills[name], self.areas[name].samples) for name in names if not self.has_skill(name)
        ]
        samples = min((each for each in needed if each is not None), default=None)
        return Advice(outcome="undecided", methods=tuple(names), samples=samples)

    def _rivals(self, name: str, best: str) -> bool:
        """Return whether a method may still be the better choice, or is as good within the margin."""
        behind = any(self.beats(other, name) for other in self.baselines)
        worse = self.beats(best, name) and not self.near(best, name)
        return not (worse or self.without_skill(name) or behind)

    def near(self, name: str, other: str) -> bool:
        """Return whether two methods are clearly apart by less than the margin."""
        difference = self.differences.get((name, other))
        return difference is not None and within_margin(difference)

    def beats(self, name: str, other: str) -> bool:
        """Return whether a method is clearly better than another one."""
        difference = self.differences.get((name, other))
        return difference is not None and difference.low is not None and difference.low > 0

    def has_skill(self, name: str) -> bool:
        """Return whether a method's maps are clearly better than exchanged ones; true where nobody measured it."""
        return not self.skills or judge_skill(self.skills.get(name)) is True

    def without_skill(self, name: str) -> bool:
        """Return whether a method's maps are better than exchanged ones by less than the margin, if at all."""
        return judge_skill(self.skills.get(name)) is False


def judge_skill(skill: Estimate | None) -> bool | None:
    """Return whether a skill is clear (True), below the margin if there is any (False), or not decided (None).

    Example:
        >>> for low, high in ((0.01, 0.05), (0.005, 0.015), (-0.3, -0.1), (-0.01, 0.05)):
        ...     print(judge_skill(Estimate(value=(low + high) / 2, low=low, high=high, samples=100)))
        True
        False
        False
        None
    """
    if skill is None or skill.low is None or skill.high is None:
        return None
    if skill.high < 0 or within_margin(skill):
        return False
    return True if skill.low > 0 else None


def _turned(difference: Estimate) -> Estimate:
    """Return the difference in the other direction, with its interval."""
    value, low, high = (None if end is None else -end for end in (difference.value, difference.high, difference.low))
    return Estimate(value=value, low=low, high=high, samples=difference.samples)
