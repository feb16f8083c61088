from .exchange import exchange_maps
from .ranking import Schedule

__all__ = [
    "Schedule",
    "exchange_maps",
]
