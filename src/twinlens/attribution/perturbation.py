"""Attribution by perturbation: hide parts of the input, and measure the target class.

Shapes: B samples of one batch, C channels, S = spatial shape, M masks, A areas, R = B·A rows, L levels of perturbation,
G = shape of the coarse grid on which a smooth mask is parametrised.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from twinlens.attribution.embeddings import hide_tokens
from twinlens.attribution.harness import Request, absent_values, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.probing.maps import spatial_shape
from twinlens.support.arrays import ArrayLike
from twinlens.support.randomness import stream

_MASK_BLOCK = 256  # masks of RISE and occlusion that exist at a time, at most

# Extremal perturbation, from the code of Fong et al. 2019: levels of perturbation between which a mask interpolates;
# learning rate for 800 steps, and momentum; inverse temperature of the smooth maximum.
_LEVELS, _RATE, _MOMENTUM, _COLDNESS = 8, 0.01, 0.9, 20.0
_LAST_WEIGHT = 1.0035**800  # of the area constraint, in units of its first in the paper, after the paper's 800 steps
_FIRST_WEIGHT = 0.1  # smaller here: important features must emerge before the mask shrinks
_WARM_UP = 0.25  # share of the steps in which only the mean of a mask is held to its area

Masks = Callable[[int, int], Tensor]


@AttributionMethod(title="Occlusion", model="a module that returns logits", tokens="masking", reference="rows")
def occlusion(
    model: nn.Module,
    request: Request,
    *,
    window: int | None = None,
    stride: int | None = None,
    baseline: float | None = None,
    reference: ArrayLike | None = None,
) -> Explain:
    """Occlusion (Zeiler & Fergus 2014): the mean drop of the target's logit over the windows that hide a feature.

    Args:
        window: edge of the window, in features; by default an eighth of the input along each axis, and a single
            feature for tabular rows, which have no neighbourhood, and for tokens.
        stride: distance between windows, at most `window`; by default half the window. The last window ends at the
            border: every feature is hidden at least once.
        baseline: the value shown in a window; by default 0, the mean of normalised data, and for tabular rows the mean
            of the reference. Hidden tokens have the mean of all embeddings.
        reference: (M, D) other rows; a run draws them from its data.

    Returns:
        Maps (N, *S); a feature gets 0 if hiding it raises the logit.

    Example:
        >>> model = nn.Linear(3, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0]]))
        >>> occlusion(model, torch.ones(1, 3), [0])
        tensor([[1., 2., 0.]])
    """
    masks, count = _windows(request, window, stride)
    absent = _absent(baseline, reference, request)
    score = functools.partial(target_logits, model)

    def explain(batch: Request) -> Tensor:
        whole = score(batch.inputs, batch.targets)
        drops = covers = torch.zeros((), device=whole.device)
        for keep, scores in _scores(score, batch, masks, count, absent):
            hidden = 1 - keep
            drops = drops + torch.einsum("bm,m...->b...", whole[:, None] - scores, hidden)
            covers = covers + hidden.sum(dim=0)
        return drops / covers

    return explain


@AttributionMethod(title="RISE", model="a module that returns logits", tokens="masking", reference="rows")
def rise(
    model: nn.Module,
    request: Request,
    *,
    masks: int = 4000,
    cells: int = 7,
    probability: float = 0.5,
    form: Literal["covariance", "expectation"] = "covariance",
    output: Literal["logits", "probabilities"] = "logits",
    reference: ArrayLike | None = None,
) -> Explain:
    """RISE (Petsiuk et al. 2018): random masks averaged, each weighted with the probability of the target behind it.

    All samples share the masks, as in the paper; they depend on `seed` alone. Features of tabular rows are drawn
    independently.

    Args:
        masks: number of masks; 4000 for VGG16 and 8000 for ResNet-50 in the paper.
        cells: cells of a mask along each axis before it is enlarged; 7 in the paper.
        probability: the share of cells that show the input; 0.5 in the paper. The rest is 0, the mean of normalised
            data, and in tabular rows the mean of the reference.
        form: "expectation" is the paper's: the expected probability of the target, given that a feature is shown.
            Nearly all of that is the mean over all masks, the same for every feature, which "covariance" subtracts.
            Both rank features alike, up to chance; thresholds and sums of values are meaningful only for the latter.
        output: what the model returns; a run passes what it knows. Of a regression, the value itself is averaged.
        reference: (M, D) other rows; a run draws them from its data.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"`probability` must lie within (0, 1]; got {probability:g}.")
    drawn = _random_masks(request, masks, cells, probability)
    absent = _absent(None, reference, request)

    def score(rows: Tensor, classes: Tensor) -> Tensor:
        answers: Tensor = model(rows)
        if output == "logits" and answers.shape[1] > 1:
            answers = answers.softmax(dim=1)
        return answers.gather(1, classes[:, None])[:, 0]

    def explain(batch: Request) -> Tensor:
        target_logits(model, batch.inputs, batch.targets)  # refuses a model without logits of these classes
        joint, shown, mean = (torch.zeros((), device=batch.inputs.device, dtype=torch.float64) for _ in range(3))
        for keep, scores in _scores(score, batch, drawn, masks, absent):
            joint = joint + torch.einsum("bm,m...->b...", scores, keep)
            shown, mean = shown + keep.sum(dim=0, dtype=torch.float64), mean + scores.sum(dim=1, dtype=torch.float64)
        if form == "covariance":
            joint = joint - torch.einsum("b,...->b...", mean / masks, shown)
        return joint / (masks * probability)

    return explain


def _scores(
    score: Callable[[Tensor, Tensor], Tensor], batch: Request, masks: Masks, count: int, absent: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield keep-masks (m, *S) block by block, with the score (B, m) of each sample behind each of them."""
    inputs, block = batch.inputs[:, None], min(_MASK_BLOCK, max(1, batch.batch_size // len(batch)))
    for start in range(0, count, block):
        keep = masks(start, min(start + block, count)).to(inputs)
        share = keep.unsqueeze(1) if batch.inputs.dim() > 2 else keep
        if batch.tokens:
            rows = batch.inputs.repeat_interleave(len(keep), dim=0)
            masked = hide_tokens(rows, keep.bool().repeat(len(batch), 1)).unflatten(0, (len(batch), len(keep)))
        else:
            masked = torch.lerp(absent, inputs, share) if absent.any() else inputs * share
        scores = score(masked.flatten(0, 1), batch.targets.repeat_interleave(len(keep)))
        yield keep.to(scores.dtype), scores.reshape(len(batch), len(keep))  # estimators answer in float64


def _absent(given: float | None, reference: ArrayLike | None, request: Request) -> Tensor:
    """Return what hidden features of one input become; the reference counts for tabular rows."""
    rows = request.inputs.dim() == 2 and not request.tokens
    return absent_values(given, "baseline", reference if rows else None, request.inputs)


def _windows(request: Request, window: int | None, stride: int | None) -> tuple[Masks, int]:
    """Return the keep-masks (M, *S) of all windows as a function of their numbers, and how many there are."""
    tabular, spatial = request.inputs.dim() == 2 or request.tokens, spatial_shape(request.inputs.shape)
    if window is not None and not 1 <= window <= min(spatial):
        raise ValueError(f"`window` must lie within 1 … {min(spatial)}, to fit into inputs {spatial}; got {window}.")
    covers = []
    for size in spatial:
        edge = window or (1 if tabular else max(1, size // 8))
        step = max(1, edge // 2) if stride is None else stride
        if not 1 <= step <= edge:
            raise ValueError(f"`stride` must lie within 1 … {edge}, the window, to leave no gaps; got {step}.")
        starts = torch.tensor(sorted({*range(0, size - edge, step), size - edge}))[:, None]
        positions = torch.arange(size)
        covers.append(((positions >= starts) & (positions < starts + edge)).float())
    counts = tuple(len(cover) for cover in covers)

    def masks(start: int, stop: int) -> Tensor:
        hidden = torch.ones(stop - start)
        for cover, index in zip(covers, torch.unravel_index(torch.arange(start, stop), counts), strict=True):
            hidden = hidden[..., None] * cover[index].reshape(stop - start, *[1] * (hidden.dim() - 1), -1)
        return 1 - hidden

    return masks, math.prod(counts)


def _random_masks(request: Request, count: int, cells: int, probability: float) -> Masks:
    """Draw the coarse masks of RISE; return them enlarged, as a function of their numbers."""
    tabular, spatial = request.inputs.dim() == 2 or request.tokens, spatial_shape(request.inputs.shape)
    generator = torch.Generator().manual_seed(stream(request.seed, "rise"))
    coarse = spatial if tabular else tuple(min(cells, size) for size in spatial)
    grids = (torch.rand((count, *coarse), generator=generator) < probability).float()
    edges = [math.ceil(size / number) for size, number in zip(spatial, coarse, strict=True)]
    shifts = [torch.randint(0, edge, (count, 1), generator=generator) for edge in edges]

    def masks(start: int, stop: int) -> Tensor:
        values = grids[start:stop]
        if tabular:
            return values
        for axis, (size, number, edge, shift) in enumerate(zip(spatial, coarse, edges, shifts, strict=True), start=1):
            # A mask of one cell more than the input, cropped at a random offset: cells have no fixed borders.
            position = (torch.arange(size) + shift[start:stop] + 0.5) * number / ((number + 1) * edge) - 0.5
            distance = position.clamp(0, number - 1)[..., None] - torch.arange(number)
            moved = values.movedim(axis, 1)
            fine = (1 - distance.abs()).clamp(min=0) @ moved.reshape(*moved.shape[:2], -1)
            values = fine.reshape(len(moved), size, *moved.shape[2:]).movedim(1, axis)
        return values

    return masks


@AttributionMethod(title="ExPerturb", inputs="flat")
def extremal_perturbation(
    model: nn.Module,
    request: Request,
    *,
    areas: float | Sequence[float] = 0.1,
    steps: int = 800,
    area_weight: float = 300.0,
) -> Explain:
    """Extremal perturbation (Fong et al. 2019): the smooth mask of a given area that keeps the target's logit highest.

    Outside of the mask the input is blurred. Four things differ from the authors' code: smooth masks are computed on
    their coarse grid and interpolated; the area is that of the input, without a margin; for the first quarter of the
    steps a light penalty acts on the mean of the mask, because sorting decides by chance while all values are equal;
    inputs are never flipped.

    Args:
        areas: the share of the input that a mask keeps, or several, whose masks are summed; 0.1 in the authors' code,
            0.025, 0.05, 0.1 and 0.2 in the paper's pointing game.
        steps: steps of gradient ascent; 800 in the paper. With fewer, each is larger in proportion.
        area_weight: weight of the penalty; in the authors' code 300 at the first step, and at the last 16 times that.
            Here it grows to the same from a tenth. Raise it for a model with logits in the hundreds.

    Returns:
        Maps (N, *S): the mask, or the sum of the masks.
    """
    shares = (areas,) if isinstance(areas, (int, float)) else tuple(areas)
    if not shares or not all(0 < share < 1 for share in shares):
        raise ValueError(f"`areas` must lie within (0, 1), at least one of them; got {shares}.")
    if max(request.inputs.shape[2:]) < 2:
        raise ValueError(
            f"`inputs` must have at least two features for smooth masks; got shape {tuple(request.inputs.shape)}."
        )
    height, width = (1, *request.inputs.shape[2:])[-2:]  # a signal is an image of one row
    # In the paper the grid has a point every 7 features of 224, the kernel a width of 21, the strongest blur one of 20.
    shorter = min(size for size in (height, width) if size > 1)
    smooth = _SmoothMask((height, width), max(2, round(shorter * 7 / 224)), shorter * 21 / 224, request.inputs)

    @torch.enable_grad()
    def search(batch: Request) -> Tensor:
        images = batch.inputs.reshape(*batch.inputs.shape[:2], height, width)
        pyramid = _pyramid(images, _LEVELS, shorter * 20 / 224)
        pyramid, classes = (t.repeat_interleave(len(shares), dim=0) for t in (pyramid, batch.targets))

        def reward(mask: Tensor) -> Tensor:
            rows = _perturb(pyramid, mask).reshape(-1, *batch.inputs.shape[1:])
            return target_logits(model, rows, classes)

        rows = torch.tensor(shares * len(batch), device=images.device)
        masks = _search(smooth, reward, rows, steps, area_weight)
        return masks.reshape(len(batch), len(shares), *batch.inputs.shape[2:]).sum(dim=1)

    together = max(1, request.batch_size // len(shares))
    return lambda batch: torch.cat([search(few) for few in batch.split(together)])


def _search(
    smooth: _SmoothMask, reward: Callable[[Tensor], Tensor], areas: Tensor, steps: int, area_weight: float
) -> Tensor:
    """Find the masks (R, H, W) of areas (R,) that have the highest reward (R,), by gradient ascent."""
    features = smooth.spatial[0] * smooth.spatial[1]
    kept = (areas * features + 0.5).floor()
    largest = int(kept.max())
    counted = torch.arange(largest, device=areas.device) < kept[:, None]
    grid = torch.ones(len(areas), 1, *smooth.grid, device=areas.device, dtype=smooth.kernel.dtype, requires_grad=True)
    optimizer = torch.optim.SGD([grid], lr=_RATE * 800 / steps, momentum=_MOMENTUM, dampening=_MOMENTUM)
    for t in range(steps):
        mask = smooth(grid)
        flat = mask.flatten(1)
        # A mask that is still constant has no order: sorted, it would keep arbitrary features for good.
        if t < steps * _WARM_UP:
            penalty = (flat.mean(dim=1) - areas).square()
        else:
            # The mean square distance of the sorted mask to zeros and then ones, without sorting the zeros.
            ones = (flat.topk(largest, dim=1).values * counted).sum(dim=1)
            penalty = (flat.square().sum(dim=1) - 2 * ones + kept) / features
        # Summed over rows: each has its own optimum.
        weight = area_weight * _FIRST_WEIGHT * (_LAST_WEIGHT / _FIRST_WEIGHT) ** (t / steps)
        energy = reward(mask) - weight * penalty
        (grid.grad,) = torch.autograd.grad(-energy.sum(), [grid])
        optimizer.step()
        with torch.no_grad():
            grid.clamp_(0, 1)
    with torch.no_grad():
        return smooth(grid)


class _SmoothMask:
    """A map from parameters (R, 1, *G) within [0, 1] to smooth masks (R, H, W): their smooth maximum, each spread."""

    def __init__(self, spatial: tuple[int, int], step: int, sigma: float, like: Tensor) -> None:
        self.spatial, self.step = spatial, step
        self.grid = (math.ceil(spatial[0] / step), math.ceil(spatial[1] / step))
        # As far as in the authors' code, which takes 4 steps for a width of 3.
        radius = math.ceil(sigma / step * 4 / 3)
        offset = torch.arange(-radius, radius + 1) * step
        distance = torch.hypot(*torch.meshgrid(offset.float(), offset.float(), indexing="ij")) / sigma
        self.kernel = (-2 * (distance - 0.5).clamp(min=0).square()).exp().reshape(1, -1, 1).to(like)

    def __call__(self, grid: Tensor) -> Tensor:
        taps = math.isqrt(self.kernel.shape[1])
        spread = self.kernel * functional.unfold(grid, taps, padding=taps // 2)
        coarse = (spread * (_COLDNESS * spread).softmax(dim=1)).sum(dim=1).reshape(len(grid), 1, *self.grid)
        fine = functional.interpolate(coarse, scale_factor=float(self.step), mode="bilinear", align_corners=False)
        return fine[:, 0, : self.spatial[0], : self.spatial[1]]


def _pyramid(images: Tensor, levels: int, max_blur: float) -> Tensor:
    """Return images (B, L, C, H, W) from fully blurred to original."""
    return torch.stack([blur(images, s * max_blur) for s in torch.linspace(1, 0, levels).tolist()], dim=1)


def _perturb(pyramid: Tensor, mask: Tensor) -> Tensor:
    """Perturb images: (R, C, H, W), original where the mask (R, H, W) is 1, further down the pyramid elsewhere."""
    level = mask * (pyramid.shape[1] - 1)
    below = level.detach().floor().clamp(max=pyramid.shape[1] - 2)
    index = below.long()[:, None, None].expand(-1, 1, *pyramid.shape[2:])
    low, high = (pyramid.gather(1, index + k)[:, 0] for k in (0, 1))
    return low + (level - below)[:, None] * (high - low)


def blur(values: Tensor, sigma: float) -> Tensor:
    """Blur (B, C, *S) with a Gaussian along each axis of S; at the border the weights are renormalised."""
    if sigma <= 0:
        return values
    for axis in range(2, values.dim()):
        index = torch.arange(values.shape[axis], device=values.device, dtype=values.dtype)
        weights = (-(index[:, None] - index).square() / (2 * sigma**2)).softmax(dim=1)
        moved = values.movedim(axis, -1)
        # As one matrix, because many small products are slow.
        values = (moved.reshape(-1, moved.shape[-1]) @ weights.T).reshape(moved.shape).movedim(-1, axis)
    return values
