"""Attribution from hidden activations: CAM and GradCAM.

Shapes: B samples, K channels of the feature map, (h, w) its size, (H, W) the size of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twinlens.attribution.harness import Request, target_logits
from twinlens.attribution.method import AttributionMethod, Explain


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
        modules = dict(model.named_modules())
        if layer not in modules:
            known = ", ".join(name for name in list(modules)[-8:] if name)
            raise ValueError(f"`layer` must name a module of the model; got {layer!r}. The last ones are {known}.")
        return modules[layer]
    seen = _run_watched(model, inputs[:1])
    pooled = [one.output for one in seen if isinstance(one.module, _POOLING)]
    spatial = [one for one in seen if _is_spatial(one.output) and not any(one.output is p for p in pooled)]
    tokens = [one for one in seen if isinstance(one.module, nn.LayerNorm) and _grid_of(one.output.shape) is not None]
    if tokens and (not spatial or seen.index(tokens[-1]) > seen.index(spatial[-1])):
        # Of the three last norms the first stands before the last attention, after which only the class token is read.
        return tokens[-3 if len(tokens) >= 3 else 0].module
    if not spatial:
        raise ValueError(
            "`model` must have convolutional features, a layer whose output is (samples, channels, height, width), and "
            "this one has none. For other models use a method that needs none, such as integrated_gradients."
        )
    last = spatial[-1]
    if activated:
        return last.module
    # In networks without normalisation, such as VGG, the last convolution is meant, and not the ReLU behind it.
    for one in seen:
        before = one.output is last.output or (isinstance(last.module, nn.ReLU) and one.output is last.input)
        if isinstance(one.module, nn.Conv2d) and before:
            return one.module
    return last.module


_POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


@dataclass(frozen=True, eq=False)
class _Seen:
    module: nn.Module
    input: object
    output: Tensor


def _is_spatial(output: Tensor) -> bool:
    return output.dim() == 4 and output.shape[2] * output.shape[3] > 1


def _run_watched(model: nn.Module, inputs: Tensor) -> list[_Seen]:
    """Run the model and list its modules in the order in which they finished, with their inputs and outputs."""
    seen: list[_Seen] = []

    def watch(module: nn.Module, given: tuple[object, ...], output: object) -> None:
        if isinstance(output, Tensor):
            seen.append(_Seen(module, given[0] if given else None, output))

    handles = [part.register_forward_hook(watch) for part in model.modules() if part is not model]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _grid_of(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return (side, extra) of a sequence of patches (B, side² + extra, K); extra are class and register tokens."""
    if len(shape) != 3 or shape[1] < 4:
        return None
    side = int(shape[1] ** 0.5)
    extra = shape[1] - side * side
    return (side, extra) if extra <= 8 else None


def resize_to(maps: Tensor, spatial: Sequence[int]) -> Tensor:
    """Resize maps (B, h, w) to the size of the input, bilinearly, as in the paper."""
    return nn.functional.interpolate(maps[:, None].float(), size=tuple(spatial), mode="bilinear")[:, 0]


def _as_grid(features: Tensor) -> Tensor:
    """Arrange features as (B, K, h, w), placing the patches of a transformer on their grid."""
    if features.dim() == 4:
        return features
    grid = _grid_of(features.shape)
    if grid is None:
        raise ValueError(
            "`layer` must give a feature map (samples, channels, height, width) or patches (samples, side², channels); "
            f"it gives shape {tuple(features.shape)}. Name another layer."
        )
    side, extra = grid
    return features[:, extra:].transpose(1, 2).unflatten(2, (side, side))


@AttributionMethod(inputs="images", layer=True, model="a convolutional network, or a vision transformer")
def gradcam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
    """GradCAM (Selvaraju et al. 2017): feature maps weighted by their mean gradients, added, and resized to the input.

    Args:
        layer: dotted name of the layer; by default the last spatial feature map. The paper takes `features.28` of
            VGG16, the last convolution.
    """

    def explain(part: Request) -> Tensor:
        features, gradients = _features_and_gradients(model, part, layer)
        weights = gradients.mean(dim=(2, 3), keepdim=True)
        return resize_to((weights * features).sum(dim=1).clamp(min=0), part.inputs.shape[2:])

    return explain


def _features_and_gradients(
    model: nn.Module, part: Request, layer: str | None, *, activated: bool = False
) -> tuple[Tensor, Tensor]:
    kept: list[Tensor] = []

    def watch(_: nn.Module, __: object, output: Tensor) -> Tensor:
        # A copy, because the next layer may work in place; the leaf makes gradients start here.
        kept.append(output if output.requires_grad else output.detach().requires_grad_())
        return kept[-1].clone()

    handle = find_layer(model, part.inputs, layer, activated=activated).register_forward_hook(watch)
    try:
        with torch.enable_grad():
            logits = target_logits(model, part.inputs, part.targets)
            # A module may run several times, as an activation that the whole network shares: the last run counts.
            (gradient,) = torch.autograd.grad(logits.sum(), kept[-1])
    finally:
        handle.remove()
    return _as_grid(kept[-1].detach()), _as_grid(gradient)


@AttributionMethod(
    inputs="images",
    layer=True,
    model="a network that ends in global average pooling and a single `nn.Linear` or 1 × 1 convolution",
)
def cam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
    """CAM (Zhou et al. 2016): feature maps weighted by the last linear layer, added, and resized to the input.

    Args:
        layer: dotted name of the layer that is pooled; by default the last spatial feature map.
    """
    linear = [part for part in model.modules() if isinstance(part, nn.Linear)]
    weight = linear[-1].weight if linear else None

    def explain(part: Request) -> Tensor:
        features, gradients = _features_and_gradients(model, part, layer, activated=True)
        if weight is None or weight.shape[1] != features.shape[1]:
            raise ValueError(
                "`model` must end in global average pooling and one linear layer for cam; its last linear layer does "
                f"not read the {features.shape[1]} channels of the last feature map. Use gradcam, which needs neither."
            )
        weights = weight[part.targets].to(features.dtype)
        # Under that architecture GradCAM's weights are CAM's, divided by the number of pixels.
        expected = weights / (features.shape[2] * features.shape[3])
        if not torch.allclose(gradients.mean(dim=(2, 3)), expected, atol=1e-3 * float(expected.abs().max())):
            raise ValueError(
                "`model` must pool its last feature map globally into its last linear layer for cam, and does not. "
                "Use gradcam, which needs neither."
            )
        return resize_to((weights[:, :, None, None] * features).sum(dim=1).clamp(min=0), part.inputs.shape[2:])

    return explain
