"""Files that are whole or not there at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives another name to write under, which becomes `path` once the block has ended well.

    Whatever happens in between (an error, a full disk, a killed process), `path` is what it was before.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     target = Path(folder, "numbers.txt")
        ...     with written_whole(target) as unfinished:
        ...         _ = unfinished.write_text("1 2 3")
        ...         target.exists()
        ...     target.read_text()
        False
        '1 2 3'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The process's number keeps two workers that write the same part out of each other's way.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
