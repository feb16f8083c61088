"""Shapley values of tabular rows.

Shapes: N samples, D features, M coalitions.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.attribution.harness import Request
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.core.arrays import ArrayLike, as_tensor
from twinlens.core.calling import Model
from twinlens.core.randomness import stream


@AttributionMethod(
    inputs="rows",
    any_callable=True,
    reference=True,
    model="a module that returns logits; or a callable, given NumPy arrays if `inputs` is one, such as scikit-learn's "
    "`predict_proba`",
)
def kernel_shap(
    model: Model,
    request: Request,
    *,
    background: float | ArrayLike | None = None,
    reference: ArrayLike | None = None,
    coalitions: int | None = None,
) -> Explain:
    """KernelSHAP (Lundberg & Lee 2017) on tabular rows, its positive part.

    Exact for a model that is linear in its features, and for any model where all 2^D coalitions are affordable.

    Args:
        background: values of absent features: a number, or (D,), such as the mean of the training data; by default the
            mean of the reference, and zero without one.
        reference: (M, D) other rows; `evaluate` draws them from the data.
        coalitions: how many coalitions of each sample are evaluated; by default 2 D + 2048, as in the authors' code, or
            all of them if there are no more than that.
    """
    rows = request.inputs
    features = rows.shape[1]
    wanted = 2 * features + 2048 if coalitions is None else coalitions
    if wanted < min(2 * features, 2**features - 2):
        raise ValueError(f"`coalitions` must be at least {2 * features}, twice the number of features; got {wanted}.")
    argument = "background" if background is not None or reference is None else "reference"
    if background is None:
        background = 0.0 if reference is None else _mean_row(as_tensor(reference, "reference"))
    absent = as_tensor(background, argument).to(rows)
    if absent.shape not in ((), (1,), (features,)) or not absent.isfinite().all():
        raise ValueError(
            f"`{argument}` must be a number, or one for each of the {features} features, and finite; got shape "
            f"{tuple(absent.shape)}."
        )

    def explain(part: Request) -> Tensor:
        maps = torch.zeros(part.inputs.shape, dtype=torch.float32)
        for i, (row, name) in enumerate(zip(part.inputs, part.ids, strict=True)):
            present, weights = _coalitions(features, wanted, stream(part.seed, name, "coalitions"))
            masks = torch.from_numpy(np.concatenate([np.ones((2, features)) * [[0], [1]], present]).astype(bool))
            asked = torch.where(masks.to(row.device), row, absent)
            answers = [_ask(model, few, part, int(part.targets[i])) for few in asked.split(part.batch_size)]
            values = np.concatenate(answers)
            maps[i] = torch.from_numpy(_solve(present, weights, values[2:], values[0], values[1]))
        return maps

    return explain


def _mean_row(rows: Tensor) -> Tensor:
    return rows.double().mean(dim=0) if rows.dim() == 2 else rows


def _coalitions(features: int, wanted: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coalitions (M, D) of 0 and 1, neither empty nor full, and weights: all, or drawn in opposite pairs."""
    sizes = np.arange(1, features)
    by_size = (features - 1) / (sizes * (features - sizes)) if features > 1 else np.zeros(0)
    if 2**features - 2 <= wanted:
        members = [c for size in sizes for c in combinations(range(features), int(size))]
        present = np.zeros((len(members), features))
        weights = np.zeros(len(members))
        for k, chosen in enumerate(members):
            present[k, list(chosen)] = 1
            weights[k] = by_size[len(chosen) - 1] / math.comb(features, len(chosen))
        return present, weights
    rng = np.random.default_rng(seed)
    drawn = rng.choice(sizes, size=wanted // 2, p=by_size / by_size.sum())
    present = (rng.random((len(drawn), features)).argsort(axis=1) < drawn[:, None]).astype(np.float64)
    return np.concatenate([present, 1 - present]), np.ones(2 * len(drawn))


def _ask(model: Model, rows: Tensor, part: Request, target: int) -> NDArray[np.float64]:
    answer = model(rows.numpy() if part.arrays and not isinstance(model, nn.Module) else rows)
    values = answer.detach().cpu().numpy() if isinstance(answer, Tensor) else np.asarray(answer)
    if values.ndim != 2 or not 0 <= target < values.shape[1]:
        raise ValueError(
            f"`model` must return (samples, classes) with class {target} among them; it returned shape {values.shape}."
        )
    return np.asarray(values[:, target], dtype=np.float64)


def _solve(
    present: NDArray[np.float64], weights: NDArray[np.float64], values: NDArray[np.float64], empty: float, full: float
) -> NDArray[np.float64]:
    """Solve weighted least squares under the constraint that the values sum to full - empty."""
    if present.shape[1] == 1:
        return np.array([full - empty])
    # The last value is what the others leave, which turns the constraint into one unknown less.
    last = present[:, -1:]
    design = present[:, :-1] - last
    right = values - empty - last[:, 0] * (full - empty)
    root = np.sqrt(weights)[:, None]
    solution = np.linalg.lstsq(root * design, root[:, 0] * right, rcond=None)[0]
    return np.append(solution, full - empty - solution.sum())
