"""Write what the documentation holds of the code: options, commands, and the drawing of the layers.

`make docs` runs this; a test fails where a page is not what it would write.
"""

from __future__ import annotations

import argparse
import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from twinlens.cli.flags import describe_flag
from twinlens.cli.main import COMMANDS
from twinlens.metrics.catalogue import KINDS
from twinlens.options import Options
from twinlens.support.fields import fields_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "twinlens"
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
    "cli",
)
"""The packages and modules of the house: each may import only from those before it."""


def modules() -> dict[str, Path]:
    """Return every module by its name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {".".join(("twinlens", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in paths}


def layer_of(module: str) -> str:
    """Return the layer of a module: the package or module right below twinlens."""
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that a module imports from twinlens, wherever it does so."""
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
    there = [layer for layer in LAYERS if layer in purposes]
    width = max(map(len, there))
    lines = []
    for place, layer in enumerate(there):
        marks = "".join("●" if other in uses[layer] else "·" for other in there[:place])
        lines.append(f"{layer:<{width}}  {marks + '╲':<{len(there)}}  {purposes[layer]}")
    return "\n".join(lines)


def list_options() -> str:
    """List the options of a run and of every metric, as docs/reference/options.md holds them."""
    parts = [
        "# Options",
        "Every option has one name: the argument of `tl.evaluate`, the key in run.toml, and the flag with hyphens.\n"
        "This page is made from their declarations by `make docs`.",
    ]
    groups: dict[type, list[str]] = {}
    for field in fields_of(Options):
        row = f"| `{field.name}` | `{_cell(describe_flag(field))}` | {_default(field.default)} | {_cell(field.help)} |"
        groups.setdefault(field.group, []).append(row)
    for group, rows in groups.items():
        title = (group.__doc__ or "").strip().rstrip(".")
        parts.append("\n".join([f"## {title}", "", "| option | flag | default | |", "|---|---|---|---|", *rows]))
    parts.append(
        "## Options of metrics\n\nIn Python fields of the value, as in `tl.Soundness(epsilon=0.02)`; in run.toml keys "
        "of\n`[metrics.NAME]`; on the command line `--option NAME.KEY=VALUE`, as in `--option soundness.epsilon=0.02`."
    )
    for kind in KINDS.values():
        rows = [f"| `{field.name}` | {_default(field.default)} | {_cell(field.help)} |" for field in fields_of(kind)]
        about = (kind.__doc__ or "").splitlines()[0]
        parts.append(
            "\n".join([f"### {kind.__name__}", "", about, "", "| option | default | |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def list_commands() -> str:
    """List every command with its arguments and flags, as docs/reference/commands.md holds them."""
    parts = [
        "# Commands",
        "Made from the commands as they are by `make docs`; `twinlens COMMAND --help` prints the same.\n"
        "`python -m twinlens` is `twinlens`, and `twinlens --version` says what is installed.",
        "\n".join(
            ["| command | |", "|---|---|"]
            + [f"| [`twinlens {name}`](#twinlens-{name}) | {command.summary} |" for name, command in COMMANDS.items()]
        ),
        "A command ends with exit code 0, with 2 and one line where something is to be mended, and with 130 when it\n"
        "is interrupted: what is done is kept, and the same command goes on. With TWINLENS_DEBUG=1 in the environment\n"
        "an error has its traceback.",
    ]
    of_a_run = {flag: entry for flag, entry in _flags("evaluate").items() if entry[0]}
    for name, command in COMMANDS.items():
        own = _flags(name)
        parts += [
            f"## twinlens {name}",
            f"{command.summary[0].upper()}{command.summary[1:]}.",
            f"    twinlens {name} {command.usage}\n    {command.example}",
        ]
        shared = name != "evaluate" and of_a_run.items() <= own.items()
        rows = {flag: entry for flag, entry in own.items() if not (shared and flag in of_a_run)}
        titles = list(dict.fromkeys(title for title, _ in rows.values()))
        for title in titles:
            parts += [f"**{title[0].upper()}{title[1:]}**"] if title else []
            lines = [f"| `{_cell(flag)}` | {_cell(text)} |" for flag, (group, text) in rows.items() if group == title]
            parts.append("\n".join(["| argument | |", "|---|---|", *lines]))
        parts += ["And every option of a run, as [`twinlens evaluate`](#twinlens-evaluate) has them."] if shared else []
    return "\n\n".join(parts) + "\n"


def _flags(command: str) -> dict[str, tuple[str, str]]:
    """Return what a command can be given, from its parser: the title of the group and the help by the flag as shown."""
    parser = argparse.ArgumentParser(add_help=False)
    getattr(importlib.import_module(f"twinlens.cli.{COMMANDS[command].module}"), f"add_{command}")(parser)
    found = {}
    for group in parser._action_groups:
        title = "" if group.title in ("positional arguments", "options") else group.title or ""
        for action in group._group_actions:
            shown = action.metavar or "|".join(map(str, action.choices or ())) or action.dest
            names = ", ".join(action.option_strings)
            flag = shown if not names else names if action.nargs == 0 else f"{names} {shown}"
            found[str(flag)] = (title, " ".join((action.help or "").replace("%%", "%").split()))
    return found


def _default(value: object) -> str:
    if value is None or value in ((), {}):
        return "–"
    if isinstance(value, tuple) and len(value) > 6:
        return f"{value[0]}, {value[1]}, … {value[-1]}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Return every page that is made here, with what it has to hold."""
    contributing = ROOT / "CONTRIBUTING.md"
    before, start, rest = contributing.read_text(encoding="utf-8").partition("<!-- layers -->\n")
    _, end, after = rest.partition("<!-- end of layers -->")
    drawing = f"{before}{start}```text\n{draw_layers()}\n```\n{end}{after}"
    reference = ROOT / "docs" / "reference"
    return {
        contributing: drawing,
        reference / "options.md": list_options(),
        reference / "commands.md": list_commands(),
    }


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
