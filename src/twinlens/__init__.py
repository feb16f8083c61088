"""How far can a feature-attribution map be trusted? Soundness and completeness, measured.

The public names are listed in `__init__.pyi`; each is imported when it is first used.
"""

from importlib.metadata import version

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    return version("twinlens") if name == "__version__" else _public(name)
