import numpy as np
import pytest

from twinlens.errors import DataError
from twinlens.reproduction import ExperimentOptions
from twinlens.reproduction.image_sets import as_inputs, open_images


def test_archives_are_opened_and_checked(archive, tmp_path):
    data = open_images(ExperimentOptions(out=tmp_path, data=archive))
    assert (data.name, data.classes, len(data.train), len(data.test)) == ("bright", 3, 96, 48)
    with pytest.raises(ValueError, match="`limit` must be at least 12, four training images for each of the 3 classes"):
        open_images(ExperimentOptions(out=tmp_path, data=archive, limit=11))
    bad = tmp_path / "bad.npz"
    np.savez(bad, x_train=np.zeros((2, 8, 8, 3)), y_train=[0, 1], x_test=np.zeros((2, 8, 8, 3)), y_test=[0, 1])
    with pytest.raises(DataError, match=r"must hold square images in x_train, uint8 \(N, H, W, C\); got float64"):
        open_images(ExperimentOptions(out=tmp_path, data=str(bad)))
    np.savez(bad, x_train=np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(DataError, match="y_train is missing"):
        open_images(ExperimentOptions(out=tmp_path, data=str(bad)))
    with pytest.raises(DataError, match=r"`data` must be cifar10:DIR, cifar100:DIR or a \.npz file .* got 'mnist'"):
        open_images(ExperimentOptions(out=tmp_path, data="mnist"))


def test_cifar_is_opened_for_training_and_testing(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    for name, label in (("train", 99), ("test", 7)):
        (tmp_path / f"{name}.bin").write_bytes(b"".join(bytes([1, label]) + image.tobytes() for image in images))
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class_{k}" for k in range(100)))
    data = open_images(ExperimentOptions(out=tmp_path, data=f"cifar100:{tmp_path}"))
    assert (data.classes, set(data.train.labels), set(data.test.labels)) == (100, {99}, {7})
    assert np.array_equal(data.train.images, images.transpose(0, 2, 3, 1))


def test_real_cifar_can_be_opened(shared_data, tmp_path):
    data = open_images(
        ExperimentOptions(out=tmp_path, data=str(shared_data / "cifar10" / "cifar10_dev.npz"), limit=400)
    )
    assert (data.classes, len(data.train), len(data.test)) == (10, 400, 100)


def test_inputs_have_the_mean_colour_at_zero():
    images = np.full((2, 8, 8, 3), 100, np.uint8)
    assert not as_inputs(images, images.mean(axis=(0, 1, 2))).any()
    assert as_inputs(images, np.array([36.0, 100.0, 164.0]))[1, :, 3, 3].tolist() == [1.0, 0.0, -1.0]
