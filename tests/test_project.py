"""Around the code: citation, changelog, hooks, workflows and the forms of issues."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from tests.distribution import ROOT
from tests.hygiene import faults

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.M))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def test_the_citation_has_what_its_format_requires():
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license", "repository-code", "version"} <= set(CITATION)
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["title"].startswith(PROJECT["name"])
    assert CITATION["repository-code"] == PROJECT["urls"]["Source"]
    assert [author["name"] for author in CITATION["authors"]] == [PROJECT["authors"][0]["name"]]


def test_the_paper_is_cited():
    [paper] = CITATION["references"]
    assert paper["type"] == "article"
    assert paper["title"] == "A Dual-Perspective Approach to Evaluating Feature Attribution Methods"
    assert (paper["journal"], paper["year"]) == ("Transactions on Machine Learning Research", 2024)
    assert paper["url"] == PROJECT["urls"]["Paper"]
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert names == ["Yawei Li", "Yang Zhang", "Kenji Kawaguchi", "Ashkan Khakzar", "Bernd Bischl", "Mina Rezaei"]


def test_the_changelog_begins_with_what_is_not_released():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading), heading
    parts = set(re.findall(r"^### (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def steps(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_the_commands_of_the_makefile(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}  # jobs that need more say so themselves
    targets = [
        match for step in steps(path) for match in re.findall(r"^make ([a-z]+)", step.get("run", ""), flags=re.M)
    ]
    assert targets
    assert set(targets) <= TARGETS
    assert not [step for step in steps(path) if re.search(r"pytest|ruff|mypy|mkdocs|-m build", step.get("run", ""))]


def test_the_tests_run_with_every_python_that_the_metadata_names():
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    versions = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert set(matrix["python"]) == versions == {"3.11", "3.12", "3.13"}


def test_hooks_are_the_checks_of_the_makefile():
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}  # nothing is downloaded
    hooked = " ".join(hook["entry"] for hook in repository["hooks"])
    recipe = MAKEFILE.partition("\ncheck:")[2].partition("\n\n")[0]
    checks = re.findall(r"\$\(BIN\)/((?:ruff \w+)|mypy|(?:python -m [\w.]+))", recipe)
    assert len(checks) == 4
    for check in checks:
        assert check in hooked.replace('"', ""), check


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_of_issues_can_be_filled_in(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "labels", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_bugs_are_reported_with_their_environment():
    for name in ("bug", "wrong_number"):
        assert "twinlens --version" in (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text()


BAD = {
    "a.py": ("x = 1 \n", "white space"),
    "b.py": ("x = 1", "one newline"),
    "c.md": ("a\n<<<<<<< HEAD\nb\n", "marks of a merge"),
    "d.yml": ("a: [1\n", "cannot be read"),
    "e.toml": ("a =\n", "cannot be read"),
    "f.txt": ("a\r\n", "carriage returns"),
}


@pytest.mark.parametrize("name", BAD)
def test_hygiene_finds_what_is_wrong(name, tmp_path):
    text, fault = BAD[name]
    (tmp_path / name).write_bytes(text.encode())
    assert fault in " ".join(faults(tmp_path / name))
    done = subprocess.run(
        [sys.executable, "-m", "tests.hygiene", str(tmp_path / name)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert fault in done.stdout
