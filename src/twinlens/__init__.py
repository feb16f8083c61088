"""How far can a feature-attribution map be trusted? Soundness and completeness, measured."""

from twinlens.attribution import METHODS, attribute
from twinlens.comparison import Comparison, compare
from twinlens.curves import CompletenessCurve, RemovalCurve, SoundnessCurve
from twinlens.data import open_data
from twinlens.diagnostics import Finding, diagnose, sensitivity
from twinlens.evaluation import evaluate
from twinlens.imputation import (
    BlurImputer,
    ConstantImputer,
    LinearImputer,
    MeanImputer,
    impute_linear,
)
from twinlens.localisation import Localisation, attribution_inside, pointing_game
from twinlens.metrics import (
    completeness,
    completeness_from_probes,
    deletion,
    insertion,
    removal_from_probes,
    road,
    soundness,
    soundness_from_probes,
)
from twinlens.models import LoadedModel, load_model
from twinlens.modifications import introduce_attribution, remove_attribution
from twinlens.ordering import Schedule
from twinlens.performance import PROTOCOLS, Protocol
from twinlens.planning import METRICS
from twinlens.probing import probe
from twinlens.randomisation import Randomisation, model_randomisation
from twinlens.results import Evaluation, open_evaluation
from twinlens.roar import RoarCurve, roar
from twinlens.samples import Samples, from_arrays
from twinlens.statistics import Bootstrap, bootstrap
from twinlens.table import ProbeTable
from twinlens.training import Training, train
from twinlens.watermarks import Watermarked, blank_canvas, drawn_images, number_watermarks, stripe_watermarks

__version__ = "0.1.0.dev0"

__all__ = [
    "METHODS",
    "METRICS",
    "PROTOCOLS",
    "BlurImputer",
    "Bootstrap",
    "Comparison",
    "CompletenessCurve",
    "ConstantImputer",
    "Evaluation",
    "Finding",
    "LinearImputer",
    "LoadedModel",
    "Localisation",
    "MeanImputer",
    "ProbeTable",
    "Protocol",
    "Randomisation",
    "RemovalCurve",
    "RoarCurve",
    "Samples",
    "Schedule",
    "SoundnessCurve",
    "Training",
    "Watermarked",
    "__version__",
    "attribute",
    "attribution_inside",
    "blank_canvas",
    "bootstrap",
    "compare",
    "completeness",
    "completeness_from_probes",
    "deletion",
    "diagnose",
    "drawn_images",
    "evaluate",
    "from_arrays",
    "impute_linear",
    "insertion",
    "introduce_attribution",
    "load_model",
    "model_randomisation",
    "number_watermarks",
    "open_data",
    "open_evaluation",
    "pointing_game",
    "probe",
    "removal_from_probes",
    "remove_attribution",
    "road",
    "roar",
    "sensitivity",
    "soundness",
    "soundness_from_probes",
    "stripe_watermarks",
    "train",
]
