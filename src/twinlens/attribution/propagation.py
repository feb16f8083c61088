"""Layer-wise relevance propagation through a whole network, as a context in which operations follow its rules.

Relevance is carried as R / x, as a gradient is input × gradient divided by x. Operations that only move, add or scale
values need no rule: their own gradients conserve relevance. Values that do not depend on the input (biases, class
tokens, constants of expansions) keep their share, which is counted: with the relevance of the input it sums to the
logit. Shapes: B samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.weak import WeakTensorKeyDictionary

from twinlens.attribution.attention import attend, attend_with_heads
from twinlens.attribution.relevance import Layer, Rule, propagate
from twinlens.attribution.rules import ACTIVATIONS, OWN_ORDER, PRODUCTS, RELUS, SOFTMAX, SUMS, Operation, Rules

InputRule = Callable[[Layer, Tensor, Tensor], Tensor]
"""From the first layer, its inputs and the relevance of its outputs to the relevance of its inputs."""

_DIFFERENCES = (torch.sub, Tensor.sub, Tensor.__sub__, Tensor.sub_, Tensor.__isub__)
_QUOTIENTS = (torch.div, torch.true_divide, Tensor.div, Tensor.true_divide, Tensor.__truediv__, Tensor.div_)
_MATRIX_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum)
_GATES = (torch.sigmoid, Tensor.sigmoid, F.sigmoid, Tensor.sigmoid_, F.hardsigmoid)
_SCALES = (torch.rsqrt, Tensor.rsqrt, torch.sqrt, Tensor.sqrt, torch.std, Tensor.std, torch.var, Tensor.var,
           torch.norm, Tensor.norm, torch.linalg.vector_norm)  # fmt: skip
_MOVES = (Tensor.expand, Tensor.expand_as, Tensor.view, Tensor.view_as, Tensor.reshape, Tensor.unsqueeze,
          torch.unsqueeze)  # fmt: skip
_ELEMENTWISE = (torch.clamp, Tensor.clamp, torch.exp, Tensor.exp, torch.pow, Tensor.pow, Tensor.__pow__,
                torch.square, Tensor.square, torch.erf, Tensor.erf, torch.abs, Tensor.abs)  # fmt: skip
_CLOSE = 1e-4  # to zero: secants from there on lose their digits


@dataclass(frozen=True, kw_only=True)
class Composite:
    """Which rule a layer follows."""

    dense: Rule
    convolution: Rule
    first: InputRule | None = None
    """In layers that read the input; by default as in the others."""
    spread: bool = False
    """Leave biases out of alpha-beta rules; contributions share everything."""
    constant_softmax: bool = False
    """Treat attention weights as constants; all relevance goes to the values (Ali et al. 2022)."""


class Propagation(Rules):
    """A context in which gradients are relevance divided by values."""

    def __init__(self, composite: Composite, samples: int) -> None:
        """Prepare for one backward pass from the logits of that many samples."""
        self.composite = composite
        self.kept: Tensor | float = 0.0
        """(B,) relevance kept by values that do not depend on the input."""
        self.at_input: list[Tensor] = []
        """Relevance of the inputs of first layers with their own rule."""
        self._samples = samples
        self._runs, self._padded, self._gates = (WeakTensorKeyDictionary() for _ in range(3))
        super().__init__(self._rules())

    def _rules(self) -> dict[Operation, Operation]:

        table: dict[Operation, Operation] = {op: partial(self._activated, plain) for op, plain in ACTIVATIONS.items()}
        table |= {op: partial(self._activated, op) for op in _ELEMENTWISE}
        table |= dict.fromkeys(RELUS, _relu)  # whose own gradient conserves relevance
        table |= {op: partial(self._gated, op) for op in _GATES}
        table |= {op: partial(_constant, op) for op in _SCALES}
        table |= {op: partial(self._moved, op) for op in _MOVES}
        table |= dict.fromkeys(SUMS, partial(self._added, torch.add))
        table |= dict.fromkeys(_DIFFERENCES, partial(self._added, torch.sub))
        table |= {op: partial(self._convolved, op) for op in (F.conv1d, F.conv2d, F.conv3d)}
        table |= dict.fromkeys(PRODUCTS, self._product)
        table |= dict.fromkeys(_QUOTIENTS, self._quotient)
        table |= {op: partial(self._halved, op) for op in _MATRIX_PRODUCTS}
        table |= dict.fromkeys(SOFTMAX, self._softmax)
        table |= dict.fromkeys(OWN_ORDER, self._batch_norm_overload)
        return table | {
            F.linear: self._linear,
            torch.addmm: lambda bias, x, weight: self._linear(x, weight.T, bias),  # of GPT-2
            Tensor.__rsub__: lambda a, b: self._added(torch.add, -a, b),
            torch.cat: self._joined,
            F.pad: self._pad,
            F.batch_norm: self._batch_norm,
            F.layer_norm: self._layer_norm,
            F.group_norm: self._group_norm,
            F.normalize: _to_length_one,
            F.rms_norm: self._rms_norm,
            F.scaled_dot_product_attention: self._attention,
            F.multi_head_attention_forward: partial(attend_with_heads, self._linear, self._attention),
        }

    def keep(self, values: Tensor) -> None:
        """Count relevance (B · …) as kept."""
        self.kept = self.kept + values.reshape(self._samples, -1).sum(dim=1)

    # Layers with weights.

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self._shared(Layer(apply=F.linear, weight=weight, bias=bias, dense=True), x)

    def _convolved(
        self, operation: Operation, x: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **options: Any
    ) -> Tensor:
        shaped = None if bias is None else bias.reshape(-1, *[1] * (weight.dim() - 2))
        unpadded, widths = self._padded.get(x, (x, None))

        def apply(z: Tensor, w: Tensor) -> Tensor:
            y: Tensor = operation(z if widths is None else F.pad(z, widths), w, None, *args, **options)
            return y

        return self._shared(Layer(apply=apply, weight=weight, bias=shaped, dense=False), unpadded)

    def _pad(self, x: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
        """Pad, and remember how: zeros belong to the convolution that follows."""
        y = F.pad(x, pad, mode, value)
        if y.requires_grad and mode == "constant" and not value:
            self._padded[y] = (x, tuple(pad))
        return y

    def _shared(self, layer: Layer, x: Tensor, y: Tensor | None = None) -> Tensor:
        if not x.requires_grad:
            return layer.run(x)
        out: Tensor = _Shared.apply(x, y, self, layer, _reads_input(x))
        self._runs[out] = (layer, x)
        return out

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,  # noqa: ARG002  (as the function that it replaces)
        momentum: float = 0.1,  # noqa: ARG002
        eps: float = 1e-5,
    ) -> Tensor:
        if running_mean is None or running_var is None:
            raise ValueError("`model` has batch normalisation without running statistics, for which LRP has no rule.")
        scale = torch.rsqrt(running_var + eps) * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - running_mean * scale
        (layer, before), shape = self._runs.get(x, (None, None)), (1, -1, *[1] * (x.dim() - 2))
        if layer is not None and (not layer.dense or x.dim() == 2):
            with torch.no_grad():
                y = x * scale.reshape(shape) + shift.reshape(shape)
            return self._shared(layer.scaled(scale, shift), before, y)
        return self._plus(x * scale.reshape(shape), shift.reshape(shape))

    def _batch_norm_overload(self, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Tensor:
        _, _, eps, *_ = rest
        return self._batch_norm(x, mean, var, weight, bias, eps=eps)

    # Normalisations: their scale is a constant.

    def _layer_norm(
        self, x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        dims = tuple(range(-len(shape), 0))
        centred = x - x.mean(dim=dims, keepdim=True)
        return self._affine(_normalised(centred, dims, eps), weight, bias)

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        return self._affine(_normalised(x, tuple(range(-len(shape), 0)), eps), weight, None)

    def _group_norm(
        self, x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        grouped = x.unflatten(1, (groups, -1))
        dims = tuple(range(2, grouped.dim()))
        scaled = _normalised(grouped - grouped.mean(dim=dims, keepdim=True), dims, eps).reshape(x.shape)
        shape = (-1, *[1] * (x.dim() - 2))
        return self._affine(scaled, *(None if each is None else each.reshape(shape) for each in (weight, bias)))

    def _affine(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        scaled = x if weight is None else x * weight
        return scaled if bias is None else self._plus(scaled, bias)

    # Sums with constants.

    def _plus(self, x: Tensor, constant: Tensor) -> Tensor:
        return self._counted(x + constant, constant)

    def _counted(self, y: Tensor, constant: Tensor | float) -> Tensor:
        """Count what a constant that is part of y keeps."""
        counted: Tensor = _Counted.apply(y, constant, self)
        return counted

    def _added(self, operation: Operation, a: Any, b: Any, *args: Any, **options: Any) -> Any:
        y = operation(a, b, *args, **options)
        if not _depends(y):
            return y
        fixed = [each.detach() if isinstance(each, Tensor) else each for each in (a, b)]
        if not _depends(b):
            return self._counted(y, operation(torch.zeros_like(fixed[0]), fixed[1], *args, **options))
        return y if _depends(a) else self._counted(y, fixed[0])

    def _joined(self, tensors: Any, *args: Any, **options: Any) -> Any:
        y = torch.cat(tensors, *args, **options)
        if not y.requires_grad or all(each.requires_grad for each in tensors):
            return y
        fixed = [torch.zeros_like(each) if each.requires_grad else each for each in tensors]
        return self._counted(y, torch.cat(fixed, *args, **options))

    # Activations, products and attention.

    def _activated(self, activation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Let relevance pass an activation f: f(x) is x times a constant, plus the bias f(0)."""
        options.pop("inplace", None)
        if not x.requires_grad:
            return activation(x, *args, **options)
        with torch.no_grad():
            at_zero = activation(torch.zeros((), dtype=x.dtype, device=x.device), *args, **options)
            away = torch.where(x.abs() < _CLOSE, torch.copysign(torch.full_like(at_zero, _CLOSE), x), x)
            slope = (activation(away, *args, **options) - at_zero) / away
        return x * slope if float(at_zero) == 0 else self._plus(x * slope, at_zero)

    def _gated(self, activation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
        y = self._activated(ACTIVATIONS.get(activation, torch.sigmoid), x, *args, **options)
        self._gates[y] = True
        return y

    def _moved(self, operation: Operation, x: Tensor, *args: Any, **options: Any) -> Any:
        y = operation(x, *args, **options)
        if x in self._gates:
            self._gates[y] = True
        return y

    def _product(self, a: Any, b: Any) -> Any:
        """Share relevance equally between factors (Achtibat et al. 2024); gates get none (Arras et al. 2017)."""
        if _depends(a) and _depends(b):
            for gate, other in ((a, b), (b, a)):
                if gate in self._gates:
                    return other * gate.detach()
        return self._halved(torch.mul, a, b)

    def _quotient(self, a: Any, b: Any, **options: Any) -> Any:
        return torch.div(a, b.detach() if isinstance(b, Tensor) and _depends(a) else b, **options)

    def _halved(self, operation: Operation, *args: Any, **options: Any) -> Any:
        factors = sum(_depends(each) for each in args)
        shared = [_Scaled.apply(each, 1 / factors) if _depends(each) and factors > 1 else each for each in args]
        return operation(*shared, **options)

    def _softmax(self, x: Tensor, dim: int = -1, *args: Any, **options: Any) -> Tensor:
        """Replace softmax by its first-order expansion (Achtibat et al. 2024)."""
        options.pop("_stacklevel", None)
        if self.composite.constant_softmax:
            return torch.softmax(x.detach(), dim, *args, **options)
        y = torch.softmax(x, dim, *args, **options)
        if not x.requires_grad:
            return y
        with torch.no_grad():
            scores = torch.where(y > 0, x, 0)
            expanded_at_zero = y * (1 - scores + (y * scores).sum(dim=dim, keepdim=True))
        return self._counted(y, expanded_at_zero)

    def _attention(self, *args: Any, **options: Any) -> Tensor:
        return attend(partial(self._halved, torch.matmul), self._softmax, *args, **options)


def _relu(x: Tensor, inplace: bool = False) -> Tensor:  # never in place: its input is needed
    return torch.relu(x)


def _constant(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Any:
    return operation(x.detach(), *args, **options)


def _depends(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _normalised(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    return x * torch.rsqrt(x.detach().square().mean(dim=dims, keepdim=True) + eps)


def _to_length_one(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    return x / x.detach().norm(p, dim, keepdim=True).clamp(min=eps)


def _reads_input(x: Tensor) -> bool:
    """Return whether no layer with a rule lies between the input and x."""
    remaining, visited = [x.grad_fn], set()
    while remaining:
        node = remaining.pop()
        if node is None or node in visited:
            continue
        if node.name() == f"{_Shared.__name__}Backward":
            return False
        visited.add(node)
        remaining += [before for before, _ in node.next_functions]
    return True


class _Shared(torch.autograd.Function):
    """A linear operation whose relevance is shared by a rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, whole: Propagation, layer: Layer, is_first: bool) -> Tensor:
        ctx.whole, ctx.layer, ctx.is_first = whole, layer, is_first
        out = layer.run(x) if y is None else y.clone()
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, y = ctx.saved_tensors
        whole, composite = ctx.whole, ctx.whole.composite
        if ctx.is_first and composite.first is not None:
            whole.at_input.append(composite.first(ctx.layer, x, gradient * y))
            return torch.zeros_like(x), None, None, None, None
        rule = composite.dense if ctx.layer.dense else composite.convolution
        back, kept = propagate(ctx.layer, rule, x, y, gradient * y, spread=composite.spread)
        whole.keep(kept)
        return back, None, None, None, None


class _Counted(torch.autograd.Function):
    """The identity; a constant that is part of its value keeps relevance."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, constant: Tensor | float, whole: Propagation) -> Tensor:
        ctx.whole, ctx.constant = whole, constant
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.whole.keep(gradient * ctx.constant)
        return gradient, None, None


class _Scaled(torch.autograd.Function):
    """The identity, whose backward pass returns only a share of the relevance."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.share, None
