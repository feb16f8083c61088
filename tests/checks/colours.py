"""A model that reads colours, and patches of which it is known what they contribute."""

import numpy as np
import torch
from torch import nn

from twinlens.checks.generated_features import GeneratedFeatures

SIZE = 12


class Colours(nn.Module):
    """The logit of a class is what there is of its colour: patches of two colours do not disturb each other."""

    def forward(self, x):
        return 30 * x.clamp(min=0).mean(dim=(2, 3))


def examples():
    return (
        torch.rand(20, 4, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
        * (torch.arange(20) % 2)[:, None, None, None]
    )


def known(classes=((0, 1), (2, 3))):
    """Inputs whose patches are the upper and the lower half."""
    patches = torch.zeros(len(classes), 2, 4, 4, dtype=torch.bool)
    patches[:, 0, :2], patches[:, 1, 2:] = True, True
    return GeneratedFeatures(
        inputs=torch.zeros(len(classes), 1, 4, 4),
        classes=np.array(classes),
        patches=patches,
        change=np.zeros((len(classes), 2)),
        tried=len(classes),
        ids=tuple(map(str, range(len(classes)))),
    )
