"""DeepLIFT's rules (Shrikumar et al. 2017): differences from a baseline instead of derivatives.

The baseline passes through the model first, alone, and the arguments of each operation are recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from twinlens.attribution.rules import ACTIVATIONS, PRODUCTS, Operation, Rules

_CLOSE = 1e-4
"""Below this step the secant loses its digits, and the tangent is the same to rounding."""

_SLOPES: dict[Operation, Operation] = {
    torch.relu: lambda z: z > 0,
    F.relu6: lambda z: (z > 0) & (z < 6),
    F.hardtanh: lambda z, min_val=-1.0, max_val=1.0: (z > min_val) & (z < max_val),
}
"""Derivatives of piecewise linear activations, which are cheaper than those by autograd."""


_MAX_POOLS: dict[Operation, Operation] = {
    F.max_pool1d: torch.max_pool1d,
    F.max_pool2d: torch.max_pool2d,
    F.max_pool3d: torch.max_pool3d,
}


class RescaleRules(Rules):
    """A context in which operations are replaced: first for a pass of the baseline, then, after `replay`, of inputs."""

    def __init__(self, *, max_pooling: str) -> None:
        """Prepare for the pass of a baseline."""
        table: dict[Operation, Operation] = {op: partial(self._rescaled, plain) for op, plain in ACTIVATIONS.items()}
        table |= dict.fromkeys(PRODUCTS, self._product)
        if max_pooling == "difference":
            for pool, public in _MAX_POOLS.items():
                table |= dict.fromkeys((pool, public), partial(self._max_pool, pool))
        super().__init__(table)
        self._records: list[tuple[Tensor, ...]] = []
        self._next = -1

    def replay(self) -> RescaleRules:
        """Return the same rules for a pass of inputs."""
        self._next = 0
        return self

    def _baseline(self, *arguments: Tensor) -> tuple[Tensor, ...] | None:
        """Return the arguments of this operation in the pass of the baseline; during that pass record them instead."""
        if self._next < 0:
            # Copies, because an operation may work in place on its arguments.
            self._records.append(tuple(each.detach().clone() for each in arguments))
            return None
        if self._next < len(self._records):
            record = self._records[self._next]
            self._next += 1
            if len(record) == len(arguments):
                return tuple(_repeated(each, like) for each, like in zip(record, arguments, strict=True))
        raise ValueError("`model` must run the same operations for every input, for DeepLIFT to compare them.")

    def _rescaled(self, activation: Operation, x: Tensor, *args: Any, **options: Any) -> Any:
        options.pop("inplace", None)

        def plain(z: Tensor) -> Any:
            return activation(z, *args, **options)

        def slope(z: Tensor) -> Tensor:
            if activation in _SLOPES:
                return _SLOPES[activation](z, *args, **options)
            with torch.enable_grad():
                leaf = z.detach().requires_grad_()
                return torch.autograd.grad(plain(leaf).sum(), leaf)[0]

        base = self._baseline(x)
        return plain(x) if base is None else _Rescale.apply(x, *base, plain, slope)

    def _product(self, a: Any, b: Any) -> Any:
        both = isinstance(a, Tensor) and isinstance(b, Tensor) and a.requires_grad and b.requires_grad
        base = self._baseline(a, b) if both and a.dim() == b.dim() else None
        return torch.mul(a, b) if base is None else _RescaledProduct.apply(a, b, *base)

    def _max_pool(
        self, operation: Operation, x: Tensor, *args: Any, return_indices: bool = False, **options: Any
    ) -> Any:
        if return_indices:
            raise ValueError("`model` asks max pooling for indices, for which DeepLIFT has no rule.")

        def pool(z: Tensor) -> tuple[Tensor, Tensor]:
            pooled: tuple[Tensor, Tensor] = operation(z, *args, **options, return_indices=True)
            return pooled

        base = self._baseline(x)
        return pool(x)[0] if base is None else _RescaledMaxPool.apply(x, *base, pool)


def _repeated(base: Tensor, like: Tensor) -> Tensor:
    """Repeat a tensor of the baseline to fit inputs, whose samples are along the first axis."""
    if base.shape[1:] == like.shape[1:] and like.shape[0] % base.shape[0] == 0:
        # The first axis may hold several rows per sample, as of tokens; each sample then has the baseline's rows.
        return base if base.shape[0] == 1 else base.repeat(like.shape[0] // base.shape[0], *[1] * (base.dim() - 1))
    raise ValueError(
        f"`model` must treat samples alike, for DeepLIFT to compare them with a baseline; it has features of shape "
        f"{tuple(like.shape)} where those of the baseline have {tuple(base.shape)}."
    )


class _Rescale(torch.autograd.Function):
    """An element-wise activation whose derivative is its secant between input and baseline."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: Tensor, activation: Operation, slope: Operation) -> Tensor:
        out: Tensor = activation(x)
        ctx.activation, ctx.slope = activation, slope
        ctx.save_for_backward(x, base, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        x, base, out = ctx.saved_tensors
        step = x - base
        secant = (out - ctx.activation(base)).div_(step)
        close = step.abs() < _CLOSE
        slope = ctx.slope(torch.add(x, step, alpha=-0.5))
        return torch.where(close, slope, secant).mul_(gradient), None, None, None


class _RescaledProduct(torch.autograd.Function):
    """A product, whose difference is shared exactly: Δ(ab) = Δa · mean(b) + Δb · mean(a)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, base_a: Tensor, base_b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, base_a, base_b)
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        a, b, base_a, base_b = ctx.saved_tensors
        to_a, to_b = gradient * (b + base_b) / 2, gradient * (a + base_a) / 2
        return to_a.sum_to_size(a.shape), to_b.sum_to_size(b.shape), None, None


class _RescaledMaxPool(torch.autograd.Function):
    """Max pooling: what the output gained over its baseline goes to the position that made the difference."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: Tensor, pool: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        out, positions = pool(x)
        ctx.save_for_backward(x, base, out, positions, *pool(base))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, base, out, positions, base_out, base_positions = ctx.saved_tensors
        top = torch.maximum(out, base_out)
        gained = torch.zeros_like(x).flatten(2)
        gained.scatter_add_(2, positions.flatten(2), (gradient * (top - base_out)).flatten(2))
        gained.scatter_add_(2, base_positions.expand_as(positions).flatten(2), (gradient * (out - top)).flatten(2))
        step = x - base
        far = step.abs() > 1e-7
        return torch.where(far, gained.reshape(x.shape) / torch.where(far, step, 1), 0), None, None
