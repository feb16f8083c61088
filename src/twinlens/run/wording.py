"""Headlines and warnings in plain sentences, for the terminal, the page and `summary()`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twinlens.options import Until
from twinlens.run.results import Results, StoppingResults
from twinlens.statistics.advice import Advice
from twinlens.statistics.margin import MARGIN, samples_needed
from twinlens.statistics.power import visible_difference
from twinlens.statistics.verdicts import Comparison

_OTHERS = ". Try others: `twinlens methods` lists them"
_WITHOUT_SKILL = f"better than maps from other inputs by less than {MARGIN}, if at all"


def name_of(results: Results, metric: str) -> str:
    """Return the name of a metric in sentences and on axes."""
    about = results.about(metric)
    return about.short.removesuffix(about.arrow).rstrip()


def performance_of(results: Results, metric: str) -> str:
    """Return the name of a metric's performance measure."""
    performance = results.settings.metrics[metric]["performance"]
    return str(performance["function"]) if isinstance(performance, dict) else str(performance)


def settings_of(results: Results, metric: str) -> str:
    """Return what the numbers of a metric depend on beside the data: epsilon, and how many levels or steps it has."""
    options, kind = results.settings.metrics[metric], results.kind(metric)
    curves = (method.metrics[metric] for method in results.methods.values() if metric in method.metrics)
    count = next((len(curve.levels) for curve in curves), None)
    if not kind.needs_performance:
        return f"{options['steps'] if count is None else count} steps"
    epsilon, protocol = options.get("epsilon"), options["protocol"]
    name = protocol["name"] if isinstance(protocol, dict) else protocol
    parts = [] if epsilon is None else [f"ε = {epsilon:g}"]
    parts += [] if count is None else [f"{count} {'thresholds' if 'thresholds' in options else 'levels'}"]
    return ", ".join([*parts, *([] if name == "paper" else [f"protocol {name}"])])


def describe_power(results: Results, comparison: Comparison | None) -> str | None:
    """Return from which size on differences between methods can be seen, by each headline metric with intervals."""
    pairs = comparison.pairs if comparison else ()
    sizes = {
        metric: visible_difference(pair.difference for pair in pairs if pair.metric == metric)
        for metric in results.sides
    }
    clauses = [f"{_about(size)} in {name_of(results, metric)}" for metric, size in sizes.items() if size is not None]
    if not clauses:
        return None
    return f"{_count(results.data.samples, 'sample')} are enough to see differences of about {listed(clauses)}."


def _about(size: float) -> str:
    """Return a size with two digits, rounded up.

    Example:
        >>> _about(0.02301), _about(0.4)
        ('0.024', '0.4')
    """
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return f"{math.ceil(size / unit - 1e-9) * unit:.2g}"


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
    """Return which method to use for what, how sure that is, and which methods lack skill.

    docs/concepts/statistics.md has the rules.
    """
    few = next((metric for metric, advice in results.advice.items() if advice.outcome == "few samples"), None)
    if few is not None:
        return [_too_few(results, few)]
    advised = [_advised(results, metric, advice) for metric, advice in results.advice.items()]
    skills = [sentence for metric in results.advice for sentence in _other_skills(results, metric)]
    return [*advised, *skills, *_other_imputers(results), *_missing_baselines(results)]


def split_headlines(results: Results) -> tuple[list[str], list[str]]:
    """Return the headlines in two parts: one sentence per side, and what else to know."""
    sentences, sides = find_headlines(results), len(results.advice)
    return sentences[:sides], sentences[sides:]


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
        number = f"{name_of(results, metric)} {_value(results, best, metric)}, {_skill(results, best, metric)}"
        return f"{start}, use {best}: {number}, {_better_than(results, best, metric)}."
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
    if advice.outcome == "no baseline":
        missing = listed(_wanted_baselines(results))
        top = f"The best value so far is that of {best}: {number}, {_skill(results, best, metric)}"
        return f" yet, because no baseline was measured: add {missing}. {top}"
    if advice.outcome == "no skill":
        return f": in {title}, maps of {listed(advice.methods)} are {_WITHOUT_SKILL}{_OTHERS}"
    if advice.outcome == "baseline":
        baseline = f"the baseline {advice.against} ({_value(results, str(advice.against), metric)})"
        if more:
            return f" yet: with {samples}, {best} ({number}) is not clearly better than {baseline}{more}"
        behind = results.best_value(metric, (best, str(advice.against))) != best
        place = f"is behind {baseline}" if behind else f"is apart from {baseline} by less than {MARGIN}"
        return f": {best}, the best method, has {number} and {place}{_OTHERS}"
    unclear = next(name for name in advice.methods if not results.has_skill(name, metric))
    other = next((name for name in advice.methods if results.has_skill(name, metric)), None)
    than = f", more than {other} ({_value(results, other, metric)})" if other else ""
    undecided = "it is not decided whether its maps are better than maps from other inputs"
    skill = results.skill(unclear, metric)
    if skill is not None and skill.low is not None:
        undecided += f" (skill {skill.value:+z.3f} [{skill.low:z.3f}, {skill.high:z.3f}])"
    return f" yet: {best} has {number}{than}, but with {samples} {undecided}{more}"


def _several(results: Results, metric: str, advice: Advice) -> str:
    """Return the methods that are not clearly apart, with their values and what would decide."""
    values = listed([_value(results, name, metric) for name in advice.methods])
    text = f"{listed(advice.methods, 'or')}: {name_of(results, metric)} {values}, {_better_than_baselines(results)}"
    if len(advice.methods) > 1:
        undecided = f", but not clearly apart with {_count(results.data.samples, 'sample')}{_more(advice.samples)}"
        text += undecided if advice.samples else f", and apart by less than {MARGIN}"
    if advice.against:
        text += f"; {advice.against} is not clearly worse, but its skill is not decided"
    return text


def _better_than(results: Results, best: str, metric: str) -> str:
    """Return what a method is clearly better than."""
    others = [name for name in results.methods if name != best and name not in results.baselines]
    which = " with skill" if any(results.has_skill(name, metric) is False for name in others) else ""
    return _better_than_baselines(results) + (f" and all other methods{which}" if others else "")


def _better_than_baselines(results: Results) -> str:
    return f"clearly better than the baseline{'s' if len(results.baselines) > 1 else ''} {listed(results.baselines)}"


def _skill(results: Results, method: str, metric: str) -> str:
    skill = results.skill(method, metric)
    return "skill not measured" if skill is None or skill.value is None else f"skill {skill.value:+z.3f}"


def _other_skills(results: Results, metric: str) -> list[str]:
    """Return the methods, no baselines, that lack skill by a metric, or whose skill is not decided."""
    title, sentences = name_of(results, metric), []
    mentioned = {*results.advice[metric].methods, results.advice[metric].against}
    methods = [name for name in results.methods if name not in {*results.baselines, *mentioned}]
    none = [name for name in methods if results.has_skill(name, metric) is False]
    if none:
        sentences.append(f"In {title}, maps of {listed(none)} are {_WITHOUT_SKILL}.")
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


def _recommends(results: Results) -> bool:
    return any(advice.outcome in {"clear", "several"} for advice in results.advice.values())


def _other_imputers(results: Results) -> list[str]:
    """Return how to see whether a recommendation depends on the imputer; removed tokens are not imputed."""
    if not _recommends(results) or results.data.tokens:
        return []
    imputer = results.settings.imputer["name"]
    return [
        f"All of this was measured with the imputer {imputer}. Another one can reverse a recommendation: "
        "`twinlens check imputers` compares them."
    ]


def _missing_baselines(results: Results) -> list[str]:
    """Return which baselines a recommendation lacks."""
    wanted = _wanted_baselines(results)
    if not _recommends(results) or len(results.baselines) >= min(2, len(wanted)):
        return []
    missing = listed([name for name in wanted if name not in results.baselines])
    return [
        f"The only baseline is {results.baselines[0]}. Add {missing}: where a baseline does as well, a map says little "
        "about the model."
    ]


def _wanted_baselines(results: Results) -> tuple[str, ...]:
    return ("random", "centre", "sobel") if results.data.has_neighbours else ("random",)


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
    elif methods and len(results.baselines) == len(methods):
        warnings.append("Baseline methods only: add methods that explain the model.")
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


@dataclass(frozen=True, kw_only=True)
class WarningGroup:
    """Warnings of one kind."""

    line: str
    """What they are about, with the methods: "Tied values: occlusion, rise"."""
    summary: str
    """The same with the first warning in full."""
    texts: tuple[str, ...]
    """All warnings in full; those about methods start with their names."""


_ALIKE = {"resolved levels": "tied values", "one sample": "noisy decisions"}
"""Diagnostics that say the same as another one in other words."""
_TITLES = {"noisy decisions": "few samples for ε", "base performance": "low performance with nothing removed"}
"""Kinds of diagnostics whose names say too little."""
_INCOMPLETE = " is incomplete: "
_NAMED = 3  # methods that a line names; more are counted


def group_warnings(results: Results, notes: Sequence[str] = ()) -> list[WarningGroup]:
    """Group the notes and warnings of a run by kind, for the page and the terminal.

    Of diagnostics that are alike, such as "tied values" and "resolved levels", each method keeps the first.
    """
    kinds = {f"{name}: {d.message}": d.kind for name, m in results.methods.items() for d in m.diagnostics if d.message}
    by_length = sorted(results.methods, key=len, reverse=True)  # a name may begin with another one
    groups: dict[tuple[str, bool], dict[str, str]] = {}
    for warning in (*notes, *results.warnings):
        method = next((name for name in by_length if warning.startswith(f"{name}: ")), None)
        named, body = ("", warning) if method is None else (method, warning.removeprefix(f"{method}: "))
        if warning in kinds:
            kind = _ALIKE.get(kinds[warning], kinds[warning]), True
        elif method is None and _INCOMPLETE in warning:
            (named, _, body), kind = warning.partition(_INCOMPLETE), ("incomplete", True)
        else:
            kind = re.sub(r"[0-9]+", "0", body) if named else body, False
        groups.setdefault(kind, {}).setdefault(named, body)
    return [
        _named_group(kind, bodies, results.methods) if named else _group_alike(bodies)
        for (kind, named), bodies in groups.items()
    ]


def _named_group(kind: str, bodies: Mapping[str, str], methods: Collection[str]) -> WarningGroup:
    """Return a group whose kind has a name; `bodies` are texts by method."""
    title, names = _TITLES.get(kind, kind), list(bodies)
    some = ", ".join(names)
    if len(names) > _NAMED:
        whole = f" of {len(methods)}" if bodies.keys() < {*methods} else ""
        some = f"{'all ' if bodies.keys() == {*methods} else ''}{len(names)}{whole} methods"
    line, texts = f"{title[:1].upper()}{title[1:]}: {some}", _with_names(bodies)
    return WarningGroup(
        line=line, summary=f"{line}. {bodies[names[0]]}{_similar(texts, 'see results.json')}", texts=texts
    )


def _group_alike(bodies: Mapping[str, str]) -> WarningGroup:
    """Return a group of texts that differ in their numbers only; its line is the start of the first one."""
    texts = _with_names(bodies)
    start = len(texts[0]) - len(next(iter(bodies.values())))  # not at the colon after the method's name
    end = re.search(r"[.:;]\s|, (of which|although)", texts[0][start:])
    line = texts[0] if end is None else texts[0][: start + end.start()]
    return WarningGroup(
        line=line + _similar(texts), summary=texts[0] + _similar(texts, "see results.json"), texts=texts
    )


def _with_names(bodies: Mapping[str, str]) -> tuple[str, ...]:
    """Return each text once, after the methods that it is about."""
    names: dict[str, list[str]] = {}
    for name, body in bodies.items():
        names.setdefault(body, []).append(name)
    return tuple(f"{', '.join(own)}: {body}" if own[0] else body for body, own in names.items())


def _similar(texts: Sequence[str], where: str = "") -> str:
    if len(texts) == 1:
        return ""
    return f" ({len(texts) - 1} similar, {where})" if where else f" (and {len(texts) - 1} similar)"
