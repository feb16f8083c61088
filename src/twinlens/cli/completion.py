"""The command completion: a script that lets a shell complete commands, flags and their values.

It comes from the parsers of the commands. The shell runs it alone: nothing is imported while somebody types.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from twinlens.attribution import METHODS, method_names
from twinlens.checks.check_catalogue import CHECKS
from twinlens.cli.demonstrations import DEMOS
from twinlens.cli.main import COMMANDS
from twinlens.data.sources import DATA_SETS
from twinlens.imputation.imputers import IMPUTERS
from twinlens.metrics.catalogue import metric_names
from twinlens.metrics.performance import MEASURES
from twinlens.reproduction import EXPERIMENTS

_WORDS: dict[str, Iterable[str]] = {
    "methods": method_names(),
    "method": METHODS,
    "leave_out": METHODS,
    "metrics": metric_names(),
    "performance": MEASURES,
    "data": DATA_SETS,
    "demo which": DEMOS,
    "check name": CHECKS,
    "reproduce name": (*EXPERIMENTS, "all"),
    "methods name": (*method_names(), *metric_names(), *IMPUTERS),
    "metrics name": metric_names(),
}
"""By argument, or by command and argument, the values that no parser lists."""

_LISTS = ("methods", "metrics", "leave_out")
_QUOTE, _FISH_QUOTE = "'\\''", "\\'"
_PATHS = ("config", "run", "runs", "out", "figures", "weights", "classes", "model", "data", "boxes", "train", "sheet")


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a command, as a shell has to know it."""

    flags: tuple[str, ...]
    """How it is named; empty for one that is known by its place."""

    help: str
    """What it is, in a line."""

    takes_value: bool
    """Whether a value follows the flag."""

    words: tuple[str, ...]
    """Values that it can have, where they are known."""

    listed: bool
    """Whether it takes several of them, between commas."""

    paths: bool
    """Whether it takes the path of a file or a folder."""

    repeated: bool
    """Whether it may be given several times."""


def arguments_of(command: str) -> list[Argument]:
    """List what a command can be given, from its parser.

    Example:
        >>> [argument.flags for argument in arguments_of("verify")]
        [('-h', '--help'), (), ('--json',)]
    """
    parser = argparse.ArgumentParser(prog=command)
    getattr(importlib.import_module(f"twinlens.cli.{COMMANDS[command].module}"), f"add_{command}")(parser)
    return [_argument(command, action) for action in parser._actions]


def _argument(command: str, action: argparse.Action) -> Argument:
    known = _WORDS.get(f"{command} {action.dest}" if not action.option_strings else action.dest, ())
    shown = str(action.metavar or "")
    spelled = shown.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", shown) else ()
    return Argument(
        flags=tuple(action.option_strings),
        help=" ".join((action.help or "").replace("%%", "%").split()),
        takes_value=action.nargs != 0,
        words=tuple(map(str, action.choices or known or spelled)),
        listed=action.dest in _LISTS,
        paths=action.dest in _PATHS,
        repeated=action.nargs == "+" or isinstance(action, argparse._AppendAction),
    )


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `twinlens completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run_completion(given: argparse.Namespace) -> None:
    """Print the script."""
    print(SHELLS[given.shell]({name: arguments_of(name) for name in COMMANDS}), end="")


_BASH = """\
# Completion of twinlens for bash. Store it where bash finds it:
#   twinlens completion bash > ~/.local/share/bash-completion/completions/twinlens
_twinlens_words() {
    COMPREPLY=($(compgen -W "$1" -- "$current"))
}
_twinlens_list() {  # the last of several names between commas
    local before=
    [[ $current == *,* ]] && before=${current%,*},
    COMPREPLY=($(compgen -P "$before" -W "$1" -- "${current##*,}"))
    compopt -o nospace 2>/dev/null
}
_twinlens_paths() {
    local IFS=$'\\n'
    COMPREPLY=("${COMPREPLY[@]}" $(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
}
_twinlens() {
    local current=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _twinlens_words "@COMMANDS@ --help --version"
        return
    fi
    # bash makes three words of --flag=value.
    [[ $flag == '=' ]] && flag=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $current == '=' ]] && current=
    case "$command $flag" in
@VALUES@
    esac
    case "$command $current" in
@FLAGS@
@PLACES@
    esac
}
complete -F _twinlens twinlens
"""


def bash_script(commands: Mapping[str, list[Argument]]) -> str:
    """Write the script for bash."""
    values: dict[str, list[str]] = {}
    flags, places = [], []
    for command, arguments in commands.items():
        for argument in arguments:
            if argument.flags and argument.takes_value:
                cases = [f'"{command} {flag}"' for flag in argument.flags]
                values.setdefault(f"{_bash_values(argument)}; return", []).extend(cases)
        own = [flag for argument in arguments for flag in argument.flags]
        flags.append(f'        "{command} -"*) _twinlens_words "{" ".join(own)}" ;;')
        placed = [argument for argument in arguments if not argument.flags]
        words = " ".join(word for argument in placed for word in argument.words)
        paths = "; _twinlens_paths" if any(argument.paths for argument in placed) else ""
        places.append(f'        "{command} "*) _twinlens_words "{words}"{paths} ;;')
    chosen = [f"        {' | '.join(cases)}) {then} ;;" for then, cases in values.items()]
    return _filled(_BASH, COMMANDS=" ".join(commands), VALUES=chosen, FLAGS=flags, PLACES=places)


def _bash_values(argument: Argument) -> str:
    if argument.listed:
        return f'_twinlens_list "{" ".join(argument.words)}"'
    paths = "; _twinlens_paths" if argument.paths else ""
    return f'_twinlens_words "{" ".join(argument.words)}"{paths}' if argument.words else paths.removeprefix("; ") or ":"


_ZSH = """\
#compdef twinlens
# Completion of twinlens for zsh. Store it as _twinlens in a folder of $fpath:
#   twinlens completion zsh > ~/.zfunc/_twinlens
_twinlens_names_or_files() {
    _alternative "names:name:($*)" 'files:file:_files'
}
_twinlens() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
@ARGUMENTS@
    esac
}
if [[ $funcstack[1] == _twinlens ]]; then
    _twinlens "$@"
else
    compdef _twinlens twinlens
fi
"""


def zsh_script(commands: Mapping[str, list[Argument]]) -> str:
    """Write the script for zsh."""
    named = [f"        {_quoted(f'{name}:{COMMANDS[name].summary}')}" for name in commands]
    cases = []
    for command, arguments in commands.items():
        specs = [spec for argument in arguments for spec in _zsh_specs(argument)]
        lines = " \\\n".join(f"                {_quoted(spec)}" for spec in specs)
        cases.append(f"        {command})\n            _arguments \\\n{lines}\n            ;;")
    return _filled(_ZSH, COMMANDS=named, ARGUMENTS=cases)


def _zsh_specs(argument: Argument) -> Iterator[str]:
    about = re.sub(r"([\[\]:\\])" if argument.flags else r"([:\\])", r"\\\1", argument.help)
    words, action = " ".join(argument.words), ""
    if argument.listed:
        action = f" _values -s , name {words}"
    elif argument.words and argument.paths:
        action = f" _twinlens_names_or_files {words}"
    elif argument.words or argument.paths:
        action = f"({words})" if argument.words else "_files"
    star = "*" if argument.repeated else ""
    if not argument.flags:
        yield f"{star}:{about}:{action}"
    for flag in argument.flags:
        end = "=" if argument.takes_value and flag.startswith("--") else ""
        yield f"{star}{flag}{end}[{about}]" + (f":value:{action}" if argument.takes_value else "")


_FISH = """\
# Completion of twinlens for fish. Store it where fish finds it:
#   twinlens completion fish > ~/.config/fish/completions/twinlens.fish
complete -c twinlens -f
@LINES@
"""


def fish_script(commands: Mapping[str, list[Argument]]) -> str:
    """Write the script for fish."""
    lines = []
    for command, arguments in commands.items():
        about = _quoted(COMMANDS[command].summary, _FISH_QUOTE)
        lines.append(f"complete -c twinlens -n __fish_use_subcommand -a {command} -d {about}")
        where = f"complete -c twinlens -n '__fish_seen_subcommand_from {command}'"
        lines += [f"{where}{_fish_argument(argument)}" for argument in arguments]
    return _filled(_FISH, LINES=lines)


def _fish_argument(argument: Argument) -> str:
    names = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in argument.flags)
    takes = " -r" if argument.flags and argument.takes_value else ""
    words = " ".join(argument.words)
    if argument.listed:
        words = f'(__fish_complete_list , "string split \\" \\" \\"{words}\\"")'
    chosen = f" -a {_quoted(words)}" if words else ""
    paths = " -F" if argument.paths else " -f" if takes else ""
    return f"{names}{takes}{paths}{chosen} -d {_quoted(argument.help, _FISH_QUOTE)}"


def _quoted(text: str, quote: str = _QUOTE) -> str:
    """Put text between single quotes; `quote` is how the shell writes one inside."""
    return "'" + text.replace("'", quote) + "'"


def _filled(script: str, **parts: str | list[str]) -> str:
    for name, part in parts.items():
        script = script.replace(f"@{name}@", part if isinstance(part, str) else "\n".join(part))
    return script


SHELLS: dict[str, Callable[[Mapping[str, list[Argument]]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
"""What writes the script of each shell."""
