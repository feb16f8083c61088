from .results import Results
from .units import Cluster

__all__ = [
    "Cluster",
    "Results",
]
