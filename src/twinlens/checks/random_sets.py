"""Sensitivity-n (Ancona et al. 2018): does the attribution of a set of features predict the drop without them?

A method is measured by the correlation of a set's attribution with the drop of the target's logit, over random sets of
n features. The drops do not depend on the maps, and are measured once for any number of methods.

Shapes: N samples, L sizes n, M random sets of each size, F features.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.sample_scores import CORRELATION, SampleScores
from twinlens.imputation.imputers import ConstantImputer, Imputer, find_imputer
from twinlens.probing.maps import Reading, check_maps
from twinlens.probing.model_call import Labels, Model, check_inputs, check_labels
from twinlens.probing.probe import ProbeOptions, Prober
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, check_levels
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, as_tensor
from twinlens.support.correlation import pearson
from twinlens.support.randomness import stream
from twinlens.support.signatures import lists_options

_MOST_SUBSETS = 10**6
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Sizes n as shares of all features; in the paper, from one feature to about 80%."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RandomRemovals:
    """Drops of a model's output when random sets of features are removed."""

    sizes: tuple[int, ...]
    """(L,) numbers n of features in a set."""

    drops: Floats
    """(L, N, M) drop of the target's logit."""

    spatial: tuple[int, ...]
    """Shape of a map."""

    ids: tuple[str, ...]
    """Sample ids."""

    seed: int
    """Seed of the sets."""

    def correlate(self, maps: ArrayLike) -> dict[int, SampleScores]:
        """Correlate the drops with the attribution of maps (N, *S), by n; NaN where one of the two is constant."""
        magnitudes = check_maps(maps, self.spatial, ids=self.ids, reading=Reading(sign="absolute"))
        values = as_tensor(maps, "maps").reshape(magnitudes.shape).double().cpu().flatten(1)
        sums = np.empty_like(self.drops)
        for number in range(self.drops.shape[2]):
            order = _draw_orders(self.ids, values.shape[1], number, self.seed).argsort(dim=1, descending=True)
            removed = values.gather(1, order).cumsum(dim=1)[:, [size - 1 for size in self.sizes]]
            sums[:, :, number] = removed.T.numpy()
        return {
            size: SampleScores(
                name="sensitivity-n", values=pearson(attribution, drops), ids=self.ids, limits=CORRELATION
            )
            for size, attribution, drops in zip(self.sizes, sums, self.drops, strict=True)
        }


@checked
@lists_options
def random_removals(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    *,
    shares: Sequence[float] = SHARES,
    subsets: int = 100,
    imputer: Imputer = ConstantImputer(0.0),
    **how: Unpack[ProbeOptions],
) -> RandomRemovals:
    """Remove random sets of features and record how much the target's logit drops.

    Args:
        model: see `twinlens.probe`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) target classes.
        shares: sizes of the sets as shares of all features, increasing.
        subsets: number of sets of each size.
        imputer: fills in removed features; by default with zero, as in the paper.
    """
    if not 3 <= subsets <= _MOST_SUBSETS:
        raise ValueError(f"`subsets` must lie within [3, {_MOST_SUBSETS}], for a correlation; got {subsets}.")
    if how.get("segments") is not None:
        raise ValueError("`segments` are not supported here: sets are drawn from single features. Leave them out.")
    imputer = find_imputer(imputer)
    levels = check_levels("shares", shares, decreasing=False)
    _, names = check_inputs(inputs, how.get("ids"), tokens=True)
    prober = Prober(model, inputs, check_labels(targets, names, "targets"), **how)
    features, seed = int(np.prod(prober.spatial)), prober.how["seed"]
    sizes = tuple(dict.fromkeys(min(max(1, round(features * level)), features - 1) for level in levels))
    schedule = Schedule(by="area", order="morf", levels=(0.0, *(size / features for size in sizes)))
    drops = np.empty((len(sizes), len(prober.ids), subsets))
    original: ProbeTable | None = None
    for number in range(subsets):
        noise = _draw_orders(prober.ids, features, number, seed).reshape(-1, *prober.spatial)
        try:
            table = prober.sweep(prober.rank(noise), schedule, imputer, original=original)
        except ValueError as error:  # the prober calls them labels
            raise ValueError(str(error).replace("`labels`", "`targets`", 1)) from error
        original = original or table
        drops[:, :, number] = (table.logit[:, :1] - table.logit[:, 1:]).T
    if not np.ptp(drops, axis=2).any():
        warnings.warn(
            "No removal has an effect on the output of `model`: correlations are undefined. Try another `imputer`.",
            stacklevel=4,
        )
    return RandomRemovals(sizes=sizes, drops=drops, spatial=prober.spatial, ids=prober.ids, seed=seed)


def sensitivity_n(
    model: Model, inputs: ArrayLike, targets: Labels, maps: ArrayLike, **options: Any
) -> dict[int, SampleScores]:
    """Measure sensitivity-n (Ancona et al. 2018, Towards better understanding of gradient-based attribution methods).

    Maps (N, *S) should have negative values for features that count against the target; those of `attribute` have none.
    Other arguments as for `random_removals`.

    Returns:
        The correlation of attribution and drop over the sets of each sample, by n; NaN where one of them is constant.

    Example:
        >>> weights = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0, 4.0, 1.0, -1.0])
        >>> def model(x):
        ...     return torch.stack([x @ weights, -x @ weights], dim=1)
        >>> x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
        >>> scores = sensitivity_n(model, x, [0] * 5, x * weights, shares=(0.25, 0.5))
        >>> {n: round(each.estimate().value, 6) for n, each in scores.items()}
        {2: 1.0, 4: 1.0}
    """
    return random_removals(model, inputs, targets, **options).correlate(maps)


def _draw_orders(ids: Sequence[str], features: int, number: int, seed: int) -> Tensor:
    """Draw numbers (N, F); their descending order is that in which features join the set with this number."""
    streams = [stream(seed, name, "sensitivity-n", number) for name in ids]
    drawn = [torch.randperm(features, generator=torch.Generator().manual_seed(one)) for one in streams]
    return torch.stack(drawn).double()


@partial(
    CheckDefinition,
    title="Sensitivity-n",
    source="Ancona et al. 2018, Towards better understanding of gradient-based attribution methods for deep neural "
    "networks",
    columns=(CheckColumn(title="mean correlation", better="higher"),),
    step_title="n",
    course_title="correlation",
    options=("limit", "levels", "subsets", "imputer"),
)
def sensitivity_n_check(run: CheckedRun) -> CheckResult:
    """Does the attribution of a set of features predict the drop of the output without them?

    The correlation, over random sets of n features, of their attribution with the drop of the target's logit when they
    are removed: 1 is perfect, 0 is none.
    """
    options, manifest = run.options, run.evaluation.run.manifest
    removals = random_removals(
        run.model,
        run.inputs,
        run.samples.labels,
        shares=options.levels or SHARES,
        subsets=options.subsets,
        imputer=find_imputer(options.imputer),
        ids=run.samples.ids,
        seed=run.seed,
        output=manifest.model.scale,
        features=manifest.data.feature_kind,
        batch_size=manifest.execution.batch_size,
    )

    def measure(name: str) -> MethodCheck:
        scores = removals.correlate(run.stored_maps(name)).values()
        mean = np.ma.masked_invalid([each.values for each in scores]).mean(axis=0).filled(np.nan)
        overall = SampleScores(name="sensitivity-n", values=mean, ids=removals.ids, limits=CORRELATION)
        return MethodCheck(values=run.estimates([overall]), course=run.estimates(scores))

    note = "Stored maps have no negative values: evidence against the target is missing from the sums."
    return run.each_method(measure, steps=[str(size) for size in removals.sizes], notes=[note])
