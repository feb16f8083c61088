"""Shapley values of the features of tabular rows, and of segments of images.

Shapes: N samples, C channels, S = spatial shape, D features, M coalitions.
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
from twinlens.probing.maps import spatial_shape
from twinlens.probing.model_call import Model
from twinlens.probing.ranking import check_segments
from twinlens.support.arrays import ArrayLike, as_tensor
from twinlens.support.randomness import stream


@AttributionMethod(
    any_callable=True,
    reference=True,
    segments=True,
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
    segments: ArrayLike | None = None,
    cells: int = 8,
) -> Explain:
    """KernelSHAP (Lundberg & Lee 2017) on the features of tabular rows and on segments of images, its positive part.

    Exact for a model that is linear in its features, and for any model where all 2^D coalitions are affordable.

    Args:
        background: values of absent features: a number, or an array that fits one input, such as the mean of the
            training data; by default the mean of the reference, and zero without one.
        reference: (M, C, *S) or (M, D) other inputs; a run draws them from its data.
        coalitions: how many coalitions of each sample are evaluated; by default 2 D + 2048 for D features, as in the
            authors' code, or all of them if there are no more than that.
        segments: (N, *S) numbers of the segments that are features of images and signals, from 0, such as superpixels;
            every place has its segment's value, and those with a negative number, which stay present, have none. A run
            takes its own segments.
        cells: without segments, cut images and signals into so many equal parts along each side.
    """
    absent = _absent(background, reference, request.inputs)
    parts = _parts_of(request, segments, cells)

    def explain(part: Request) -> Tensor:
        maps = []
        for i, (given, name) in enumerate(zip(part.inputs, part.ids, strict=True)):
            places, features = parts[name].to(given.device), int(parts[name].max()) + 1
            wanted = 2 * features + 2048 if coalitions is None else coalitions
            if wanted < min(2 * features, 2**features - 2):
                raise ValueError(
                    f"`coalitions` must be at least {2 * features}, twice the number of features; got {wanted}."
                )
            present, weights = _coalitions(features, wanted, stream(part.seed, name, "coalitions"))
            drawn = torch.from_numpy(np.concatenate([np.ones((2, features)) * [[0], [1]], present]).astype(bool))
            answers = [
                _ask(model, torch.where(_keep(few, places, given), given, absent), part, int(part.targets[i]))
                for few in drawn.to(given.device).split(part.batch_size)
            ]
            values = np.concatenate(answers)
            solved = torch.from_numpy(_solve(present, weights, values[2:], values[0], values[1])).to(given)
            maps.append(torch.where(places >= 0, solved[places.clamp(min=0)], 0))
        return torch.stack(maps)

    return explain


def _keep(present: Tensor, places: Tensor, given: Tensor) -> Tensor:
    """Return which values (M, C, *S) of one input are present in coalitions (M, D) of its segments (*S)."""
    keep = present[:, places.clamp(min=0)] | (places < 0)
    return keep if given.dim() == places.dim() else keep[:, None]


def _parts_of(request: Request, segments: ArrayLike | None, cells: int) -> dict[str, Tensor]:
    """Return the number of the feature that every place (*S) of each sample belongs to."""
    shape = spatial_shape(request.inputs.shape)
    if segments is not None:
        return dict(zip(request.ids, check_segments(segments, shape, request.ids), strict=True))
    if request.inputs.dim() == 2:
        return dict.fromkeys(request.ids, torch.arange(shape[0]))
    number = torch.zeros(shape, dtype=torch.int64)
    for axis, size in enumerate(shape):
        along = torch.arange(size) * min(cells, size) // size
        number = number * min(cells, size) + along.reshape(-1, *[1] * (len(shape) - axis - 1))
    return dict.fromkeys(request.ids, number)


def _absent(background: float | ArrayLike | None, reference: ArrayLike | None, inputs: Tensor) -> Tensor:
    """Return values of absent features that fit one input."""
    argument = "background" if background is not None or reference is None else "reference"
    if background is None:
        others = None if reference is None else as_tensor(reference, "reference")
        background = 0.0 if others is None else others.double().mean(dim=0) if others.dim() == inputs.dim() else others
    absent = as_tensor(background, argument).to(inputs)
    try:
        fits = bool(absent.expand(inputs.shape[1:]).isfinite().all())
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"`{argument}` must be a number or fit one input {tuple(inputs.shape[1:])}, and finite; got shape "
            f"{tuple(absent.shape)}."
        )
    return absent


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
