"""Where a model's last feature map is: at one run of a module, which may run several times, or of an operation.

Shapes: B samples, K channels of the feature map, s = its spatial shape, S = that of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from twinlens.attribution.harness import hooked

_MODULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], str] = {
    (nn.Conv1d, nn.Conv2d, nn.Conv3d): "convolution",
    nn.ReLU: "relu",
    nn.LayerNorm: "layer_norm",
    nn.Linear: "linear",
    (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d): "pool",
    (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d): "pool",
    (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d): "pool",
}
_OPERATIONS = {
    "relu": ("relu",),
    "convolution": ("conv1d", "conv2d", "conv3d", "convolution"),
    "layer_norm": ("layer_norm", "native_layer_norm"),
    "linear": ("linear",),
    "pool": (*(f"{name}{axes}d" for name in ("avg_pool", "adaptive_avg_pool", "max_pool", "adaptive_max_pool")
               for axes in (1, 2, 3)), "max_pool2d_with_indices", "max_pool3d_with_indices", "mean"),
    "map": ("batch_norm", "native_batch_norm_legit_no_training", "group_norm", "native_group_norm", "hardtanh", "relu6",
            "clamp", "silu", "gelu", "elu", "leaky_relu", "hardswish", "mish", "add", "mul", "cat"),
}  # fmt: skip
"""Kinds of outputs in a program, and the operations that return them; others are no feature maps."""
_LAYOUTS = {
    3: "(samples, channels, length)",
    4: "(samples, channels, height, width)",
    5: "(samples, channels, depth, height, width)",
}
"""What a feature map is called, by the number of its axes."""
_KINDS = {name: kind for kind, names in _OPERATIONS.items() for name in names}


@dataclass(frozen=True)
class Location:
    """Where a feature map is in a pass of a model."""

    source: nn.Module | None
    """The module that returns it; None for the output of an operation of a program."""
    run: int
    """Number of the module's run, or of the operation in the pass, from 0; -1 is the last one."""


@dataclass(frozen=True, eq=False)
class Output:
    """An output during a pass, which may be a feature map."""

    location: Location
    kind: str
    argument: object
    """First argument of the module or operation."""
    value: Tensor
    version: int
    edge: GradientEdge | None

    @property
    def intact(self) -> bool:
        """Whether it has not been changed in place since."""
        return self.value._version == self.version


def find_layer(model: nn.Module, inputs: Tensor, layer: str | None = None) -> nn.Module:
    """Find the module whose output is the last spatial feature map (B, K, *s), or (B, tokens, K) of a transformer."""
    if layer is not None:
        return named_layer(model, layer)
    refuse_programs(model)
    with torch.no_grad(), recording(model) as outputs:
        model(inputs[:1])
    module = choose(outputs, inputs.dim(), activated=False).location.source
    assert module is not None
    return module


def refuse_programs(model: nn.Module) -> None:
    """Refuse a program, for methods that hook modules."""
    if _holds(model, torch.fx.GraphModule):
        raise ValueError(
            "`model` must consist of modules for this method; a program of torch.export has none that run. Use "
            "gradcam, or the model from which the program was exported."
        )
    _refuse_torchscript(model)


def _refuse_torchscript(model: nn.Module) -> None:
    if _holds(model, torch.jit.ScriptModule):
        raise ValueError(
            "`model` is a TorchScript program, whose features cannot be read. Use a method that needs none, such as "
            "integrated_gradients, or the model from which the program was made."
        )


def _holds(model: nn.Module, kind: type) -> bool:
    return any(isinstance(module, kind) for module in model.modules())


def named_layer(model: nn.Module, layer: str) -> nn.Module:
    """Return the module of that dotted name."""
    refuse_programs(model)
    modules = dict(model.named_modules())
    if layer not in modules:
        last = ", ".join(name for name in list(modules)[-8:] if name)
        raise ValueError(f"`layer` must name a module of the model; got {layer!r}. The last ones are {last}.")
    return modules[layer]


@contextmanager
def recording(model: nn.Module, location: Location | None = None) -> Iterator[list[Output]]:
    """Record the outputs of modules, or of a program's operations, in a pass of the model; or only one of them."""
    _refuse_torchscript(model)
    outputs: list[Output] = []

    def record(source: nn.Module | None, run: int, kind: str, arguments: Sequence[object], value: object) -> Any:
        if not isinstance(value, Tensor) or (location is not None and location.run not in (run, -1)):
            return None
        argument = arguments[0] if arguments else None
        leaf = value
        if location is not None and not value.requires_grad:  # a leaf needs no gradients of what comes before
            leaf = value.detach().requires_grad_(torch.is_grad_enabled())
        edge = get_gradient_edge(leaf) if leaf.requires_grad else None
        output = Output(location or Location(source, run), kind, argument, leaf, leaf._version, edge)
        if location is None:
            outputs.append(output)
            return None
        outputs[:] = [output]
        return leaf.clone()  # what follows may work in place

    if _holds(model, torch.fx.GraphModule):
        with _Operations(record):
            yield outputs
        return
    runs: dict[nn.Module, int] = {}

    def hook(module: nn.Module, arguments: tuple[object, ...], value: object) -> Any:
        runs[module] = runs.get(module, -1) + 1
        kind = next((kind for types, kind in _MODULES.items() if isinstance(module, types)), "map")
        return record(module, runs[module], kind, arguments, value)

    modules = [module for module in model.modules() if module is not model]
    if location is not None and location.source is not None:
        modules = [location.source]
    with hooked(modules, hook):
        yield outputs


class _Operations(TorchFunctionMode):
    """Passes the outputs of a program's operations to `record`, and replaces those for which it returns a tensor."""

    def __init__(self, record: Callable[..., Any]) -> None:
        super().__init__()
        self.record, self.run = record, -1

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(func, torch._ops.OpOverload):  # programs call overloads only
            return result
        self.run += 1
        several = isinstance(result, (tuple, list)) and len(result) > 0
        kind = _KINDS.get(func._schema.name.removeprefix("aten::").strip("_"), "other")
        value = self.record(None, self.run, kind, args, result[0] if several else result)
        if value is None:
            return result
        return (value, *result[1:]) if several else value


def choose(outputs: Sequence[Output], axes: int, *, activated: bool) -> Output:
    """Choose the last spatial feature map of a pass of inputs with that many axes, or the patches of a transformer."""
    if axes == 3:
        outputs = _before_tokens(outputs)
    pooled = [one.value for one in outputs if one.kind == "pool"]
    maps = [one for one in outputs if _is_spatial(one.value, axes) and not any(one.value is p for p in pooled)]
    last = outputs.index(maps[-1]) if maps else -1
    if any(one.location.source is None for one in outputs):
        # Operations of attention have outputs with four axes, too; in a transformer no convolution follows its norms.
        convolutions = [
            k for k, one in enumerate(outputs) if one.kind == "convolution" and _is_spatial(one.value, axes)
        ]
        last = max(convolutions, default=-1)
        maps = _before_pooling(outputs, last, axes) or [
            one for one in maps if one.kind in ("convolution", "relu", "map")
        ]
    tokens = [one for one in outputs if one.kind == "layer_norm" and grid_of(one.value.shape) is not None]
    if axes == 4 and tokens and outputs.index(tokens[-1]) > last:
        # Of the last three norms the first is before the last attention, after which only the class token is read.
        return tokens[-3 if len(tokens) >= 3 else 0]
    if not maps:
        raise ValueError(
            f"`model` must have convolutional features, a layer whose output is {_LAYOUTS[axes]}, and "
            "this one has none. For other models use a method that needs none, such as integrated_gradients."
        )
    choice = maps[-1]
    if activated:
        return choice
    # In networks without normalisation, such as VGG, take the last convolution and not the ReLU behind it.
    for one in outputs:
        before = one.value is choice.value or (choice.kind == "relu" and one.value is choice.argument)
        if one.kind == "convolution" and before:
            return one
    return choice


def _before_tokens(outputs: Sequence[Output]) -> list[Output]:
    """List the outputs up to where a network for signals turns them into tokens (B, T, K), which have as many axes."""
    last = max((k for k, one in enumerate(outputs) if one.kind == "convolution"), default=-1)
    tokens = (k for k, one in enumerate(outputs) if k > last and one.kind in ("linear", "layer_norm"))
    return list(outputs[: next((k for k in tokens if outputs[k].value.dim() == 3), len(outputs))]) if last >= 0 else []


def _before_pooling(outputs: Sequence[Output], after: int, axes: int) -> list[Output]:
    """List the outputs that the last pooling to a single pixel behind the last convolution reads."""
    pools = [one.argument for one in outputs[after + 1 :] if one.kind == "pool" and not _is_spatial(one.value, axes)]
    pooled = [value for value in pools if isinstance(value, Tensor) and _is_spatial(value, axes)]
    return [one for one in outputs if pooled and one.value is pooled[-1]]


def _is_spatial(value: Tensor, axes: int) -> bool:
    return value.dim() == axes and value.shape[2:].numel() > 1


def grid_of(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return (side, extra) of a sequence of patches (B, side² + extra, K); extra are class and register tokens."""
    if len(shape) != 3 or shape[1] < 4:
        return None
    side = int(shape[1] ** 0.5)
    extra = shape[1] - side * side
    return (side, extra) if extra <= 8 else None


def as_grid(features: Tensor, axes: int) -> Tensor:
    """Arrange features of inputs with that many axes as (B, K, *s), the patches of a transformer on their grid."""
    if features.dim() == axes:
        return features
    if axes != 4 or (grid := grid_of(features.shape)) is None:
        patches = " or patches (samples, side², channels)" if axes == 4 else ""
        raise ValueError(
            f"`layer` must return a feature map {_LAYOUTS[axes]}{patches}; it returns shape {tuple(features.shape)}. "
            "Name another layer."
        )
    side, extra = grid
    return features[:, extra:].transpose(1, 2).unflatten(2, (side, side))
