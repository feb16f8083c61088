"""Check files as every commit should leave them: `python -m tests.hygiene FILE …`, one line per fault.

No white space at the ends of lines, one newline at the end of a file, no marks of a merge, nothing large, and YAML and
TOML that can be read.
"""

import re
import sys
import tomllib
from pathlib import Path

import yaml

LARGEST = 2_000_000  # bytes
FOREIGN = "assets/"  # as their authors ship them
MERGE = re.compile(r"^(<{7} |>{7} |={7}$)", re.M)


def faults(path):
    """What is wrong with a file, one sentence each."""
    raw = path.read_bytes()
    if len(raw) > LARGEST:
        yield f"it has {len(raw):,} bytes; large files do not belong here"
    if b"\0" in raw or FOREIGN in path.as_posix():
        return
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        yield "it is no UTF-8"
        return
    if "\r" in text:
        yield "it has carriage returns"
    if lines := [str(k) for k, line in enumerate(text.split("\n"), start=1) if line != line.rstrip(" \t")]:
        yield f"white space ends line {', '.join(lines[:5])}"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield "it must end with one newline"
    if MERGE.search(text):
        yield "it has the marks of a merge"
    yield from unreadable(path, text)


def unreadable(path, text):
    """Why a file cannot be read as what its name says."""
    try:
        if path.suffix in (".yml", ".yaml", ".cff"):
            yaml.compose(text)  # tags of others, as MkDocs has, are left as they are
        elif path.suffix == ".toml":
            tomllib.loads(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        yield f"it cannot be read: {' '.join(str(error).split())}"


def main(names):
    found = [f"{name}: {fault}" for name in names if Path(name).is_file() for fault in faults(Path(name))]
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(sys.argv[1:])
