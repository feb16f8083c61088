"""Attribution from hidden activations: CAM and GradCAM.

Shapes: B samples, K channels of the feature map, s = its spatial shape, S = that of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from twinlens.attribution.feature_maps import Location, as_grid, choose, named_layer, recording
from twinlens.attribution.harness import Request, target_logits
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.probing.maps import LINEAR


def resize_to(maps: Tensor, spatial: Sequence[int]) -> Tensor:
    """Resize maps (B, *s) to the size of the input by linear interpolation, of images bilinear as in the paper."""
    return nn.functional.interpolate(maps[:, None].float(), size=tuple(spatial), mode=LINEAR[len(spatial)])[:, 0]


def _weighted(weights: Tensor, features: Tensor, batch: Request) -> Tensor:
    return resize_to((weights * features).sum(dim=1).clamp(min=0), batch.inputs.shape[2:])


class _FeatureReader:
    """Reads the features (B, K, *s) of batches at one location, and the gradients of their target logits there."""

    def __init__(self, model: nn.Module, layer: str | None, *, activated: bool) -> None:
        self.model, self.activated = model, activated
        self.location = None if layer is None else Location(named_layer(model, layer), -1)

    def __call__(self, batch: Request) -> tuple[Tensor, Tensor]:
        """Read one batch; the first pass also finds the location, unless it was named."""
        searching = self.location is None
        # In a program, and where every output is recorded, gradients have to come from the input.
        leaf = self.location is not None and self.location.source is not None
        inputs = batch.inputs if leaf else batch.inputs.detach().requires_grad_()
        with torch.enable_grad(), recording(self.model, self.location) as outputs:
            logit = target_logits(self.model, inputs, batch.targets).sum()
        if not searching and not outputs:
            raise ValueError("`layer` must be a module that the model runs; this one is never called. Name another.")
        axes = batch.inputs.dim()
        output = choose(outputs, axes, activated=self.activated) if searching else outputs[-1]
        self.location = output.location
        if not output.intact:  # changed in place: read it again, now that its location is known
            return self(batch)
        if output.edge is None:
            raise ValueError("`layer` must depend on the inputs to have a gradient; this one does not.")
        (gradient,) = torch.autograd.grad(logit, [output.edge], allow_unused=True)
        if gradient is None:
            raise ValueError("`layer` must lead to the logits of the model; this one does not. Name another layer.")
        return as_grid(output.value.detach(), axes), as_grid(gradient, axes)


@AttributionMethod(
    title="CAM",
    inputs="spatial",
    model="a network that ends in global average pooling and a single `nn.Linear` or 1 × 1 convolution",
)
def cam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
    """CAM (Zhou et al. 2016): feature maps weighted by the last linear layer, added, and resized to the input.

    Args:
        layer: dotted name of the layer that is pooled; by default the last spatial feature map.
    """
    reader = _FeatureReader(model, layer, activated=True)

    def explain(batch: Request) -> Tensor:
        features, gradients = reader(batch)
        channels, pixels = features.shape[1], features.shape[2:].numel()
        last = [weight.flatten(1) for weight in model.parameters() if _reads(weight, channels, batch.targets)]
        if not last:
            raise ValueError(
                "`model` must end in global average pooling and one linear layer for cam; it has none that reads the "
                f"{channels} channels of the last feature map. Use gradcam, which needs neither."
            )
        for weight in reversed(last):
            weights = weight[batch.targets].to(features.dtype)
            # Under that architecture GradCAM's weights are CAM's, divided by the number of pixels.
            expected = weights / pixels
            if torch.allclose(_mean(gradients).flatten(1), expected, atol=1e-3 * float(expected.abs().max())):
                return _weighted(weights.view_as(_mean(gradients)), features, batch)
        raise ValueError(
            "`model` must pool its last feature map globally into its last linear layer for cam, and does not. "
            "Use gradcam, which needs neither."
        )

    return explain


@AttributionMethod(title="GradCAM", inputs="spatial", model="a convolutional network, or a vision transformer")
def gradcam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
    """GradCAM (Selvaraju et al. 2017): feature maps weighted by their mean gradients, added, and resized to the input.

    Args:
        layer: dotted name of the layer; by default the last spatial feature map. The paper uses `features.28` of
            VGG16, the last convolution.
    """
    reader = _FeatureReader(model, layer, activated=False)

    def explain(batch: Request) -> Tensor:
        features, gradients = reader(batch)
        return _weighted(_mean(gradients), features, batch)

    return explain


def _mean(gradients: Tensor) -> Tensor:
    return gradients.mean(dim=tuple(range(2, gradients.dim())), keepdim=True)


def _reads(weight: Tensor, channels: int, targets: Tensor) -> bool:
    """Return whether a weight may be that of a last layer, linear or a 1 × 1 convolution; also in programs."""
    shape = tuple(weight.shape)
    return shape[1:2] == (channels,) and set(shape[2:]) <= {1} and shape[0] > int(targets.max())
