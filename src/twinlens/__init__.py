"""How far can a feature-attribution map be trusted? Soundness and completeness, measured.

The public names are listed in `__init__.pyi`; each is imported on first use.
"""

from importlib.metadata import version

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]

_MOVED = {
    name: f"{room}.{name}"
    for room, names in {
        "checks": (
            "CHECKS Ceiling Check CheckOptions RandomRemovals RoarCurve attribution_inside ceiling "
            "class_similarity data_randomisation efficient_randomisation max_sensitivity model_randomisation "
            "pointing_game random_removals roar run_check sensitivity_n train_on_permuted_labels"
        ),
        "laboratory": "introduce_attribution remove_attribution selftest",
        "statistics": "Bootstrap Comparison Finding RunComparison diagnose map_entropy sparseness",
        "metrics": "About PROTOCOLS Protocol measure_metric",
        "imputation": "IMPUTERS Imputer",
        "probing": "Schedule exchange_maps",
        "models": "LoadedModel Preprocessing",
        "data": "Samples from_arrays",
        "run": "Cluster Results",
        "report": "write_sheet",
    }.items()
    for name in names.split()
} | {
    "CONTROLS": "attribution.BASELINES",
    "Interval": "Estimate",
    "Skill": "Estimate",
    "ComplexityRise": "checks.SampleScores",
    "Localisation": "checks.SampleScores",
    "MapChange": "checks.SampleScores",
    "Randomisation": "checks.SampleScores",
    "SensitivityN": "checks.SampleScores",
}
"""From names that were at the top level once to their present path."""


def __getattr__(name: str) -> object:
    if name in _MOVED:
        raise AttributeError(f"twinlens.{name} is now twinlens.{_MOVED[name]}")
    return version("twinlens") if name == "__version__" else _public(name)
