"""Shapley values of the features of tabular rows, and of segments of images.

Shapes: N samples, C channels, S = spatial shape, D features, M coalitions.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution.embeddings import hide_tokens
from twinlens.attribution.harness import Request, absent_values
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.probing.maps import spatial_shape
from twinlens.probing.model_call import Model
from twinlens.probing.ranking import check_segments
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.randomness import stream


@AttributionMethod(
    title="KernelSHAP",
    any_callable=True,
    tokens="masking",
    model="a module that returns logits; or a callable, which gets NumPy arrays if `inputs` is one, such as "
    "scikit-learn's `predict_proba`",
)
def kernel_shap(
    model: Model,
    request: Request,
    *,
    background: float | ArrayLike | None = None,
    reference: ArrayLike | None = None,
    coalitions: int | None = None,
    segments: ArrayLike | None = None,
    cells: int = 8,
) -> Explain:
    """KernelSHAP (Lundberg & Lee 2017) on the features of tabular rows and on segments of images, its positive part.

    Exact for a model that is linear in its features, and for any model where all 2^D coalitions are affordable.

    Args:
        background: values of absent features: a number, or an array that fits one input, such as the mean of the
            training data; by default the mean of the reference, and zero without one. Absent tokens have the mean of
            all embeddings.
        reference: (M, C, *S) or (M, D) other inputs; a run draws them from its data.
        coalitions: number of coalitions evaluated for each sample; by default 2 D + 2048 for D features, as in the
            authors' code, or all of them if there are no more than that.
        segments: (N, *S) segment numbers from 0, such as superpixels, which are the features of images and signals;
            every position gets the value of its segment. Positions with a negative number stay present and get none.
            A run passes its own segments.
        cells: without segments, divide images and signals into that many equal parts along each side.
    """
    absent = absent_values(background, "background", None if request.tokens else reference, request.inputs)
    features_of = _feature_numbers(request, segments, cells)

    def explain(batch: Request) -> Tensor:
        maps = []
        for x, name, target in zip(batch.inputs, batch.ids, batch.targets.tolist(), strict=True):
            numbers = features_of[name].to(x.device)
            features = int(numbers.max()) + 1
            count = 2 * features + 2048 if coalitions is None else coalitions
            if count < min(2 * features, 2**features - 2):
                raise ValueError(
                    f"`coalitions` must be at least {2 * features}, twice the number of features; got {count}."
                )
            present, weights = _coalitions(features, count, stream(batch.seed, name, "coalitions"))
            rows = torch.from_numpy(np.concatenate([np.ones((2, features)) * [[0], [1]], present]).astype(bool))
            answers = [
                _ask(model, _shown(_keep(few, numbers, x), x, absent, batch), batch, target)
                for few in rows.to(x.device).split(batch.batch_size)
            ]
            empty, full, *values = np.concatenate(answers).tolist()
            solved = torch.from_numpy(_solve(present, weights, np.array(values), empty, full)).to(x)
            maps.append(torch.where(numbers >= 0, solved[numbers.clamp(min=0)], 0))
        return torch.stack(maps)

    return explain


def _shown(keep: Tensor, x: Tensor, absent: Tensor, batch: Request) -> Tensor:
    """Return one input with the values of each coalition (M, C, *S)."""
    if not batch.tokens:
        return torch.where(keep, x, absent)
    return hide_tokens(x.expand(len(keep), *x.shape), keep if x.dim() == 1 else keep[:, 0])


def _keep(present: Tensor, numbers: Tensor, x: Tensor) -> Tensor:
    """Return which values (M, C, *S) of one input are present in coalitions (M, D) of its features, numbered (*S)."""
    keep = present[:, numbers.clamp(min=0)] | (numbers < 0)
    return keep if x.dim() == numbers.dim() else keep[:, None]


def _feature_numbers(request: Request, segments: ArrayLike | None, cells: int) -> dict[str, Tensor]:
    """Return the number of the feature at every position (*S) of each sample."""
    shape = spatial_shape(request.inputs.shape)
    if segments is not None:
        return dict(zip(request.ids, check_segments(segments, shape, request.ids), strict=True))
    if request.inputs.dim() == 2 or request.tokens:
        return dict.fromkeys(request.ids, torch.arange(shape[0]))
    numbers = torch.zeros(shape, dtype=torch.int64)
    for axis, size in enumerate(shape):
        along = torch.arange(size) * min(cells, size) // size
        numbers = numbers * min(cells, size) + along.reshape(-1, *[1] * (len(shape) - axis - 1))
    return dict.fromkeys(request.ids, numbers)


def _coalitions(features: int, count: int, seed: int) -> tuple[Floats, Floats]:
    """Return coalitions (M, D) of 0 and 1, neither empty nor full, and weights: all, or drawn in opposite pairs."""
    sizes = np.arange(1, features)
    by_size = (features - 1) / (sizes * (features - sizes)) if features > 1 else np.zeros(0)
    if 2**features - 2 <= count:
        members = [c for size in sizes for c in combinations(range(features), int(size))]
        present = np.zeros((len(members), features))
        for row, chosen in zip(present, members, strict=True):
            row[list(chosen)] = 1
        return present, np.array([by_size[len(c) - 1] / math.comb(features, len(c)) for c in members])
    rng = np.random.default_rng(seed)
    drawn = rng.choice(sizes, size=count // 2, p=by_size / by_size.sum())
    present = (rng.random((len(drawn), features)).argsort(axis=1) < drawn[:, None]).astype(np.float64)
    return np.concatenate([present, 1 - present]), np.ones(2 * len(drawn))


def _ask(model: Model, rows: Tensor, batch: Request, target: int) -> Floats:
    answer = model(rows.numpy() if batch.arrays and not isinstance(model, nn.Module) else rows)
    values = answer.detach().cpu().numpy() if isinstance(answer, Tensor) else np.asarray(answer)
    if values.ndim != 2 or not 0 <= target < values.shape[1]:
        raise ValueError(
            f"`model` must return (samples, classes) with class {target} among them; it returned shape {values.shape}."
        )
    return np.asarray(values[:, target], dtype=np.float64)


def _solve(present: Floats, weights: Floats, values: Floats, empty: float, full: float) -> Floats:
    """Solve weighted least squares under the constraint that the values sum to full - empty."""
    if present.shape[1] == 1:
        return np.array([full - empty])
    # The last value is what the others leave: the constraint becomes one unknown less.
    last = present[:, -1:]
    design = present[:, :-1] - last
    right = values - empty - last[:, 0] * (full - empty)
    root = np.sqrt(weights)[:, None]
    solution = np.linalg.lstsq(root * design, root[:, 0] * right, rcond=None)[0]
    return np.append(solution, full - empty - solution.sum())
