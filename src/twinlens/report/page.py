"""One self-contained page: markup, styles, scripts, charts and data in a single file that asks the network for nothing.

What a run calls its classes, files and models is not trusted. It goes into the page as data, and from there into the
document as text; a Content-Security-Policy with the hashes of our own scripts lets nothing else run.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from twinlens.files import as_path, written_whole
from twinlens.report.content import describe_runs
from twinlens.report.explorer import describe_exhibits
from twinlens.report.looks import method_looks
from twinlens.report.tables import html_of
from twinlens.results import Evaluation

_SCRIPTS = ("assets/echarts.min.js", "elements.js", "charts.js", "explorer.js", "page.js")
_ESCAPED = "<>&\u2028\u2029"
_PICTURES = 5_500_000  # bytes of pictures in a page, which keeps it below 8 MB with everything else


def write_report(evaluations: Sequence[Evaluation], path: str | os.PathLike[str]) -> Path:
    """Writes the report of one run, or of several side by side, as one HTML file that needs nothing else.

    Args:
        evaluations: the results of each run, at least one.
        path: the file.

    Returns:
        The file.

    Example:
        >>> write_report([], "report.html")
        Traceback (most recent call last):
            ...
        ValueError: `evaluations` must hold at least one run; got none.
    """
    if not evaluations:
        raise ValueError("`evaluations` must hold at least one run; got none.")
    runs = describe_runs(evaluations)
    for run, evaluation in zip(runs, evaluations, strict=True):
        run["explorer"] = describe_exhibits(evaluation, budget=_PICTURES // len(evaluations))
    names = dict.fromkeys(f"{run['model']} on {run['data']}" for run in runs)
    looks = {name: dataclasses.asdict(look) for name, look in method_looks(evaluations).items()}
    content = {"title": "; ".join(names), "version": version("twinlens"), "looks": looks, "runs": runs}
    target = as_path(path)
    with written_whole(target) as unfinished:
        unfinished.write_text(build_page(content, "".join(map(html_of, evaluations))), encoding="utf-8")
    return target


def build_page(content: Mapping[str, Any], fallback: str = "") -> str:
    """Builds the page around what it shows.

    Args:
        content: what the page shows; see `describe_runs`.
        fallback: markup for readers without scripts.
    """
    style = read_part("style.css")
    scripts = [read_part(name) for name in _SCRIPTS]
    parts = {
        "@POLICY@": content_policy(style, scripts),
        "@VERSION@": html.escape(content["version"]),
        "@TITLE@": html.escape(f"twinlens: {content['title']}"),
        "@STYLE@": style,
        "@FALLBACK@": fallback,
        "@CONTENT@": embed_json(content),
        "@SCRIPTS@": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # Split first and join after, so that a name that looks like one of our marks stays a name.
    page = read_part("page.html")
    for mark in parts:
        page = page.replace(mark, f"\0{mark}\0")
    return "".join(parts.get(piece, piece) for piece in page.split("\0"))


def embed_json(content: Any) -> str:
    r"""Gives JSON that can stand inside a script element whatever text it holds.

    Example:
        >>> print(embed_json({"name": "</script>"}))
        {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in _ESCAPED:
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def content_policy(style: str, scripts: Sequence[str]) -> str:
    """Gives the policy that lets exactly this style and these scripts run, and nothing be fetched."""
    hashes = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def read_part(name: str) -> str:
    """Reads a file that the page is made of."""
    return resources.files("twinlens.report").joinpath(name).read_text(encoding="utf-8")
