"""Metrics: from probe tables to curves, each metric one value with its options.

The public names are listed in `__init__.pyi`; each is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
