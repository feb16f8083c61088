"""One self-contained page about experiments: every figure next to what the paper claims about it.

What comes from options, files and errors is not trusted: all text is escaped, and a Content-Security-Policy lets no
script run and nothing be fetched.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from twinlens.report.page import content_policy, read_part
from twinlens.reproduction.experiment_storage import StoredExperiment
from twinlens.reproduction.outcome import Claim, ExperimentOptions, Verdict, count_verdicts
from twinlens.support.fields import fields_of
from twinlens.support.files import written_whole
from twinlens.support.versions import installed_versions

_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("yes", "✓ holds"),
    "does not hold": ("no", "✗ does not"),
    "open": ("open", "? open"),
    "by construction": ("open", "= by construction"),
}
_LARGEST_DRAWING = 600_000  # bytes of an SVG that the page takes; of larger ones it takes the PNG
_NOTHING: Mapping[str, Exception] = {}


def write_page(
    experiments: Sequence[StoredExperiment],
    path: str | os.PathLike[str],
    *,
    failures: Mapping[str, Exception] = _NOTHING,
) -> Path:
    """Write one HTML file about experiments that needs nothing else.

    Args:
        experiments: those that have ended.
        path: the file.
        failures: why others failed, by name.

    Returns:
        The file.
    """
    target = Path(path)
    with written_whole(target) as unfinished:
        unfinished.write_text(build_page(experiments, failures), encoding="utf-8")
    return target


def build_page(experiments: Sequence[StoredExperiment], failures: Mapping[str, Exception] = _NOTHING) -> str:
    """Build the page as HTML."""
    own = resources.files("twinlens.reproduction").joinpath("experiment_page.css").read_text(encoding="utf-8")
    style = read_part("style.css") + own
    heading = experiments[0].title if len(experiments) == 1 and not failures else "The paper's experiments, reproduced"
    body = [
        '<header><p class="brand">twinlens</p>',
        f"<h1>{escape(heading)}</h1>",
        '<p class="lead">A Dual-Perspective Approach to Evaluating Feature Attribution Methods (Li et al., TMLR 2024): '
        "what the paper claims, and what was measured here. A claim holds where the 95% interval of its margin lies "
        "above zero, does not hold where it lies below, and is open otherwise.</p></header>",
        _failures(failures),
        _overview(experiments) if len(experiments) > 1 else "",
        *map(_section, experiments),
        f"<footer>twinlens {escape(installed_versions()['twinlens'])}</footer>",
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{content_policy(style, [])}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(f"twinlens: {heading}")}</title>
<style>{style}</style>
</head>
<body>
<div id="page">
{chr(10).join(filter(None, body))}
</div>
</body>
</html>
"""


def _failures(failures: Mapping[str, Exception]) -> str:
    if not failures:
        return ""
    lines = [
        f"<li>{escape(name)}: {escape(str(error) or type(error).__name__)}</li>" for name, error in failures.items()
    ]
    return f'<div class="warnings"><h3>Not done</h3><ul>{"".join(lines)}</ul></div>'


def _overview(experiments: Sequence[StoredExperiment]) -> str:
    rows = [
        f'<tr><th scope="row"><a href="#{escape(one.name)}">{escape(one.name)}</a></th>'
        f'<td class="shows">{escape(one.title)}</td><td class="source">{escape(one.source)}</td>'
        f"<td>{_counts(one.claims, ours=False)}</td><td>{_counts(one.claims, ours=True)}</td>"
        f'<td class="number">{_seconds(one)}</td></tr>'
        for one in experiments
    ]
    return (
        '<div class="scroll"><table class="overview"><thead><tr><th>experiment</th><th class="shows">what it asks</th>'
        '<th class="source">in the paper</th><th>the paper\'s claims</th><th>our own</th>'
        f'<th class="number">time</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _counts(claims: Sequence[Claim], *, ours: bool) -> str:
    return count_verdicts(claim for claim in claims if claim.ours is ours)


def _seconds(experiment: StoredExperiment) -> str:
    return "–" if experiment.seconds is None else f"{experiment.seconds:z.0f}\u202fs"


def _section(experiment: StoredExperiment) -> str:
    pictures = "".join(_picture(experiment, name) for name in experiment.figures)
    claims = "".join(
        f'<h3>{heading}: {_counts(experiment.claims, ours=ours)}</h3><ul class="claims">{listed}</ul>'
        for heading, ours in (("The paper's claims", False), ("Our own", True))
        if (listed := "".join(_claim(claim) for claim in experiment.claims if claim.ours is ours))
    )
    return (
        f'<section class="experiment" id="{escape(experiment.name)}"><h2>{escape(experiment.title)}'
        f"<small>{escape(experiment.source)}</small></h2>"
        f'<p class="quiet"><code>{escape(command(experiment))}</code>, {_seconds(experiment)}</p>{_smoke(experiment)}'
        f'<div class="columns"><div>{claims}</div><div class="figures">{pictures}</div></div></section>'
    )


def _smoke(experiment: StoredExperiment) -> str:
    if not experiment.smoke:
        return ""
    return f'<p class="quiet">A smoke run: {escape(experiment.smoke)}. What it cannot decide is open.</p>'


def command(experiment: StoredExperiment) -> str:
    """Return the command that does the experiment again."""
    words = ["twinlens", "reproduce", experiment.name]
    for option in fields_of(ExperimentOptions):
        stored = experiment.options.get(option.name)
        value = tuple(map(str, stored)) if isinstance(stored, list) else stored  # as JSON holds what was a tuple
        if option.name == "out" or value == option.default:
            continue
        flag = f"--{option.name.replace('_', '-')}"
        words += [flag] if value is True else [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def _claim(claim: Claim) -> str:
    kind, word = _VERDICTS[claim.verdict]
    lines = [f"Measured: {claim.measured}."]
    if claim.margin:
        lines.append(f"Margin: {claim.margin} over {claim.over}.")
    if claim.reason:
        lines.append(f"{word.partition(' ')[2].capitalize()}: {claim.reason}.")
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<li><span class="verdict {kind}">{word}</span><div><p>{escape(claim.text)}</p>{said}'
        f'<p class="quiet">{escape(claim.source)}</p></div></li>'
    )


def _picture(experiment: StoredExperiment, name: str) -> str:
    drawing = experiment.path / "figures" / f"{name}.svg"
    small = drawing.stat().st_size <= _LARGEST_DRAWING
    file, kind = (drawing, "svg+xml") if small else (drawing.with_suffix(".png"), "png")
    data = base64.b64encode(file.read_bytes()).decode()
    label = escape(f"{experiment.name}: {name}")
    return f'<figure><img src="data:image/{kind};base64,{data}" alt="{label}"></figure>'
