"""Stability: do maps stay the same when the output does, and change when the explained class does?

Max-sensitivity (Yeh et al. 2019) perturbs the input so little that the output stays the same. Class similarity (Sixt
et al. 2020) explains the same input for another class. Maps that ignore the model are perfectly stable: a stable map is
not proof of a good one.

Shapes: N samples, M perturbations, C channels, S = spatial shape, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.sample_scores import CORRELATION, SIMILARITIES, SampleScores, Similarity, flat_maps
from twinlens.probing.execution import choose_batch
from twinlens.probing.model_call import ANSWER, Labels, Model, Respondent, check_inputs, check_labels, evaluating
from twinlens.run.check_records import CheckColumn
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats, Integers
from twinlens.support.fields import check_count
from twinlens.support.randomness import stream

_MOST = 1000
_TRIES = 4  # draws for each required perturbation: those that change the output are replaced


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
) -> SampleScores:
    """Measure how much maps change under perturbations that leave the model's output the same (Yeh et al. 2019).

    Args:
        model: a module that returns logits, or a function.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain, or values of a regression model.
        method: a name in `METHODS`, or a function of the same signature.
        radius: largest change of an input value, in standard deviations of its input; of tabular rows, of its column.
        change: largest change of the target's probability, with the same predicted class, for which the output counts
            as the same; for a regression model, of the value, in standard deviations over the samples.
        perturbations: number of perturbations of each sample; draws that change the output are replaced.
        ids: sample ids.
        seed: seed of the perturbations and of the method, which draws the same numbers for all of them.
        **options: options of the method.

    Returns:
        The largest change over a sample's perturbations, |map' - map| / |map| in the Euclidean norm. NaN for a map of
        zeros, and where every draw changes the output.

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
    respondent, batch, explain = _prepare(model, inputs, targets, ids, seed, method, options)
    noise = partial(_draw_noise, batch, ids=respondent.ids, radius=radius, seed=seed)
    draws = _equal_outputs(respondent, batch, noise, change, perturbations)
    original = explain(batch, respondent.labels)
    length = np.sqrt((original**2).sum(axis=1))
    changes = np.full((perturbations, len(batch)), np.nan)
    for row, numbers in zip(changes, draws, strict=True):
        distance = np.sqrt(((explain(batch + noise(numbers), respondent.labels) - original) ** 2).sum(axis=1))
        np.divide(distance, length, out=row, where=(numbers >= 0) & (length > 0))
    return SampleScores(name="max-sensitivity", values=np.fmax.reduce(changes), ids=respondent.ids)


@checked
def class_similarity(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: Similarity = "spearman",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> SampleScores:
    """Compare the map of each sample's class with that of another class, drawn by the seed (Sixt et al. 2020).

    `similarity` is "spearman" or "pearson". Other arguments as for `max_sensitivity`; `targets` must be classes.

    Returns:
        The correlation of each sample's two maps: 1 if a method shows the same map for every class. NaN if a map is
        constant.

    Example:
        >>> linear = torch.nn.Linear(6, 3)
        >>> x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
        >>> class_similarity(linear, x, [0, 1, 2, 0], "random").values.round(6)
        array([1., 1., 1., 1.])
    """
    respondent, batch, explain = _prepare(model, inputs, targets, ids, seed, method, options)
    labels, names = respondent.labels, respondent.ids
    if respondent.regression:
        raise ValueError("`targets` must be classes, as integers; a value of a regression model has no other class.")
    _ask(respondent, batch[:1])
    assert respondent.classes is not None
    steps = [1 + stream(seed, name, "other class") % (respondent.classes - 1) for name in names]
    others = (labels + np.array(steps)) % respondent.classes
    values = SIMILARITIES[similarity](explain(batch, labels), explain(batch, others))
    return SampleScores(name="class similarity", values=values, ids=names, limits=CORRELATION)


def _prepare(
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    ids: Sequence[str | int] | None,
    seed: int,
    method: str | Callable[..., Tensor],
    options: Mapping[str, Any],
) -> tuple[Respondent, Tensor, Callable[[Tensor, NDArray[Any]], Floats]]:
    """Check the samples; return the model, the inputs, and a function from inputs and targets to maps (N, F)."""
    batch, names = check_inputs(inputs, ids)
    labels, on_numpy = check_labels(targets, names, "targets"), not isinstance(inputs, Tensor)
    respondent = Respondent(model, labels=labels, ids=names, output="auto", on_numpy=on_numpy, device=None)
    how: dict[str, Any] = {"ids": names, "seed": seed, "options": options, "on_numpy": respondent.on_numpy}
    return respondent, batch, partial(flat_maps, model, method=method, **how)


def _draw_noise(inputs: Tensor, numbers: Integers, ids: Sequence[str], radius: float, seed: int) -> Tensor:
    """Draw each sample's perturbation (N, C, *S) with the number in `numbers` (N,); zero for -1."""
    # Columns of a table have different units, channels of an image have the same.
    columns = inputs.double().std(dim=0, correction=0) if inputs.dim() == 2 and len(inputs) > 1 else None
    noise = torch.zeros_like(inputs)
    for row, own, name, number in zip(noise, inputs, ids, numbers.tolist(), strict=True):
        if number >= 0:
            generator = torch.Generator().manual_seed(stream(seed, name, "perturbation", number))
            uniform = torch.rand(row.shape, generator=generator, dtype=torch.float64) * 2 - 1
            scale = own.double().std(correction=0) if columns is None else columns
            row.copy_(radius * scale * uniform.to(own.device))
    return noise


def _ask(respondent: Respondent, inputs: Tensor) -> Floats:
    """Return the model's answers (N, 4), the columns named in `ANSWER`."""
    device = respondent.device
    rows = choose_batch(inputs[0], device)
    index = torch.arange(len(inputs), device=device)
    with evaluating(respondent.model), torch.inference_mode():
        parts = [
            respondent.ask(inputs[start : start + rows].to(device), index[start : start + rows])
            for start in range(0, len(inputs), rows)
        ]
    answers = torch.cat(parts).to("cpu", torch.float64).numpy()
    respondent.check(answers[:, None], respondent.ids, [0.0])
    return answers


def _equal_outputs(
    respondent: Respondent, inputs: Tensor, noise: Callable[[Integers], Tensor], change: float, perturbations: int
) -> Integers:
    """Return the numbers (M, N) of each sample's first perturbations that keep the model's output; -1 for none."""
    original, regression = _ask(respondent, inputs), respondent.regression
    column, predicted = ANSWER.index("predicted" if regression else "probability"), ANSWER.index("predicted")
    unit = float(original[:, column].std()) if regression else 1.0
    numbers, count = np.full((perturbations, len(inputs)), -1), np.zeros(len(inputs), dtype=np.int64)
    for number in range(_TRIES * perturbations):
        if (count == perturbations).all():
            break
        answers = _ask(respondent, inputs + noise(np.full(len(inputs), number)))
        same = np.abs(answers[:, column] - original[:, column]) <= change * unit
        if not regression:
            same &= answers[:, predicted] == original[:, predicted]
        samples = np.flatnonzero(same & (count < perturbations))
        numbers[count[samples], samples] = number
        count[samples] += 1
    return numbers


@partial(
    CheckDefinition,
    title="Max-sensitivity at equal output",
    source="Yeh et al. 2019, On the (in)fidelity and sensitivity of explanations",
    columns=(CheckColumn(title="largest change", better="lower", beside="max-sensitivity"),),
    options=("limit", "radius", "change", "perturbations"),
)
def max_sensitivity_check(run: CheckedRun) -> CheckResult:
    """Do maps stay the same when the model's output does?

    Inputs are perturbed so little that the model predicts the same class with the same probability. The value is the
    largest relative change of a map, |map' - map| / |map|: 0 for maps that do not change, above 1 for maps that have
    little in common. Random maps, which ignore the model, stay at 0: stable does not mean right.
    """
    arguments = {name: getattr(run.options, name) for name in ("radius", "change", "perturbations")}
    return run.each_method(lambda name: run.score(max_sensitivity, name, **arguments))


@partial(
    CheckDefinition,
    title="Class similarity",
    source="Sixt et al. 2020, When explanations lie: why many modified BP attributions fail",
    columns=(CheckColumn(title="correlation with another class", better="lower", beside="class\nsimilarity"),),
    options=("limit", "similarity"),
)
def class_similarity_check(run: CheckedRun) -> CheckResult:
    """Do maps of the same input change with the class that they explain?

    The correlation of the map of a sample's class with that of another class, drawn at random: 1 for a method that
    shows every class the same map, and explains none. Some similarity is expected: classes share what a model looks at
    first.
    """
    return run.each_method(lambda name: run.score(class_similarity, name, similarity=run.options.similarity))
