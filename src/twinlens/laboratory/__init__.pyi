from . import tasks
from .designed import colours
from .metric_errors import metric_errors, rank_correlations
from .mixing import describe_selftest, selftest
from .modifications import introduce_attribution, remove_attribution
from .tasks import (
    Task,
    interaction,
    linear,
    map_grid,
    network,
    patch,
    sparse_linear,
    suppressor,
)
from .truth import true_completeness, true_soundness, true_soundness_curve, true_steps

__all__ = [
    "Task",
    "colours",
    "describe_selftest",
    "interaction",
    "introduce_attribution",
    "linear",
    "map_grid",
    "metric_errors",
    "network",
    "patch",
    "rank_correlations",
    "remove_attribution",
    "selftest",
    "sparse_linear",
    "suppressor",
    "tasks",
    "true_completeness",
    "true_soundness",
    "true_soundness_curve",
    "true_steps",
]
