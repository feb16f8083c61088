"""A ceiling: how well could any map do by a metric that goes by rank, on these inputs?

Inputs are cut into a few dozen segments, and the order in which they are removed (deletion, ROAD) or kept (insertion)
is searched for what scores best, as TRACE does (Wang & Wang 2024, Benchmarking deletion metrics with the principled
explanations). A method is then measured on the same segments, and its share of what is attainable is

    (method - chance) / (ceiling - chance),

where chance is the mean of random orders: 0 for a map that knows nothing, 1 for one that does as well as the best order
that was found. No search is sure to find the best order of all, so that a method may come out above 1.

Soundness and completeness need none: they are shares of what there is by their definitions.

Shapes: N samples, C channels, S = spatial shape, P places of a map, F segments of a sample, L levels, B rows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from twinlens.checks.order_search import Sets, search_order
from twinlens.checks.order_store import KeptOrder, OrderStore
from twinlens.data.segments import SEGMENTS, equal_parts
from twinlens.errors import unknown
from twinlens.imputation.imputers import ConstantImputer, LinearImputer, TokenImputer
from twinlens.metrics.catalogue import METRICS, describe_metric
from twinlens.metrics.curves import Curve, RemovalCurve, loss_area
from twinlens.metrics.removal import Deletion, Insertion, Road
from twinlens.probing.maps import spatial_shape
from twinlens.probing.model_call import ANSWER, Labels, Model, blaming, check_inputs, evaluating
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.probing.ranking import count_removed, rank_features
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, Integers, as_array
from twinlens.support.estimate import Estimate
from twinlens.support.fields import check_count
from twinlens.support.progress import Bars, Progress, Quiet
from twinlens.support.randomness import stream
from twinlens.support.resampling import draw
from twinlens.support.signatures import lists_options

RANKED = ("deletion", "insertion", "road_morf", "road_lerf")
"""Metrics that go by rank."""
_MOST = 10**6
_SCORES = ("probability", "logit", "score")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ceiling:
    """The best orders of segments that were found."""

    metric: Road | Deletion | Insertion
    """What they were searched for."""

    maps: Tensor
    """(N, *S) maps that rank the segments in these orders."""

    segments: Tensor
    """(N, *S) the segments."""

    values: Floats
    """(N,) area of the metric's curve of each sample."""

    chance: Floats
    """(N,) the same for random orders, on average."""

    calls: Integers
    """(N,) calls of the model that the search took; 0 where the order was known."""

    ids: tuple[str, ...]
    """One name per sample."""

    seed: int
    """Seed of ties and noise, of random orders, and of the search."""

    def __repr__(self) -> str:
        return (
            f"Ceiling({self.metric.name} {self.values.mean():.3f}, by chance {self.chance.mean():.3f}, "
            f"{len(self.ids)} samples)"
        )

    def measure(self, model: Model, inputs: ArrayLike, labels: Labels, maps: ArrayLike, **how: Any) -> Curve:
        """Measure maps by the same metric on the same segments, for `share`; arguments as in `measure_metric`."""
        prober = Prober(
            model,
            inputs,
            labels,
            imputer=self.metric.imputer,
            **how | {"segments": self.segments, "ids": self.ids, "seed": self.seed},
        )
        return _measure(self.metric, prober, maps)

    def share(self, curve: Curve, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the share of what is attainable that a method attains, with its bootstrap interval.

        Args:
            curve: of the method, by `measure`.
            confidence: coverage of the interval.
            resamples: number of resamples; method, chance and ceiling are resampled together.
            seed: seed of the resampling.
        """
        own = curve.area_per_sample()
        if not isinstance(curve, RemovalCurve) or own is None or curve.table.ids != self.ids:
            raise ValueError("`curve` must be of the ceiling's own samples, metric and segments: take it by `measure`.")
        gain, attainable = own - self.chance, self.values - self.chance
        counts = draw(self.ids, resamples, seed)
        value = None if attainable.sum() == 0 else float(gain.sum() / attainable.sum())
        # Of a metric by which less is better both are negative.
        below, sign = counts @ attainable, np.sign(attainable.sum())
        replicates = np.full(len(counts), np.nan)
        np.divide(counts @ gain, below, out=replicates, where=sign * below > 0)
        return Estimate.of(value, replicates, confidence=confidence, samples=len(self.ids))


@checked
@lists_options()
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

    With F segments a sample takes about `width` · F² / 2 calls of the model. Segments are 49 parts of equal
    size by default.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        labels: (N,) target classes, or target values for a regression model.
        metric: "deletion", "insertion", "road_morf" or "road_lerf", by the target's probability; or such a metric as a
            value, whose `performance` is "probability", "logit" or "score".
        width: how many sets of segments of each size are followed; 1 is greedy, more look ahead.
        orders: random orders of each sample, whose mean is chance.
        out: FILE.json that keeps each order as soon as it is found, so that a search goes on after an interruption.
            Orders of other samples, or of a model that answers otherwise, are found anew.

    Example:
        >>> def model(x):
        ...     score = x @ torch.tensor([1.0, 4.0, 2.0])
        ...     return torch.stack([score, -score], dim=1)
        >>> found = ceiling(model, torch.ones(2, 3), [0, 0], metric="deletion")
        >>> found.maps
        tensor([[1., 3., 2.],
                [1., 3., 2.]])
        >>> maps = torch.tensor([[1.0, 2.0, 3.0]]).expand(2, -1)
        >>> 0 < found.share(found.measure(model, torch.ones(2, 3), [0, 0], maps)).value < 1
        True
    """
    wanted = _find_metric(metric, neighbours=np.ndim(inputs) > 2, regression=_is_regression(labels, how))
    check_count("width", width, _MOST)
    check_count("orders", orders, _MOST)
    if how.get("segments") is None and not isinstance(wanted.imputer, TokenImputer):
        given, names = check_inputs(inputs, how.get("ids"), tokens=True)
        parts = equal_parts(spatial_shape(given.shape), SEGMENTS)
        how = {**how, "segments": parts.expand(len(names), *parts.shape)}
    progress = how.pop("progress", False)
    prober = Prober(model, inputs, labels, imputer=wanted.imputer, **how)
    assert prober.segments is not None
    store = OrderStore(out, metric=describe_metric(wanted), width=width, seed=prober.how["seed"])
    bars = Bars(shown=progress) if isinstance(progress, bool) and progress else nullcontext(progress or Quiet())
    with bars as shown:
        chance = _by_chance(wanted, prober, orders, shown)
        search = _Search(metric=wanted, prober=prober, width=width, store=store)
        maps, calls = search.all(shown)
    values = _areas(_measure(wanted, prober, maps))
    return Ceiling(
        metric=wanted,
        maps=maps,
        segments=prober.segments,
        values=values,
        chance=chance,
        calls=calls,
        ids=prober.ids,
        seed=prober.how["seed"],
    )


def _is_regression(labels: Labels, how: ProbeOptions) -> bool:
    return how.get("target") is not None or as_array(labels, "labels").dtype.kind == "f"


def _find_metric(metric: Any, *, neighbours: bool, regression: bool) -> Road | Deletion | Insertion:
    if isinstance(metric, str):
        if metric not in RANKED:
            raise unknown("metric", metric, RANKED, or_else=", or such a metric as a value")
        named: Any = METRICS[metric]
        metric = dataclasses.replace(named, performance="score" if regression else "probability")
    if not isinstance(metric, (Road, Deletion, Insertion)):
        raise TypeError(
            f"`metric` must go by rank: one of {', '.join(RANKED)}, or such a metric as a value; got "
            f"{type(metric).__name__}."
        )
    if metric.performance not in _SCORES:
        raise ValueError(
            f"`metric` must have a score of each sample as its performance, one of {', '.join(_SCORES)}; got "
            f"{metric.performance!r}. An accuracy of one sample is 0 or 1, and nothing to search by."
        )
    return metric.bound(LinearImputer() if neighbours else ConstantImputer(0.0), neighbours=neighbours)


def _measure(metric: Road | Deletion | Insertion, prober: Prober, maps: ArrayLike) -> RemovalCurve:
    [sweep] = metric.sweeps(None)
    return metric.read([prober.sweep(prober.rank(maps), sweep.schedule, sweep.imputer)])


def _areas(curve: RemovalCurve) -> Floats:
    found = curve.area_per_sample()
    assert found is not None  # the performance is one of each sample
    return found


def _by_chance(metric: Road | Deletion | Insertion, prober: Prober, orders: int, progress: Progress) -> Floats:
    """Measure random orders, and return their mean (N,)."""
    assert prober.segments is not None
    progress.begin({"random orders": orders})
    total = np.zeros(len(prober.ids))
    for number in range(orders):
        maps = torch.empty(prober.segments.shape)
        for row, own, name in zip(maps, prober.segments, prober.ids, strict=True):
            drawn = np.random.default_rng(stream(prober.how["seed"], name, "chance", number))
            row.copy_(_as_map(drawn.permutation(int(own.max()) + 1).tolist(), own))
        total += _areas(_measure(metric, prober, maps))
        progress.advance("random orders", 1)
    return total / orders


def _as_map(order: Sequence[int], segments: Tensor) -> Tensor:
    """Make a map (*S) that ranks segments in an order, the most relevant first; 0 for places that are none."""
    values = torch.zeros(len(order) + 1)
    values[torch.tensor([*order])] = torch.arange(len(order), 0, -1, dtype=torch.float32)
    return values[segments]  # the last one, at -1, is zero


@dataclass(kw_only=True, eq=False)
class _Search:
    """The search over all samples."""

    metric: Road | Deletion | Insertion
    prober: Prober
    width: int
    store: OrderStore

    def all(self, progress: Progress) -> tuple[Tensor, Integers]:
        """Search the samples one by one; return maps (N, *S) and the number of calls (N,)."""
        prober = self.prober
        assert prober.segments is not None
        maps, calls = torch.empty(prober.segments.shape), np.zeros(len(prober.ids), dtype=np.int64)
        progress.begin({"search": len(prober.ids)})
        with evaluating(prober.model), torch.inference_mode():
            for k, name in enumerate(prober.ids):
                sample = self._describe(k)
                order = self.store.find(name, sample)
                if order is None:
                    order, calls[k] = self._one(k)
                    self.store.keep(name, dataclasses.replace(sample, order=order))
                maps[k] = _as_map(order, prober.segments[k])
                progress.advance("search", 1)
        return maps, calls

    def _one(self, place: int) -> tuple[tuple[int, ...], int]:
        """Search one sample; return its order and the number of calls."""
        prober, [sweep] = self.prober, self.metric.sweeps(None)
        assert prober.segments is not None
        name, own, schedule = prober.ids[place], prober.segments[place], sweep.schedule
        ranking = rank_features(torch.zeros(1, *own.shape), ids=[name], seed=0, segments=own[None])
        features, removed = int(ranking.features), count_removed(ranking, schedule)[0].tolist()
        keeps = schedule.order == "lerf"  # what is selected first is kept longest
        sizes = [features - count if keeps else count for count in removed]
        weights, level_of = np.zeros(features + 1), dict[int, float]()
        for size, level, share in zip(sizes[1:], schedule.levels[1:], _level_weights(self.metric.levels), strict=True):
            weights[size] += share
            level_of.setdefault(size, level)
        inputs = prober.inputs[place : place + 1].to(prober.respondent.device)

        def score(sets: Sets) -> Floats:
            size = int(sets[0].sum())
            number = stream(prober.how["seed"], name, level_of.get(size, 0.0))
            found = [self._ask(place, inputs, part if keeps else ~part, number) for part in _split(sets, prober.rows)]
            return np.concatenate(found) * (1.0 if keeps else -1.0)

        generator = np.random.default_rng(stream(prober.how["seed"], name, "order search"))
        found = search_order(score, weights, width=self.width, generator=generator)
        return found.order, found.calls

    def _ask(self, place: int, inputs: Tensor, keep: Sets, number: int) -> Floats:
        """Return the score (B,) of one sample with the segments that are kept, (B, F)."""
        prober, device = self.prober, inputs.device
        assert prober.segments is not None
        assert self.metric.imputer is not None
        # Places that belong to no segment, at -1, always stay.
        padded = torch.nn.functional.pad(torch.from_numpy(keep), (0, 1), value=True).to(device)
        mask = padded[:, prober.segments[place].to(device)]
        with blaming("imputer"):
            imputed = self.metric.imputer(
                inputs.expand(len(keep), *inputs.shape[1:]).contiguous(), mask, [number] * len(keep)
            )
        index = torch.full((len(keep),), place, device=device)
        answers = prober.respondent.ask(imputed, index).to("cpu", torch.float64).numpy()
        return answers[:, ANSWER.index(self._column)]

    @property
    def _column(self) -> str:
        if self.prober.respondent.regression:
            return "predicted"
        return "logit" if self.metric.performance == "logit" else "probability"

    def _describe(self, place: int) -> KeptOrder:
        """Describe a sample, so that its order is known again."""
        prober = self.prober
        assert prober.segments is not None
        inputs = prober.inputs[place : place + 1]
        index = torch.tensor([place], device=prober.respondent.device)
        answer = prober.respondent.ask(inputs.to(prober.respondent.device), index)[0, ANSWER.index(self._column)]
        digest = hashlib.blake2b(inputs.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes(), digest_size=16)
        digest.update(prober.segments[place].numpy().tobytes())
        digest.update(str(prober.respondent.labels[place]).encode())
        return KeptOrder(digest=digest.hexdigest(), answer=float(answer))


def _split(sets: Sets, rows: int) -> list[Sets]:
    return [sets[start : start + rows] for start in range(0, len(sets), rows)]


def _level_weights(levels: Any) -> Floats:
    """Return what the score at each level counts in the area of the curve, (L,); together 1."""
    return loss_area(np.array(levels), np.eye(len(levels)))
