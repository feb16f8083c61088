"""Do metrics notice values, or the order alone? Maps whose values change much and whose order changes little.

Attribution is removed from maps and introduced into them in three schemes. A metric that looks at values has to tell
original and modified maps apart: the least Hausdorff distance between two of the three curves must not be near zero.

It is done twice: in our variant, which keeps the order where it can, and to the letter of the paper's table. In ours,
several of the modified maps have the order of another one: adding a constant changes none, and at random both changes
lift the same features. Their probes by area are the same, so that only completeness, which removes by value, is
measured of each; soundness is read from the probes of the one with the other's attribution mass.

Shapes: N samples, S = spatial shape of a map, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from twinlens.laboratory.modifications import MODIFICATIONS, SCHEMES
from twinlens.metrics.curves import Curve
from twinlens.metrics.removal import Completeness
from twinlens.metrics.soundness import soundness_from_probes
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.outcome import Evaluation
from twinlens.probing.ranking import count_removed, kept_mass, rank_features
from twinlens.reproduction.claims import RESAMPLES, Estimate, average, by_construction, judge, mean_of, too_few
from twinlens.reproduction.experiment_setup import (
    FEW_LEVELS,
    PHOTOGRAPHS,
    Subject,
    find_subject,
    measured,
    paper_options,
    plain,
    refuse_options,
)
from twinlens.reproduction.method_comparison import compare_methods
from twinlens.reproduction.order_figures import METRICS, PAPER_DISTANCES, PERFORMANCE, TITLES, draw, draw_distances
from twinlens.reproduction.order_maps import LITERAL, ORIGINAL, OURS, VARIANTS, Modified, modify
from twinlens.reproduction.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.statistics.bootstrap import Bootstrap, bootstrap
from twinlens.support.arrays import Floats
from twinlens.support.correlation import pearson
from twinlens.support.progress import Progress

VALUE_BASED, ORDER_BASED = METRICS[:2], METRICS[2:]
MAPS = (ORIGINAL, *MODIFICATIONS)
ORDER_KEPT = ("constant", "random")  # by these, two of the three versions have one order in our variant
FACTOR, NEAR_ZERO, SLIGHT = 5.0, 0.05, 0.9
_SHOWN = ("gradcam", "constant")  # the curves of the figure
_REORDERED = (("random", "introduce"), ("partial", "remove"), ("partial", "introduce"))
_SAME_ORDER: dict[tuple[str, str], tuple[str, ...]] = {
    ("constant", "remove"): (),
    ("constant", "introduce"): (),
    ("random", "remove"): ("random", "introduce"),
}
"""Which maps of our variant have the order of others: of the original, or of another modification."""

Versions = Mapping[str, Mapping[str, Curve]]
"""Curves of the original and the modified maps of one method under one scheme, by version and metric."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured, and how."""

    methods: Mapping[str, Mapping[str, Any]]
    """The methods with their options."""

    levels: tuple[float, ...] | None
    """Shares removed for soundness; None for those of the paper."""

    batch_size: int
    """Inputs per call of the model, fixed because last bits depend on it."""


SMALL = Sizes(
    methods={
        "gradcam": {"method": "gradcam"},
        "integrated_gradients": {"method": "integrated_gradients", "steps": 16},
    },
    levels=FEW_LEVELS,
    batch_size=12,
)
OWN = Sizes(
    methods={
        "gradcam": {"method": "gradcam"},
        "integrated_gradients": {"method": "integrated_gradients"},
        "extremal_perturbation": {"method": "extremal_perturbation", "steps": 100},
    },
    levels=None,
    batch_size=32,
)


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, PHOTOGRAPHS)
    refuse_options(options, ["noise"], "no method of it adds any")
    sizes = SMALL if subject.embedded else OWN
    if options.paper:
        module = subject.model.module
        methods = {name: {"method": name, **paper_options(name, module, options.noise)} for name in OWN.methods}
        sizes = dataclasses.replace(OWN, methods=methods)
    sizes = dataclasses.replace(sizes, methods=measured(sizes.methods, options, needed=_SHOWN[:1]))
    runs = Runs(subject, sizes, options, progress)
    curves = {OURS: runs.ours(), LITERAL: runs.literal()}
    distances = {variant: distances_of(own) for variant, own in curves.items()}
    ids = subject.samples.ids[: min(len(subject.samples), 200)]
    orders = {
        variant: {scheme: _order_kept(runs.modified, sizes, scheme, variant, ids, options.seed) for scheme in SCHEMES}
        for variant in VARIANTS
    }
    shown = {name: _plain_curves(curves[OURS][_SHOWN][name]) for name in MAPS}
    tables = {variant: _table(own, list(sizes.methods)) for variant, own in distances.items()}
    numbers = {
        "model": subject.model.name,
        "data": subject.samples.name,
        "samples": len(subject.samples),
        "performance": PERFORMANCE,
        "distances": tables,
        "rank_correlation": {v: {scheme: r.value for scheme, r in own.items()} for v, own in orders.items()},
        "curves": {"of": list(_SHOWN), **shown},
    }
    cannot = "a dozen small photographs are too few" if subject.embedded else ""
    example = _example(runs.modified, subject.samples.ids[0], options.seed)
    figures = {
        "order-vs-value": lambda figure: draw(figure, example, shown),
        "distances": lambda figure: draw_distances(figure, tables),
    }
    claims = [c for v in VARIANTS for c in _claims(v, distances[v], orders[v], cannot)]
    return Outcome(numbers=numbers, claims=tuple(claims), figures=figures)


class Runs:
    """Runs of the original and the modified maps, and the curves that come from them."""

    def __init__(self, subject: Subject, sizes: Sizes, options: ExperimentOptions, progress: Progress) -> None:
        self.subject, self.sizes, self.options, self.progress = subject, sizes, options, progress
        self.modified = Modified(self._evaluate(sizes.methods, dict.fromkeys(METRICS), "orders"))

    def _evaluate(self, methods: Mapping[str, Any], metrics: Mapping[str, Any], folder: str) -> Evaluation:
        return compare_methods(
            self.subject,
            methods,
            {name: value or name for name, value in metrics.items()},
            self.sizes.levels,
            self.options,
            self.progress,
            folder=folder,
            batch_size=self.sizes.batch_size,
            resamples=100,
        )

    def _versions(self, cases: Sequence[tuple[str, str]], variant: str) -> dict[str, Any]:
        # Known by a version: by content they are others once the run of the originals has grown, and could not go on.
        return {
            _name(method, scheme, change): {
                "method": self.modified, "of": method, "change": change, "scheme": scheme, "variant": variant,
                "version": 1,
            }
            for method in self.sizes.methods
            for scheme, change in cases
        }  # fmt: skip

    def ours(self) -> dict[tuple[str, str], Versions]:
        """Measure our variant: by area one version of each order will do, by value each is another."""
        reordered = {**self.sizes.methods, **self._versions(_REORDERED, OURS)}
        orders = self._evaluate(reordered, dict.fromkeys(METRICS), "orders")
        everything = self._versions(tuple(product(SCHEMES, MODIFICATIONS)), OURS)
        values = self._evaluate(everything, {"completeness": _ABSOLUTE}, "values")
        curves: dict[tuple[str, str], Versions] = {}
        originals = {method: {m: orders.curve(method, m) for m in METRICS} for method in self.sizes.methods}
        for method, scheme in product(self.sizes.methods, SCHEMES):
            own = {ORIGINAL: originals[method]}
            for change in MODIFICATIONS:
                name = _name(method, *_SAME_ORDER.get((scheme, change), (scheme, change)))
                by_area = {m: orders.curve(name, m) for m in ("soundness", *ORDER_BASED)}
                if (scheme, change) in _SAME_ORDER:
                    mass = _mass(self.modified, by_area["soundness"], method, scheme, change, self.options.seed)
                    by_area["soundness"] = _with_mass(by_area["soundness"], mass)
                complete = values.curve(_name(method, scheme, change), "completeness")
                own[change] = {"completeness": complete, **by_area}
            curves[method, scheme] = own
        return curves

    def literal(self) -> dict[tuple[str, str], Versions]:
        """Measure the paper's variant, in which every version has an order of its own."""
        cases = [(SCHEMES[0], ORIGINAL), *product(SCHEMES, MODIFICATIONS)]
        found = self._evaluate(
            self._versions(cases, LITERAL), dict.fromkeys(METRICS) | {"completeness": _ABSOLUTE}, "literal"
        )
        curves = {
            (method, scheme, change): {m: found.curve(_name(method, scheme, change), m) for m in METRICS}
            for method in self.sizes.methods
            for scheme, change in cases
        }
        return {
            (method, scheme): {
                change: curves[method, SCHEMES[0] if change == ORIGINAL else scheme, change] for change in MAPS
            }
            for method, scheme in product(self.sizes.methods, SCHEMES)
        }


_ABSOLUTE = Completeness(relative=False)  # relative to a modified maximum, thresholds would take back a part of it


def _name(method: str, scheme: str = "", change: str = "") -> str:
    return f"{method}-{scheme}-{change}" if scheme else method


def _mass(modified: Modified, curve: Curve, method: str, scheme: str, change: str, seed: int) -> Floats:
    """Sum the attribution that each level of a sweep keeps of modified maps, (N, L), a few samples at a time."""
    ids, schedule, masses = curve.table.ids, curve.table.settings.schedule, []
    for start in range(0, len(ids), modified.shard_size):
        some = ids[start : start + modified.shard_size]
        maps = MODIFICATIONS[change](modified.originals(method, some), scheme, ids=some, seed=seed)
        ranking = rank_features(maps, ids=some, seed=seed)
        masses.append(kept_mass(ranking, count_removed(ranking, schedule), schedule.order).numpy())
    return np.concatenate(masses)


def _with_mass(curve: Curve, mass: Floats) -> SoundnessCurve:
    """Read soundness from the probes of maps that have the same order and other values."""
    assert isinstance(curve, SoundnessCurve)
    return soundness_from_probes(
        dataclasses.replace(curve.table, kept_mass=mass),
        epsilon=curve.epsilon,
        performance=curve.requested,
        protocol=curve.protocol,
    )


def distances_of(curves: Mapping[tuple[str, str], Versions]) -> dict[tuple[str, str, str], Estimate]:
    """Estimate, by method, scheme and metric, the least Hausdorff distance between curves of two versions."""
    drawn: dict[int, Floats] = {}  # of each curve, as the originals are the same under every scheme

    def points(curve: Curve) -> Floats:
        if id(curve) not in drawn:
            drawn[id(curve)] = _points(bootstrap(curve, resamples=RESAMPLES))
        return drawn[id(curve)]

    found = {}
    for (method, scheme), versions in curves.items():
        for metric in METRICS:
            own = [version[metric] for version in versions.values()]
            pairs = [_hausdorff(points(one), points(other)) for one, other in combinations(own, 2)]
            value, *replicates = np.min(pairs, axis=0).tolist()
            found[method, scheme, metric] = Estimate(
                value=value, replicates=np.array(replicates), samples=len(own[0].table), cannot=too_few(own[0])
            )
    return found


def _points(drawn: Bootstrap) -> Floats:
    """Return the points of a curve, (1 + R, L, 2): as measured, and in each resample."""
    values = np.vstack([drawn.curve.values, drawn.values])
    sound = isinstance(drawn.curve, SoundnessCurve)
    across = np.vstack([drawn.curve.performance, drawn.performance]) if sound else drawn.curve.levels
    return np.stack([np.broadcast_to(across, values.shape), values], axis=2)


def _hausdorff(one: Floats, other: Floats) -> Floats:
    """Return the Hausdorff distances (R,) between sets of points (R, L, 2), leaving out points without a value."""
    found = []
    for a, b in zip(one, other, strict=True):
        gaps = cdist(a[np.isfinite(a[:, 1])], b[np.isfinite(b[:, 1])])
        found.append(max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) if gaps.size else np.nan)
    return np.array(found)


def _table(distances: Mapping[tuple[str, str, str], Estimate], methods: Sequence[str]) -> dict[str, Any]:
    """Return distances as results.json holds them: each, their means by scheme, and the mean of all with its spread."""

    def by_metric(over: Callable[[list[float]], Any], chosen: Sequence[str], schemes: Sequence[str]) -> dict[str, Any]:
        each = [[distances[method, s, metric].value for method in chosen for s in schemes] for metric in METRICS]
        return dict(zip(METRICS, plain(float(over(values)) for values in each), strict=True))

    return {
        "mean": by_metric(np.mean, methods, SCHEMES),
        "deviation": by_metric(np.std, methods, SCHEMES),
        "by_scheme": {s: by_metric(np.mean, methods, [s]) for s in SCHEMES},
        "least": {method: {s: by_metric(np.mean, [method], [s]) for s in SCHEMES} for method in methods},
    }


def _order_kept(modified: Modified, sizes: Sizes, scheme: str, variant: str, ids: Sequence[str], seed: int) -> Estimate:
    """Estimate the mean rank correlation of modified maps with the original ones."""
    found = []
    for method in sizes.methods:
        maps = modified.originals(method, ids)
        versions = [modify(maps, change, scheme, variant, ids=ids, seed=seed) for change in MAPS]
        original, *others = (rank_features(each, ids=ids, seed=seed).rank.double().numpy() for each in versions)
        found += [pearson(original, other) for other in others]
    return mean_of(np.mean(found, axis=0), ids)


def _plain_curves(curves: Mapping[str, Curve]) -> dict[str, Any]:
    return {
        metric: {
            "across": plain(curve.performance if metric == "soundness" else curve.levels),
            "values": plain(curve.values),
        }
        for metric, curve in curves.items()
    }


def _listed(means: Mapping[str, Estimate]) -> str:
    return ", ".join(f"{TITLES[m].lower() if m != 'road_morf' else 'ROAD'} {means[m].value:z.3f}" for m in METRICS)


def _claims(
    variant: str, distances: Mapping[tuple[str, str, str], Estimate], orders: Mapping[str, Estimate], cannot: str
) -> Iterator[Claim]:
    judged, by = partial(judge, cannot=cannot), f"({variant})"

    def means(schemes: Sequence[str]) -> dict[str, Estimate]:
        return {m: average([d for (_, s, own), d in distances.items() if s in schemes and own == m]) for m in METRICS}

    mean, kept = means(SCHEMES), means(ORDER_KEPT)
    for metric in VALUE_BASED:
        for factor in (1.0, FACTOR):
            times = "larger than" if factor == 1 else "at least five times"
            yield judged(
                *(mean[metric] - mean[other] * factor for other in ORDER_BASED),
                text=f"{TITLES[metric]} tells original and modified maps apart: its least Hausdorff distance is "
                f"{times} that of ROAD and of deletion {by}.",
                source=f"Table 1 ({PAPER_DISTANCES[metric]} against 0.014 and 0.019), Fig. 7",
                measured=_listed(mean),
                ours=factor != 1,
            )
    yield judged(
        *(NEAR_ZERO - mean[metric] for metric in ORDER_BASED),
        text=f"ROAD and deletion overlap: their least distances are near zero, below {NEAR_ZERO:g} {by}.",
        source="Table 1, Fig. 7d and 7e",
        measured=_listed(mean),
    )
    text = "Where maps have nearly one order and other values (constant, random)"
    yield judged(
        *(kept[metric] - NEAR_ZERO for metric in VALUE_BASED),
        text=f"{text}, completeness and soundness tell them apart {by}.",
        source="Section 5.2",
        measured=_listed(kept),
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
        measured="mean rank correlation with the original: "
        + ", ".join(f"{scheme} {correlation.value:z.2f}" for scheme, correlation in orders.items()),
    )


def _example(modified: Modified, name: str, seed: int) -> dict[str, Floats]:
    """Return the original and the modified maps of one sample."""
    original = modified.originals(_SHOWN[0], [name])
    maps = {ORIGINAL: modify(original, ORIGINAL, SCHEMES[0], OURS, ids=[name], seed=seed)[0].numpy()}
    for scheme, change in product(SCHEMES, MODIFICATIONS):
        maps[f"{change}\n{scheme}"] = modify(original, change, scheme, OURS, ids=[name], seed=seed)[0].numpy()
    return maps


EXPERIMENT = Experiment(
    title="Which metrics look at values, and which at the order alone?",
    source="Section 5.2, Fig. 7, Table 1, Table 3, appendix G.3",
    run=run,
    stand_in="12 photographs of 128 × 128 pixels and EfficientNet-lite0 stand for ImageNet and VGG16",
)
