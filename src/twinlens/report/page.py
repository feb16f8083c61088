"""The report page: markup, styles, scripts and data in a single HTML file that makes no network requests.

Names of classes, files and models are not trusted. They enter the page as data and the document as text, and a
Content-Security-Policy with the hashes of our own scripts blocks all others.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from twinlens.errors import RunError
from twinlens.report.explorer import describe_samples
from twinlens.report.results_table import DIRECTIONS
from twinlens.report.run_summary import describe_comparison, describe_run
from twinlens.report.styles import method_styles, row_styles
from twinlens.report.table_formats import differences_html, notebook_html
from twinlens.run.stored_run import StoredRun, run_labels
from twinlens.run.wording import describe_power, group_warnings
from twinlens.statistics.contrasts import RunComparison
from twinlens.support.arguments import checked
from twinlens.support.fields import JSON, to_json
from twinlens.support.files import as_path, written_whole

_SCRIPTS = (
    "assets/echarts.min.js",
    "elements.js",
    "downloads.js",
    "charts.js",
    "tradeoff.js",
    "tables.js",
    "text_view.js",
    "table_view.js",
    "signal_view.js",
    "picture_view.js",
    "explorer.js",
    "page.js",
)
_NO_SAMPLES = "Samples are shown with the run's own results, and on a page of the query: twinlens report --results."
_ESCAPED = "<>&\u2028\u2029"
_SAMPLES = 5_500_000  # bytes of samples in a page, which keeps the page below 8 MB
_QUERIES = 1_000_000  # bytes of queries


@checked
def write_report(
    evaluations: Sequence[StoredRun], path: str | os.PathLike[str], *, comparison: RunComparison | None = None
) -> Path:
    """Write the report of one run, or of several side by side, as a self-contained HTML file.

    Args:
        evaluations: the results of each run, at least one.
        path: the output file.
        comparison: for several runs, their differences: `twinlens.compare(evaluations)`.

    Returns:
        The path of the file.

    Example:
        >>> write_report([], "report.html")
        Traceback (most recent call last):
            ...
        ValueError: `evaluations` must hold at least one run; got none.
    """
    if not evaluations:
        raise ValueError("`evaluations` must hold at least one run; got none.")
    runs = [
        describe_run(evaluation, label)
        | {"explorer": describe_samples(evaluation, budget=_SAMPLES // len(evaluations))}
        for evaluation, label in zip(evaluations, run_labels(evaluations), strict=True)
    ]
    queries = _open_queries(evaluations[0]) if len(evaluations) == 1 else []
    runs[0]["queries"] = _describe_queries(queries, runs[0])
    title = "; ".join(dict.fromkeys(f"{run['model']} on {run['data']}" for run in runs))
    fallback = "".join(notebook_html(run) + _remarks_html(run) for run in evaluations)
    between = None
    if comparison is not None:
        between = describe_comparison(comparison, evaluations)
        fallback += differences_html(comparison, evaluations)
    styles = row_styles(evaluations) | method_styles([*evaluations, *queries])
    page = build_page(title, to_json(styles), runs, fallback, between)
    target = as_path(path)
    with written_whole(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def _open_queries(evaluation: StoredRun) -> list[StoredRun]:
    """Open the queries between which and the run's own results the page switches."""
    queries = []
    for name in evaluation.queries() if evaluation.query is None else ():
        try:
            query = evaluation.open_query(name)
            query.comparison()
            queries.append(query)
        except RunError as error:
            warnings.warn(f"The query {name} is left out of the page: {error}", stacklevel=3)
    return queries


def _describe_queries(queries: Sequence[StoredRun], run: Mapping[str, JSON]) -> list[JSON]:
    """Return what differs from the content about the run, of as many queries as have room; of others the name."""
    described, room = list[JSON](), _QUERIES
    for query in queries:
        content = describe_run(query, str(query.query)) | {"explorer": {"note": _NO_SAMPLES, "samples": []}}
        own: dict[str, JSON] = {key: value for key, value in content.items() if key == "name" or value != run[key]}
        room -= len(json.dumps(own))
        described.append(own if room >= 0 else {"name": query.query})
    return described


def _remarks_html(evaluation: StoredRun) -> str:
    """Format how sure the numbers are, and the warnings, for browsers without scripts."""
    results = evaluation.results
    texts = [describe_power(results, evaluation.comparison())]
    texts += [text for group in group_warnings(results) for text in group.texts]
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts if text)


def build_page(
    title: str,
    styles: dict[str, JSON],
    runs: Sequence[dict[str, JSON]],
    fallback: str = "",
    between: dict[str, JSON] | None = None,
) -> str:
    """Build the page from its content; `fallback` is markup for browsers without scripts."""
    own = version("twinlens")
    content: dict[str, JSON] = {
        "title": title,
        "version": own,
        "styles": styles,
        "directions": to_json(DIRECTIONS),
        "runs": [*runs],
        "between": between,
    }
    return assemble_page(title, content, read_part("style.css"), [read_part(name) for name in _SCRIPTS], fallback)


def assemble_page(title: str, content: JSON, style: str, scripts: Sequence[str], fallback: str) -> str:
    """Put content, style and scripts into one HTML file; `fallback` is markup for browsers without scripts."""
    parts = {
        "@POLICY@": content_policy(style, scripts),
        "@VERSION@": html.escape(version("twinlens")),
        "@TITLE@": html.escape(f"twinlens: {title}"),
        "@STYLE@": style,
        "@FALLBACK@": fallback,
        "@CONTENT@": embed_json(content),
        "@SCRIPTS@": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # Split before joining: a name that looks like one of our placeholders stays a name.
    page = read_part("page.html")
    for mark in parts:
        page = page.replace(mark, f"\0{mark}\0")
    return "".join(parts.get(piece, piece) for piece in page.split("\0"))


def embed_json(content: JSON) -> str:
    """Write JSON that is safe inside a script element."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in _ESCAPED:
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def content_policy(style: str, scripts: Sequence[str]) -> str:
    """Return the policy that allows exactly this style and these scripts, and no requests."""
    hashes = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def read_part(name: str) -> str:
    """Read a source file of the page."""
    return resources.files("twinlens.report").joinpath(name).read_text(encoding="utf-8")
