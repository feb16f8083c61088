from .check_catalogue import CHECKS, Check, run_check
from .check_definition import CheckOptions
from .fine_tuning import fine_tuned
from .krippendorff import MetricAgreement, metric_agreement
from .localisation import attribution_inside, pointing_game
from .monotonicity import Monotonicity, monotonicity
from .order_ceiling import Ceiling, ceiling
from .probe_distribution import ProbeDistribution, probe_distribution
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
    "MetricAgreement",
    "Monotonicity",
    "ProbeDistribution",
    "RandomRemovals",
    "RoarCurve",
    "SampleScores",
    "attribution_inside",
    "ceiling",
    "class_similarity",
    "data_randomisation",
    "efficient_randomisation",
    "fine_tuned",
    "max_sensitivity",
    "metric_agreement",
    "model_randomisation",
    "monotonicity",
    "pointing_game",
    "probe_distribution",
    "random_removals",
    "roar",
    "run_check",
    "sensitivity_n",
    "train_on_permuted_labels",
]
