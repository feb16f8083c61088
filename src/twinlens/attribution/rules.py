"""Changed backward rules of single operations, for guided and excitation backpropagation; rescale.py has DeepLIFT's.

The rules replace operations, not modules. A ReLU that works in place, is used twice, or is a plain function call
follows them like any other, which hooks on modules cannot achieve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

Operation = Callable[..., Any]
RELUS: tuple[Operation, ...] = (F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)
_NEVER_IN_PLACE: tuple[Operation, ...] = (
    F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.hardswish, F.hardsigmoid, F.hardtanh, F.relu6, F.mish, F.selu,
    F.celu, F.logsigmoid,
)  # fmt: skip
ACTIVATIONS: dict[Operation, Operation] = {
    **dict.fromkeys(RELUS, torch.relu),
    **{activation: activation for activation in _NEVER_IN_PLACE},
    **dict.fromkeys((F.tanh, torch.tanh, Tensor.tanh), torch.tanh),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, Tensor.sigmoid), torch.sigmoid),
}
"""Element-wise activations, each with a form that does not work in place."""

PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.mul_, Tensor.__imul__)
SUMS = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.add_, Tensor.__iadd__)
SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)

OWN_ORDER = (torch.ops.aten.batch_norm.default,)
"""Overloads that take their arguments in another order than the function does."""


class Rules(TorchFunctionMode):
    """A context in which operations are replaced; `used` counts how often."""

    def __init__(self, replacements: Mapping[Operation, Operation]) -> None:
        super().__init__()
        self.replacements, self.used = replacements, 0

    def __torch_function__(
        self, func: Operation, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the replacement of an operation, if there is one."""
        replacement = self.replacements.get(_function_of(func))
        if replacement is None:
            return func(*args, **(kwargs or {}))
        self.used += 1
        return replacement(*args, **(kwargs or {}))


def _function_of(func: Operation) -> Operation:
    """Return the function behind an operation; programs of torch.export call overloads of it."""
    if not isinstance(func, torch._ops.OpOverload) or func in OWN_ORDER:
        return func
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    function: Operation = getattr(F, name, getattr(torch, name, func))
    return function


class _GuidedRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, top: float) -> Tensor:
        ctx.save_for_backward((x > 0) & (x < top))
        return x.clamp(0, top)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (is_open,) = ctx.saved_tensors
        return gradient.clamp(min=0) * is_open, None


def guided_rules() -> Rules:
    """Return the rules of guided backpropagation (Springenberg et al. 2015): a ReLU passes only positive gradients."""

    def relu(x: Tensor, inplace: bool = False) -> Tensor:
        return _GuidedRelu.apply(x, torch.inf)

    def relu6(x: Tensor, inplace: bool = False) -> Tensor:
        return _GuidedRelu.apply(x, 6.0)

    def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
        # nn.ReLU6 is a hard tanh from 0 to 6.
        return _GuidedRelu.apply(x, max_val) if min_val == 0 else F.hardtanh(x, min_val, max_val)

    return Rules({**dict.fromkeys(RELUS, relu), F.relu6: relu6, F.hardtanh: hardtanh})


class _Excite(torch.autograd.Function):
    """A linear operation with excitatory weights alone: probability goes to inputs in proportion to what they add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operation: Operation, excitatory: Operation) -> Tensor:
        ctx.excitatory = excitatory
        ctx.save_for_backward(x)
        return operation(x)

    @staticmethod
    def backward(ctx: Any, probability: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            positive = x.detach().clamp(min=0).requires_grad_()
            total = ctx.excitatory(positive)
        (back,) = torch.autograd.grad(total, positive, _quotient(probability, total.detach()))
        return positive.detach() * back, None, None


def _quotient(probability: Tensor, total: Tensor) -> Tensor:
    return torch.where(total > 1e-12, probability / total.clamp(min=1e-12), 0)


def _excited(
    operation: Operation,
    signs: list[int],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *args: Any,
    **options: Any,
) -> Tensor:
    def excitatory(z: Tensor) -> Any:
        signed = -weight if signs and signs.pop() < 0 else weight
        return operation(z, signed.clamp(min=0), None, *args, **options)

    return _Excite.apply(x, lambda z: operation(z, weight, bias, *args, **options), excitatory)


def _excited_pool(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    def pool(z: Tensor) -> Any:
        return operation(z, *args, **options)

    return _Excite.apply(x, pool, pool)


class _PassProbability(torch.autograd.Function):
    """An operation from each unit to itself: probability passes through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operation: Operation) -> Tensor:
        return operation(x)

    @staticmethod
    def backward(ctx: Any, probability: Tensor) -> tuple[Tensor, None]:
        return probability, None


def _passing(operation: Operation, x: Tensor, *args: Any, **options: Any) -> Tensor:
    options.pop("inplace", None)
    return _PassProbability.apply(x, lambda z: operation(z, *args, **options))


class _SharedSum(torch.autograd.Function):
    """A sum of two branches: probability goes to each in proportion to its positive part."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a + b

    @staticmethod
    def backward(ctx: Any, probability: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (branch.clamp(min=0) for branch in ctx.saved_tensors)
        share = _quotient(probability, a + b)
        return a * share, b * share


def _sum(a: Any, b: Any, alpha: float = 1) -> Any:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape and alpha == 1:
        return _SharedSum.apply(a, b)
    return torch.add(a, b, alpha=alpha)


def excitation_rules(signs: list[int]) -> Rules:
    """Return the rules of excitation backpropagation (Zhang et al. 2018): win probabilities instead of gradients.

    The weights of the first linear layer that a backward pass reaches, the last of the model, take the sign in `signs`.
    """
    pools: tuple[Operation, ...] = (
        F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d,
        torch.mean, Tensor.mean,
    )  # fmt: skip
    table: dict[Operation, Operation] = {op: partial(_passing, plain) for op, plain in ACTIVATIONS.items()}
    table |= {op: partial(_excited, op, signs) for op in (F.conv1d, F.conv2d, F.conv3d, F.linear)}
    table |= {op: partial(_excited_pool, op) for op in pools}
    table |= {op: partial(_passing, op) for op in (F.batch_norm, *OWN_ORDER)}
    return Rules(table | dict.fromkeys(SUMS, _sum))
