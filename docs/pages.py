"""Write the pages of the site to build/pages as plain Markdown, which any builder of sites reads.

These are the files of docs, those at the top of the repository, and the tutorials with what their cells printed and
drew. Links between them lead to the pages. `make docs` runs this before it builds the site.
"""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from posixpath import dirname, normpath, relpath

import nbformat

ROOT = Path(__file__).resolve().parents[1]
DOCS, PAGES = ROOT / "docs", ROOT / "build" / "pages"
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Files at the top of the repository, and their pages."""


def write_pages(out: Path = PAGES) -> None:
    """Write all pages, pictures and other files; those of an earlier call are replaced."""
    shutil.rmtree(out, ignore_errors=True)
    for name, page in TOP.items():
        _write(out / page, relink((ROOT / name).read_text(encoding="utf-8"), name, page))
    for source in sorted(path for path in DOCS.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")):
        page = source.relative_to(DOCS).as_posix()
        if source.suffix == ".ipynb":
            _write_tutorial(source, out, page.removesuffix(".ipynb") + ".md")
        elif source.suffix == ".md":
            _write(out / page, _unescape_bars(relink(source.read_text(encoding="utf-8"), f"docs/{page}", page)))
        if source.suffix != ".md":
            (out / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / page)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def relink(text: str, source: str, page: str) -> str:
    """Rewrite relative links of a file in the repository for its page in the site; other links are kept.

    Example:
        >>> relink("[a](docs/guide/start.md#next), [b](CHANGELOG.md)", "SECURITY.md", "security.md")
        '[a](guide/start.md#next), [b](changelog.md)'
        >>> relink("[c](../../SECURITY.md), [d](../tutorials/text.ipynb)", "docs/guide/start.md", "guide/start.md")
        '[c](../security.md), [d](../tutorials/text.md)'
    """

    def rewrite(link: re.Match[str]) -> str:
        target = normpath(f"{dirname(source)}/{link[1]}" if dirname(source) else link[1])
        within = TOP.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if within is None:
            return link[0]
        within = re.sub(r"\.ipynb$", ".md", within)
        return f"]({relpath(within, dirname(page) or '.')}{link[2] or ''})"

    return re.sub(r"\]\((?![a-z]+:|#|/)([^)#\s]+)(#[^)\s]*)?\)", rewrite, text)


def _unescape_bars(text: str) -> str:
    r"""Unescape bars of code in tables: GitHub requires `\|` and hides the backslash; Python-Markdown shows it."""
    return re.sub(
        r"(?m)^\|.*\|$", lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]), text
    )


def _write_tutorial(source: Path, out: Path, page: str) -> None:
    """Write a notebook as Markdown, and its pictures beside it."""
    pictures: list[bytes] = []
    parts = []
    for cell in nbformat.read(source, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(relink(cell.source, f"docs/tutorials/{source.name}", page))
            continue
        parts.append(_fenced(cell.source, "python"))
        for output in cell.outputs:
            parts.append(_shown(output, pictures, source.stem))
    parts.append(f"[This page as a notebook]({source.name}){{ download }}")
    _write(out / page, "\n\n".join(parts) + "\n")
    for number, picture in enumerate(pictures, start=1):
        (out / page).with_name(f"{source.stem}-{number}.png").write_bytes(picture)


def _shown(output: nbformat.NotebookNode, pictures: list[bytes], name: str) -> str:
    """Return what a cell printed, drew or returned as Markdown; a picture is added to the list."""
    data = {"text/plain": output.text} if output.output_type == "stream" else output.data
    if "image/png" in data:
        pictures.append(base64.b64decode(data["image/png"]))
        return f"![Output of the code above]({name}-{len(pictures)}.png)"
    if "text/html" in data:
        # A blank line would end the HTML; the site has its own style of tables.
        shown = re.sub(
            r"<style.*?</style>| (?:border=\"1\"|class=\"dataframe\")", "", data["text/html"], flags=re.DOTALL
        )
        return "<div>\n" + "\n".join(line for line in shown.splitlines() if line.strip()) + "\n</div>"
    return _fenced(data["text/plain"].rstrip("\n"), "text")


def _fenced(text: str, language: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


if __name__ == "__main__":
    write_pages()
