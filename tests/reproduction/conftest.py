import numpy as np
import pytest

from tests.reproduction.counting import Calls
from tests.tiny import image_folder, model_file
from twinlens import reproduction
from twinlens.reproduction import ExperimentOptions
from twinlens.reproduction.scenes import drawn_images


@pytest.fixture
def tiny(tmp_path):
    """Options for a model and six images that take moments."""
    data = image_folder(tmp_path / "images", per_class=2, size=8)
    return ExperimentOptions(out=tmp_path / "out", data=data, model=model_file(tmp_path))


@pytest.fixture
def calls(monkeypatch):
    """Three experiments, of which the second fails."""
    calls = {"one": Calls(), "two": Calls(fails=True), "three": Calls()}
    monkeypatch.setattr(reproduction, "EXPERIMENTS", {name: each.experiment for name, each in calls.items()})
    return calls


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Writes 96 images for training and 48 for testing, whose class is the brightness of their centre."""
    path = tmp_path_factory.mktemp("images") / "bright.npz"
    arrays = {}
    for kind, count in (("train", 96), ("test", 48)):
        images, labels = drawn_images(count, 32, seed=count) // 2 + 60, np.arange(count) % 3
        images[:, 8:24, 8:24] = (40 + 80 * labels)[:, None, None, None]
        arrays |= {f"x_{kind}": images, f"y_{kind}": labels}
    np.savez(path, **arrays)
    return str(path)
