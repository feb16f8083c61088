"""How much maps change when they should not, and whether they change when they should.

Max-sensitivity (Yeh et al. 2019): the input is perturbed so little that the model's answer stays the same; a map that
changes much explains something else than the answer. Class similarity (Sixt et al. 2020): the same input, explained for
another class; a map that stays the same does not explain the class.

Neither is proof of anything by itself: maps that look at no model are perfectly stable.

Shapes: N samples, M perturbations, C channels, S = spatial shape, F features, B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.checks.randomisation import SIMILARITIES, check_similarity
from twinlens.integrations.explanations import attribute
from twinlens.probing.execution import choose_batch
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import ANSWER, Labels, Model, Respondent, check_inputs, check_labels, evaluating
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.estimate import Estimate
from twinlens.support.fields import check_count
from twinlens.support.randomness import check_seed, stream

_MOST = 1000
_TRIES = 4  # draws for each perturbation that is wanted: of those that change the answer, none is taken


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MapChange:
    """How much each sample's map changes, or how alike two of its maps are."""

    measure: str
    """"max-sensitivity" or "class similarity"."""

    values: Floats
    """(N,) one number per sample; NaN where undefined."""

    ids: tuple[str, ...]
    """One name per sample."""

    def __repr__(self) -> str:
        return f"MapChange({self.measure} {self.interval()}, {len(self.ids)} samples)"

    def interval(self, confidence: float = 0.95, *, resamples: int = 1000, seed: int = 0) -> Estimate:
        """Return the mean with its bootstrap interval."""
        return Estimate.of_mean(self.values, self.ids, confidence, resamples=resamples, seed=seed)


@checked
def max_sensitivity(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    radius: float = 0.05,
    change: float = 0.05,
    perturbations: int = 4,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> MapChange:
    """Measure how much maps change under perturbations that the model's answer does not notice (Yeh et al. 2019).

    Args:
        model: a module that returns logits, or a function.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain, or values of a regression model.
        method: a name in `METHODS`, or a function of the same signature.
        radius: largest change of an input value, in standard deviations of its input; of tabular rows, of its column.
        change: most that the target's probability may differ, with the same class predicted, for the answer to count as
            the same; of a regression model, the value, in standard deviations over the samples.
        perturbations: how many of them are tried on each map; draws that change the answer are replaced by others.
        ids: one name per sample.
        seed: seed of the perturbations, and of a method with random draws, which are the same for all of them.
        **options: options of the method.

    Returns:
        Of each sample the largest change over its perturbations, |map' - map| / |map| in the Euclidean norm: 0 for maps
        that stay as they are. NaN for a map of zeros, and where every draw changes the answer.

    Example:
        >>> linear = torch.nn.Linear(6, 3)
        >>> x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
        >>> max_sensitivity(linear, x, [0, 1, 2, 0], "saliency").values
        array([0., 0., 0., 0.])
    """
    if not 0 < radius <= _MOST:
        raise ValueError(f"`radius` must be positive, at most {_MOST} standard deviations; got {radius:g}.")
    if not change >= 0:
        raise ValueError(f"`change` must be at least 0; got {change:g}.")
    check_count("perturbations", perturbations, _MOST)
    given, names = check_inputs(inputs, ids)
    check_seed(seed)
    labels = check_labels(targets, names, "targets")
    noise = _Noise(inputs=given, ids=names, radius=radius, seed=seed)
    respondent = _respondent(model, inputs, labels, names)
    explain = _explainer(respondent, labels, method, seed, options)
    draws = _equal_answers(respondent, given, noise, change, perturbations)
    own = explain(given)
    length = np.sqrt((own**2).sum(axis=1))
    found = np.full((perturbations, len(names)), np.nan)
    for row, chosen in zip(found, draws, strict=True):
        known = (chosen >= 0) & (length > 0)
        away = np.sqrt(((explain(given + noise(chosen)) - own) ** 2).sum(axis=1))
        np.divide(away, length, out=row, where=known)
    return MapChange(measure="max-sensitivity", values=np.fmax.reduce(found), ids=names)


@checked
def class_similarity(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: str = "spearman",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> MapChange:
    """Compare the map of each sample's class with that of another class, drawn by the seed (Sixt et al. 2020).

    Args:
        model: a module that returns logits, or a function.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        similarity: "spearman" or "pearson".
        ids: one name per sample.
        seed: seed of the other classes, and of a method with random draws.
        **options: options of the method.

    Returns:
        The correlation of each sample's two maps: 1 for a method that shows every class the same. NaN where a map is
        constant.

    Example:
        >>> linear = torch.nn.Linear(6, 3)
        >>> x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
        >>> class_similarity(linear, x, [0, 1, 2, 0], "random").values.round(6)
        array([1., 1., 1., 1.])
    """
    check_similarity(similarity)
    given, names = check_inputs(inputs, ids)
    check_seed(seed)
    labels = check_labels(targets, names, "targets")
    if labels.dtype.kind == "f":
        raise ValueError("`targets` must be classes, as integers; a value of a regression model has no other class.")
    respondent = _respondent(model, inputs, labels, names)
    _answers(respondent, given[:1])
    assert respondent.classes is not None
    steps = [1 + stream(seed, name, "other class") % (respondent.classes - 1) for name in names]
    others = (labels + np.array(steps)) % respondent.classes
    maps = [_explainer(respondent, each, method, seed, options)(given) for each in (labels, others)]
    return MapChange(measure="class similarity", values=SIMILARITIES[similarity](*maps), ids=names)


def _respondent(model: Model, inputs: ArrayLike, labels: NDArray[Any], ids: tuple[str, ...]) -> Respondent:
    on_numpy = not isinstance(inputs, Tensor)
    return Respondent(model, labels=labels, ids=ids, output="auto", on_numpy=on_numpy, device=None)


def _explainer(
    respondent: Respondent,
    targets: NDArray[Any],
    method: str | Callable[..., Tensor],
    seed: int,
    options: dict[str, Any],
) -> Callable[[Tensor], Floats]:
    """Return a function from inputs to maps (N, F)."""
    ids = respondent.ids

    def explain(inputs: Tensor) -> Floats:
        given = inputs.numpy() if respondent.on_numpy else inputs
        maps = attribute(respondent.model, given, targets, method, ids=ids, seed=seed, **options)
        checked = check_maps(maps, spatial_shape(inputs.shape), ids=ids)
        return np.asarray(checked.flatten(1).double().cpu().numpy())

    return explain


@dataclass(frozen=True, kw_only=True, eq=False)
class _Noise:
    """Perturbations of inputs, drawn by the seed, the sample and their number."""

    inputs: Tensor
    ids: tuple[str, ...]
    radius: float
    seed: int

    def __call__(self, numbers: NDArray[np.int64]) -> Tensor:
        """Return the perturbation with a number (N,) of each sample, (N, C, *S); nothing for the number -1."""
        # Columns of a table have units of their own; what has channels has one unit.
        columns = self.inputs.dim() == 2 and len(self.inputs) > 1
        drawn = torch.zeros_like(self.inputs)
        for row, own, name, number in zip(drawn, self.inputs, self.ids, numbers.tolist(), strict=True):
            if number >= 0:
                generator = torch.Generator().manual_seed(stream(self.seed, name, "perturbation", number))
                uniform = torch.rand(row.shape, generator=generator, dtype=torch.float64) * 2 - 1
                scale = self._of_columns if columns else own.double().std(correction=0)
                row.copy_(self.radius * scale * uniform.to(own.device))
        return drawn

    @property
    def _of_columns(self) -> Tensor:
        return self.inputs.double().std(dim=0, correction=0)


def _answers(respondent: Respondent, inputs: Tensor) -> Floats:
    """Return the model's answers (N, 4) about inputs, the columns named in `ANSWER`."""
    rows = choose_batch(inputs[0], respondent.device)
    with evaluating(respondent.model), torch.inference_mode():
        parts = [
            respondent.ask(
                inputs[some].to(respondent.device), torch.arange(some.start, some.stop).to(respondent.device)
            )
            for some in _slices(len(inputs), rows)
        ]
    answers = torch.cat(parts).to("cpu", torch.float64).numpy()
    respondent.check(answers[:, None], respondent.ids, [0.0])
    return answers


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _equal_answers(
    respondent: Respondent, inputs: Tensor, noise: _Noise, change: float, wanted: int
) -> NDArray[np.int64]:
    """Find the first perturbations (M, N) of each sample that leave the model's answer as it is; -1 for none."""
    untouched, regression = _answers(respondent, inputs), respondent.regression
    column = ANSWER.index("predicted" if regression else "probability")
    unit = float(untouched[:, column].std()) if regression else 1.0
    chosen, count = np.full((wanted, len(inputs)), -1), np.zeros(len(inputs), dtype=np.int64)
    for number in range(_TRIES * wanted):
        if (count == wanted).all():
            break
        answers = _answers(respondent, inputs + noise(np.full(len(inputs), number)))
        same = np.abs(answers[:, column] - untouched[:, column]) <= change * unit
        if not regression:
            same &= answers[:, ANSWER.index("predicted")] == untouched[:, ANSWER.index("predicted")]
        taken = np.flatnonzero(same & (count < wanted))
        chosen[count[taken], taken] = number
        count[taken] += 1
    return chosen
