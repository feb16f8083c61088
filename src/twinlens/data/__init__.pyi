from .samples import Samples, from_arrays

__all__ = [
    "Samples",
    "from_arrays",
]
