"""Versions of the packages that results depend on."""

from __future__ import annotations

import platform
from importlib.metadata import version


def installed_versions() -> dict[str, str]:
    """Return the versions of the packages that compute results."""
    return {package: version(package) for package in ("twinlens", "torch", "numpy")}


def environment() -> dict[str, str]:
    """Return `installed_versions` and the version of Python."""
    return installed_versions() | {"python": platform.python_version()}
