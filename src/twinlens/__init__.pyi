"""The public names of twinlens: the one list that type checkers, editors and `__init__.py` read."""

from . import laboratory
from .attribution import BASELINES, METHODS
from .checks.check_catalogue import CHECKS, run_check
from .checks.check_definition import CheckOptions
from .checks.generated_features import GeneratedFeatures, class_sensitivity, generate_features, null_player
from .checks.localisation import attribution_inside, pointing_game
from .checks.order_ceiling import Ceiling, ceiling
from .checks.random_sets import RandomRemovals, random_removals, sensitivity_n
from .checks.randomisation import (
    data_randomisation,
    efficient_randomisation,
    model_randomisation,
    train_on_permuted_labels,
)
from .checks.remove_and_retrain import RoarCurve, roar
from .checks.stability import class_similarity, max_sensitivity
from .data.samples import Samples, from_arrays
from .data.sources import open_data
from .errors import DataError, ModelError, RunError
from .evaluation import evaluate
from .imputation.imputers import (
    IMPUTERS,
    BlurImputer,
    ConstantImputer,
    Imputer,
    LinearImputer,
    MeanImputer,
    TokenImputer,
    impute_linear,
)
from .integrations.explanations import attribute
from .laboratory.degradation import selftest
from .laboratory.modifications import introduce_attribution, remove_attribution
from .metrics.catalogue import METRICS
from .metrics.curves import CompletenessCurve, RemovalCurve
from .metrics.estimators import opposite_schedule
from .metrics.measuring import completeness, deletion, insertion, measure_metric, road, soundness
from .metrics.metric import About, Metric
from .metrics.protocols import PROTOCOLS, Protocol
from .metrics.removal import Completeness, Deletion, Insertion, Road, completeness_from_probes, removal_from_probes
from .metrics.soundness import Soundness, soundness_from_probes
from .metrics.soundness_curve import SoundnessCurve
from .models.loading import LoadedModel, load_model
from .models.preprocessing import Preprocessing
from .options import Options
from .outcome import Evaluation, open_evaluation
from .probing.exchange import exchange_maps
from .probing.probe import probe
from .probing.probe_table import ProbeTable
from .probing.ranking import Schedule
from .report import format_table, write_figures, write_report, write_sheet
from .run.check_records import Check
from .run.results import Results
from .run.run_comparison import compare
from .run.units import Cluster
from .statistics.bootstrap import Bootstrap, bootstrap
from .statistics.contrasts import RunComparison
from .statistics.diagnostics import Finding, diagnose
from .statistics.map_properties import map_entropy, sparseness
from .statistics.skill import skill
from .statistics.verdicts import Comparison
from .support.estimate import Estimate
from .support.progress import Progress

__version__: str

__all__ = [
    "BASELINES",
    "CHECKS",
    "IMPUTERS",
    "METHODS",
    "METRICS",
    "PROTOCOLS",
    "About",
    "BlurImputer",
    "Bootstrap",
    "Ceiling",
    "Check",
    "CheckOptions",
    "Cluster",
    "Comparison",
    "Completeness",
    "CompletenessCurve",
    "ConstantImputer",
    "DataError",
    "Deletion",
    "Estimate",
    "Evaluation",
    "Finding",
    "GeneratedFeatures",
    "Imputer",
    "Insertion",
    "LinearImputer",
    "LoadedModel",
    "MeanImputer",
    "Metric",
    "ModelError",
    "Options",
    "Preprocessing",
    "ProbeTable",
    "Progress",
    "Protocol",
    "RandomRemovals",
    "RemovalCurve",
    "Results",
    "Road",
    "RoarCurve",
    "RunComparison",
    "RunError",
    "Samples",
    "Schedule",
    "Soundness",
    "SoundnessCurve",
    "TokenImputer",
    "__version__",
    "attribute",
    "attribution_inside",
    "bootstrap",
    "ceiling",
    "class_sensitivity",
    "class_similarity",
    "compare",
    "completeness",
    "completeness_from_probes",
    "data_randomisation",
    "deletion",
    "diagnose",
    "efficient_randomisation",
    "evaluate",
    "exchange_maps",
    "format_table",
    "from_arrays",
    "generate_features",
    "impute_linear",
    "insertion",
    "introduce_attribution",
    "laboratory",
    "load_model",
    "map_entropy",
    "max_sensitivity",
    "measure_metric",
    "model_randomisation",
    "null_player",
    "open_data",
    "open_evaluation",
    "opposite_schedule",
    "pointing_game",
    "probe",
    "random_removals",
    "removal_from_probes",
    "remove_attribution",
    "road",
    "roar",
    "run_check",
    "selftest",
    "sensitivity_n",
    "skill",
    "soundness",
    "soundness_from_probes",
    "sparseness",
    "train_on_permuted_labels",
    "write_figures",
    "write_report",
    "write_sheet",
]
