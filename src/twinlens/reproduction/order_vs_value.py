"""Which metrics react to values, and which to the order alone? Maps whose values change much and whose order little.

Attribution is removed from maps and introduced into them by three schemes. A metric that reacts to values has to
separate original and modified maps: the least Hausdorff distance between two of the three curves must not be near zero.

There are two variants: ours, which keeps the order where possible, and the paper's literal one. In ours, several
modified maps share their order with another map: adding a constant changes no order, and the random changes raise the
same features. Probes by area are then equal, and only completeness, which removes by value, is measured for each;
soundness is computed from the other map's probes with the map's own attribution mass.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from twinlens.laboratory.modifications import MODIFICATIONS, SCHEMES
from twinlens.metrics.curves import Curve
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import soundness_from_probes
from twinlens.probing.ranking import count_removed, kept_mass, rank_features
from twinlens.reproduction.claims import RESAMPLES, Claim, average, by_construction, judge, listed, mean_of, too_few
from twinlens.reproduction.experiment import Experiment, ExperimentOptions, Outcome, plain, refuse_options
from twinlens.reproduction.experiment_setup import FEW_LEVELS, PHOTOGRAPHS, Setup, find_setup, paper_options, without
from twinlens.reproduction.method_comparison import compare_methods
from twinlens.reproduction.order_figures import METRICS, PAPER_DISTANCES, TITLES, draw, draw_distances
from twinlens.reproduction.order_maps import LITERAL, ORIGINAL, OURS, VARIANTS, Modified, modify
from twinlens.run.run_reader import Evaluation
from twinlens.statistics.bootstrap import bootstrap
from twinlens.support.arrays import Floats
from twinlens.support.correlation import pearson
from twinlens.support.estimate import Estimate
from twinlens.support.progress import Progress

VALUE_BASED, ORDER_BASED = METRICS[:2], METRICS[2:]
MAPS = (ORIGINAL, *MODIFICATIONS)
ORDER_KEPT = ("constant", "random")  # with these, two of the three maps have the same order in our variant
FACTOR, NEAR_ZERO, SLIGHT = 5.0, 0.05, 0.9
_SHOWN = ("gradcam", "constant")  # the curves of the figure
_CASES = tuple(product(SCHEMES, MODIFICATIONS))
_REORDERED = (("random", "introduce"), ("partial", "remove"), ("partial", "introduce"))
_SAME_ORDER: dict[tuple[str, str], tuple[str, ...]] = {
    ("constant", "remove"): (),
    ("constant", "introduce"): (),
    ("random", "remove"): ("random", "introduce"),
}
"""Maps of our variant that have the order of others: of the original, or of another modification."""

_ABSOLUTE = Completeness(relative=False)  # thresholds relative to a modified maximum would undo part of the change

SMALL: dict[str, Mapping[str, Any]] = {"gradcam": {}, "integrated_gradients": {"steps": 16}}
METHODS: dict[str, Mapping[str, Any]] = {
    "gradcam": {},
    "integrated_gradients": {},
    "extremal_perturbation": {"steps": 100},
}
"""The methods with their options, in a smoke run and otherwise."""

Versions = Mapping[str, Mapping[str, Curve]]
"""Curves of the original and the modified maps of one method by one scheme, by version and metric."""

Distances = Mapping[tuple[str, str, str], Estimate]
"""Least Hausdorff distances by method, scheme and metric."""


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    setup = find_setup(options, PHOTOGRAPHS)
    refuse_options(options, ["noise"], "none of its methods adds any")
    own = SMALL if setup.embedded else METHODS
    if options.paper:
        own = {name: paper_options(name, setup.model.module, options.noise) for name in METHODS}
    methods = {name: {"method": name, **method} for name, method in own.items()}
    runs = Runs(setup, without(methods, options, needed=_SHOWN[:1]), options, progress)
    curves = {OURS: runs.ours(), LITERAL: runs.literal()}
    distances = {variant: distances_of(own) for variant, own in curves.items()}
    orders = {variant: {scheme: runs.order_kept(scheme, variant) for scheme in SCHEMES} for variant in VARIANTS}
    curve_values = {name: _plain_curves(curves[OURS][_SHOWN][name]) for name in MAPS}
    tables = {variant: _table(own, list(runs.methods)) for variant, own in distances.items()}
    numbers = {
        "model": setup.model.name,
        "data": setup.samples.name,
        "samples": len(setup.samples),
        "performance": "accuracy",
        "distances": tables,
        "rank_correlation": {v: {scheme: r.value for scheme, r in own.items()} for v, own in orders.items()},
        "curves": {"of": list(_SHOWN), **curve_values},
    }
    cannot = "a dozen small photographs are too few" if setup.embedded else ""
    few = cannot or too_few(curves[OURS][_SHOWN][ORIGINAL]["soundness"])
    example = runs.example()
    return Outcome(
        numbers=numbers,
        claims=tuple(claim for v in VARIANTS for claim in _claims(v, distances[v], orders[v], cannot, few)),
        figures={
            "order-vs-value": lambda figure: draw(figure, example, curve_values),
            "distances": lambda figure: draw_distances(figure, tables),
        },
    )


class Runs:
    """Runs of the original and the modified maps, and their curves by method and scheme."""

    def __init__(
        self, setup: Setup, methods: Mapping[str, Any], options: ExperimentOptions, progress: Progress
    ) -> None:
        self.methods, self.seed, self.ids = methods, options.seed, setup.samples.ids
        self._compare = partial(
            compare_methods,
            setup,
            options=options,
            progress=progress,
            levels=FEW_LEVELS if setup.embedded else None,
            batch_size=12 if setup.embedded else 32,
            resamples=100,
        )
        self.modified = Modified(self._compare(methods, METRICS, folder="orders"))

    def _versions(self, cases: Sequence[tuple[str, str]], variant: str) -> dict[str, Any]:
        # A version identifies them. Their content changes when the run of the originals grows, which would prevent
        # resuming.
        return {
            _name(method, scheme, change): {
                "method": self.modified, "of": method, "change": change, "scheme": scheme, "variant": variant,
                "version": 1,
            }
            for method in self.methods
            for scheme, change in cases
        }  # fmt: skip

    def ours(self) -> dict[tuple[str, str], Versions]:
        """Measure our variant: one map of each order by area, and every map by value."""
        orders = self._compare({**self.methods, **self._versions(_REORDERED, OURS)}, METRICS, folder="orders")
        values = self._compare(self._versions(_CASES, OURS), {"completeness": _ABSOLUTE}, folder="values")
        originals = {method: {m: orders.curve(method, m) for m in METRICS} for method in self.methods}
        return {
            (method, scheme): {
                ORIGINAL: originals[method],
                **{
                    change: {
                        "completeness": values.curve(_name(method, scheme, change), "completeness"),
                        **self._by_area(orders, method, scheme, change),
                    }
                    for change in MODIFICATIONS
                },
            }
            for method, scheme in product(self.methods, SCHEMES)
        }

    def _by_area(self, orders: Evaluation, method: str, scheme: str, change: str) -> dict[str, Curve]:
        """Return the curves of modified maps by area, from the probes of maps with the same order if there are any."""
        name = _name(method, *_SAME_ORDER.get((scheme, change), (scheme, change)))
        curves = {metric: orders.curve(name, metric) for metric in ("soundness", *ORDER_BASED)}
        if (scheme, change) in _SAME_ORDER:
            table = curves["soundness"].table
            schedule, masses = table.settings.schedule, []
            for start in range(0, len(table.ids), self.modified.shard_size):
                ids = table.ids[start : start + self.modified.shard_size]
                maps = modify(self.modified.originals(method, ids), change, scheme, OURS, ids=ids, seed=self.seed)
                ranking = rank_features(maps, ids=ids, seed=self.seed)
                masses.append(kept_mass(ranking, count_removed(ranking, schedule), schedule.order).numpy())
            curves["soundness"] = soundness_from_probes(dataclasses.replace(table, kept_mass=np.concatenate(masses)))
        return curves

    def literal(self) -> dict[tuple[str, str], Versions]:
        """Measure the paper's variant, in which every version has its own order."""
        first = SCHEMES[0], ORIGINAL
        metrics = {metric: metric for metric in METRICS} | {"completeness": _ABSOLUTE}
        evaluation = self._compare(self._versions((first, *_CASES), LITERAL), metrics, folder="literal")
        curves = {
            (method, *case): {metric: evaluation.curve(_name(method, *case), metric) for metric in METRICS}
            for method, case in product(self.methods, (first, *_CASES))
        }
        return {
            (method, scheme): {
                ORIGINAL: curves[method, *first],
                **{change: curves[method, scheme, change] for change in MODIFICATIONS},
            }
            for method, scheme in product(self.methods, SCHEMES)
        }

    def order_kept(self, scheme: str, variant: str) -> Estimate:
        """Estimate the mean rank correlation of modified maps with the original ones, over at most 200 samples."""
        ids, correlations = self.ids[:200], []
        for method in self.methods:
            maps = self.modified.originals(method, ids)
            versions = [modify(maps, change, scheme, variant, ids=ids, seed=self.seed) for change in MAPS]
            original, *others = (
                rank_features(each, ids=ids, seed=self.seed).rank.double().numpy() for each in versions
            )
            correlations += [pearson(original, other) for other in others]
        return mean_of(np.mean(correlations, axis=0), ids)

    def example(self) -> dict[str, Floats]:
        """Return the original and the modified maps of the first sample."""
        ids = self.ids[:1]
        original = self.modified.originals(_SHOWN[0], ids)
        titles = {ORIGINAL: (SCHEMES[0], ORIGINAL)} | {
            f"{change}\n{scheme}": (scheme, change) for scheme, change in _CASES
        }
        return {
            title: modify(original, change, scheme, OURS, ids=ids, seed=self.seed)[0].numpy()
            for title, (scheme, change) in titles.items()
        }


def _name(method: str, scheme: str = "", change: str = "") -> str:
    return f"{method}-{scheme}-{change}" if scheme else method


def distances_of(curves: Mapping[tuple[str, str], Versions]) -> dict[tuple[str, str, str], Estimate]:
    """Estimate, by method, scheme and metric, the least Hausdorff distance between curves of two versions."""
    points, distances = cache(_points), {}  # the original curves are the same for every scheme
    for (method, scheme), versions in curves.items():
        for metric in METRICS:
            own = [version[metric] for version in versions.values()]
            pairs = [_hausdorff(points(one, metric), points(other, metric)) for one, other in combinations(own, 2)]
            value, *replicates = np.min(pairs, axis=0).tolist()
            distances[method, scheme, metric] = Estimate.of(value, np.array(replicates), samples=len(own[0].table))
    return distances


def _points(curve: Curve, metric: str) -> Floats:
    """Return the points of a curve, (1 + R, L, 2): as measured, and in each resample."""
    drawn = bootstrap(curve, resamples=RESAMPLES)
    values = np.vstack([curve.values, drawn.values])
    across = np.vstack([curve.performance, drawn.performance]) if metric == "soundness" else curve.levels
    return np.stack([np.broadcast_to(across, values.shape), values], axis=2)


def _hausdorff(one: Floats, other: Floats) -> Floats:
    """Return the Hausdorff distances (R,) between sets of points (R, L, 2), leaving out points without a value."""
    distances = []
    for a, b in zip(one, other, strict=True):
        gaps = cdist(a[np.isfinite(a[:, 1])], b[np.isfinite(b[:, 1])])
        distances.append(max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) if gaps.size else np.nan)
    return np.array(distances)


def _table(distances: Distances, methods: Sequence[str]) -> dict[str, Any]:
    """Return distances as results.json holds them: each, their means by scheme, and the mean and deviation of all."""

    def by_metric(over: Callable[[Floats], Any], chosen: Sequence[str], schemes: Sequence[str]) -> dict[str, Any]:
        each = [[distances[method, s, metric].value for method in chosen for s in schemes] for metric in METRICS]
        return dict(zip(METRICS, plain(over(np.array(values, dtype=float)) for values in each), strict=True))

    return {
        "mean": by_metric(np.mean, methods, SCHEMES),
        "deviation": by_metric(np.std, methods, SCHEMES),
        "by_scheme": {s: by_metric(np.mean, methods, [s]) for s in SCHEMES},
        "least": {method: {s: by_metric(np.mean, [method], [s]) for s in SCHEMES} for method in methods},
    }


def _plain_curves(curves: Mapping[str, Curve]) -> dict[str, Any]:
    return {
        metric: {
            "across": plain(curve.performance if metric == "soundness" else curve.levels),
            "values": plain(curve.values),
        }
        for metric, curve in curves.items()
    }


def _listed(means: Mapping[str, Estimate]) -> str:
    return listed({"ROAD" if metric == "road_morf" else metric: means[metric] for metric in METRICS})


def _claims(
    variant: str, distances: Distances, orders: Mapping[str, Estimate], cannot: str, few: str
) -> Iterator[Claim]:
    """Judge the claims about a variant; `few` is the reason why soundness cannot decide any."""
    judged, by = partial(judge, cannot=cannot), f"({variant})"

    def means(schemes: Sequence[str]) -> dict[str, Estimate]:
        return {m: average([d for (_, s, own), d in distances.items() if s in schemes and own == m]) for m in METRICS}

    mean, kept = means(SCHEMES), means(ORDER_KEPT)
    for metric in VALUE_BASED:
        for factor in (1.0, FACTOR):
            times = "larger than" if factor == 1 else "at least five times"
            yield judge(
                *(mean[metric] - mean[other] * factor for other in ORDER_BASED),
                text=f"{TITLES[metric]} tells original and modified maps apart: its least Hausdorff distance is "
                f"{times} that of ROAD and of deletion {by}.",
                source=f"Table 1 ({PAPER_DISTANCES[metric]} against 0.014 and 0.019), Fig. 7",
                measured=_listed(mean),
                ours=factor != 1,
                cannot=few if metric == "soundness" else cannot,
            )
    yield judged(
        *(NEAR_ZERO - mean[metric] for metric in ORDER_BASED),
        text=f"ROAD and deletion overlap: their least distances are near zero, below {NEAR_ZERO:g} {by}.",
        source="Table 1, Fig. 7d and 7e",
        measured=_listed(mean),
    )
    text = "Where maps have nearly one order and other values (constant, random)"
    yield judge(
        *(kept[metric] - NEAR_ZERO for metric in VALUE_BASED),
        text=f"{text}, completeness and soundness tell them apart {by}.",
        source="Section 5.2",
        measured=_listed(kept),
        cannot=few,
    )
    blind = f"{text}, ROAD and deletion do not {by}."
    if variant == OURS:
        reason = "two of the three maps have exactly one order"
        yield by_construction(text=blind, source="Section 5.2", measured=_listed(kept), reason=reason)
    else:
        overlap = [NEAR_ZERO - kept[metric] for metric in ORDER_BASED]
        yield judged(*overlap, text=blind, source="Section 5.2", measured=_listed(kept))
    yield judged(
        *(correlation - SLIGHT for correlation in orders.values()),
        text=f"The modifications change the order of features only slightly: rank correlation above {SLIGHT:g} {by}.",
        source="Section 5.2, caption of Fig. 7",
        measured=f"mean rank correlation with the original: {listed(orders, 'z.2f')}",
    )


EXPERIMENT = Experiment(
    title="Which metrics look at values, and which at the order alone?",
    source="Section 5.2, Fig. 7, Table 1, Table 3, appendix G.3",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
