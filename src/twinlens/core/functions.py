"""Functions of the user's, told apart by their source."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any


def describe_function(function: Callable[..., Any]) -> dict[str, Any]:
    """Describe a function by its name and a digest of its source, so that another one of the same name is noticed.

    Example:
        >>> describe_function(describe_function)["function"]
        'describe_function'
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    try:
        text = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):  # typed at a prompt, or compiled
        text = name
    return {"function": name, "source": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}
