"""Random seeds by name: every draw depends on a seed and a name, never on a position."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def stream(seed: int, *keys: str | float) -> int:
    """Derive the seed of an independent random stream from a seed and names.

    Example:
        >>> stream(0, "image-7", 0.98) == stream(0, "image-7", 0.98) != stream(0, "image-7", 0.97)
        True
    """
    text = "\x1f".join([repr(int(seed)), *(repr(key) for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def drawn_order(ids: Sequence[str], *, seed: int) -> list[int]:
    """Return positions in a random order that depends on the ids and the seed, not on the positions."""
    return sorted(range(len(ids)), key=lambda position: (stream(seed, "limit", ids[position]), ids[position]))
