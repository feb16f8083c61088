from .check_catalogue import CHECKS, Check, run_check
from .check_definition import CheckOptions
from .localisation import attribution_inside, pointing_game
from .monotonicity import Monotonicity, monotonicity
from .order_ceiling import Ceiling, ceiling
from .random_sets import RandomRemovals, random_removals, sensitivity_n
from .randomisation import (
    data_randomisation,
    efficient_randomisation,
    model_randomisation,
    train_on_permuted_labels,
)
from .remove_and_retrain import RoarCurve, roar
from .sample_scores import SampleScores
from .stability import class_similarity, max_sensitivity

__all__ = [
    "CHECKS",
    "Ceiling",
    "Check",
    "CheckOptions",
    "Monotonicity",
    "RandomRemovals",
    "RoarCurve",
    "SampleScores",
    "attribution_inside",
    "ceiling",
    "class_similarity",
    "data_randomisation",
    "efficient_randomisation",
    "max_sensitivity",
    "model_randomisation",
    "monotonicity",
    "pointing_game",
    "random_removals",
    "roar",
    "run_check",
    "sensitivity_n",
    "train_on_permuted_labels",
]
