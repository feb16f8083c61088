"""Maps of a run measured again, on some of its samples, with other metrics or another model.

The measurement is a run of its own in RUN/checks/NAME, where it resumes after an interruption. The checked run does not
change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.result_store import digest_of
from twinlens.evaluation import evaluate
from twinlens.imputation.imputers import Imputer, restore_imputer
from twinlens.metrics.catalogue import METRICS
from twinlens.metrics.metric import Metric
from twinlens.models.loading import LoadedModel
from twinlens.outcome import Evaluation
from twinlens.run.check_records import FOLDER
from twinlens.statistics.bootstrap import Area, bootstrap

PAIR = ("soundness_rank", "completeness_share")
"""The headline pair."""

NAMES = {"soundness_rank": "soundness", "completeness_share": "completeness"}
"""The pair as tables call it."""


def headline_pair(run: CheckedRun) -> dict[str, Metric]:
    """Return the headline pair with the run's options, or with default ones, to rank methods by it."""
    if len(run.names) < 2:
        raise ValueError(f"`methods` must be two or more, to rank them; got {', '.join(run.names)} alone.")
    own = run.evaluation.metric_values
    return {name: own.get(name, METRICS[name]) for name in PAIR}


def main_imputer(run: CheckedRun) -> Imputer:
    """Return the run's imputer."""
    return run.evaluation.imputer or restore_imputer(run.evaluation.results.settings.imputer)


def random_maps(run: CheckedRun) -> tuple[str, dict[str, str]]:
    """Return the name of the method with random maps, and that method where the checked ones have none."""
    methods = run.evaluation.run.manifest.methods
    own = next((name for name in run.names if methods[name].method == "random"), None)
    return (own, {}) if own is not None else ("reference", {"reference": "random"})


def remeasure(
    run: CheckedRun,
    check: str,
    metrics: Mapping[str, Metric],
    *,
    maps: Mapping[str, Tensor] | None = None,
    methods: Mapping[str, str] | None = None,
    model: LoadedModel | None = None,
) -> Evaluation:
    """Measure maps on the checked samples in a run of its own, in RUN/checks/`check`; an earlier one is resumed.

    Args:
        run: the checked run.
        check: name of the check.
        metrics: the metrics by name; those without an imputer use the run's.
        maps: maps of the samples by name; the stored maps of the checked methods by default.
        methods: other methods, whose maps are computed.
        model: another model than that of the run.
    """
    manifest, loaded = run.evaluation.run.manifest, model or run.opened[0]
    execution, data = manifest.execution, manifest.data
    measured = {name: run.stored_maps(name) for name in run.names} if maps is None else maps
    identity = digest_of(loaded.digest(run.inputs[:1]), [*run.samples.ids], manifest.seed)[:8]
    options: dict[str, Any] = {
        "batch_size": execution.batch_size,
        "memory_format": execution.memory_format,
        "threads": execution.threads,
        "precision": execution.precision,
    }
    return evaluate(
        dataclasses.replace(loaded, scale=manifest.model.scale),
        run.samples,
        dict(methods or {}),
        maps={name: each.numpy() for name, each in measured.items()},
        metrics=dict(metrics),
        imputer=main_imputer(run),
        control="none",
        features=data.feature_kind,
        segments=run.segments_request,
        seed=manifest.seed,
        resamples=run.evaluation.results.settings.resamples,
        out=run.evaluation.path / FOLDER / check / identity,
        engine=run.options.engine,
        progress=run.progress,
        **options,
    )


def areas_of(inner: Evaluation, methods: tuple[str, ...], metric: str) -> dict[str, Area]:
    """Return the area of each method by a metric, resampled as in any other measurement of the same samples."""
    resamples = inner.results.settings.resamples
    return {name: bootstrap(inner.curve(name, metric), resamples=resamples).compared_area() for name in methods}
