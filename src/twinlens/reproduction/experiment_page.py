"""One self-contained page about experiments: every figure next to the paper's claims about it.

Text from options, files and errors is not trusted: it is escaped, and a Content-Security-Policy blocks scripts and
requests.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

from twinlens.report.page import content_policy, read_part
from twinlens.reproduction.claims import Claim, Verdict, count_verdicts, group_statements, statement_verdict
from twinlens.reproduction.experiment_storage import StoredExperiment, command
from twinlens.support.versions import installed_versions

_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("yes", "✓ holds"),
    "does not hold": ("no", "✗ does not"),
    "depends on the reading": ("open", "~ depends on the reading"),
    "open": ("open", "? open"),
    "by construction": ("open", "= by construction"),
}
_NOTHING: Mapping[str, Exception] = {}


def build_page(experiments: Sequence[StoredExperiment], failures: Mapping[str, Exception] = _NOTHING) -> str:
    """Return a page about complete experiments, and why others failed, as HTML."""
    files = resources.files("twinlens.reproduction")
    markup, own = ((files / f"experiment_page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css"))
    style = read_part("style.css") + own
    heading = experiments[0].title if len(experiments) == 1 and not failures else "The paper's experiments, reproduced"
    overview = _overview(experiments) if len(experiments) > 1 else ""
    return Template(markup).substitute(
        policy=content_policy(style, []),
        style=style,
        heading=escape(heading),
        body="\n".join(filter(None, [_failures(failures), overview, *map(_section, experiments)])),
        version=escape(installed_versions()["twinlens"]),
    )


def _failures(failures: Mapping[str, Exception]) -> str:
    if not failures:
        return ""
    lines = [
        f"<li>{escape(name)}: {escape(str(error) or type(error).__name__)}</li>" for name, error in failures.items()
    ]
    return f'<div class="warnings"><h3>Failed</h3><ul>{"".join(lines)}</ul></div>'


def _overview(experiments: Sequence[StoredExperiment]) -> str:
    rows = [
        f'<tr><th scope="row"><a href="#{escape(one.name)}">{escape(one.name)}</a></th>'
        f'<td class="shows">{escape(one.title)}</td><td class="source">{escape(one.source)}</td>'
        f"<td>{count_verdicts(one.claims, ours=False)}</td><td>{count_verdicts(one.claims, ours=True)}</td>"
        f'<td class="number">{one.seconds:z.0f}\u202fs</td></tr>'
        for one in experiments
    ]
    return (
        '<div class="scroll"><table class="overview"><thead><tr><th>experiment</th><th class="shows">question</th>'
        '<th class="source">in the paper</th><th>the paper\'s statements</th><th>our own</th>'
        f'<th class="number">time</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _section(experiment: StoredExperiment) -> str:
    figures = "".join(_figure(experiment, name) for name in experiment.figures)
    claims = "".join(
        f'<h3>{heading}: {count_verdicts(experiment.claims, ours=ours)}</h3><ul class="claims">{items}</ul>'
        for heading, ours in (("The paper's statements", False), ("Our own", True))
        if (items := "".join(map(_statement, group_statements(experiment.claims, ours=ours).values())))
    )
    words = command(experiment.name, experiment.options)
    smoke = f"A smoke run: {escape(experiment.smoke)}. Claims it cannot decide are open."
    return (
        f'<section class="experiment" id="{escape(experiment.name)}"><h2>{escape(experiment.title)}'
        f"<small>{escape(experiment.source)}</small></h2>"
        f'<p class="quiet"><code>{escape(words)}</code>, {experiment.seconds:z.0f}\u202fs</p>'
        + (f'<p class="quiet">{smoke}</p>' if experiment.smoke else "")
        + f'<div class="columns"><div>{claims}</div><div class="figures">{figures}</div></div></section>'
    )


def _statement(readings: Sequence[Claim]) -> str:
    """Return a statement with its verdict, and the readings by which it was judged."""
    first = readings[0]
    words = first.words if len(readings) == 1 else first.text
    text, source = f"<p>{escape(words)}</p>", f'<p class="quiet">{escape(first.source)}</p>'
    if len(readings) == 1:
        return f"<li>{_verdict(first.verdict)}<div>{text}{_measured(first)}{source}</div></li>"
    rows = "".join(
        f"<li>{_verdict(claim.verdict)}<div><p>{escape(claim.reading)}</p>{_measured(claim)}</div></li>"
        for claim in readings
    )
    own = f'<ul class="claims">{rows}</ul>'
    return f"<li>{_verdict(statement_verdict(readings))}<div>{text}{source}{own}</div></li>"


def _verdict(verdict: Verdict) -> str:
    kind, word = _VERDICTS[verdict]
    return f'<span class="verdict {kind}">{word}</span>'


def _measured(claim: Claim) -> str:
    lines = [f"Measured: {claim.measured}."]
    if claim.margin:
        lines.append(f"Margin: {claim.margin} over {claim.over}.")
    if claim.reason:
        lines.append(f"{_VERDICTS[claim.verdict][1].partition(' ')[2].capitalize()}: {claim.reason}.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _figure(experiment: StoredExperiment, name: str) -> str:
    data = base64.b64encode((experiment.path / "figures" / f"{name}.svg").read_bytes()).decode()
    label = escape(f"{experiment.name}: {name}")
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{label}"></figure>'
