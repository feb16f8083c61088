"""Agreement: do samples, and metrics, rank the methods alike (Tomsett et al. 2020)?

Krippendorff's alpha compares how much raters disagree about a method with how much ranks differ anyway: 1 is full
agreement, 0 that of random rankings. Raters are the samples, each of which ranks the methods by a metric, or the
metrics, each of which ranks them on the whole data set.

Shapes: N samples, M methods, K metrics, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import rankdata

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.metrics.curves import Curve
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.statistics.bootstrap import Area, bootstrap
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import draw_blocks


@dataclass(frozen=True, kw_only=True)
class MetricAgreement:
    """How far rankings of the methods agree, by Krippendorff's alpha."""

    over_samples: Mapping[str, Estimate]
    """By metric, agreement of the samples; undefined for a metric without a value for each sample."""
    with_others: Mapping[str, Estimate]
    """By metric, agreement of its ranking with that of each other metric, the mean over these."""
    together: Estimate
    """Agreement of all metrics."""


@checked
def metric_agreement(
    curves: Mapping[str, Mapping[str, Curve]],
    *,
    high: Mapping[str, float] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> MetricAgreement:
    """Measure whether samples, and metrics, rank methods alike; the model is not called.

    Args:
        curves: from each method to its curves by metric, all of the same samples.
        high: by metric, the predictive level up to which areas of the paper's soundness are taken.
        resamples: number of bootstrap resamples.
        seed: their seed.

    Example:
        >>> import twinlens as tl
        >>> def model(x):
        ...     return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1)
        >>> import torch
        >>> x = torch.rand(30, 12, generator=torch.Generator().manual_seed(0))
        >>> maps, zero = {"own": x, "flat": x * 0 + 1, "upside down": 1 - x}, tl.ConstantImputer(0.0)
        >>> agreement = metric_agreement({
        ...     name: {order: tl.road(model, x, [0] * 30, own, order=order, imputer=zero, performance="logit")
        ...            for order in ("morf", "lerf")}
        ...     for name, own in maps.items()
        ... })
        >>> agreement.together.value  # both orders rank the three maps alike
        1.0
    """
    rows = list(curves.values()) if isinstance(curves, Mapping) else []
    if len(rows) < 2 or not all(isinstance(own, Mapping) and own and [*own] == [*rows[0]] for own in rows):
        raise ValueError(
            "`curves` must hold two or more methods, each with its curves by metric, all the same metrics."
        )
    names, all_ids = list(rows[0]), {curve.table.ids for own in rows for curve in own.values()}
    if len({tuple(sorted(ids)) for ids in all_ids}) > 1:
        raise ValueError("`curves` must be measured on the same samples. Take the common ones with ProbeTable.take.")
    areas = {
        metric: [
            bootstrap(own[metric], resamples=resamples, seed=seed).compared_area(high=(high or {}).get(metric))
            for own in rows
        ]
        for metric in names
    }
    ids = sorted(next(iter(all_ids)))
    ranks = np.stack([_ranks(areas[metric]) for metric in names], axis=1)  # (1 + R, K, M)
    pairs = {
        (one, other): _alpha_of(ranks[:, [one, other]])
        for one in range(len(names))
        for other in range(len(names))
        if one != other
    }

    def estimate(alphas: Floats) -> Estimate:
        value = None if np.isnan(alphas[0]) else float(alphas[0])
        return Estimate.of(value, alphas[1:], samples=len(ids)).clipped(-1.0, 1.0)

    none = Estimate(value=None, samples=len(ids))
    with_others = [[pairs[k, other] for other in range(len(names)) if other != k] for k in range(len(names))]
    return MetricAgreement(
        over_samples={metric: _over_samples(own, ids, resamples, seed) for metric, own in areas.items()},
        with_others={
            metric: estimate(np.mean(own, axis=0)) if own else none
            for metric, own in zip(names, with_others, strict=True)
        },
        together=estimate(_alpha_of(ranks)) if len(names) > 1 else none,
    )


def krippendorff(ratings: Floats) -> float:
    """Return Krippendorff's alpha of ratings (raters, units) with differences as the distance; NaN is missing.

    Example:
        >>> krippendorff(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))
        1.0
    """
    return float(_alpha_of(np.asarray(ratings, dtype=np.float64)[None])[0])


def _alpha_of(ratings: Floats) -> Floats:
    """Return alpha (R,) of ratings (R, raters, units)."""
    defined = np.isfinite(ratings)
    values = np.where(defined, ratings, 0.0)
    return _alpha(defined.sum(axis=1).astype(float), values.sum(axis=1), (values**2).sum(axis=1))


def _alpha(count: Floats, total: Floats, squares: Floats) -> Floats:
    """Return alpha (R,) from the number of ratings of each unit (R, M), their sums and sums of squares."""
    usable = count > 1  # a single rating cannot disagree
    count, total, squares = (np.where(usable, each, 0.0) for each in (count, total, squares))
    many = np.maximum(count, 2.0)
    within = (squares - total**2 / many) * many / (many - 1) * usable
    ratings = count.sum(axis=1)
    spread = squares.sum(axis=1) - total.sum(axis=1) ** 2 / np.maximum(ratings, 1.0)
    alpha = np.full(len(count), np.nan)
    np.divide(within.sum(axis=1) * (ratings - 1), ratings * spread, out=alpha, where=(ratings > 1) & (spread > 1e-12))
    return np.asarray(1 - alpha)


def _ranks(areas: list[Area]) -> Floats:
    """Return the ranks (1 + R, M) of the methods, as measured in the first row; the best has the largest."""
    sign = 1.0 if areas[0].higher_is_better else -1.0
    values = [np.nan if (value := area.estimate.value) is None else value for area in areas]
    rows = sign * np.concatenate([[values], np.stack([area.replicates for area in areas], axis=1)])
    return np.asarray(rankdata(np.nan_to_num(rows, nan=-np.inf), axis=1))


def _over_samples(areas: list[Area], ids: list[str], resamples: int, seed: int) -> Estimate:
    """Return the agreement of samples (N), each of which ranks the methods."""
    if any(area.per_sample is None for area in areas):
        return Estimate(value=None, samples=len(ids))
    sign = 1.0 if areas[0].higher_is_better else -1.0
    values = sign * np.stack([np.asarray(area.per_sample) for area in areas], axis=1)
    # A sample without a value for some method ranks none.
    ranks = np.where(np.isfinite(values).all(axis=1, keepdims=True), rankdata(values, axis=1), np.nan)
    defined, filled = np.isfinite(ranks).astype(float), np.nan_to_num(ranks)
    blocks = [np.ones((1, len(ids))), *draw_blocks(ids, resamples, seed)]
    alphas = np.concatenate([_alpha(rows @ defined, rows @ filled, rows @ filled**2) for rows in blocks])
    value = None if np.isnan(alphas[0]) else float(alphas[0])
    return Estimate.of(value, alphas[1:], samples=int(defined[:, 0].sum())).clipped(-1.0, 1.0)


@partial(
    CheckDefinition,
    title="Agreement of samples and metrics",
    source="Tomsett et al. 2020, Sanity checks for saliency metrics",
    rows="metric",
    columns=(
        CheckColumn(title="alpha over samples", better="higher"),
        CheckColumn(title="alpha with other metrics", better="higher"),
    ),
    options=(),
)
def agreement_check(run: CheckedRun) -> CheckResult:
    """Do samples, and metrics, rank the methods alike?

    Krippendorff's alpha of rankings of the methods: 1 is full agreement, 0 that of random rankings, below 0 they oppose
    each other. Over samples, each sample ranks the methods by the metric: where alpha is low, many samples are needed,
    and no single one tells which method is better. With other metrics, the rankings on all samples are compared in
    pairs. Metrics that measure different properties need not agree: a low alpha says that they are not interchangeable.
    Everything is read from stored probes.
    """
    results, reader = run.evaluation.results, run.evaluation.reader
    values = run.evaluation.metric_values
    metrics = [name for name in values if all(name in results.methods[method].metrics for method in run.names)]
    if len(run.names) < 2 or not metrics:
        raise ValueError("`methods` must be two or more with a common metric, to rank them.")
    agreement = metric_agreement(
        {method: {metric: reader.curve(method, values[metric]) for metric in metrics} for method in run.names},
        high=results.soundness_up_to,
        resamples=results.settings.resamples,
        seed=run.seed,
    )
    reader.forget()
    heads = {metric: results.about(metric).short.rstrip(" ↑↓") for metric in metrics}
    sides = [f"{heads[name]} {_short(agreement.over_samples[name])}" for name in results.sides if name in metrics]
    single = f" On single samples, rankings agree by {', '.join(sides)}." if sides else ""
    return CheckResult(
        methods={
            heads[metric]: MethodCheck(values=(agreement.over_samples[metric], agreement.with_others[metric]))
            for metric in metrics
        },
        samples=results.data.samples,
        line=f"All {len(metrics)} metrics agree on the ranking of {len(run.names)} methods with alpha = "
        f"{_short(agreement.together)}.{single}",
    )


def _short(alpha: Estimate) -> str:
    if alpha.value is None:
        return "–"
    return f"{alpha.value:.2f}" + ("" if alpha.interval is None else " [{:.2f}, {:.2f}]".format(*alpha.interval))
