import numpy as np
import pytest
import torch
from PIL import Image

from twinlens.models.preprocessing import Preprocessing


def gradient(width, height):
    across = np.linspace(0, 255, width)[None, :, None]
    down = np.linspace(0, 255, height)[:, None, None]
    return Image.fromarray(np.concatenate(np.broadcast_arrays(across, down, 255 - across), axis=2).astype(np.uint8))


@pytest.mark.parametrize("size", [(50, 40), (40, 50), (33, 33), (224, 20)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_agrees_with_torchvision(size, interpolation):
    transforms = pytest.importorskip("torchvision.transforms", exc_type=ImportError)
    image, mean, std = gradient(*size), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    theirs = transforms.Compose(
        [
            transforms.Resize(24, interpolation=transforms.InterpolationMode(interpolation)),
            transforms.CenterCrop(20),
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ]
    )
    ours = Preprocessing(resize=24, crop=20, interpolation=interpolation, mean=mean, std=std)
    torch.testing.assert_close(ours(image), theirs(image))


def test_grey_models_get_one_channel_and_colour_models_three():
    assert Preprocessing(mean=0.0, std=1.0)(gradient(6, 4)).shape == (1, 4, 6)
    grey = Image.fromarray(np.full((4, 6), 51, dtype=np.uint8))
    torch.testing.assert_close(Preprocessing()(grey), torch.full((3, 4, 6), 0.2))


def test_squash_ignores_the_shape():
    assert Preprocessing(resize=8, squash=True)(gradient(30, 10)).shape == (3, 8, 8)


def test_arrays_stay_as_they_are():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    torch.testing.assert_close(Preprocessing(mean=0.5, std=0.1)(values), torch.from_numpy(values))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": (0.1, 0.2)}, "one value for grey images or three for colour; got 2 and 3"),
        ({"std": (1.0, 0.0, 1.0)}, "`std` must be > 0"),
        ({"interpolation": "area"}, "nearest, bilinear, bicubic, lanczos; got 'area'"),
        ({"crop": 0}, "`crop` must be at least 1 pixel"),
    ],
)
def test_refuses_what_makes_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)


def test_a_crop_must_fit():
    with pytest.raises(ValueError, match=r"`crop` of 9 pixels does not fit into an image of 30 × 8. Resize first"):
        Preprocessing(crop=9)(gradient(30, 8))


def test_overrides_name_known_fields():
    assert Preprocessing().changed({"resize": 7}).resize == 7
    with pytest.raises(ValueError, match=r"`preprocessing` must be one of resize, crop.* got 'rezise'"):
        Preprocessing().changed({"rezise": 7})


@pytest.mark.parametrize(
    ("options", "size"),
    [({"resize": 19}, (1, 2_000_000)), ({"resize": 256, "crop": 224}, (89_000_000, 1)), ({"resize": 9000}, (9, 9))],
)
def test_the_size_after_resizing_is_checked_before_anything_is_resized(options, size, monkeypatch):
    monkeypatch.setattr(Image.Image, "resize", lambda *_: pytest.fail("it was resized"))
    image = Image.new("L", (1, 1))
    image._size = size
    with pytest.raises(ValueError, match=r"`resize` to \d+ would make \d+ × \d+ pixels of an image of .* at most"):
        Preprocessing(**options)(image)


@pytest.mark.parametrize("size", [(400, 300), (300, 400), (57, 56)])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_maps_go_where_their_images_go(size, interpolation):
    preprocessing = Preprocessing(resize=64, crop=48, interpolation=interpolation, mean=0.0, std=1.0)
    grey = gradient(*size).convert("L")
    framed = preprocessing.frame_map(np.asarray(grey, np.float32), interpolation)
    assert np.abs(framed - 255 * preprocessing(grey)[0].numpy()).max() <= 1.0  # images are rounded to 8 bits


def test_images_that_are_kept():
    assert Preprocessing().keeps((7, 5))
    assert Preprocessing(resize=5).keeps((7, 5))
    assert Preprocessing(resize=5, crop=5).keeps((5, 5))
    assert not Preprocessing(crop=5).keeps((7, 5))
    assert not Preprocessing(resize=6).keeps((7, 5))
    assert not Preprocessing(resize=5, squash=True).keeps((7, 5))
