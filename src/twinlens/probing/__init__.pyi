from .exchange import exchange_groups, exchange_maps
from .ranking import Schedule

__all__ = [
    "Schedule",
    "exchange_groups",
    "exchange_maps",
]
