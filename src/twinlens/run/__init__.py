"""A run: its directory and manifest, its plan, the work, the engines and the results.

The public names are listed in `__init__.pyi`; each is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
