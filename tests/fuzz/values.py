"""Nasty values: what may stand in the place of an argument, by the kind of argument.

Everything is made by functions, because generators are used up, and because a case may change what it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

Made = Callable[[], Any]


class OwnError(Exception):
    """Raised by code of the caller's; whatever is said about it is said by them."""


class Odd:
    """An object that lets itself be asked for nothing."""

    def __len__(self):
        raise OwnError

    def __iter__(self):
        raise OwnError

    def __bool__(self):
        raise OwnError

    __array__ = __float__ = __index__ = __iter__


def raising(*_, **__):
    raise OwnError


def ending(*_, **__):
    sys.exit(3)


def yielding(*_, **__):
    yield 1


TEXTS = (
    "",
    "x",
    "\x00",
    "\x1b[2J",
    "a\nb",
    "a" * 5000,
    "🐈",
    "\udcff",
    "٣",
    "nan",
    "../../x",
    "{}",
    "`",
    "%s {0}",
    "-",
)
NUMBERS: tuple[float, ...] = (
    *(0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**40, -(10**40)),
    *(0.5, -0.5, 1.5, 1e-300, 1e300, -1e300, 5e-324, float("nan"), float("inf"), float("-inf")),
)
PLAIN: dict[str, Made] = {
    "None": lambda: None,
    "true": lambda: True,
    "false": lambda: False,
    "bytes": lambda: b"x",
    "complex": lambda: 1j,
    "()": lambda: (),
    "[]": list,
    "[[]]": lambda: [[]],
    "[None]": lambda: [None],
    "[nan]": lambda: [float("nan")],
    "['x']": lambda: ["x"],
    "[0.5, 0.5]": lambda: [0.5, 0.5],
    "[2, -1]": lambda: [2, -1],
    "ragged": lambda: [[1], [1, 2]],
    "range": lambda: range(10**12),
    "{}": dict,
    "{'x': 1}": lambda: {"x": 1},
    "{1: None}": lambda: {1: None},
    "set": lambda: {1, 2},
    "object": object,
    "odd": Odd,
    "class": lambda: int,
    "type": lambda: type,
    "builtin": lambda: len,
    "generator": yielding,
    "frame": lambda: pd.DataFrame({"a": [1.0, None]}),
    "series": lambda: pd.Series(["a"]),
    "exception": lambda: ValueError("x"),
    "ellipsis": lambda: ...,
    "0-d": lambda: np.array(3.0),
    "numpy nan": lambda: np.float32("nan"),
    "numpy int": lambda: np.int8(3),
    "one-element tensor": lambda: torch.tensor([2]),
    "module": nn.Identity,
    "dtype": lambda: torch.float32,
    **{f"text {text[:9]!r}": lambda text=text: text for text in TEXTS},
    **{f"number {number}": lambda number=number: number for number in NUMBERS},
}

FUNCTIONS: dict[str, Made] = {
    "raises": lambda: raising,
    "exits": lambda: ending,
    "yields": lambda: yielding,
    "takes nothing": lambda: lambda: None,
    "takes five": lambda: lambda a, b, c, d, e: a,
    "returns None": lambda: lambda *_, **__: None,
    "returns 3": lambda: lambda *_, **__: 3,
    "returns text": lambda: lambda *_, **__: "abc",
    "returns its argument": lambda: lambda x, *_, **__: x,
    "returns nan": lambda: lambda x, *_, **__: torch.full((len(x), 3), torch.nan),
    "returns infinity": lambda: lambda x, *_, **__: torch.full((len(x), 3), torch.inf),
    "returns one column": lambda: lambda x, *_, **__: torch.zeros(len(x), 1),
    "returns one row": lambda: lambda x, *_, **__: torch.zeros(1, 3),
    "returns nothing": lambda: lambda x, *_, **__: torch.zeros(0),
    "returns a tuple": lambda: lambda x, *_, **__: (torch.zeros(len(x), 3),),
    "returns sparse": lambda: lambda x, *_, **__: torch.eye(3).repeat(len(x), 1)[: len(x)].to_sparse(),
    "returns meta": lambda: lambda x, *_, **__: torch.zeros(len(x), 3, device="meta"),
    "returns complex": lambda: lambda x, *_, **__: torch.zeros(len(x), 3, dtype=torch.complex64),
    "returns integers": lambda: lambda x, *_, **__: torch.zeros(len(x), 3, dtype=torch.int64),
    "returns bfloat16": lambda: lambda x, *_, **__: torch.zeros(len(x), 3, dtype=torch.bfloat16),
    "returns objects": lambda: lambda x, *_, **__: np.array([object()] * len(x)),
}


class Wrapped(nn.Module):
    """One of the functions as a module, with or without a weight that its answer depends on."""

    def __init__(self, function, weighted):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.ones(1)) if weighted else None

    def forward(self, *given):
        answer = self.function(*given)
        usable = isinstance(answer, torch.Tensor) and self.weight is not None and answer.is_floating_point()
        return answer * self.weight if usable and answer.layout is torch.strided else answer


MODELS: dict[str, Made] = {
    **{f"module that {name}": lambda make=make: Wrapped(make(), weighted=False) for name, make in FUNCTIONS.items()},
    **{f"weights, {name}": lambda make=make: Wrapped(make(), weighted=True) for name, make in FUNCTIONS.items()},
    "empty": nn.Sequential,
    "no forward": nn.Module,
    "other channels": lambda: nn.Sequential(nn.Conv2d(5, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "tabular": lambda: nn.Linear(7, 3),
    "meta": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3, device="meta")),
    "half": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).half(),
    "double": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double(),
    "lazy": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    "one class": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 1)),
    "nan weights": lambda: _filled(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), torch.nan),
    "class": lambda: nn.Identity,
}


def _filled(model, value):
    for weight in model.parameters():
        nn.init.constant_(weight, value)
    return model


def _quantised(x):
    return torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)


ARRAYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sparse": lambda x: x.to_sparse(),
    "csr": lambda x: x.float().flatten(1).to_sparse_csr() if x.dim() > 1 else x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor(list(x.float())),
    "quantised": _quantised,
    "complex": lambda x: x.to(torch.complex64),
    "bfloat16": lambda x: x.bfloat16(),
    "half": lambda x: x.half(),
    "float8": lambda x: x.float().to(torch.float8_e4m3fn),
    "double": lambda x: x.double(),
    "integers": lambda x: x.to(torch.int32),
    "bytes": lambda x: x.to(torch.uint8),
    "booleans": lambda x: x > 0,
    "no samples": lambda x: x[:0],
    "one sample": lambda x: x[:1],
    "twice as many": lambda x: torch.cat([x, x]),
    "no features": lambda x: x[..., :0],
    "one axis more": lambda x: x[None],
    "last axis more": lambda x: x[..., None],
    "one axis less": lambda x: x[0],
    "a number": lambda x: x.flatten()[0],
    "transposed": lambda x: x.transpose(0, -1),
    "strided": lambda x: torch.stack([x, x], dim=-1)[..., 0],
    "expanded": lambda x: x[:1].expand(x.shape),
    "nan": lambda x: x * torch.nan,
    "one nan": lambda x: torch.where(torch.arange(x.numel()).reshape(x.shape) == x.numel() - 1, torch.nan, x.float()),
    "infinity": lambda x: x.float() + torch.inf,
    "huge": lambda x: x.float().abs() * 1e38,
    "beyond": lambda x: x.double().abs() * 1e300,
    "tiny": lambda x: x.float() * 1e-44,
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "negative": lambda x: -x.to(torch.int64) - 1 if not x.is_floating_point() else -x.abs() - 0.1,
    "requires grad": lambda x: x.float().clone().requires_grad_(),
    "parameter": lambda x: nn.Parameter(x.float()),
    "numpy": lambda x: x.numpy(),
    "numpy, backwards": lambda x: x.numpy()[::-1],
    "numpy, read only": lambda x: np.broadcast_to(x.numpy()[:1], x.shape),
    "big endian": lambda x: x.numpy().astype(">f8"),
    "long doubles": lambda x: x.numpy().astype(np.longdouble),
    "uint64": lambda x: np.full(x.shape, 2**64 - 1, dtype=np.uint64),
    "objects": lambda x: x.numpy().astype(object),
    "texts": lambda x: x.numpy().astype(str),
    "dates": lambda x: np.zeros(x.shape, dtype="datetime64[s]"),
    "records": lambda x: np.zeros(x.shape, dtype=[("a", "f4")]),
    "masked": lambda x: np.ma.masked_less(x.numpy(), 0),
    "lists": lambda x: x.tolist(),
    "tensors in a list": list,
    "frame": lambda x: pd.DataFrame(x.flatten(1).numpy() if x.dim() > 1 else x.numpy()),
    "generator": iter,
}
