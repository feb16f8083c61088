from .exchange import exchange_groups, exchange_maps
from .ranking import Schedule
from .tokens import NextToken

__all__ = [
    "NextToken",
    "Schedule",
    "exchange_groups",
    "exchange_maps",
]
