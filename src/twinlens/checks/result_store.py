"""A file of finished results, with which an interrupted computation resumes.

FILE.json: {"format": 1, "results": {KEY: RESULT}}. A key holds a digest of everything its result depends on: results of
other settings are neither used nor removed.
"""

from __future__ import annotations

import hashlib
import json
import os

from twinlens.errors import RunError, first_line
from twinlens.support.fields import JSON
from twinlens.support.files import as_path, read_whole, write_json

_FORMAT = 1


class ResultStore:
    """Results by key, in a JSON file, or in memory only."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else as_path(path)
        self._results: dict[str, JSON] = {}
        if self.path is not None and self.path.exists():
            try:
                content = json.loads(read_whole(self.path))
                if content["format"] != _FORMAT:
                    raise ValueError(f"it has format {content['format']}, and this twinlens reads {_FORMAT}")
                self._results = dict(content["results"])
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise RunError(
                    f"{str(self.path)!r} holds no stored results, or is damaged: {first_line(error)}. Remove it, or "
                    "choose another file."
                ) from None

    def get(self, key: str) -> JSON:
        """Return a result, or None."""
        return self._results.get(key)

    def put(self, key: str, result: JSON) -> None:
        """Add a result and write the file."""
        self._results[key] = result
        if self.path is not None:
            write_json(self.path, {"format": _FORMAT, "results": self._results})


def digest_of(*parts: JSON | bytes) -> str:
    """Hash JSON values and bytes.

    Example:
        >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
        True
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
    return digest.hexdigest()
