"""ResNet-20 for CIFAR-10 with parameter-free shortcuts (He et al. 2016, option A), for use on the command line.

    twinlens evaluate --model examples/resnet20.py:build --weights resnet20.safetensors --data cifar10:DIR

The names of its layers are those of the weights that are widely used (resnet20-12fca82f, 91.7% of the test images).
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.stride, self.extra = stride, (outside - inside) // 2

    def forward(self, x):
        """Compute the features after this block."""
        hidden = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        short = x[:, :, :: self.stride, :: self.stride]
        return F.relu(hidden + F.pad(short, (0, 0, 0, 0, self.extra, self.extra)))


class ResNet20(nn.Module):
    """Three stages of three blocks, of 16, 32 and 64 channels."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[Block(16, 16, 1) for _ in range(3)])
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        """Compute logits (N, 10) of images (N, 3, 32, 32)."""
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean(dim=(2, 3)))


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def build():
    """Build the network, with its preprocessing."""
    model = ResNet20()
    model.preprocessing = {"mean": MEAN, "std": DEVIATION}
    return model


def normalise(pixels):
    """Convert (N, H, W, 3) in 0..255 to normalised inputs."""
    x = torch.as_tensor(pixels).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    return (x - mean) / deviation
