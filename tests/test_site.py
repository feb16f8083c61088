"""The documentation site: it builds without a warning, downloads nothing, and its reference is complete."""

import doctest
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.slow
def test_the_site_builds_fetches_nothing_and_lists_every_option(tmp_path):
    """One test, because building takes long. A warning, such as a dead link or a missing anchor, is an error."""
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            str(tmp_path),
        ],  # --quiet counts no warnings
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-4000:]
    assert "WARNING" not in built.stdout + built.stderr
    pages = {str(page.relative_to(tmp_path)): page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > 50
    assert {name: links for name, page in pages.items() if (links := FETCHED.findall(page))} == {}
    assert (tmp_path / "search" / "search_index.js").exists()  # by which search works from a folder
    check_options(pages["reference/api/evaluation.html"], "twinlens.evaluate", tl.evaluate)
    check_options(pages["reference/api/measure.html"], "twinlens.soundness", tl.soundness)
    for name, method in tl.METHODS.items():
        check_options(pages["reference/api/attribution.html"], f"{method.__module__}.{name}", method)
    for name in COMMANDS:
        assert f'<h2 id="twinlens-{name}">' in pages["reference/commands.html"]


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
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert doctest.testmod(hooks) == doctest.TestResults(failed=0, attempted=2)
    kept = "[a](https://example.org/docs/x.md), [b](#here), [c](src/x.py)"
    assert hooks.relink(kept, "SECURITY.md", "security.md") == kept


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_repository_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []
