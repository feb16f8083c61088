"""Headlines and warnings in plain sentences, for the terminal, the page and `summary()`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twinlens.options import Until
from twinlens.run.results import Results, StoppingResults


def name_of(results: Results, metric: str) -> str:
    """Return the name of a metric in sentences and on axes."""
    about = results.about(metric)
    return about.short.removesuffix(about.arrow).rstrip()


def performance_of(results: Results, metric: str) -> str:
    """Return the name of a metric's performance measure."""
    performance = results.settings.metrics[metric]["performance"]
    return str(performance["function"]) if isinstance(performance, dict) else str(performance)


def listed(names: Sequence[str]) -> str:
    """Join names with commas and "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def describe_stopping(stopping: StoppingResults) -> str:
    """Return after how many samples a run stopped, and why."""
    until = Until.read(stopping.until)
    within, samples, of = f"±{until.margin:g}", stopping.samples, stopping.of
    if stopping.met:
        goal = f"every comparison decided or within {within}" if until.decided else f"every interval within {within}"
        return f"Stopped after {samples:,} of {of:,} samples: {goal}, {stopping.look} of {stopping.looks} looks."
    measured = f"All {of:,}" if samples == of else f"{samples:,} of {of:,}"
    widest = "there is no interval"
    if stopping.widest is not None:
        differs = f"differences up to {stopping.widest:.3f} are undecided"
        widest = differs if until.decided else f"the widest interval is ±{stopping.widest:.3f}"
    return f"{measured} samples were measured, not enough for {within}: {widest}, {stopping.look} looks."


def find_headlines(results: Results) -> list[str]:
    """Return which explanation to trust for what, and which are no better than maps from other inputs."""
    if not results.methods:
        return []
    front, sentences = list(results.front), [*_best(results), *_without_skill(results)]
    if len(front) == 1:
        sentences.append(f"No other method beats {front[0]} on either side.")
    elif front:
        sentences.append(f"On the Pareto front: {listed(front)}. No method beats them on both sides.")
    return sentences


def _best(results: Results) -> list[str]:
    """Return the best method of each side, with its skill, and those that are not significantly worse."""
    sentences = []
    for metric in results.sides:
        best, purpose = results.highest(metric), results.about(metric).purpose
        start, title = f"{purpose[:1].upper()}{purpose[1:]}", name_of(results, metric)
        empty = _empty(results, metric)
        if best is None:
            if empty:
                sentences.append(f"{start}, no method helps: in {title} none is better than maps from other inputs.")
            continue
        rivals = results.rivals.get(metric, ())
        estimate, others = results.skill(best, metric), len(results.candidates(metric)) - 1
        gain = None if estimate is None else estimate.value
        skill = "" if gain is None else f", of which {gain:z.3f} is skill"
        clear = f"; not significantly better than {listed(rivals)}" if rivals else ""
        if others and not rivals:
            clear = "; significantly better than all others"
        more = f". {empty}" if empty else ""
        sentences.append(f"{start}, use {best}: {title} {results.area(best, metric):z.3f}{skill}{clear}{more}.")
    return sentences


def _empty(results: Results, metric: str) -> str:
    """Return the method, no baseline, that scores more than the best one without any skill."""
    areas, best = results.areas(metric), results.highest(metric)
    sign = 1 if results.about(metric).higher_is_better else -1
    others = [m for m in areas if not results.methods[m].baseline and results.has_skill(m, metric) is False]
    top = max(others, key=lambda name: sign * areas[name], default=None)
    if top is None or (best is not None and sign * areas[top] <= sign * areas[best]):
        return ""
    control = results.methods[top].metrics[metric].control
    exchanged = None if control is None else control.value
    more = "" if exchanged is None else f", and {exchanged:z.3f} with maps from other inputs"
    return f"{top} scores {areas[top]:z.3f}{more}"


def _without_skill(results: Results) -> list[str]:
    """Return the methods whose own maps are no better than exchanged ones, on both sides or on one."""
    judged = [metric for metric in results.sides if results.with_skill(metric)]
    nowhere = [name for name in results.methods if results.lacks_skill(name)]
    sentences = []
    if nowhere:
        sides, verb = listed([name_of(results, metric) for metric in judged]), "is" if len(nowhere) == 1 else "are"
        sentences.append(f"{listed(nowhere)} {verb} no better than maps from other inputs in {sides}.")
    for metric in judged:
        some = [m for m in results.methods if results.has_skill(m, metric) is False and m not in nowhere]
        if some:
            verb = "is" if len(some) == 1 else "are"
            sentences.append(
                f"In {name_of(results, metric)}, {listed(some)} {verb} no better than maps from other inputs."
            )
    return sentences


def find_warnings(results: Results) -> list[str]:
    """Return what is missing, trivial or misleading in a run, and the warnings of its diagnostics."""
    methods, skipped, warnings = results.methods, results.data.skipped, []
    if results.data.samples == 1:
        warnings.append("One sample only: the results do not generalise to other samples.")
    if skipped:
        warnings.append(
            f"{len(skipped):,} sample{'s' if len(skipped) > 1 else ''} could not be read and "
            f"{'was' if len(skipped) == 1 else 'were'} skipped. The first: {skipped[0].reason}"
        )
    if not methods:
        warnings.append("No method is complete yet: start the run again with the same command to resume it.")
    if len(methods) == 1:
        warnings.append("One method only: there is nothing to compare it with. Add at least the baseline `random`.")
    if not results.settings.metrics:
        warnings.append("No metrics were requested: the run holds maps only.")
    sides = {
        side: [name for name in results.settings.metrics if results.about(name).side == side]
        for side in ("soundness", "completeness")
    }
    warnings += [text for metrics in sides.values() for metric in metrics for text in _baseline_on_top(results, metric)]
    warnings += [text for metric in sides["soundness"] for text in _unreached(results, metric)]
    against = [name for name, settings in results.settings.metrics.items() if settings.get("evidence") == "against"]
    silent = [name for name in methods if all(results.area(name, metric) is None for metric in against)]
    if against and silent:
        titles = listed([name_of(results, metric) for metric in against])
        warnings.append(f"{listed(silent)}: no negative values to judge; {titles} are undefined.")
    return [*warnings, *(f"{name}: {d.message}" for name, m in methods.items() for d in m.diagnostics if d.message)]


def _baseline_on_top(results: Results, metric: str) -> list[str]:
    """Return how to read a metric by which a baseline method has the largest value."""
    areas, title = results.areas(metric), name_of(results, metric)
    top = max(areas, key=areas.__getitem__) if areas else None
    if top is None or top not in results.baselines or len(results.baselines) == len(results.methods):
        return []
    start, skill = f"The baseline {top} has the highest {title} ({areas[top]:.3f})", results.skill(top, metric)
    if skill is None or skill.value is None:
        return [
            f"{start}, although it ignores the model: do not rank methods by this number on these samples. Rank them "
            "by the metric soundness_rank and its skill, or use more samples."
        ]
    return [
        f"{start}, of which {skill.value:z.3f} is skill: the value alone means little here; compare methods by skill."
    ]


def _unreached(results: Results, metric: str) -> list[str]:
    """Return where soundness is undefined: no kept feature has attribution, or a performance is not reached."""
    title = name_of(results, metric)
    curves = {name: method.metrics[metric] for name, method in results.methods.items() if metric in method.metrics}
    warnings = [
        f"{name}: {title} is undefined at all levels, because no kept feature has attribution."
        for name, curve in curves.items()
        if all(value is None for value in curve.values)
    ]
    high = results.soundness_up_to.get(metric, 0.0)
    short = [
        name for name, curve in curves.items() if max((p for p in curve.performance if p is not None), default=0) < high
    ]
    if short:
        warnings.append(
            f"{listed(short)} {'does' if len(short) == 1 else 'do'} not reach {performance_of(results, metric)} "
            f"{high:.3f}, nine tenths of that on the original inputs, and {'has' if len(short) == 1 else 'have'} no "
            f"{title}."
        )
    return warnings


def group_warnings(warnings: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Group warnings about different methods that differ only in their numbers."""
    groups: dict[str, list[str]] = {}
    for warning in warnings:
        name, colon, text = warning.partition(": ")
        kind = re.sub(r"[0-9]+", "0", text) if colon and name in methods else warning
        groups.setdefault(kind, []).append(warning)
    return list(groups.values())
