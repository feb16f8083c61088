"""The public names of twinlens: the one list that type checkers, editors and `__init__.py` read."""

from . import attribution, checks, data, imputation, laboratory, metrics, models, probing, report, run, statistics
from .attribution import METHODS
from .data.sources import open_data
from .errors import DataError, ModelError, RunError
from .evaluation import evaluate
from .imputation.imputers import (
    BlurImputer,
    ConstantImputer,
    LinearImputer,
    MeanImputer,
    TokenImputer,
    impute_linear,
)
from .integrations.explanations import attribute
from .metrics.calibration import Calibration
from .metrics.catalogue import METRICS
from .metrics.curves import CompletenessCurve, RemovalCurve
from .metrics.measuring import completeness, deletion, insertion, road, soundness
from .metrics.metric import Metric
from .metrics.removal import (
    Completeness,
    Deletion,
    Insertion,
    Road,
    RoadGain,
    completeness_from_probes,
    removal_from_probes,
)
from .metrics.soundness import Soundness, soundness_from_probes
from .metrics.soundness_curve import SoundnessCurve
from .metrics.step_curve import StepCurve
from .models.loading import load_model
from .options import Options
from .outcome import Evaluation, open_evaluation
from .probing.probe import probe
from .probing.probe_table import ProbeTable
from .report import format_table, write_figures, write_report
from .run.run_comparison import compare
from .statistics.bootstrap import bootstrap
from .statistics.new_result import NewResult
from .statistics.skill import skill
from .support.estimate import Estimate

__version__: str

__all__ = [
    "METHODS",
    "METRICS",
    "BlurImputer",
    "Calibration",
    "Completeness",
    "CompletenessCurve",
    "ConstantImputer",
    "DataError",
    "Deletion",
    "Estimate",
    "Evaluation",
    "Insertion",
    "LinearImputer",
    "MeanImputer",
    "Metric",
    "ModelError",
    "NewResult",
    "Options",
    "ProbeTable",
    "RemovalCurve",
    "Road",
    "RoadGain",
    "RunError",
    "Soundness",
    "SoundnessCurve",
    "StepCurve",
    "TokenImputer",
    "__version__",
    "attribute",
    "attribution",
    "bootstrap",
    "checks",
    "compare",
    "completeness",
    "completeness_from_probes",
    "data",
    "deletion",
    "evaluate",
    "format_table",
    "imputation",
    "impute_linear",
    "insertion",
    "laboratory",
    "load_model",
    "metrics",
    "models",
    "open_data",
    "open_evaluation",
    "probe",
    "probing",
    "removal_from_probes",
    "report",
    "road",
    "run",
    "skill",
    "soundness",
    "soundness_from_probes",
    "statistics",
    "write_figures",
    "write_report",
]
