from .imputers import IMPUTERS, Imputer

__all__ = [
    "IMPUTERS",
    "Imputer",
]
