from . import tasks
from .degradation import selftest
from .modifications import introduce_attribution, remove_attribution
from .tasks import (
    Task,
    completeness_errors,
    interaction,
    linear,
    map_grid,
    network,
    patch,
    soundness_errors,
    sparse_linear,
    suppressor,
)
from .truth import true_completeness, true_soundness, true_soundness_curve

__all__ = [
    "Task",
    "completeness_errors",
    "interaction",
    "introduce_attribution",
    "linear",
    "map_grid",
    "network",
    "patch",
    "remove_attribution",
    "selftest",
    "soundness_errors",
    "sparse_linear",
    "suppressor",
    "tasks",
    "true_completeness",
    "true_soundness",
    "true_soundness_curve",
]
