"""Where a model's last feature map is: by the run of a module, or by the operation where a program has no modules.

A module may run several times, as an activation that a whole network shares, and programs of torch.export and of
TorchScript have no modules that run at all. A feature map is therefore known by its place in a pass of the model.

Shapes: B samples, K channels of the feature map, (h, w) its size, (H, W) the size of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._python_dispatch import TorchDispatchMode

_KINDS: dict[type[nn.Module] | tuple[type[nn.Module], ...], str] = {
    nn.Conv2d: "convolution",
    nn.ReLU: "relu",
    nn.LayerNorm: "layer_norm",
    (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d): "pool",
}
_OPERATIONS = {
    "convolution": "convolution",
    "relu": "relu",
    "native_layer_norm": "layer_norm",
    **dict.fromkeys(
        ("avg_pool2d", "adaptive_avg_pool2d", "max_pool2d_with_indices", "adaptive_max_pool2d", "mean"), "pool"
    ),
    **dict.fromkeys(
        ("native_batch_norm", "batch_norm_impl_index", "cudnn_batch_norm", "batch_norm_with_update"), "map"
    ),
    **dict.fromkeys(("native_batch_norm_legit", "native_batch_norm_legit_no_training", "native_group_norm"), "map"),
    **dict.fromkeys(("hardtanh", "clamp", "silu", "gelu", "elu", "leaky_relu", "hardswish", "mish"), "map"),
    **dict.fromkeys(("add", "mul", "cat"), "map"),
}
"""Operations of programs, by their names below autograd, and what their outputs are: feature maps, or no such thing."""


_COPIES = ("clone", "to_copy", "copy", "detach", "alias")
"""Operations that are not counted, because they come and go with the layout of a batch in memory."""


@dataclass(frozen=True)
class Place:
    """Where a feature map is in a pass of a model."""

    source: nn.Module | None
    """The module that returns it; None where it is the output of an operation of a program."""

    run: int
    """Which run of the module, or which operation of the pass, from 0; -1 is the last one."""


@dataclass(frozen=True, eq=False)
class Seen:
    """An output during a pass, which may be a feature map."""

    place: Place
    kind: str
    given: object
    output: Tensor
    version: int
    edge: GradientEdge | None

    @property
    def intact(self) -> bool:
        """Whether nothing has worked in place on it since."""
        return self.output._version == self.version


def find_layer(model: nn.Module, inputs: Tensor, layer: str | None = None, *, activated: bool = False) -> nn.Module:
    """Find the module whose output is the last spatial feature map (B, K, h, w), or (B, tokens, K) of a transformer.

    Args:
        model: the model, in evaluation mode.
        inputs: (B, C, H, W), of which one is run through the model.
        layer: the module's dotted name, such as `features.28` for the last convolution of VGG16; searched by default.
        activated: take a ReLU behind the last convolution instead of the convolution.

    Raises:
        ValueError: there is no such module, or none with a spatial output.
    """
    if layer is not None:
        return named_layer(model, layer)
    refuse_programs(model)
    with torch.no_grad(), watching(model, None) as seen:
        model(inputs[:1])
    found = choose(seen, activated=activated).place.source
    assert found is not None
    return found


def refuse_programs(model: nn.Module) -> None:
    """Refuse a program, for methods that hook modules."""
    if is_program(model):
        raise ValueError(
            "`model` must consist of modules for this method; a program of torch.export or TorchScript has none that "
            "run. Take gradcam, or the model that the program was made from."
        )


def named_layer(model: nn.Module, layer: str) -> nn.Module:
    """Return the module of that dotted name."""
    modules = dict(model.named_modules())
    if layer not in modules:
        known = ", ".join(name for name in list(modules)[-8:] if name)
        raise ValueError(f"`layer` must name a module of the model; got {layer!r}. The last ones are {known}.")
    return modules[layer]


def is_program(model: nn.Module) -> bool:
    """Return whether a model is, or holds, a program of torch.export or TorchScript, in which no module runs."""
    return any(isinstance(part, (torch.jit.ScriptModule, torch.fx.GraphModule)) for part in model.modules())


def place_of(model: nn.Module, inputs: Tensor, layer: str) -> Place:
    """Return the place of a named layer: its last run, or the last operation that a program took over from it."""
    if not is_program(model):
        return Place(named_layer(model, layer), -1)
    if not isinstance(model, torch.fx.GraphModule):
        raise ValueError(
            f"`layer` cannot be named in a program of TorchScript; got {layer!r}. Leave it out, to read the last "
            "feature map, or pass the model that the program was made from."
        )
    return Place(None, _last_operation(model, inputs, layer))


def _last_operation(model: torch.fx.GraphModule, inputs: Tensor, layer: str) -> int:
    """Return the number of the last operation that an exported program took over from a module of that name."""
    last: list[int] = []
    names: dict[str, None] = {}

    class Reader(torch.fx.Interpreter):
        def run_node(self, node: torch.fx.Node) -> Any:
            result = super().run_node(node)
            own = [name for name, _ in node.meta.get("nn_module_stack", {}).values()]
            names.update(dict.fromkeys(own))
            if layer in own and isinstance(result, Tensor):
                last[:] = [watch.number]
            return result

    given = inputs[:1].detach().requires_grad_()
    with torch.enable_grad(), _Operations([], None) as watch:
        Reader(model).run(given)
    if not last:
        known = ", ".join([name for name in names if name][-8:])
        raise ValueError(f"`layer` must name a module that was exported; got {layer!r}. The last ones are {known}.")
    return last[0]


@contextmanager
def watching(model: nn.Module, place: Place | None) -> Iterator[list[Seen]]:
    """List the outputs of modules, or of a program's operations, in a pass of the model; only that at a given place."""
    seen: list[Seen] = []
    if place.source is None if place is not None else is_program(model):
        # Unoptimised, because TorchScript would put operations together out of sight.
        unoptimised = torch.jit.optimized_execution(False)  # type: ignore[attr-defined]
        with unoptimised, _Operations(seen, place) as operations:
            yield seen
            operations.settle()
        return
    runs: dict[nn.Module, int] = {}
    wanted = [place.source] if place is not None else [part for part in model.modules() if part is not model]

    def watch(module: nn.Module, given: tuple[object, ...], output: object) -> Tensor | None:
        run = runs[module] = runs.get(module, -1) + 1
        if not isinstance(output, Tensor) or (place is not None and place.run not in (run, -1)):
            return None
        kind = next((kind for types, kind in _KINDS.items() if isinstance(module, types)), "map")
        if place is None:
            seen.append(_seen(Place(module, run), kind, given[0] if given else None, output))
            return None
        # A leaf, so that no gradients are kept of what comes before; a copy, because what comes next may be in place.
        leaf = output if output.requires_grad else output.detach().requires_grad_(torch.is_grad_enabled())
        seen[:] = [_seen(place, kind, None, leaf)]
        return leaf.clone()

    handles = [part.register_forward_hook(watch) for part in wanted if part is not None]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _seen(place: Place, kind: str, given: object, output: Tensor) -> Seen:
    return Seen(
        place, kind, given, output, output._version, get_gradient_edge(output) if output.requires_grad else None
    )


class _Operations(TorchDispatchMode):
    """Lists the outputs of a program's operations, below autograd, where every kind of program comes by."""

    def __init__(self, seen: list[Seen], place: Place | None) -> None:
        super().__init__()
        self.seen, self.place, self.number = seen, place, -1
        self.made: Callable[[], Seen] | None = None

    def settle(self) -> None:
        """Note the last output: only after its operation has returned do its gradients have a place."""
        if self.made is not None:
            self.seen.append(self.made())
        self.made = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.settle()
        result = func(*args, **(kwargs or {}))
        output = result[0] if isinstance(result, (tuple, list)) and result else result
        name = func._schema.name.removeprefix("aten::").strip("_")
        if name in _COPIES:
            return result
        kind = _OPERATIONS.get(name, "other")
        self.number += 1
        number = self.number
        if isinstance(output, Tensor) and (self.place is None or number == self.place.run):
            given = args[0] if args else None
            copied = output.clone() if self.place is not None else None

            def made() -> Seen:
                one = _seen(Place(None, number), kind, given, output)
                return one if copied is None else Seen(one.place, one.kind, given, copied, copied._version, one.edge)

            self.made = made
        return result


def choose(seen: Sequence[Seen], *, activated: bool) -> Seen:
    """Choose the last spatial feature map of a pass, or the patches of a transformer."""
    pooled = [one.output for one in seen if one.kind == "pool"]
    maps = [one for one in seen if _is_spatial(one.output) and not any(one.output is p for p in pooled)]
    last = seen.index(maps[-1]) if maps else -1
    if any(one.place.source is None for one in seen):
        # Operations have outputs of four axes in attention, too; in a transformer no convolution follows its norms.
        last = max(
            (k for k, one in enumerate(seen) if one.kind == "convolution" and _is_spatial(one.output)), default=-1
        )
        maps = _before_pooling(seen, last) or [one for one in maps if one.kind in ("convolution", "relu", "map")]
    tokens = [one for one in seen if one.kind == "layer_norm" and grid_of(one.output.shape) is not None]
    if tokens and seen.index(tokens[-1]) > last:
        # Of the three last norms the first stands before the last attention, after which only the class token is read.
        return tokens[-3 if len(tokens) >= 3 else 0]
    if not maps:
        raise ValueError(
            "`model` must have convolutional features, a layer whose output is (samples, channels, height, width), and "
            "this one has none. For other models use a method that needs none, such as integrated_gradients."
        )
    found = maps[-1]
    if activated:
        return found
    # In networks without normalisation, such as VGG, the last convolution is meant, and not the ReLU behind it.
    for one in seen:
        before = one.output is found.output or (found.kind == "relu" and one.output is found.given)
        if one.kind == "convolution" and before:
            return one
    return found


def _before_pooling(seen: Sequence[Seen], after: int) -> list[Seen]:
    """List what is pooled to a single pixel behind the last convolution, in the last place that does so."""
    pools = [one.given for one in seen[after + 1 :] if one.kind == "pool" and not _is_spatial(one.output)]
    pooled = [given for given in pools if isinstance(given, Tensor) and _is_spatial(given)]
    return [one for one in seen if pooled and one.output is pooled[-1]]


def _is_spatial(output: Tensor) -> bool:
    return output.dim() == 4 and output.shape[2] * output.shape[3] > 1


def grid_of(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return (side, extra) of a sequence of patches (B, side² + extra, K); extra are class and register tokens."""
    if len(shape) != 3 or shape[1] < 4:
        return None
    side = int(shape[1] ** 0.5)
    extra = shape[1] - side * side
    return (side, extra) if extra <= 8 else None


def as_grid(features: Tensor) -> Tensor:
    """Arrange features as (B, K, h, w), placing the patches of a transformer on their grid."""
    if features.dim() == 4:
        return features
    grid = grid_of(features.shape)
    if grid is None:
        raise ValueError(
            "`layer` must give a feature map (samples, channels, height, width) or patches (samples, side², channels); "
            f"it gives shape {tuple(features.shape)}. Name another layer."
        )
    side, extra = grid
    return features[:, extra:].transpose(1, 2).unflatten(2, (side, side))
