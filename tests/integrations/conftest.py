import numpy as np
import pytest
import torch

from tests.tiny import tiny_model

FEW = {"steps": 5}
LEVELS = {"levels": (0.9, 0.7, 0.5, 0.2)}
"""Levels of soundness, so few that tests are quick."""


@pytest.fixture
def model():
    return tiny_model().eval()


@pytest.fixture
def images():
    return torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels():
    return torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.fixture
def maps():
    """Values without ties."""
    return np.random.default_rng(2).uniform(size=(6, 8, 8)).astype(np.float32)
