"""Monotonicity: how often does the performance fall when features join (the paper's Assumption 4.10)?

The assumption: if a model does better on one set of features than on another, the first set holds more predictive
information. Information never shrinks when features join, so the performance on nested sets must not fall. Where it
falls, the assumption does not hold, regardless of what the information is. Every sweep of a run probes nested sets.

Shapes: N samples, L levels, R resamples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.metrics.steps import evidence
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.arguments import checked
from twinlens.support.arrays import Floats, Integers
from twinlens.support.estimate import Estimate
from twinlens.support.resampling import draw_blocks, resample_mean

FALL = 0.01
"""The smallest fall that counts, by default; the paper's epsilon."""

_STEEPEST = 4  # a change of the log-odds by 4 x changes a probability of one half by about x


@dataclass(frozen=True, kw_only=True)
class Monotonicity:
    """How often the performance falls when features join."""

    steps: int
    """Number of steps, over all samples and sweeps, in which features join."""

    probability: Estimate
    """Share of a sample's steps in which the probability of the target falls, averaged over samples."""

    log_odds: Estimate
    """The same for its log-odds."""

    levels: int
    """Number of steps from one level of a sweep to the next, over all sweeps."""

    accuracy: Estimate
    """Share of them in which the accuracy of all samples falls."""

    @property
    def shares(self) -> tuple[Estimate, Estimate, Estimate]:
        """By probability, log-odds and accuracy."""
        return self.probability, self.log_odds, self.accuracy


@checked
def monotonicity(
    tables: Sequence[ProbeTable], *, fall: float = FALL, resamples: int = 1000, seed: int = 0
) -> Monotonicity:
    """Count how often the performance falls when features join, which Assumption 4.10 of the paper rules out.

    A step leads from one level of a table to the next one that keeps more features. Only steps in which a sample's
    features join count.

    Args:
        tables: probe tables of a classification model, such as `curve.table`; samples with the same id are the same.
        fall: a step counts if the probability of the target, or the accuracy, falls by more than this; the log-odds by
            more than four times this, which is as much at a probability of one half.
        resamples: number of bootstrap resamples.
        seed: seed of the resamples.

    Example:
        >>> import torch
        >>> import twinlens as tl
        >>> def model(x):  # the second feature speaks against the target
        ...     z = x[:, 0] - x[:, 1]
        ...     return torch.stack([z, -z], dim=1)
        >>> x, maps = torch.ones(20, 2), torch.tensor([2.0, 1.0]).expand(20, -1)
        >>> zero = tl.ConstantImputer(0.0)
        >>> table = tl.soundness(model, x, [0] * 20, maps, levels=(0.5, 0.0), imputer=zero).table
        >>> monotonicity([table]).probability.value
        1.0
    """
    if not fall >= 0:
        raise ValueError(f"`fall` must be >= 0, such as 0.01; got {fall!r}.")
    if not tables:
        raise ValueError("`tables` must hold at least one probe table; got none.")
    if any(table.task != CLASSIFICATION for table in tables):
        raise ValueError("`tables` must be of a classification model, which has a probability of the target.")
    return _measure([_Sweep.of(table, fall) for table in tables], fall, resamples=resamples, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sweep:
    """The nested sets of one sweep, with the fewest features first."""

    ids: tuple[str, ...]
    joins: Integers
    """(N,) number of steps in which features of a sample join."""
    by_probability: Integers
    """(N,) number of these in which the probability of the target falls."""
    by_log_odds: Integers
    """(N,) number of these in which its log-odds fall."""
    correct: NDArray[np.bool_]
    """(N, L) whether the target class was predicted."""
    moves: NDArray[np.bool_]
    """(L - 1,) whether features of any sample join in a step."""

    @staticmethod
    def of(table: ProbeTable, fall: float) -> _Sweep:
        order = np.argsort(-table.removed.sum(axis=0), kind="stable")
        joins = np.diff(table.removed[:, order], axis=1) < 0

        def count(scores: Floats, least: float) -> Integers:
            return np.asarray((joins & (np.diff(scores[:, order], axis=1) < -least)).sum(axis=1))

        return _Sweep(
            ids=table.ids,
            joins=np.asarray(joins.sum(axis=1)),
            by_probability=count(table.probability, fall),
            by_log_odds=count(evidence(table), _STEEPEST * fall),
            correct=table.correct[:, order],
            moves=np.asarray(joins.any(axis=0)),
        )

    def count_falls(self, weights: Floats, fall: float) -> Floats:
        """Count the steps in which accuracy falls, (R,), for weightings of its samples (R, N)."""
        # Differences of counts: a fall of exactly `fall` is not rounded to more.
        lost = -np.diff(weights @ self.correct, axis=1)
        return np.asarray(((lost > fall * weights.sum(axis=1, keepdims=True) + 1e-9) & self.moves).sum(axis=1))


def _measure(sweeps: Sequence[_Sweep], fall: float, *, resamples: int = 1000, seed: int) -> Monotonicity:
    """Sum over sweeps."""
    ids = tuple(dict.fromkeys(name for sweep in sweeps for name in sweep.ids))
    position = {name: k for k, name in enumerate(ids)}
    rows = [np.array([position[name] for name in sweep.ids]) for sweep in sweeps]
    joins, by_probability, by_log_odds = np.zeros((3, len(ids)))
    for sweep, own in zip(sweeps, rows, strict=True):
        joins[own] += sweep.joins
        by_probability[own] += sweep.by_probability
        by_log_odds[own] += sweep.by_log_odds

    def estimate(value: float | None, replicates: Floats) -> Estimate:
        return Estimate.of(value, replicates, samples=len(ids), reach=1.0).clipped(0.0, 1.0)

    def share(falls: Floats) -> Estimate:
        shares = np.divide(falls, joins, out=np.full_like(joins, np.nan), where=joins > 0)
        return estimate(*resample_mean(shares, ids, resamples, seed))

    def count(weights: Floats) -> Floats:
        counts = [sweep.count_falls(weights[:, own], fall) for sweep, own in zip(sweeps, rows, strict=True)]
        return np.asarray(np.sum(counts, axis=0, dtype=np.float64))

    levels = int(sum(sweep.moves.sum() for sweep in sweeps))
    [falls] = count(np.ones((1, len(ids)))).tolist()
    replicates = np.concatenate([count(block) for block in draw_blocks(ids, resamples, seed)])
    return Monotonicity(
        steps=int(joins.sum()),
        probability=share(by_probability),
        log_odds=share(by_log_odds),
        levels=levels,
        accuracy=estimate(falls / levels if levels else None, replicates / max(levels, 1)),
    )


@partial(
    CheckDefinition,
    title="Monotonicity (Assumption 4.10)",
    source="Li et al. 2024, A dual-perspective approach to evaluating feature attribution methods",
    columns=(
        CheckColumn(title="probability falls", better="neither"),
        CheckColumn(title="log-odds fall", better="neither"),
        CheckColumn(title="accuracy falls", better="neither"),
    ),
    options=("fall",),
)
def monotonicity_check(run: CheckedRun) -> CheckResult:
    """How often does the performance fall when features join?

    Assumption 4.10 of the paper implies that it never does. A share is that of the steps from one set of features to a
    larger one that contains it, in every stored sweep: by the probability and the log-odds of the target for each
    sample, and by the accuracy of all samples. Rows differ in the order in which features join. A method is not better
    for a smaller share: this is a test of the model, its data and the imputation.
    """
    reader, fall = run.evaluation.reader, run.options.fall
    if run.evaluation.results.model.task != CLASSIFICATION:
        raise ValueError("`name` monotonicity needs a classification model, which has a probability of the target.")
    sweeps: dict[str, dict[str, _Sweep]] = {}

    def measure(name: str) -> MethodCheck:
        tables = reader.tables(name)
        if not tables:
            raise ValueError("it has no probes.")
        sweeps[name] = {sweep: _Sweep.of(table, fall) for sweep, table in tables.items()}
        reader.forget()
        return MethodCheck(values=_measure([*sweeps[name].values()], fall, seed=run.seed).shares)

    result = run.each_method(measure, samples=run.evaluation.results.data.samples)
    overall = _measure([sweep for own in sweeps.values() for sweep in own.values()], fall, seed=run.seed)
    kinds = {
        kind: _measure([own[kind] for own in sweeps.values() if kind in own], fall, seed=run.seed).probability
        for kind in dict.fromkeys(kind for own in sweeps.values() for kind in own)
    }
    probability, log_odds, accuracy = map(_percent, overall.shares)
    line = (
        f"When features join, the target's probability falls in {probability} of steps, its log-odds in {log_odds}, "
        f"and accuracy in {accuracy}."
    )
    notes = (
        f"A fall counts if it is more than {fall:g}, of log-odds {_STEEPEST * fall:g}. {overall.steps:,} steps of "
        f"samples, {overall.levels:,} of all samples together.",
        f"By probability, sweep by sweep: {', '.join(f'{kind} {_percent(share)}' for kind, share in kinds.items())}.",
    )
    return dataclasses.replace(result, line=line, notes=(*notes, *result.notes))


def _percent(share: Estimate) -> str:
    if share.value is None:
        return "–"
    interval = "" if share.interval is None else " [{:.1%}, {:.1%}]".format(*share.interval)
    return f"{share.value:.1%}{interval}"
