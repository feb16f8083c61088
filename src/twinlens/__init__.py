"""How far can a feature-attribution map be trusted? Soundness and completeness, measured."""

from twinlens.attribution import METHODS, attribute
from twinlens.curves import CompletenessCurve, RemovalCurve, SoundnessCurve
from twinlens.imputation import (
    BlurImputer,
    ConstantImputer,
    LinearImputer,
    MeanImputer,
    impute_linear,
)
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
from twinlens.ordering import Schedule
from twinlens.performance import PROTOCOLS, Protocol
from twinlens.probing import probe
from twinlens.table import ProbeTable

__version__ = "0.1.0.dev0"

__all__ = [
    "METHODS",
    "PROTOCOLS",
    "BlurImputer",
    "CompletenessCurve",
    "ConstantImputer",
    "LinearImputer",
    "MeanImputer",
    "ProbeTable",
    "Protocol",
    "RemovalCurve",
    "Schedule",
    "SoundnessCurve",
    "__version__",
    "attribute",
    "completeness",
    "completeness_from_probes",
    "deletion",
    "impute_linear",
    "insertion",
    "probe",
    "removal_from_probes",
    "road",
    "soundness",
    "soundness_from_probes",
]
