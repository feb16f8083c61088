"""Results in words: headlines and warnings, the same in the terminal, on the page and in `summary()`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twinlens.options import Until
from twinlens.run.results import Results, StoppingResults


def name_of(results: Results, metric: str) -> str:
    """Return what sentences and axes call a metric."""
    about = results.about(metric)
    return about.short.removesuffix(about.arrow).rstrip()


def performance_of(results: Results, metric: str) -> str:
    """Return the name of the measure of performance that a metric was asked with."""
    performance = results.settings.metrics[metric]["performance"]
    return str(performance["function"]) if isinstance(performance, dict) else str(performance)


def listed(names: Sequence[str]) -> str:
    """Join names to a list in words.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def describe_stopping(found: StoppingResults) -> str:
    """Say after how many samples a run has stopped, and why.

    Example:
        >>> describe_stopping(StoppingResults(until="0.05", met=True, widest=0.048, samples=320, of=1000, look=4,
        ...                                   looks=7, confidence=0.989, spent=0.033))
        'Stopped after 320 of 1,000 samples: every interval within ±0.05, 4 of 7 looks.'
    """
    until = Until.read(found.until)
    within = f"±{until.margin:g}"
    if found.met:
        reached = f"every comparison decided or within {within}" if until.decided else f"every interval within {within}"
        return (
            f"Stopped after {found.samples:,} of {found.of:,} samples: {reached}, {found.look} of {found.looks} looks."
        )
    measured = f"All {found.of:,}" if found.samples == found.of else f"{found.samples:,} of {found.of:,}"
    widest = "there is no interval"
    if found.widest is not None:
        differs = f"differences up to {found.widest:.3f} are open"
        widest = differs if until.decided else f"the widest interval is ±{found.widest:.3f}"
    return f"{measured} samples were measured, and are not enough for {within}: {widest}, {found.look} looks."


def find_headlines(results: Results) -> list[str]:
    """Say which explanation to trust for what, and which ones know nothing of the input."""
    if not results.methods:
        return []
    front, sentences = list(results.front), [*_best(results), *_ignorant(results)]
    if len(front) == 1:
        sentences.append(f"No other method beats {front[0]} on either side.")
    elif front:
        sentences.append(f"On the front are {listed(front)}: nothing beats them on both sides at once.")
    return sentences


def _best(results: Results) -> list[str]:
    """Name the best method of either side, with its skill, and those that it is not clear of."""
    sentences = []
    for metric in results.sides:
        best, purpose = results.highest(metric), results.about(metric).purpose
        start, title = f"{purpose[:1].upper()}{purpose[1:]}", name_of(results, metric)
        empty = _empty(results, metric)
        if best is None:
            if empty:
                sentences.append(f"{start}, no method helps: in {title} none does better than maps of other inputs.")
            continue
        rivals = results.rivals.get(metric, ())
        control, others = results.control(best, metric), len(results.candidates(metric)) - 1
        gain = None if control is None else control.skill
        skill = "" if gain is None else f", of which {gain:z.3f} is skill"
        clear = f"; not clear of {listed(rivals)}" if rivals else "; clear of all others" if others else ""
        more = f". {empty}" if empty else ""
        sentences.append(f"{start}, take {best}: {title} {results.area(best, metric):z.3f}{skill}{clear}{more}.")
    return sentences


def _empty(results: Results, metric: str) -> str:
    """Name the method, no control, that scores more than the best one without any skill."""
    areas, best = results.areas(metric), results.highest(metric)
    sign = 1 if results.about(metric).higher_is_better else -1
    others = [name for name in areas if not results.methods[name].control and results.knows(name, metric) is False]
    top = max(others, key=lambda name: sign * areas[name], default=None)
    if top is None or (best is not None and sign * areas[top] <= sign * areas[best]):
        return ""
    control = results.control(top, metric)
    left = "" if control is None or control.value is None else f", and {control.value:z.3f} with maps of other inputs"
    return f"{top} scores {areas[top]:z.3f}{left}"


def _ignorant(results: Results) -> list[str]:
    """Name the methods whose own maps do no better than exchanged ones, whatever their value."""
    judged = [metric for metric in results.sides if any(results.control(name, metric) for name in results.methods)]
    without = {metric: [m for m in results.methods if results.knows(m, metric) is False] for metric in judged}
    nothing = [name for name in results.methods if results.knows_nothing(name)]
    sentences = []
    if nothing:
        verb, whose = ("knows", "its") if len(nothing) == 1 else ("know", "their")
        sides = listed([name_of(results, metric) for metric in judged])
        sentences.append(
            f"{listed(nothing)} {verb} nothing of the input: in {sides}, {whose} maps do no better than maps of other "
            "inputs."
        )
    for metric in judged:
        if some := [name for name in without[metric] if name not in nothing]:
            sentences.append(
                f"In {name_of(results, metric)}, maps of {listed(some)} do no better than maps of other inputs."
            )
    return sentences


def find_warnings(results: Results) -> list[str]:
    """Name what is missing, trivial or misleading in a run, and what its diagnostics found."""
    methods, skipped, found = results.methods, results.data.skipped, []
    if results.data.samples == 1:
        found.append("One sample only: nothing here says anything about other samples.")
    if skipped:
        found.append(
            f"{len(skipped):,} sample{'s' if len(skipped) > 1 else ''} could not be read and "
            f"{'is' if len(skipped) == 1 else 'are'} left out. The first: {skipped[0].reason}"
        )
    if not methods:
        found.append("No method is complete yet: start the run again with the same command, and it goes on.")
    if len(methods) == 1:
        found.append("One method only: there is nothing to compare it with. Add the control `random`, at least.")
    if not results.settings.metrics:
        found.append("No metric was asked for: the run holds maps alone.")
    sound = [name for name in results.settings.metrics if results.about(name).side == "soundness"]
    complete = [name for name in results.settings.metrics if results.about(name).side == "completeness"]
    found += [warning for metric in (*sound, *complete) for warning in _control_on_top(results, metric)]
    found += [warning for metric in sound for warning in _unreached(results, metric)]
    return [*found, *(f"{name}: {d.message}" for name, m in methods.items() for d in m.diagnostics if d.message)]


def _control_on_top(results: Results, metric: str) -> list[str]:
    """Say how to read a metric by which a control has the largest value."""
    areas, title = results.areas(metric), name_of(results, metric)
    top = max(areas, key=areas.__getitem__) if areas else None
    if top is None or not results.methods[top].control or all(method.control for method in results.methods.values()):
        return []
    control = results.control(top, metric)
    if control is None or control.skill is None:
        return [
            f"The control {top} has the highest {title} ({areas[top]:.3f}), though it never looks at the model: do not "
            "rank methods by this number on these samples. Rank them by the metric soundness_two_sided and its skill, "
            "or take more samples."
        ]
    return [
        f"The control {top} has the highest {title} ({areas[top]:.3f}), of which {control.skill:z.3f} is skill: here "
        "the value alone says little about a method; read its skill."
    ]


def _unreached(results: Results, metric: str) -> list[str]:
    """Name where soundness has no value: nothing kept has attribution, or a level of performance is not reached."""
    found, title = [], name_of(results, metric)
    curves = {name: method.metrics[metric] for name, method in results.methods.items() if metric in method.metrics}
    for name, curve in curves.items():
        if all(value is None for value in curve.values):
            found.append(f"{name}: {title} is not defined at any level, since nothing that is kept has attribution.")
    high = results.soundness_up_to.get(metric, 0.0)
    short = [
        name for name, curve in curves.items() if max((p for p in curve.performance if p is not None), default=0) < high
    ]
    if short:
        found.append(
            f"{listed(short)} {'does' if len(short) == 1 else 'do'} not reach {performance_of(results, metric)} "
            f"{high:.3f}, nine tenths of that of the untouched inputs, and {'has' if len(short) == 1 else 'have'} no "
            f"{title}."
        )
    return found


def group_warnings(warnings: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Group warnings that say the same of several methods, but for the numbers; the first of a group speaks for it.

    Example:
        >>> group_warnings(["a: 3 maps are zero.", "b: 5 maps are zero.", "One sample only."], ["a", "b"])
        [['a: 3 maps are zero.', 'b: 5 maps are zero.'], ['One sample only.']]
    """
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        name, colon, text = warning.partition(": ")
        kind = re.sub(r"[0-9]+", "0", text) if colon and name in methods else warning
        groups.setdefault(kind, []).append(warning)
    return list(groups.values())
