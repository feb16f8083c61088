"""Attribution from hidden activations: CAM and GradCAM.

Shapes: B samples, K channels of the feature map, (h, w) its size, (H, W) the size of the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from twinlens.attribution.feature_maps import as_grid, choose, place_of, watching
from twinlens.attribution.harness import Request, target_logits
from twinlens.attribution.method import AttributionMethod, Explain


def resize_to(maps: Tensor, spatial: Sequence[int]) -> Tensor:
    """Resize maps (B, h, w) to the size of the input, bilinearly, as in the paper."""
    return nn.functional.interpolate(maps[:, None].float(), size=tuple(spatial), mode="bilinear")[:, 0]


@AttributionMethod(inputs="images", layer=True, model="a convolutional network, or a vision transformer")
def gradcam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
    """GradCAM (Selvaraju et al. 2017): feature maps weighted by their mean gradients, added, and resized to the input.

    Args:
        layer: dotted name of the layer; by default the last spatial feature map. The paper takes `features.28` of
            VGG16, the last convolution.
    """
    reader = _FeatureReader(model, request, layer, activated=False)

    def explain(part: Request) -> Tensor:
        features, gradients = reader(part)
        weights = gradients.mean(dim=(2, 3), keepdim=True)
        return resize_to((weights * features).sum(dim=1).clamp(min=0), part.inputs.shape[2:])

    return explain


class _FeatureReader:
    """Reads the features (B, K, h, w) of batches at one place, and the gradients of their target logits there."""

    def __init__(self, model: nn.Module, request: Request, layer: str | None, *, activated: bool) -> None:
        self.model, self.activated = model, activated
        self.place = None if layer is None else place_of(model, request.inputs, layer)

    def __call__(self, part: Request) -> tuple[Tensor, Tensor]:
        """Read one batch; the first pass also finds the place, unless it was named."""
        searching = self.place is None
        # In a program, and where every output is watched, gradients have to come from the input.
        known = self.place is not None and self.place.source is not None
        given = part.inputs if known else part.inputs.detach().requires_grad_()
        with torch.enable_grad(), watching(self.model, self.place) as seen:
            logit = target_logits(self.model, given, part.targets).sum()
        if not searching and not seen:
            raise ValueError("`layer` must be a module that the model runs; this one is never called. Name another.")
        found = choose(seen, activated=self.activated) if searching else seen[-1]
        self.place = found.place
        if not found.intact:  # something worked on it in place: read it again, now that its place is known
            return self(part)
        if found.edge is None:
            raise ValueError("`layer` must depend on the inputs, so that it has a gradient; this one does not.")
        (gradient,) = torch.autograd.grad(logit, [found.edge], allow_unused=True)
        if gradient is None:
            raise ValueError("`layer` must lead to the logits of the model; this one does not. Name another layer.")
        return as_grid(found.output.detach()), as_grid(gradient)


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
    reader = _FeatureReader(model, request, layer, activated=True)

    def explain(part: Request) -> Tensor:
        features, gradients = reader(part)
        channels, pixels = features.shape[1], features.shape[2] * features.shape[3]
        last = [weight.flatten(1) for weight in model.parameters() if _reads(weight, channels, part.targets)]
        if not last:
            raise ValueError(
                "`model` must end in global average pooling and one linear layer for cam; it has none that reads the "
                f"{channels} channels of the last feature map. Use gradcam, which needs neither."
            )
        for weight in reversed(last):
            weights = weight[part.targets].to(features.dtype)
            # Under that architecture GradCAM's weights are CAM's, divided by the number of pixels.
            expected = weights / pixels
            if torch.allclose(gradients.mean(dim=(2, 3)), expected, atol=1e-3 * float(expected.abs().max())):
                return resize_to((weights[:, :, None, None] * features).sum(dim=1).clamp(min=0), part.inputs.shape[2:])
        raise ValueError(
            "`model` must pool its last feature map globally into its last linear layer for cam, and does not. "
            "Use gradcam, which needs neither."
        )

    return explain


def _reads(weight: Tensor, channels: int, targets: Tensor) -> bool:
    """Return whether a weight may be that of a last layer, linear or a 1 × 1 convolution; programs have them, too."""
    shape = tuple(weight.shape)
    return len(shape) in (2, 4) and shape[1:] in ((channels,), (channels, 1, 1)) and shape[0] > int(targets.max())
