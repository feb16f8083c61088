"""What a docstring lists."""

import inspect


def entries(function):
    """The section "Args" of a docstring: from the name of an argument to its text, on one line."""
    lines = inspect.getdoc(function).splitlines()
    start = lines.index("Args:") + 1
    end = next((k for k in range(start, len(lines)) if lines[k] and not lines[k].startswith(" ")), len(lines))
    found = []
    for line in lines[start:end]:
        if line.startswith(" " * 5):
            found[-1] += f" {line.strip()}"
        elif line.strip():
            found.append(line.strip())
    return dict(entry.split(": ", 1) for entry in found)
