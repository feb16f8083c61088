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
    """Add the pages whose files are outside docs."""
    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relink(text, name, page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to files at the top of the repository to their pages, and unescape bars of code in tables.

    GitHub requires escaped bars in code in a table, and hides the backslash; Python-Markdown shows it.
    """
    own = page.file.src_uri
    text = markdown if own in TOP.values() else relink(markdown, f"docs/{own}", own)
    return re.sub(
        r"(?m)^\|.*\|$", lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]), text
    )


def on_post_page(output: str, **_: Any) -> str:
    """Remove the script that mkdocs-jupyter would download for notebooks with diagrams."""
    return re.sub(r'<script type="module">(?:(?!</script>).)*?//cdnjs\..*?</script>', "", output, flags=re.DOTALL)


def relink(text: str, source: str, page: str) -> str:
    """Rewrite relative links of a file in the repository for its page in the site; other links are kept.

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
