"""Hooks of the site (mkdocs.yml): pages of files at the top of the repository, and links between them and docs."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files at the top of the repository, and their pages."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of docs."""
    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relink(text, name, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files at the top of the repository lead to their pages, and code in tables have its bars.

    GitHub wants bars escaped within code in a table, and shows them as they are; Python-Markdown shows the backslash.
    """
    own = page.file.src_uri
    text = markdown if own in TOP.values() else relink(markdown, f"docs/{own}", own)
    return re.sub(
        r"(?m)^\|.*\|$", lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]), text
    )


def on_post_page(output: str, **_: Any) -> str:
    """Leave out what mkdocs-jupyter would fetch for a notebook with diagrams, of which there is none."""
    return re.sub(r'<script type="module">(?:(?!</script>).)*?//cdnjs\..*?</script>', "", output, flags=re.DOTALL)


def relink(text: str, source: str, page: str) -> str:
    """Rewrite relative links of a file in the repository for its page in the site; what is in neither stays.

    Example:
        >>> relink("[a](docs/guide/start.md#next), [b](CHANGELOG.md)", "SECURITY.md", "security.md")
        '[a](guide/start.md#next), [b](changelog.md)'
        >>> relink("[what is trusted](../../SECURITY.md)", "docs/guide/start.md", "guide/start.md")
        '[what is trusted](../security.md)'
    """

    def rewrite(link: re.Match[str]) -> str:
        target = normpath(f"{dirname(source)}/{link[1]}" if dirname(source) else link[1])
        within = TOP.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        return link[0] if within is None else f"]({relpath(within, dirname(page) or '.')}{link[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)", rewrite, text)
