"""Relevance of one linear operation: how the rules of layer-wise relevance propagation share it among the inputs.

An operation adds contributions c = x · w and a bias b to outputs y. A rule shares the relevance R of each output among
the contributions, c⁺ > 0 and c⁻ < 0, and the bias. Nothing is lost: what bias and stabiliser keep is returned beside
what the inputs receive.

Shapes: (B, …) as the operation has them; x inputs, y outputs, R shaped like y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A linear operation with its weight."""

    apply: Callable[[Tensor, Tensor], Tensor]
    """From inputs and a weight to outputs without bias."""
    weight: Tensor
    bias: Tensor | None
    """Shaped to be added to the outputs."""
    dense: bool
    """Whether it is not a convolution."""

    def scaled(self, scale: Tensor, shift: Tensor) -> Layer:
        """Return the operation followed by y · scale + shift for each channel, as in batch normalisation."""
        outputs = (-1, *[1] * (self.weight.dim() - 1))
        channels = (-1,) if self.dense else (-1, *[1] * (self.weight.dim() - 2))
        bias = shift if self.bias is None else self.bias.flatten() * scale + shift
        return replace(self, weight=self.weight * scale.reshape(outputs), bias=bias.reshape(channels))

    def run(self, x: Tensor) -> Tensor:
        """Return the outputs, with the bias."""
        outputs = self.apply(x, self.weight)
        return outputs if self.bias is None else outputs + self.bias

    def run_signed(self, x: Tensor, sign: int) -> Tensor:
        """Return the sums of the positive or of the negative contributions."""
        up, down = self.weight.clamp(min=0), self.weight.clamp(max=0)
        total = self.apply(x.clamp(min=0), up if sign > 0 else down)
        if bool((x < 0).any()):
            total = total + self.apply(x.clamp(max=0), down if sign > 0 else up)
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Relevance per unit of contribution (shaped like y): inputs receive Σ c · every + c⁺ · plus + c⁻ · minus."""

    every: Tensor | None = None
    plus: Tensor | None = None
    minus: Tensor | None = None
    kept: Tensor
    """Relevance that the bias and the stabiliser keep."""


Signed = Callable[[int], Tensor]
"""From a sign to the sums of the positive or of the negative contributions."""


@dataclass(frozen=True)
class Epsilon:
    """LRP-ε: contributions share the relevance in proportion, c / (y ± ε) (Bach et al. 2015)."""

    epsilon: float = 1e-6

    def share(self, relevance: Tensor, y: Tensor, bias: Tensor, signed: Signed) -> Shares:  # noqa: ARG002
        """Return the shares of one operation with these outputs and the bias that takes part in the rule."""
        whole = _stabilised(y, self.epsilon)
        every = relevance / whole
        return Shares(every=every, kept=every * (bias + (whole - y)))


@dataclass(frozen=True)
class AlphaBeta:
    """LRP-αβ: α c⁺ / Σc⁺ − β c⁻ / Σc⁻, with α − β = 1; α = 1 is the z⁺ rule (Bach et al. 2015, Montavon et al. 2017).

    An output with contributions of one sign only shares everything among these, and nothing is lost.
    """

    alpha: float
    beta: float

    def share(self, relevance: Tensor, y: Tensor, bias: Tensor, signed: Signed) -> Shares:  # noqa: ARG002
        """Return the shares of one operation with these outputs and the bias that takes part in the rule."""
        up = signed(1) + bias.clamp(min=0)
        has_up = up > _TINY
        if self.beta == 0 and bool((has_up | (relevance == 0)).all()):  # half of the work is enough
            plus = torch.where(has_up, relevance, 0) / torch.where(has_up, up, 1)
            return Shares(plus=plus, kept=plus * bias.clamp(min=0))
        down = signed(-1) + bias.clamp(max=0)
        has_down = down < -_TINY
        alpha = torch.where(has_down, self.alpha, 1.0) * has_up
        beta = torch.where(has_up, self.beta, -1.0) * has_down
        plus = relevance * alpha / torch.where(has_up, up, 1)
        minus = -relevance * beta / torch.where(has_down, down, 1)
        nothing = relevance * ~(has_up | has_down)
        return Shares(plus=plus, minus=minus, kept=plus * bias.clamp(min=0) + minus * bias.clamp(max=0) + nothing)


@dataclass(frozen=True)
class Gamma:
    """LRP-γ: contributions of the output's own sign count 1 + γ times (Montavon et al. 2019; Andéol et al. 2021)."""

    gamma: float = 0.25
    epsilon: float = 1e-6

    def share(self, relevance: Tensor, y: Tensor, bias: Tensor, signed: Signed) -> Shares:
        """Return the shares of one operation with these outputs and the bias that takes part in the rule."""
        up, is_up = signed(1), y > 0
        down = y - bias - up
        favoured = torch.where(is_up, up + bias.clamp(min=0), down + bias.clamp(max=0))
        whole = y + self.gamma * favoured
        stable = _stabilised(whole, self.epsilon)
        share = relevance / stable
        bias_share = bias + self.gamma * torch.where(is_up, bias.clamp(min=0), bias.clamp(max=0))
        more = self.gamma * share
        return Shares(
            every=share + more * ~is_up,
            plus=torch.where(is_up, more, -more),  # every - plus counts for the negative contributions
            kept=share * (bias_share + (stable - whole)),
        )


Rule = Epsilon | AlphaBeta | Gamma


def propagate(
    layer: Layer, rule: Rule, x: Tensor, y: Tensor, relevance: Tensor, *, spread: bool
) -> tuple[Tensor, Tensor]:
    """Share the relevance of outputs y among the inputs x of a linear operation.

    Returns relevance of the inputs divided by x, and what was kept, like y. With `spread` the bias is left out of the
    sums of `AlphaBeta`, and contributions share everything.
    """
    bias = layer.bias
    if bias is None or (spread and isinstance(rule, AlphaBeta)):
        bias = torch.zeros((), dtype=y.dtype, device=y.device)
    with torch.no_grad():
        shares = rule.share(relevance, y, bias, lambda sign: layer.run_signed(x, sign))
    total = torch.zeros_like(x)
    for signal, run in (
        (shares.every, lambda leaf: layer.apply(leaf, layer.weight)),
        (shares.plus, lambda leaf: layer.run_signed(leaf, 1)),
        (shares.minus, lambda leaf: layer.run_signed(leaf, -1)),
    ):
        if signal is not None:
            total = total + _transposed(run, x, signal)
    return total, shares.kept


def share_flat(layer: Layer, x: Tensor, relevance: Tensor) -> Tensor:
    """Share the relevance of every output equally among the inputs that it sees (the flat rule of an input layer)."""
    ones, seen = torch.ones_like(x), torch.ones_like(layer.weight)
    with torch.no_grad():
        total = layer.apply(ones, seen)
    return _transposed(lambda leaf: layer.apply(leaf, seen), ones, relevance / _stabilised(total, _TINY))


def share_in_box(layer: Layer, x: Tensor, relevance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Share relevance by the box rule zᴮ of an input layer whose inputs lie between `low` and `high` (like x).

    Contributions are c − low · w⁺ − high · w⁻, none of them negative (Montavon et al. 2017).
    """
    up, down = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in (x, low, high)]
        total = layer.apply(leaves[0], layer.weight) - layer.apply(leaves[1], up) - layer.apply(leaves[2], down)
        back = torch.autograd.grad(total, leaves, relevance / _stabilised(total.detach(), _TINY))
    shared: Tensor = sum((leaf.detach() * each for leaf, each in zip(leaves, back, strict=True)), torch.zeros_like(x))
    return shared


def _transposed(run: Callable[[Tensor], Tensor], x: Tensor, signal: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (back,) = torch.autograd.grad(run(leaf), leaf, signal)
    return back


def _stabilised(values: Tensor, epsilon: float) -> Tensor:
    """Move values away from zero by epsilon, zero itself to the positive side."""
    return values + torch.where(values < 0, -epsilon, epsilon)
