"""The laboratory: tasks with a known answer, and tests of the metrics and of attribution methods themselves."""

from twinlens.laboratory.tasks import (
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
from twinlens.laboratory.truth import true_completeness, true_soundness, true_soundness_curve

__all__ = [
    "Task",
    "completeness_errors",
    "interaction",
    "linear",
    "map_grid",
    "network",
    "patch",
    "soundness_errors",
    "sparse_linear",
    "suppressor",
    "true_completeness",
    "true_soundness",
    "true_soundness_curve",
]
