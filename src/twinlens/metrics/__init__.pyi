from .measuring import measure_metric
from .metric import About
from .protocols import PROTOCOLS, Protocol

__all__ = [
    "PROTOCOLS",
    "About",
    "Protocol",
    "measure_metric",
]
