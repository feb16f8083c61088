from .bootstrap import Bootstrap
from .contrasts import RunComparison
from .diagnostics import Finding, diagnose
from .map_properties import map_entropy, sparseness
from .verdicts import Comparison

__all__ = [
    "Bootstrap",
    "Comparison",
    "Finding",
    "RunComparison",
    "diagnose",
    "map_entropy",
    "sparseness",
]
