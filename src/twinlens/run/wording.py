"""Headlines and warnings in plain sentences, for the terminal, the page and `summary()`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twinlens.options import Until
from twinlens.run.results import Results, StoppingResults
from twinlens.statistics.advice import Advice
from twinlens.statistics.margin import MARGIN, samples_needed


def name_of(results: Results, metric: str) -> str:
    """Return the name of a metric in sentences and on axes."""
    about = results.about(metric)
    return about.short.removesuffix(about.arrow).rstrip()


def performance_of(results: Results, metric: str) -> str:
    """Return the name of a metric's performance measure."""
    performance = results.settings.metrics[metric]["performance"]
    return str(performance["function"]) if isinstance(performance, dict) else str(performance)


def listed(names: Sequence[str], word: str = "and") -> str:
    """Join names with commas and "and"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


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
    """Return which method to use for what, how sure that is, and whose maps are no better than those of other inputs.

    docs/concepts/statistics.md has the rules.
    """
    few = next((metric for metric, advice in results.advice.items() if advice.outcome == "few samples"), None)
    if few is not None:
        return [_too_few(results, few)]
    advised = [_advised(results, metric, advice) for metric, advice in results.advice.items()]
    return [*advised, *(sentence for metric in results.advice for sentence in _other_skills(results, metric))]


def _too_few(results: Results, metric: str) -> str:
    """Return how many samples it takes; where the run has as many, those with exchanged maps are too few."""
    advice, samples = results.advice[metric], results.data.samples
    skill = results.skill(advice.methods[0], metric)
    if skill is None or samples < (advice.samples or 0):
        return f"{_count(samples, 'sample')}: too few to recommend a method. At least {advice.samples} are needed."
    return (
        f"{_count(skill.samples, 'sample')} of {samples:,} with exchanged maps: too few to recommend a method. "
        f"At least {advice.samples} are needed; raise `control_share`."
    )


def _advised(results: Results, metric: str, advice: Advice) -> str:
    """Return the sentence of one side."""
    purpose, best = results.about(metric).purpose, advice.methods[0]
    start = f"{purpose[:1].upper()}{purpose[1:]}"
    if advice.outcome == "clear":
        number = f"{name_of(results, metric)} {_value(results, best, metric)}{_skill(results, best, metric)}"
        return f"{start}, use {best}: {number}, {_better_than(results, best)}."
    if advice.outcome == "several":
        return f"{start}, use {_several(results, metric, advice)}."
    return f"{start}, no method can be recommended{_nobody(results, metric, advice)}."


def _nobody(results: Results, metric: str, advice: Advice) -> str:
    """Return why no method can be recommended, and what would help."""
    title, best, more = name_of(results, metric), advice.methods[0], _more(advice.samples)
    number, samples = f"{title} {_value(results, best, metric)}", _count(results.data.samples, "sample")
    if advice.outcome == "no interval":
        top = results.best_value(metric)
        remark = f"{top}, a baseline" if top in results.baselines else top
        value = _value(results, top, metric)
        return f": {title} has no interval here. Its best value is {value} ({remark}). Add --metrics headline"
    if advice.outcome == "no skill":
        return f": in {title}, maps of {listed(advice.methods)} are no better than maps from other inputs"
    if advice.outcome == "baseline":
        baseline = f"the baseline {advice.against} ({_value(results, str(advice.against), metric)})"
        if more:
            return f" yet: with {samples}, {best} ({number}) is not clearly better than {baseline}{more}"
        return f": {best}, the best method, has {number} and is not better than {baseline}"
    unclear = next(name for name in advice.methods if not results.has_skill(name, metric))
    other = next((name for name in advice.methods if results.has_skill(name, metric)), None)
    than = f", more than {other} ({_value(results, other, metric)})" if other else ""
    skill = _skill(results, unclear, metric, interval=True)
    undecided = f"it is not decided whether its maps are better than maps from other inputs{skill}{more}"
    return f" yet: {best} has {number}{than}, but with {samples} {undecided}"


def _several(results: Results, metric: str, advice: Advice) -> str:
    """Return the methods that are not clearly apart, with their values and what would decide."""
    values = listed([_value(results, name, metric) for name in advice.methods])
    text = f"{listed(advice.methods, 'or')}: {name_of(results, metric)} {values}"
    if len(advice.methods) > 1:
        undecided = f", not clearly apart with {_count(results.data.samples, 'sample')}{_more(advice.samples)}"
        text += undecided if advice.samples else f", apart by less than {MARGIN}"
    if advice.against:
        text += f"; {advice.against} is not clearly worse, but its skill is not decided"
    return text


def _better_than(results: Results, best: str) -> str:
    """Return what a method is clearly better than."""
    others = [name for name in results.methods if name != best and name not in results.baselines]
    groups = ["all other methods"] * bool(others) + ["the baselines"] * bool(results.baselines)
    return f"clearly better than {listed(groups)}" if groups else "with no other method to compare it with"


def _skill(results: Results, method: str, metric: str, *, interval: bool = False) -> str:
    """Return the skill of a method as a clause; empty where it was not measured."""
    skill = results.skill(method, metric)
    if skill is None or skill.value is None:
        return ""
    ends = f" [{skill.low:z.3f}, {skill.high:z.3f}]" if interval and skill.low is not None else ""
    clause = f"skill {skill.value:+z.3f}{ends}"
    return f" ({clause})" if interval else f", {clause}"


def _other_skills(results: Results, metric: str) -> list[str]:
    """Return the methods, no baselines, whose skill by a metric is refuted or not decided."""
    title, sentences = name_of(results, metric), []
    mentioned = {*results.advice[metric].methods, results.advice[metric].against}
    methods = [name for name in results.methods if name not in {*results.baselines, *mentioned}]
    none = [name for name in methods if results.has_skill(name, metric) is False]
    if none:
        sentences.append(f"In {title}, maps of {listed(none)} are no better than maps from other inputs.")
    skills = {name: skill for name in methods if (skill := results.skill(name, metric)) is not None}
    unclear = [
        name for name, skill in skills.items() if skill.low is not None and results.has_skill(name, metric) is None
    ]
    if unclear:
        total = results.data.samples
        needed = [number for name in unclear if (number := samples_needed(skills[name], total)) is not None]
        samples, more = _count(total, "sample"), _more(max(needed, default=None))
        question = f"whether maps of {listed(unclear)} are better than maps from other inputs"
        sentences.append(f"In {title}, it is not decided with {samples} {question}{more}.")
    return sentences


def _value(results: Results, method: str, metric: str) -> str:
    return f"{results.area(method, metric):z.3f}"


def _more(samples: int | None) -> str:
    return "" if samples is None else f"; about {samples:,} would decide"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
    soundness = [name for name in results.settings.metrics if results.about(name).side == "soundness"]
    warnings += [text for metric in soundness for text in _unreached(results, metric)]
    against = [name for name, settings in results.settings.metrics.items() if settings.get("evidence") == "against"]
    silent = [name for name in methods if all(results.area(name, metric) is None for metric in against)]
    if against and silent:
        titles = listed([name_of(results, metric) for metric in against])
        warnings.append(f"{listed(silent)}: no negative values to judge; {titles} are undefined.")
    return [*warnings, *(f"{name}: {d.message}" for name, m in methods.items() for d in m.diagnostics if d.message)]


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
