"""A ceiling: how well could any map score by a metric of rankings, on these inputs?

The order in which segments are removed (deletion, ROAD) or kept (insertion) is optimised, as in TRACE (Wang & Wang
2024). A method is measured on the same segments; its share of the ceiling is (method - chance) / (ceiling - chance),
where chance is the mean of random orders.

Shapes: N samples, C channels, S = spatial shape, F segments of a sample.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.order_search import OrderSearch, RankMetric, order_map
from twinlens.checks.result_store import ResultStore
from twinlens.checks.sample_scores import SampleScores
from twinlens.data.segments import SEGMENTS, equal_parts, find_segments
from twinlens.errors import unknown
from twinlens.imputation.imputers import ConstantImputer, Imputer, LinearImputer, TokenImputer, restore_imputer
from twinlens.metrics.catalogue import METRICS
from twinlens.metrics.curves import Curve, RemovalCurve
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.maps import spatial_shape
from twinlens.probing.model_call import Labels, Model, check_inputs
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.run.check_records import FOLDER, CheckColumn, MethodCheck
from twinlens.support.arguments import checked, fill_options
from twinlens.support.arrays import ArrayLike, Floats, Integers, as_array
from twinlens.support.estimate import Estimate
from twinlens.support.fields import check_count, check_types
from twinlens.support.progress import Progress, shown_progress
from twinlens.support.randomness import stream
from twinlens.support.resampling import draw
from twinlens.support.signatures import lists_options

RANKED = ("deletion", "insertion", "road_morf", "road_lerf")
"""Metrics that depend on the ranking of features only."""
_MOST = 10**6
_SCORES = ("probability", "logit", "score")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ceiling:
    """The best orders of segments that a search found, and how they score."""

    metric: RankMetric
    """The optimised metric."""

    maps: Tensor
    """(N, *S) maps that rank the segments in these orders."""

    segments: Tensor
    """(N, *S) the segments."""

    values: Floats
    """(N,) area of each sample's curve."""

    chance: Floats
    """(N,) mean area for random orders."""

    calls: Integers
    """(N,) model calls of the search; 0 for a stored order."""

    ids: tuple[str, ...]
    """Sample ids."""

    seed: int
    """Seed of ties, noise, random orders and the search."""

    def __post_init__(self) -> None:
        check_types(self, but=("maps", "segments", "values", "chance", "calls"))
        for name in ("values", "chance", "calls"):
            if as_array(getattr(self, name), name).shape != (len(self.ids),):
                raise ValueError(f"`{name}` must hold one number for each of the {len(self.ids)} samples of `ids`.")

    def __repr__(self) -> str:
        return (
            f"Ceiling({self.metric.name} {self.values.mean():.3f}, by chance {self.chance.mean():.3f}, "
            f"{len(self.ids)} samples)"
        )

    def measure(self, model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **how: Any) -> Curve:
        """Measure maps by the same metric on the same segments, for `share`; arguments as in `measure_metric`."""
        how |= {"segments": self.segments, "ids": self.ids, "seed": self.seed}
        return _measure(self.metric, Prober(model, inputs, labels, imputer=self.metric.imputer, **how), maps)

    def share(self, curve: Curve, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return a method's share of the ceiling, from its curve by `measure`, with its bootstrap interval."""
        areas = curve.area_per_sample()
        if not curve.by_rank or areas is None or curve.table.ids != self.ids:
            raise ValueError("`curve` must have the ceiling's samples, metric and segments: compute it by `measure`.")
        gain, attainable = areas - self.chance, self.values - self.chance
        counts = draw(self.ids, resamples, seed)
        value = None if attainable.sum() == 0 else float(gain.sum() / attainable.sum())
        # Both are negative for a metric of which less is better.
        below, sign = counts @ attainable, np.sign(attainable.sum())
        replicates = np.full(len(counts), np.nan)
        np.divide(counts @ gain, below, out=replicates, where=sign * below > 0)
        return Estimate.of(value, replicates, samples=len(self.ids), confidence=confidence)


@checked
@lists_options
def ceiling(
    model: Model,
    inputs: ArrayLike,
    labels: Labels,
    *,
    metric: Any = "deletion",
    width: int = 2,
    orders: int = 10,
    out: str | os.PathLike[str] | None = None,
    **how: Unpack[ProbeOptions],
) -> Ceiling:
    """Search for the order of segments that scores best by a metric, sample by sample.

    With F segments a sample takes about `width` · F² / 2 model calls. The default is 49 segments of equal size.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        metric: "deletion", "insertion", "road_morf" or "road_lerf", by the target's probability; or such a metric as a
            value, with `performance` "probability", "logit" or "score".
        width: beam width of the search; 1 is greedy, larger values look ahead.
        orders: number of random orders of each sample, whose mean is chance.
        out: FILE.json that stores each order when it is complete. With it, an interrupted search resumes. Orders of
            other settings, samples or models are not used.

    Example:
        >>> def model(x):
        ...     score = x @ torch.tensor([1.0, 4.0, 2.0])
        ...     return torch.stack([score, -score], dim=1)
        >>> best = ceiling(model, torch.ones(2, 3), [0, 0], metric="deletion")
        >>> best.maps
        tensor([[1., 3., 2.],
                [1., 3., 2.]])
        >>> maps = torch.tensor([[1.0, 2.0, 3.0]]).expand(2, -1)
        >>> 0 < best.share(best.measure(model, torch.ones(2, 3), [0, 0], maps)).value < 1
        True
    """
    regression = how.get("target") is not None or as_array(labels, "labels").dtype.kind == "f"
    neighbours = np.ndim(inputs) > 2
    imputer = LinearImputer() if neighbours else ConstantImputer(0.0)
    chosen = _find_metric(metric, imputer, neighbours=neighbours, regression=regression)
    check_count("width", width, _MOST)
    check_count("orders", orders, _MOST)
    if how.get("segments") is None and not isinstance(chosen.imputer, TokenImputer):
        batch, names = check_inputs(inputs, how.get("ids"), tokens=True)
        parts = equal_parts(spatial_shape(batch.shape), SEGMENTS)
        how = {**how, "segments": parts.expand(len(names), *parts.shape)}
    progress = fill_options(ProbeOptions, how)["progress"]
    how.pop("progress", None)  # of the search, not of its probes
    prober = Prober(model, inputs, labels, imputer=chosen.imputer, **how)
    search = OrderSearch(metric=chosen, prober=prober, width=width, store=ResultStore(out))
    with shown_progress(progress) as shown:
        chance = _measure_chance(chosen, prober, search.segments, orders, shown)
        maps, calls = search.run(shown)
    return Ceiling(
        metric=chosen,
        maps=maps,
        segments=search.segments,
        values=_areas(_measure(chosen, prober, maps)),
        chance=chance,
        calls=calls,
        ids=prober.ids,
        seed=prober.how["seed"],
    )


def _find_metric(metric: Any, imputer: Imputer, *, neighbours: bool, regression: bool) -> RankMetric:
    if isinstance(metric, str):
        if metric not in RANKED:
            raise unknown("metric", metric, RANKED, or_else=", or such a metric as a value")
        named: Any = METRICS[metric]
        metric = dataclasses.replace(named, performance="score" if regression else "probability")
    if not getattr(metric, "by_rank", False):
        raise TypeError(
            f"`metric` must depend on ranks only: one of {', '.join(RANKED)}, or such a metric as a value; got "
            f"{type(metric).__name__}."
        )
    if metric.performance not in _SCORES:
        raise ValueError(
            f"`metric` must measure a score of each sample, with `performance` one of {', '.join(_SCORES)}; got "
            f"{metric.performance!r}. The accuracy of one sample is 0 or 1, which is too coarse for a search."
        )
    ranked: RankMetric = metric
    return ranked.bound(imputer, neighbours=neighbours)


def _measure(metric: RankMetric, prober: Prober, maps: ArrayLike) -> RemovalCurve:
    [sweep] = metric.sweeps(None)
    return metric.read([prober.sweep(prober.rank(maps), sweep.schedule, sweep.imputer)])


def _areas(curve: Curve) -> Floats:
    areas = curve.area_per_sample()
    assert areas is not None  # `performance` is a score of each sample
    return areas


def _measure_chance(metric: RankMetric, prober: Prober, segments: Tensor, orders: int, progress: Progress) -> Floats:
    """Return the mean area (N,) of random orders."""
    progress.begin({"random orders": orders})
    total = np.zeros(len(prober.ids))
    for number in range(orders):
        maps = torch.empty(segments.shape)
        for row, own, name in zip(maps, segments, prober.ids, strict=True):
            generator = np.random.default_rng(stream(prober.how["seed"], name, "chance", number))
            row.copy_(order_map(generator.permutation(int(own.max()) + 1).tolist(), own))
        total += _areas(_measure(metric, prober, maps))
        progress.advance("random orders", 1)
    return total / orders


@partial(
    CheckDefinition,
    title="Share of the ceiling",
    source="Wang & Wang 2024, Benchmarking deletion metrics with the principled explanations (TRACE)",
    columns=(
        CheckColumn(title="share of the ceiling", better="higher", beside="of\nceiling"),
        CheckColumn(title="area", better="neither"),
    ),
    options=("limit", "metric", "segments", "width"),
)
def ceiling_check(run: CheckedRun) -> CheckResult:
    """How close does a method come to the best order of segments?

    A search looks for the order of segments that scores best. The share is (method - chance) / (ceiling - chance): 0
    for random orders, 1 for the best order of the search. The search may miss the best order, and a method can exceed
    1. An order that scores best exploits the metric, for example with inputs unlike any data: it is a ceiling, not an
    ideal explanation.
    """
    options, directory, samples = run.options, run.evaluation.run, run.samples
    model, data = directory.manifest.model, directory.manifest.data
    if data.feature_kind == "channels":
        raise ValueError("`name` ceiling orders segments of positions; the features of this run are single channels.")
    own = data.segments if data.segments and data.segments.startswith(("slic", "grid")) else "grid"
    segments = options.segments or own
    imputer = run.evaluation.imputer or restore_imputer(run.evaluation.results.settings.imputer)
    regression = model.task != CLASSIFICATION
    metric = _find_metric(options.metric, imputer, neighbours=data.has_neighbours, regression=regression)
    how: dict[str, Any] = {"batch_size": directory.manifest.execution.batch_size, "output": model.scale}
    arguments = (run.model, run.inputs, samples.labels)
    best = ceiling(
        *arguments,
        metric=metric,
        width=options.width,
        segments=find_segments(segments, samples).of(samples, run.inputs),
        ids=samples.ids,
        seed=run.seed,
        out=directory.path / FOLDER / "ceiling" / "orders.json",
        progress=run.progress,
        **how,
    )

    def measure(name: str) -> MethodCheck:
        curve = best.measure(*arguments, run.stored_maps(name), **how)
        area = SampleScores(name="area", values=_areas(curve), ids=samples.ids)
        return MethodCheck(values=(best.share(curve, seed=run.seed), *run.estimates([area])))

    fewest, most = (int(end) + 1 for end in best.segments.flatten(1).amax(dim=1).aminmax())
    note = (
        f"The best orders of {fewest if fewest == most else f'{fewest} to {most}'} segments score "
        f"{best.values.mean():.3f} ({options.metric}), random orders {best.chance.mean():.3f}. Methods are measured on "
        "the same segments, each with the mean of its map, and not pixel by pixel."
    )
    return run.each_method(measure, notes=[note])
