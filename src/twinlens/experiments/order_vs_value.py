"""Do metrics notice values, or the order alone? Maps whose values change much and whose order changes little.

Attribution is removed from maps and introduced into them in three schemes. A metric that looks at values has to tell
original and modified maps apart: the least Hausdorff distance between two of the three curves must not be near zero.

Several of the modified maps have the order of another one: adding a constant changes none, and at random both changes
lift the same features. Their probes by area are the same, so that only completeness, which removes by value, is
measured of each; soundness is read from the probes of the one with the other's attribution mass.

Shapes: N samples, S = spatial shape of a map, L levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twinlens.core.arrays import ArrayLike, Floats
from twinlens.core.calling import Labels, Model
from twinlens.core.correlation import pearson
from twinlens.core.ordering import count_removed, kept_mass, rank_features
from twinlens.core.progress import Progress
from twinlens.evaluation import evaluate
from twinlens.experiments.order_figures import METRICS, PAPER_DISTANCES, PERFORMANCE, TITLES, draw, draw_distances
from twinlens.experiments.outcome import Claim, Experiment, ExperimentOptions, Outcome
from twinlens.experiments.subject import FEW_LEVELS, PHOTOGRAPHS, Subject, find_subject, plain
from twinlens.laboratory.modifications import MODIFICATIONS, SCHEMES
from twinlens.metrics.curves import Curve
from twinlens.metrics.soundness import soundness_from_probes
from twinlens.metrics.soundness_curve import SoundnessCurve
from twinlens.running.run_reader import Evaluation
from twinlens.statistics.bootstrap import hausdorff

VALUE_BASED, ORDER_BASED = METRICS[:2], METRICS[2:]
MAPS = ("original", *MODIFICATIONS)
ORDER_KEPT = ("constant", "random")  # by these, two of the three versions have one order
FACTOR, NEAR_ZERO = 5.0, 0.05
_SHOWN = ("gradcam", "constant")  # the curves of the figure
_REORDERED = (("random", "introduce"), ("partial", "remove"), ("partial", "introduce"))
_SAME_ORDER: dict[tuple[str, str], tuple[str, ...]] = {
    ("constant", "remove"): (),
    ("constant", "introduce"): (),
    ("random", "remove"): ("random", "introduce"),
}
"""Which modified maps have the order of others: of the original, or of another modification."""


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
        "extremal_perturbation": {"method": "extremal_perturbation", "steps": 40},
    },
    levels=FEW_LEVELS,
    batch_size=20,
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
PAPER = dataclasses.replace(
    OWN, methods={name: {"method": name} for name in ("gradcam", "integrated_gradients", "extremal_perturbation")}
)


class Modified:
    """Modifies the maps of a run; a method that `evaluate` can call."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.run = evaluation.run
        self.shard_size = self.run.manifest.execution.shard_size
        self.places = {name: place for place, name in enumerate(evaluation.ids())}

    def __call__(
        self,
        model: Model,
        inputs: ArrayLike,
        targets: Labels,
        *,
        ids: Sequence[str],
        seed: int,
        of: str,
        change: str,
        scheme: str,
        absolute: bool = False,
    ) -> Tensor:
        """Return the modified maps (N, *S) of these samples, whatever the model.

        Args:
            model: not used, as are `inputs` and `targets`.
            inputs: not used.
            targets: not used.
            ids: names of the samples.
            seed: seed of the modification.
            of: method whose maps are modified.
            change: a name in `MODIFICATIONS`.
            scheme: a name in `SCHEMES`.
            absolute: whether the maps are to be read with absolute thresholds; see `for_absolute_thresholds`.
        """
        del model, inputs, targets
        maps = MODIFICATIONS[change](self.originals(of, ids), scheme, ids=ids, seed=seed)
        return for_absolute_thresholds(maps) if absolute else maps

    def originals(self, method: str, ids: Sequence[str]) -> Tensor:
        """Read the original maps (N, *S) of these samples."""
        places = [divmod(self.places[name], self.shard_size) for name in ids]
        shards = {shard: self.run.load_maps(method, shard) for shard in dict.fromkeys(shard for shard, _ in places)}
        return torch.stack([shards[shard][place] for shard, place in places])


def for_absolute_thresholds(maps: Tensor) -> Tensor:
    """Bring modified maps (N, *S) to a maximum of 1 such that thresholds below 1 choose the features that they did.

    Completeness takes thresholds relative to a map's maximum. The paper's are absolute: relative to the maximum of the
    modified map, they would take back a part of the modification. What exceeds 1 exceeds every threshold, and may be
    cut off; where nothing reaches 1 the most relevant feature is lifted there, and is one that is removed too soon.

    Example:
        >>> for_absolute_thresholds(torch.tensor([[0.6, 1.6], [0.0, 0.4]]))
        tensor([[0.6000, 1.0000],
                [0.0000, 1.0000]])
    """
    flat = maps.flatten(1)
    return flat.clamp(max=1).scatter(1, flat.argmax(dim=1, keepdim=True), 1.0).reshape(maps.shape)


def run(options: ExperimentOptions, progress: Progress) -> Outcome:
    """Run the experiment."""
    subject = find_subject(options, PHOTOGRAPHS)
    sizes = PAPER if options.paper else SMALL if subject.embedded else OWN
    curves, modified = _measure(subject, sizes, options, progress)
    distances = {
        method: {
            scheme: {metric: _distances(curves[method, scheme], metric) for metric in METRICS} for scheme in SCHEMES
        }
        for method in sizes.methods
    }
    summary = {metric: _summary(distances, metric, SCHEMES) for metric in METRICS}
    by_scheme = {
        scheme: {metric: _summary(distances, metric, [scheme])["mean"] for metric in METRICS} for scheme in SCHEMES
    }
    ids = subject.samples.ids[: min(len(subject.samples), 200)]
    orders = {scheme: _order_kept(modified, list(sizes.methods), scheme, ids, options.seed) for scheme in SCHEMES}
    shown = {name: _plain_curves(curves[_SHOWN], name) for name in MAPS}
    numbers = {
        "model": subject.model.name,
        "data": subject.samples.name,
        "samples": len(subject.samples),
        "performance": PERFORMANCE,
        "distances": distances,
        "summary": summary,
        "by_scheme": by_scheme,
        "rank_correlation": orders,
        "curves": {"of": list(_SHOWN), **shown},
    }
    example = _example(modified, subject.samples.ids[0], options.seed)
    figures = {
        "order-vs-value": lambda figure: draw(figure, example, shown),
        "distances": lambda figure: draw_distances(figure, distances, summary),
    }
    return Outcome(numbers=numbers, claims=tuple(_claims(summary, by_scheme, orders)), figures=figures)


def _measure(
    subject: Subject, sizes: Sizes, options: ExperimentOptions, progress: Progress
) -> tuple[dict[tuple[str, str], dict[str, dict[str, Curve]]], Modified]:
    """Measure, for each method and scheme, the curves of the original and the modified maps, by metric."""

    def measure(methods: Mapping[str, Any], metrics: Sequence[str], folder: str) -> Evaluation:
        return evaluate(
            subject.model,
            subject.samples,
            methods,
            metrics=metrics,
            out=options.out / folder,
            levels=sizes.levels,
            batch_size=sizes.batch_size,
            memory_format="channels_last",
            threads=None if options.paper else 1,  # more wait for each other on inputs this small
            seed=options.seed,
            resamples=100,
            progress=progress,
        )

    modified = Modified(measure(sizes.methods, METRICS, "orders"))

    def versions(cases: Sequence[tuple[str, str]], *, absolute: bool) -> dict[str, Any]:
        return {
            _name(method, scheme, change): {
                "method": modified, "of": method, "change": change, "scheme": scheme, "absolute": absolute,
            }
            for method in sizes.methods
            for scheme, change in cases
        }  # fmt: skip

    # By area one version of each order will do; by value each is another.
    orders = measure({**sizes.methods, **versions(_REORDERED, absolute=False)}, METRICS, "orders")
    values = measure(versions(tuple(product(SCHEMES, MODIFICATIONS)), absolute=True), ["completeness"], "values")

    curves: dict[tuple[str, str], dict[str, dict[str, Curve]]] = {}
    for method, scheme in product(sizes.methods, SCHEMES):
        curves[method, scheme] = {"original": {m: orders.curve(method, m) for m in METRICS}}
        for change in MODIFICATIONS:
            name = _name(method, *_SAME_ORDER.get((scheme, change), (scheme, change)))
            by_area = {m: orders.curve(name, m) for m in ("soundness", *ORDER_BASED)}
            if (scheme, change) in _SAME_ORDER:
                mass = _mass(modified, by_area["soundness"], method, scheme, change, options.seed)
                by_area["soundness"] = _with_mass(by_area["soundness"], mass)
            complete = values.curve(_name(method, scheme, change), "completeness")
            curves[method, scheme][change] = {"completeness": complete, **by_area}
    return curves, modified


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


def _distances(curves: Mapping[str, Mapping[str, Curve]], metric: str) -> dict[str, float]:
    """Return the Hausdorff distance of every pair of versions, and the least of them."""
    pairs = {
        f"{one}, {other}": hausdorff(curves[one][metric], curves[other][metric]) for one, other in combinations(MAPS, 2)
    }
    return {**pairs, "least": min(pairs.values())}


def _summary(distances: Mapping[str, Any], metric: str, schemes: Sequence[str]) -> dict[str, float]:
    least = [of_method[scheme][metric]["least"] for of_method in distances.values() for scheme in schemes]
    return {"mean": float(np.mean(least)), "deviation": float(np.std(least))}


def _order_kept(modified: Modified, methods: Sequence[str], scheme: str, ids: Sequence[str], seed: int) -> float:
    """Return the mean rank correlation of modified maps with the original ones."""
    found = []
    for method in methods:
        maps = modified.originals(method, ids)
        versions = (maps, *(change(maps, scheme, ids=ids, seed=seed) for change in MODIFICATIONS.values()))
        original, *others = (rank_features(each, ids=ids, seed=seed).rank.double().numpy() for each in versions)
        found += [float(pearson(original, other).mean()) for other in others]
    return float(np.mean(found))


def _plain_curves(curves: Mapping[str, Mapping[str, Curve]], name: str) -> dict[str, Any]:
    return {
        metric: {
            "across": plain(curve.performance if metric == "soundness" else curve.levels),
            "values": plain(curve.values),
        }
        for metric, curve in curves[name].items()
    }


def _listed(means: Mapping[str, float]) -> str:
    return ", ".join(f"{TITLES[m].lower() if m != 'road_morf' else 'ROAD'} {means[m]:z.3f}" for m in METRICS)


def _claims(
    summary: Mapping[str, Mapping[str, float]],
    by_scheme: Mapping[str, Mapping[str, float]],
    orders: Mapping[str, float],
) -> Iterator[Claim]:
    mean = {metric: found["mean"] for metric, found in summary.items()}
    measured = _listed(mean)
    largest = max(mean[metric] for metric in ORDER_BASED)
    for metric in VALUE_BASED:
        times = mean[metric] / largest if largest > 0 else float("inf")
        yield Claim(
            text=f"{TITLES[metric]} tells original and modified maps apart: its least Hausdorff distance is at least "
            "five times that of ROAD and of deletion.",
            source=f"Table 1 ({PAPER_DISTANCES[metric]} against 0.014 and 0.019), Fig. 6",
            measured=f"{measured}: {times:z.1f} times the larger of the two",
            holds=times >= FACTOR,
        )
    kept = {metric: float(np.mean([by_scheme[scheme][metric] for scheme in ORDER_KEPT])) for metric in METRICS}
    yield Claim(
        text="Where two of the three maps have one order and other values (constant, random), completeness and "
        "soundness tell them apart, and ROAD and deletion do not.",
        source="Section 5.2",
        measured=_listed(kept),
        holds=max(kept[m] for m in ORDER_BASED) == 0 and min(kept[m] for m in VALUE_BASED) > NEAR_ZERO,
    )
    yield Claim(
        text="ROAD and deletion overlap: their least distances are near zero.",
        source="Table 1, Fig. 6d and 6e",
        measured=f"ROAD {mean['road_morf']:z.3f}, deletion {mean['deletion']:z.3f}; near zero is below {NEAR_ZERO:g}",
        holds=largest < NEAR_ZERO,
    )
    correlations = ", ".join(f"{scheme} {correlation:z.2f}" for scheme, correlation in orders.items())
    yield Claim(
        text="The modifications change the order of features only slightly.",
        source="Section 5.2",
        measured=f"mean rank correlation with the original: {correlations}",
        holds=min(orders.values()) > 0.9,
    )


def _example(modified: Modified, name: str, seed: int) -> dict[str, Floats]:
    """Return the original and the modified maps of one sample."""
    original = modified.originals(_SHOWN[0], [name])
    maps = {"original": (original / original.max().clamp(min=1e-12))[0].double().numpy()}
    for scheme, (change, make) in product(SCHEMES, MODIFICATIONS.items()):
        maps[f"{change}\n{scheme}"] = make(original, scheme, ids=[name], seed=seed)[0].numpy()
    return maps


EXPERIMENT = Experiment(
    title="Which metrics look at values, and which at the order alone?",
    source="Section 5.2, Fig. 6, Table 1, appendix on modifications",
    run=run,
)
