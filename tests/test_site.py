"""The documentation site: it builds without a warning, downloads nothing, and its reference is complete."""

import doctest
import html
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import twinlens as tl
from twinlens.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RUN = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "\n>>> " in page.read_text(encoding="utf-8"))
"""Pages with examples that can be run."""


FETCHED = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']+|import\(["']http[^"']+"""
)
LINKS = re.compile(r"""<(?:a|img|script|link)\b[^>]*?\s(?:href|src)=["']?([^"'\s>]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it. Warnings are errors; one build for all tests, because it takes long."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("src", "docs"):
        (folder / name).symlink_to(ROOT / name)
    pages_of_docs().write_pages(folder / "build" / "pages")
    command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    return folder / "site"


def pages_of_docs():
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_site_fetches_nothing_and_lists_every_option(site):
    pages = {str(page.relative_to(site)): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 50
    assert {name: links for name, page in pages.items() if (links := FETCHED.findall(page))} == {}
    assert (site / "search.js").exists()  # by which search works from a folder
    check_options(pages["reference/api/evaluation.html"], "twinlens.evaluate", tl.evaluate)
    check_options(pages["reference/api/measure.html"], "twinlens.soundness", tl.soundness)
    for name, method in tl.METHODS.items():
        check_options(pages["reference/api/attribution.html"], f"{method.__module__}.{name}", method)
    for name in COMMANDS:
        assert f'<h2 id="twinlens-{name}">' in pages["reference/commands.html"]


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_a_file_and_an_anchor(site):
    """The builder checks links in Markdown; this includes those to the reference and in HTML."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    anchors = {page: set(re.findall(r'\sid="?([^"\s>]+)', text)) for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in LINKS.findall(text):
            target, _, anchor = html.unescape(link).partition("#")
            if re.match("[a-z]+:", target):
                continue
            path = Path(os.path.normpath(page.parent / unquote(target))) if target else page
            path = path / "index.html" if path.is_dir() else path
            known = path in anchors and (not anchor or unquote(anchor) in anchors[path] | {"__top", "__skip"})
            if not known and not (path.is_file() and not anchor):
                dead.append((str(page.relative_to(site)), link))
    assert dead == []


def test_tutorials_are_written_as_markdown(tmp_path):
    pages_of_docs().write_pages(tmp_path)
    for notebook in (DOCS / "tutorials").glob("*.ipynb"):
        page = (tmp_path / "tutorials" / f"{notebook.stem}.md").read_text(encoding="utf-8")
        assert (tmp_path / "tutorials" / notebook.name).exists()
        assert page.startswith("# ")
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        assert [cell for cell in cells if cell["cell_type"] == "code" and "".join(cell["source"]) not in page] == []
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page):
            assert (tmp_path / "tutorials" / picture).read_bytes().startswith(b"\x89PNG")


def check_options(page, anchor, function):
    """The entry of a function lists each of its parameters, with its help."""
    own = re.split(rf'<h[23] id="{re.escape(anchor)}"', page)[1]
    section = re.split(r"<h[23] id=", own)[0].partition("Parameters:")[2].partition("</ul>")[0]
    listed = re.findall(r"<b><code>(\w+)</code></b>", section)
    assert sorted(listed) == sorted(inspect.signature(function).parameters), anchor
    assert len(re.findall(r"<p>.", section)) >= len(listed)


def test_every_public_name_is_in_the_reference():
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "api").glob("*.md")]
    listed = [name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, flags=re.MULTILINE)]
    assert len(listed) == len(set(listed))
    rooms = [name for name in tl.__all__ if inspect.ismodule(getattr(tl, name))]
    public = {name for name in tl.__all__ if name not in rooms}
    public |= {f"{room}.{name}" for room in rooms for name in getattr(getattr(tl, room), "__all__", ())}
    public -= {f"report.{name}" for name in tl.report.__all__ if name in tl.__all__}
    assert {f"twinlens.{name}" for name in public} - set(listed) == {"twinlens.laboratory.tasks"}  # a module
    assert {f"{method.__module__}.{name}" for name, method in tl.METHODS.items()} - set(listed) == set()


@pytest.mark.parametrize("page", RUN)
def test_examples_run(page):
    assert doctest.testfile(str(DOCS / page), module_relative=False).failed == 0


def test_links_between_the_repository_and_the_site():
    pages = pages_of_docs()
    assert doctest.testmod(pages) == doctest.TestResults(failed=0, attempted=2)
    kept = "[a](https://example.org/docs/x.md), [b](#here), [c](src/x.py)"
    assert pages.relink(kept, "SECURITY.md", "security.md") == kept


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_repository_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_titled_page_is_in_the_navigation():
    """The navigation hides an index page: it takes the place of its section."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert re.findall(r": (\S+/index\.md)", nav) == []
