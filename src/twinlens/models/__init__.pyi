from .loading import LoadedModel
from .preprocessing import Preprocessing

__all__ = [
    "LoadedModel",
    "Preprocessing",
]
