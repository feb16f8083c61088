"""Beam search for the order of segments that scores best by a metric, sample by sample.

Of all sets of one size the search keeps the `width` most promising ones and extends each of them. Two orders of the
same segments are one set, and no set is scored twice.

Shapes: N samples, S = spatial shape, F segments of a sample, L levels, B sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.checks.result_store import ResultStore, digest_of
from twinlens.metrics.catalogue import describe_metric
from twinlens.metrics.curves import loss_area
from twinlens.metrics.removal import Deletion, Insertion, Road
from twinlens.probing.model_call import ANSWER, blaming, evaluating
from twinlens.probing.probe import Prober
from twinlens.probing.ranking import count_removed, rank_features
from twinlens.support.arrays import Floats, Integers
from twinlens.support.progress import Progress
from twinlens.support.randomness import stream

Sets = NDArray[np.bool_]
RankMetric = Road | Deletion | Insertion
"""A metric that depends on the ranking of features only."""


class OrderResult(NamedTuple):
    """The best order of a search."""

    order: tuple[int, ...]  # (F,) all segments, the one selected first in front
    score: float  # weighted sum of the scores of its sets
    calls: int  # number of sets that were scored


def search_order(
    score: Callable[[Sets], Floats], weights: Floats, *, width: int, generator: np.random.Generator
) -> OrderResult:
    """Search for an order whose sets score high.

    Args:
        score: from sets (B, F), True where a segment is selected, all of one size, to their scores (B,).
        weights: (F + 1,) weight of a set's score, by its size.
        width: number of sets of each size to extend; 1 is greedy.
        generator: decides between sets of equal score.
    """
    features = len(weights) - 1
    shuffled = generator.permutation(features)
    last = int(np.flatnonzero(weights).max(initial=0))  # any order will do after the last size with a weight
    beam: dict[bytes, tuple[float, tuple[int, ...]]] = {b"": (0.0, ())}
    calls, rest = 0, float(weights.sum() - weights[0])
    for size in range(1, last + 1):
        grown: dict[bytes, tuple[float, tuple[int, ...]]] = {}
        for before, order in beam.values():
            for feature in shuffled[~np.isin(shuffled, order)].tolist():
                key = np.packbits(_as_set((*order, feature), features)).tobytes()
                if key not in grown or grown[key][0] < before:
                    grown[key] = (before, (*order, feature))
        sets = np.stack([_as_set(order, features) for _, order in grown.values()])
        scores, calls = score(sets), calls + len(sets)
        rest -= weights[size]
        # Later sets are assumed to score as this one does: a set without weight can still be promising.
        sums = np.array([before for before, _ in grown.values()]) + weights[size] * scores
        best = np.argsort(-(sums + max(rest, 0.0) * scores), kind="stable")[: width if size < last else None]
        keys, orders = list(grown), [order for _, order in grown.values()]
        beam = {keys[k]: (float(sums[k]), orders[k]) for k in best}
    total, order = max(beam.values(), key=lambda entry: entry[0])
    remaining = shuffled[~np.isin(shuffled, order)].tolist()
    return OrderResult((*order, *remaining), total, calls)


def _as_set(order: tuple[int, ...], features: int) -> Sets:
    selected = np.zeros(features, dtype=bool)
    selected[list(order)] = True
    return selected


def order_map(order: Sequence[int], segments: Tensor) -> Tensor:
    """Return a map (*S) that ranks segments in an order, the most relevant first; 0 outside all segments."""
    values = torch.zeros(len(order) + 1)
    values[torch.tensor([*order])] = torch.arange(len(order), 0, -1, dtype=torch.float32)
    return values[segments]  # index -1, outside all segments, is the last value: zero


@dataclass(kw_only=True, eq=False)
class OrderSearch:
    """The search over all samples."""

    metric: RankMetric
    prober: Prober
    width: int
    store: ResultStore

    @cached_property
    def segments(self) -> Tensor:
        """(N, *S) the segments."""
        assert self.prober.segments is not None
        return self.prober.segments

    @cached_property
    def _column(self) -> int:
        if self.prober.respondent.regression:
            return ANSWER.index("predicted")
        return ANSWER.index("logit" if self.metric.performance == "logit" else "probability")

    def run(self, progress: Progress) -> tuple[Tensor, Integers]:
        """Return maps (N, *S) of the best orders and the number of model calls (N,), 0 for stored orders."""
        prober = self.prober
        maps, calls = torch.empty(self.segments.shape), np.zeros(len(prober.ids), dtype=np.int64)
        progress.begin({"search": len(prober.ids)})
        with evaluating(prober.model), torch.inference_mode():
            for k, name in enumerate(prober.ids):
                key = f"{name} {self._digest(k)}"
                order: Any = self.store.get(key)
                if order is None:
                    order, _, calls[k] = self._search(k)
                    self.store.put(key, [*order])
                maps[k] = order_map(order, self.segments[k])
                progress.advance("search", 1)
        return maps, calls

    def _digest(self, k: int) -> str:
        """Hash what the order of sample k depends on."""
        inputs, respondent = self.prober.inputs[k : k + 1], self.prober.respondent
        index = torch.tensor([k], device=respondent.device)
        answer = float(respondent.ask(inputs.to(respondent.device), index)[0, self._column])
        return digest_of(
            describe_metric(self.metric),
            [self.width, self.prober.how["seed"], str(respondent.labels[k])],
            f"{answer:.3g}",  # stands for the model; other batch sizes and machines change the last digits
            inputs.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes(),
            self.segments[k].numpy().tobytes(),
        )

    def _search(self, k: int) -> OrderResult:
        """Search for the best order of sample k."""
        prober, [sweep] = self.prober, self.metric.sweeps(None)
        name, segments, schedule = prober.ids[k], self.segments[k], sweep.schedule
        ranking = rank_features(torch.zeros(1, *segments.shape), ids=[name], seed=0, segments=segments[None])
        features, removed = int(ranking.features), count_removed(ranking, schedule)[0].tolist()
        keeps = schedule.order == "lerf"  # selected segments are kept, and removed otherwise
        sizes = [features - count if keeps else count for count in removed]
        weights, level_of = np.zeros(features + 1), dict[int, float]()
        shares = loss_area(np.array(self.metric.levels), np.eye(len(self.metric.levels)))  # of each level in the area
        for size, level, share in zip(sizes[1:], schedule.levels[1:], shares, strict=True):
            weights[size] += share
            level_of.setdefault(size, level)
        inputs = prober.inputs[k : k + 1].to(prober.respondent.device)

        def score(sets: Sets) -> Floats:
            noise = stream(prober.how["seed"], name, level_of.get(int(sets[0].sum()), 0.0))
            parts = [sets[start : start + prober.rows] for start in range(0, len(sets), prober.rows)]
            answers = [self._ask(k, inputs, part if keeps else ~part, noise) for part in parts]
            return np.concatenate(answers) * (1.0 if keeps else -1.0)

        generator = np.random.default_rng(stream(prober.how["seed"], name, "order search"))
        return search_order(score, weights, width=self.width, generator=generator)

    def _ask(self, k: int, inputs: Tensor, keep: Sets, noise: int) -> Floats:
        """Return the model's output (B,) for sample k with only the segments in `keep` (B, F)."""
        device = inputs.device
        assert self.metric.imputer is not None
        # Positions outside all segments, at -1, are always kept.
        padded = torch.nn.functional.pad(torch.from_numpy(keep), (0, 1), value=True).to(device)
        mask = padded[:, self.segments[k].to(device)]
        batch = inputs.expand(len(keep), *inputs.shape[1:]).contiguous()
        with blaming("imputer"):
            imputed = self.metric.imputer(batch, mask, [noise] * len(keep))
        index = torch.full((len(keep),), k, device=device)
        answers = self.prober.respondent.ask(imputed, index).to("cpu", torch.float64).numpy()
        return answers[:, self._column]
