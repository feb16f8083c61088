"""DeepLIFT and DeepSHAP: contributions to the change of a logit, from a backward pass that compares two inputs.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, M baselines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from twinlens.attribution.gradients import ENSEMBLES, baseline_of, combine_copies
from twinlens.attribution.harness import Request, in_batches, make_request, target_logits
from twinlens.attribution.rules import rescale_rules
from twinlens.core.arrays import ArrayLike, as_tensor
from twinlens.core.calling import Labels
from twinlens.errors import unknown


def _contributions(model: nn.Module, part: Request, baselines: Tensor, *, check: bool) -> Tensor:
    """Compute DeepLIFT's contributions (B, C, *S) against one baseline per sample, signed."""
    both = torch.cat([part.inputs, baselines])
    with torch.enable_grad():
        leaf = both.detach().clone().requires_grad_()
        with rescale_rules():
            logits = target_logits(model, leaf, part.targets.repeat(2))
        (multipliers,) = torch.autograd.grad(logits[: len(part)].sum(), leaf)
    contributions = multipliers[: len(part)] * (part.inputs - baselines)
    if check:
        gained = (logits[: len(part)] - logits[len(part) :]).detach()
        missing = (contributions.flatten(1).sum(dim=1) - gained).abs()
        off = (missing > 0.05 * gained.abs() + 0.05).nonzero().flatten().tolist()
        for i in off:
            raise ValueError(
                f"`model`: the contributions of sample {part.ids[i]!r} do not sum to the change of its logit "
                f"({gained[i].item():.3g}, off by {missing[i].item():.3g}). The model has operations that DeepLIFT has "
                "no rule for, such as LayerNorm or attention. Use integrated_gradients, or check=False to go on."
            )
    return contributions


def deeplift(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    baseline: float | ArrayLike = 0.0,
    check: bool = True,
) -> Tensor:
    """DeepLIFT with the rescale rule (Shrikumar et al. 2017), summed over the channels, its positive part.

    Args:
        model: a network of linear operations, activations, max pooling and products; ReLUs may be in place, re-used or
            functional.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: unused; the method is deterministic.
        batch_size: samples per batch; by default 16, or more for small inputs.
        baseline: the reference, a number or an array like one input; zero in the paper.
        check: refuse a model for which contributions do not sum to the change of the logit.
    """
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    start = baseline_of(baseline, request.inputs)
    return in_batches(
        model,
        request,
        lambda part: _contributions(model, part, start.expand_as(part.inputs), check=check),
    )


def deepshap(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    background: ArrayLike | None = None,
    check: bool = True,
    ensemble: Literal["sg", "sq", "var"] | None = None,
    samples: int = 20,
    variance: float = 0.3,
) -> Tensor:
    """DeepSHAP (Lundberg & Lee 2017): DeepLIFT's contributions averaged over baselines drawn from the data.

    Args:
        model: as for `deeplift`.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        ids: one name per sample.
        seed: seed of the noise of an ensemble; every baseline serves every sample.
        batch_size: samples per batch; by default 16, or more for small inputs.
        background: baselines (M, C, *S); by default a single one of zeros, as in the paper.
        check: as for `deeplift`.
        ensemble: explain noisy copies, too, and combine them as `ig_sg`, `ig_sq` or `ig_var` does: "sg", "sq" or "var".
        samples: noisy copies of an ensemble.
        variance: of their noise.
    """
    if ensemble is not None:
        if ensemble not in ENSEMBLES:
            raise unknown("ensemble", ensemble, ENSEMBLES)
        return deepshap_ensembles(
            model, inputs, targets, [ensemble], ids=ids, seed=seed, batch_size=batch_size,
            background=background, check=check, samples=samples, variance=variance,
        )[ensemble]  # fmt: skip
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    return in_batches(model, request, _against(model, request, background, check))


def deepshap_ensembles(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    kinds: Sequence[str],
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    background: ArrayLike | None = None,
    check: bool = True,
    samples: int = 20,
    variance: float = 0.3,
) -> dict[str, Tensor]:
    """Make several ensembles of DeepSHAP from the same noisy copies; arguments as for `deepshap`."""
    request = make_request(model, inputs, targets, ids=ids, seed=seed, batch_size=batch_size)
    explain = _against(model, request, background, check)
    return combine_copies(model, request, explain, kinds, samples=samples, variance=variance)


def _against(
    model: nn.Module, request: Request, background: ArrayLike | None, check: bool
) -> Callable[[Request], Tensor]:
    """Return what explains a batch by its mean contributions against all baselines."""
    given = torch.zeros_like(request.inputs[:1]) if background is None else as_tensor(background, "background")
    if given.shape[1:] != request.inputs.shape[1:] or len(given) == 0:
        raise ValueError(
            f"`background` must hold baselines shaped like one input {tuple(request.inputs.shape[1:])}; got shape "
            f"{tuple(given.shape)}."
        )
    baselines = given.to(request.inputs)
    if not baselines.isfinite().all():
        raise ValueError("`background` must be finite; it holds NaN or infinity.")

    def explain(part: Request) -> Tensor:
        total = torch.zeros_like(part.inputs)
        for one in baselines:
            total += _contributions(model, part, one.expand_as(part.inputs), check=check)
        return total / len(baselines)

    return explain
