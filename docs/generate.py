"""Write the files that are made from the code.

These are the lists of options and commands, the drawing of the layers, the kinds of inputs that methods explain, the
list that shell completion reads, the JSON Schemas, and the table of methods by suite from the stored submissions.
`make docs` runs this; a test fails if a file is out of date.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path

import which_method

from twinlens.attribution import METHODS
from twinlens.attribution.method import accepted_axes, declared
from twinlens.checks.check_catalogue import CHECKS
from twinlens.cli.evaluate import DEMOS
from twinlens.cli.main import COMMANDS, command_parser
from twinlens.cli.suite import ACTIONS
from twinlens.data.sources import DATA_SETS
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import GROUPS, KINDS, METRICS
from twinlens.metrics.performance import MEASURES
from twinlens.models.preprocessing import Preprocessing
from twinlens.options import Options
from twinlens.reproduction import EXPERIMENTS
from twinlens.run.manifest import FORMAT, Manifest
from twinlens.run.results import Results
from twinlens.suites import running, submission
from twinlens.suites.definition import Suite, built_in_suites
from twinlens.suites.leaderboard import board_markdown, board_page, board_tasks
from twinlens.support.fields import fields_of
from twinlens.support.json_schema import json_schema

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "twinlens"
LEADERBOARD = ROOT / "docs" / "leaderboard"
LAYERS = (
    "errors",
    "support",
    "imputation",
    "probing",
    "metrics",
    "statistics",
    "attribution",
    "models",
    "data",
    "integrations",
    "laboratory",
    "options",
    "run",
    "report",
    "outcome",
    "evaluation",
    "checks",
    "reproduction",
    "suites",
    "cli",
)
"""The packages and modules below twinlens, each of which may import only from those before it."""

SCHEMAS: dict[str, tuple[type, str]] = {
    f"results-{FORMAT}": (Results, "results.json of twinlens"),
    f"run-{FORMAT}": (Manifest, "run.json of twinlens"),
    f"suite-{running.FORMAT}": (running.SuiteRecord, "suite.json of twinlens"),
    f"suite-file-{running.FORMAT}": (Suite, "a suite of twinlens, as its TOML file holds it"),
    f"submission-{submission.FORMAT}": (submission.Submission, "submission of twinlens"),
}
"""The class and the title of each published schema, by its name with the version of the layout."""

NAMES = {"methods": METHODS, "metrics": METRICS, "imputers": IMPUTERS}
"""Names that shell completion offers, by kind; plug-ins add to them when it runs."""

WORDS = {
    "methods": ["@methods"],
    "method": ["@methods"],
    "leave_out": ["@methods"],
    "metrics": ["@metrics", *GROUPS],
    "columns": ["@metrics", "headline", "all"],
    "methods name": ["@methods", "@metrics", "@imputers"],
    "metrics name": ["@metrics"],
    "performance": MEASURES,
    "data": DATA_SETS,
    "demo which": DEMOS,
    "check name": CHECKS,
    "reproduce name": (*EXPERIMENTS, "all"),
    "suite action": ACTIONS,
    "suite names": built_in_suites(),
}
"""What an argument takes and its parser does not list, by the argument's name, or by command and name."""

LISTS = ("methods", "metrics", "leave_out", "columns")
FILES = (
    *("config", "out", "figures", "false_features", "weights", "classes", "model", "data", "boxes", "train", "sheet"),
    "names",
)
DIRECTORIES = ("run", "runs")


def modules() -> dict[str, Path]:
    """Return every module by its name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(("twinlens", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in paths}


def layer_of(module: str) -> str:
    """Return the layer of a module: the package or module right below twinlens."""
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each import from twinlens, at the top of a module or inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in types_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "twinlens":
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "twinlens":
                    yield node.lineno, alias.name


def draw_layers() -> str:
    """Draw the layers: what each is for, and which others it imports from."""
    uses: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    purposes: dict[str, str] = {}
    for module, path in modules().items():
        layer = layer_of(module)
        if layer not in uses:
            continue
        uses[layer] |= {layer_of(name) for _, name in imports_of(path)} & set(LAYERS)
        if path.parent == PACKAGE or (path.name == "__init__.py" and path.parent.parent == PACKAGE):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            purposes[layer] = text.splitlines()[0].rstrip(".")
    layers = [layer for layer in LAYERS if layer in purposes]
    width = max(map(len, layers))
    lines = []
    for position, layer in enumerate(layers):
        marks = "".join("●" if other in uses[layer] else "·" for other in layers[:position])
        lines.append(f"{layer:<{width}}  {marks + '╲':<{len(layers)}}  {purposes[layer]}")
    return "\n".join(lines)


def list_options() -> str:
    """Return docs/reference/options.md: the options of a run and of every metric."""
    parts = [
        "# Options",
        "An option has one name: the argument of `tl.evaluate`, the key in run.toml, and the flag (with hyphens).\n"
        "`make docs` writes this page from the declarations.",
    ]
    groups: dict[type, list[str]] = {}
    flags = _flags_by_option()
    for field in fields_of(Options):
        flag = f"`{_cell(flags[field.name])}`" if field.name in flags else "–"
        row = f"| `{field.name}` | {flag} | {_default(field.default)} | {_cell(field.help)} |"
        groups.setdefault(field.group, []).append(row)
    for group, rows in groups.items():
        title = (group.__doc__ or "").strip().rstrip(".")
        parts.append("\n".join([f"## {title}", "", "| option | flag | default | |", "|---|---|---|---|", *rows]))
    parts.append(
        "## Options of metrics\n\nIn Python they are arguments of the metric, as in `tl.Soundness(epsilon=0.02)`. In "
        "run.toml they are keys\nof `[metrics.NAME]`. On the command line, pass `--option soundness.epsilon=0.02`."
    )
    for kind in KINDS.values():
        rows = [f"| `{field.name}` | {_default(field.default)} | {_cell(field.help)} |" for field in fields_of(kind)]
        about = (kind.__doc__ or "").splitlines()[0]
        parts.append(
            "\n".join([f"### {kind.__name__}", "", about, "", "| option | default | |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def list_commands() -> str:
    """Return docs/reference/commands.md: every command with its arguments and flags."""
    parts = [
        "# Commands",
        "`twinlens COMMAND --help` prints what this page shows; `make docs` writes it.\n"
        "`python -m twinlens` works like `twinlens`, and `twinlens --version` prints the versions.",
        "\n".join(
            ["| command | |", "|---|---|"]
            + [f"| [`twinlens {name}`](#twinlens-{name}) | {command.summary} |" for name, command in COMMANDS.items()]
        ),
        "The exit code is 0 for success, 2 for an error, which is one line, and 130 when the command is interrupted.\n"
        "Finished work is kept; run the same command again to resume. Set TWINLENS_DEBUG=1 to get a traceback.",
    ]
    own_of_evaluate = ("--model SPEC", "--data SPEC")
    of_a_run = {flag: row for flag, row in _flags("evaluate").items() if row[0] and flag not in own_of_evaluate}
    for name, command in COMMANDS.items():
        own = _flags(name)
        parts += [
            f"## twinlens {name}",
            f"{command.summary[0].upper()}{command.summary[1:]}.",
            "\n".join([f"    twinlens {name} {command.usage}", *(f"    {example}" for example in command.examples)]),
        ]
        shared = name != "evaluate" and of_a_run.items() <= own.items()
        rows = {flag: entry for flag, entry in own.items() if not (shared and flag in of_a_run)}
        titles = list(dict.fromkeys(title for title, _ in rows.values()))
        for title in titles:
            parts += [f"**{title[0].upper()}{title[1:]}**"] if title else []
            lines = [f"| `{_cell(flag)}` | {_cell(text)} |" for flag, (group, text) in rows.items() if group == title]
            parts.append("\n".join(["| argument | |", "|---|---|", *lines]))
        parts += (
            ["It also takes the options of a run, listed at [`twinlens evaluate`](#twinlens-evaluate)."]
            if shared
            else []
        )
    return "\n\n".join(parts) + "\n"


def _flags(command: str) -> dict[str, tuple[str, str]]:
    """Return the arguments of a command: the title of the group and the help text, by the flag as shown."""
    rows = {}
    for group in command_parser(command)._action_groups:
        title = "" if group.title in ("positional arguments", "options") else group.title or ""
        for action in group._group_actions:
            if action.dest != "help":
                rows[_shown(action)] = (title, " ".join((action.help or "").replace("%%", "%").split()))
    return rows


def _shown(action: argparse.Action) -> str:
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest)
    names = ", ".join(action.option_strings)
    return value if not names else names if action.nargs == 0 else f"{names} {value}"


def _flags_by_option() -> dict[str, str]:
    """Return the flag of each option of a run, as shown."""
    actions = {action.dest: action for action in command_parser("evaluate")._actions}
    flags = {
        name: _shown(action).split(",")[0] if action.nargs == 0 else _shown(action) for name, action in actions.items()
    }
    return flags | {"preprocessing": " ".join(f"--{field.name}" for field in fields_of(Preprocessing))}


def list_completions() -> str:
    """Return src/twinlens/cli/completion.json: the arguments of every command, as shell completion needs them."""
    names = json.dumps({kind: list(names) for kind, names in NAMES.items()})
    commands = []
    for command in COMMANDS:
        actions = [action for action in command_parser(command)._actions if action.dest != "help"]
        rows = ",\n    ".join(json.dumps(_completion(command, action)) for action in actions)
        commands.append(f'  "{command}": [\n    {rows}\n  ]')
    return f'{{"names": {names},\n"commands": {{\n' + ",\n".join(commands) + "\n}}\n"


def _completion(command: str, action: argparse.Action) -> list[object]:
    """Return the flags, or the name, of an argument, how many values it takes, and what to offer."""
    key = action.dest if action.option_strings else f"{command} {action.dest}"
    metavar = str(action.metavar or "")
    listed = [word for word in metavar.split("|") if not word.isupper()] if "|" in metavar else []
    words = [] if action.nargs == 0 else [*map(str, action.choices or WORDS.get(key) or listed)]
    words += [","] if action.dest in LISTS and action.option_strings else []
    words += ["@directories"] if action.dest in DIRECTORIES else ["@files"] if action.dest in FILES else []
    return [[*action.option_strings] or [action.dest], action.nargs, words]


def list_kinds() -> str:
    """Return the table of docs/reference/methods.md: which kinds of inputs each method explains, by its declaration."""
    kinds = {"rows": 2, "signals": 3, "images": 4, "volumes": 5}
    lines = [f"| method | {' | '.join(kinds)} | token ids | single channels |", "|---" * (len(kinds) + 3) + "|"]
    for name, method in METHODS.items():
        needs = declared(method)
        marks = [not accepted_axes(method) or axes in accepted_axes(method) for axes in kinds.values()]
        own = "own values" if needs.inputs == "any" else "shared equally"
        cells = [*("●" if mark else "" for mark in (*marks, needs.tokens)), own]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def list_schema(name: str) -> str:
    """Return the JSON Schema of a file."""
    kind, title = SCHEMAS[name]
    schema = json_schema(kind, address=f"https://twinlens.github.io/twinlens/reference/schema/{name}.json", title=title)
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def read_submissions() -> list[submission.Submission]:
    """Read the submissions of docs/leaderboard."""
    return [submission.read_submission(path) for path in sorted((LEADERBOARD / "submissions").glob("*.json"))]


def _filled(path: Path, **texts: str) -> str:
    """Return a file with other texts between pairs of comments, by the names of the comments."""
    page = path.read_text(encoding="utf-8")
    for mark, text in texts.items():
        before, start, rest = page.partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- end of {mark} -->")
        page = f"{before}{start}{text}\n{end}{after}"
    return page


def _default(value: object) -> str:
    if value is None or value in ((), {}):
        return "–"
    if isinstance(value, tuple) and len(value) > 6:
        return f"{value[0]}, {value[1]}, … {value[-1]}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Return every generated file with its content."""
    contributing, submissions = ROOT / "CONTRIBUTING.md", read_submissions()
    which = LEADERBOARD / "which-method.md"
    tables = board_markdown(board_tasks(submissions)).rstrip()
    reference = ROOT / "docs" / "reference"
    return {
        contributing: _filled(contributing, layers=f"```text\n{draw_layers()}\n```"),
        reference / "methods.md": _filled(reference / "methods.md", kinds=list_kinds()),
        reference / "options.md": list_options(),
        reference / "commands.md": list_commands(),
        PACKAGE / "cli" / "completion.json": list_completions(),
        LEADERBOARD / "methods.md": _filled(LEADERBOARD / "methods.md", tables=tables),
        which: _filled(which, **which_method.tables(submissions)),
        LEADERBOARD / "table.html": board_page(submissions),
        **{reference / "schema" / f"{name}.json": list_schema(name) for name in SCHEMAS},
    }


if __name__ == "__main__":
    for page, text in pages().items():
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
