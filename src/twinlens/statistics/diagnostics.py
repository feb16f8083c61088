"""Diagnostics: reasons in the data not to take a result at face value.

Shapes: N samples, L levels, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.metrics.curves import Curve
from twinlens.metrics.exhaustion import exhausted_samples, find_exhaustion
from twinlens.metrics.performance import Measured, measure
from twinlens.metrics.protocols import find_protocol
from twinlens.probing.maps import PARTS, check_maps
from twinlens.probing.probe_table import ProbeTable
from twinlens.probing.ranking import Schedule, count_removed, rank_features
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats

_FEW = 0.1  # share of maps that may run out of attribution before most of the performance is reached


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one diagnostic."""

    kind: str
    """Name of the diagnostic, such as "tied values"."""

    value: float | None
    """The measured value; None where it is undefined."""

    message: str | None = None
    """A warning with its remedy, if there is a problem."""

    def __str__(self) -> str:
        value = "undefined" if self.value is None else f"{self.value:.3g}"
        return f"{self.kind}: {value}" + (f". {self.message}" if self.message else "")


@checked
def diagnose(
    result: Curve | ProbeTable, *, maps: ArrayLike | None = None, epsilon: float | None = None
) -> tuple[Finding, ...]:
    """Look for reasons not to take a result at face value.

    Args:
        result: a curve, or a probe table, whose accuracy (or R²) is diagnosed.
        maps: the probed maps; with them, zeros and ties are counted too.
        epsilon: the gain by which a step is judged; by default that of the curve, or 0.01.

    Returns:
        All findings that apply to the result, with and without warnings.

    Example:
        >>> import torch, twinlens as tl
        >>> x = torch.rand(20, 8, generator=torch.manual_seed(0))
        >>> maps = (x > 0.5).float()
        >>> curve = tl.soundness(lambda x: torch.stack([x.sum(1), 0 * x[:, 0]], dim=1), x, [0] * 20, maps,
        ...                      imputer=tl.ConstantImputer(0.0))
        >>> for finding in diagnose(curve, maps=maps):
        ...     if finding.message:
        ...         print(finding.kind)
        one sample
        tied values
        resolved levels
    """
    if isinstance(result, ProbeTable):
        curve, table, threshold = None, result, None
        measured = measure(table, "accuracy" if table.task == "classification" else "r2", find_protocol("paper"))
    else:
        curve, table, threshold = result, result.table, result.threshold
        measured = measure(table, curve.requested, curve.protocol)
    if epsilon is None:
        epsilon = 0.01 if threshold is None else threshold
    findings = [_degenerate(table), _base(table, measured)]
    schedule = table.settings.schedule
    lerf = (schedule.by, schedule.order) == ("area", "lerf") and schedule.levels[0] > schedule.levels[-1]
    if lerf and (curve is None or threshold is not None):  # other curves judge no steps
        by_level = curve is None or curve.by_predictive_level
        findings += _steps(measured, len(table), epsilon, judged=measured.gain.ndim == 1 and by_level)
        findings.append(_exhausted(table, measured, axis=by_level))
    if maps is not None:
        findings += diagnose_ties(table, maps)
    return tuple(findings)


def _degenerate(table: ProbeTable) -> Finding:
    counts = {kind: table.map_kinds.count(kind) for kind in ("constant", "zero")}
    share = sum(counts.values()) / len(table)
    kinds = " and ".join(f"{count} all {kind}" for kind, count in counts.items() if count)
    message = (
        f"Of {len(table)} maps, {kinds}: they rank no feature above another; soundness leaves zero maps out. "
        "Check the attribution method on these samples."
    )
    return Finding(kind="degenerate maps", value=share, message=message if share else None)


def _base(table: ProbeTable, measured: Measured) -> Finding:
    original = np.flatnonzero((table.removed == 0).all(axis=0))
    base = float(measured.mean[original[0]]) if original.size else float(np.nanmax(measured.mean))
    where = "with nothing removed" if original.size else "at its best level"
    message = None
    if measured.name in ("accuracy", "balanced_accuracy", "probability", "r2") and base < 0.5:
        message = (
            f"The {measured.name} is {base:.2f} {where}: there is little to lose or to reach. Check labels and the "
            "normalisation of the inputs, or measure on samples that the model gets right."
        )
    return Finding(kind="base performance", value=base, message=message)


def _steps(measured: Measured, samples: int, epsilon: float, *, judged: bool) -> list[Finding]:
    """Diagnose the steps of a soundness sweep; with `judged`, steps are judged by their gain in performance."""
    steps = np.diff(measured.mean)
    if measured.per_sample is None or not len(steps):
        return [Finding(kind="falling steps", value=float((steps < 0).mean()) if len(steps) else 0.0)]
    error = np.diff(measured.per_sample, axis=1).std(axis=0) / np.sqrt(samples)
    findings = [_falling(steps, error)]
    if judged:
        spread = measured.per_sample.std(axis=0) / np.sqrt(samples)
        findings.append(Finding(kind="noisy performance", value=float((spread > epsilon).mean())))
        findings += [_noisy(error, samples, epsilon), _one_sample(samples, epsilon)]
    return findings


def _falling(steps: Floats, error: Floats) -> Finding:
    clear = int((steps < -2 * error).sum())
    message = (
        f"In {clear} of {len(steps)} steps performance falls by more than two standard errors although features are "
        "added: they are evidence against the label, or imputed inputs look odd to the model. The paper assumes that "
        "performance grows with information; read soundness up to the highest performance only."
    )
    return Finding(kind="falling steps", value=float((steps < 0).mean()), message=message if clear else None)


def _noisy(error: Floats, samples: int, epsilon: float) -> Finding:
    share, message = float((error > epsilon).mean()), None
    if share > 0.1 and epsilon > 0:
        enough = int(np.ceil(samples * (np.quantile(error, 0.9) / epsilon) ** 2))
        message = (
            f"In {share:.0%} of the steps the standard error of the gain exceeds epsilon ({epsilon:g}): they are "
            f"decided by chance. Use about {enough} samples, a larger epsilon, or the metric soundness_rank."
        )
    return Finding(kind="noisy decisions", value=share, message=message)


def _one_sample(samples: int, epsilon: float) -> Finding:
    worth, message = 1 / samples, None
    if worth > epsilon > 0:
        message = (
            f"One of {samples} samples is worth {worth:.3f} of performance, more than epsilon ({epsilon:g}): any gain "
            f"passes. Use at least {int(np.ceil(2 / epsilon))} samples, or a larger epsilon."
        )
    return Finding(kind="one sample", value=worth, message=message)


def _exhausted(table: ProbeTable, measured: Measured, *, axis: bool) -> Finding:
    """Count the maps that run out of attribution; warn if many do before most of the performance is reached.

    It only matters where performance is the `axis` of soundness.
    """
    exhausted, performance, name = exhausted_samples(table), measured.mean, measured.name
    value, best = float(exhausted[:, -1].mean()), float(np.nanmax(performance))
    start = float(performance[0] - np.mean(measured.gain[..., 0]))
    # If the best is below the start, as for logits, 90% of the way is reached at the best.
    most = np.flatnonzero(performance >= min(start + 0.9 * (best - start), best))[0]
    ended, few = exhausted[:, most], find_exhaustion(table, performance, share=_FEW)
    if not axis or few is None or ended.mean() <= _FEW:
        return Finding(kind="exhausted maps", value=value)
    message = (
        f"Of {len(table)} maps, {ended.sum()} have run out of attribution when the {name} reaches 90% of its best: "
        "further gains are not due to the map. "
    )
    if half := find_exhaustion(table, performance):
        before = "" if half.performance is None else f", and the {name} before it is {half.performance:.2f}"
        message += f"More than half have run out by the level {half.level:g}{before}. "
    if few.performance is None:
        message += "Use maps with a value at every feature."
    else:
        message += (
            f"Read soundness up to the predictive level {few.performance:.2f}, which is reached before {_FEW:.0%} of "
            "the maps run out, or use maps with a value at every feature."
        )
    return Finding(kind="exhausted maps", value=value, message=message)


def diagnose_ties(table: ProbeTable, maps: ArrayLike) -> list[Finding]:
    """Count zeros, and in regular maps (N, *S) also equal values and the levels that separate them."""
    settings = table.settings
    signed = check_maps(maps, settings.spatial, ids=table.ids, reading=settings.reading)
    values = PARTS[settings.schedule.part](signed)
    findings = [Finding(kind="zeros", value=float((values == 0).double().mean()))]
    regular = values.cpu()[[kind == "regular" for kind in table.map_kinds]]
    if not len(regular):
        return findings
    tied = float(tie_share(regular).mean())
    message = (
        f"{tied:.0%} of the features with attribution share their value with another feature of the map, and are "
        "ordered by chance. Use values before rounding or thresholding, not 8-bit images; where whole regions share a "
        "value by design, use fewer levels."
    )
    findings.append(Finding(kind="tied values", value=tied, message=message if tied > 0.5 else None))
    if settings.schedule.by != "area":
        return findings
    within, between = _cuts(regular, settings.schedule)
    if within.any():
        resolved = float(between[within].mean())
        message = (
            f"Of the levels at which maps still have attribution, only {resolved:.0%} fall between two values of a "
            "map; the others separate equal values. Use values before rounding or thresholding, or fewer levels."
        )
        findings.append(Finding(kind="resolved levels", value=resolved, message=message if resolved < 0.5 else None))
    return findings


def tie_share(maps: ArrayLike) -> Floats:
    """Compute for each map (N, *S) the share of its non-zero features with the same value as another; NaN for zeros."""
    values = np.sort(np.asarray(maps).reshape(len(maps), -1), axis=1)
    equal = np.pad(values[:, 1:] == values[:, :-1], ((0, 0), (1, 1)))
    tied = (equal[:, 1:] | equal[:, :-1]) & (values != 0)
    count = (values != 0).sum(axis=1)
    return np.asarray(np.divide(tied.sum(axis=1), count, out=np.full(len(count), np.nan), where=count > 0))


def _cuts(maps: ArrayLike, schedule: Schedule) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return at which levels (N, L) all kept features have attribution, and larger values than the removed ones."""
    names = [str(k) for k in range(len(maps))]
    ranking = rank_features(check_maps(maps, tuple(np.shape(maps)[1:]), ids=names), ids=names, seed=0)
    removed = count_removed(ranking, schedule).numpy()
    ascending = ranking.ascending.numpy()
    least = removed if schedule.order == "lerf" else ascending.shape[1] - removed
    # An empty side has values beyond all others: it ties with nothing.
    padded = np.pad(ascending, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
    above, below = np.take_along_axis(padded, least + 1, 1), np.take_along_axis(padded, least, 1)
    return above > 0, above > below
