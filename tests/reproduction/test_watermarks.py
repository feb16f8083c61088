import numpy as np
import pytest

from twinlens.reproduction.scenes import drawn_images
from twinlens.reproduction.watermarks import number_watermarks, stripe_watermarks


def on_canvas(watermarks, count, size, classes, channels=3):
    """Watermarks on a single grey."""
    canvas = np.full((count, size, size, channels), 128, np.uint8)
    return watermarks(canvas, classes=classes, ids=[str(k) for k in range(count)], seed=0)


@pytest.fixture(scope="module")
def images():
    return drawn_images(60, 32, seed=3)


@pytest.mark.parametrize("watermarks", [number_watermarks, stripe_watermarks])
def test_only_the_region_is_changed_and_the_original_images_are_not(watermarks, images):
    before = images.copy()
    marked = watermarks(images, classes=50, ids=[str(k) for k in range(60)], seed=0)
    outside = ~marked.region
    assert np.array_equal(marked.images[outside], images[outside])
    assert np.array_equal(images, before)
    assert marked.images.dtype == np.uint8


@pytest.mark.parametrize("watermarks", [number_watermarks, stripe_watermarks])
def test_everything_is_drawn_from_the_seed_and_the_id(watermarks, images):
    names = [f"image-{k}" for k in range(60)]
    whole = watermarks(images, classes=20, ids=names, seed=1)
    order = np.random.default_rng(0).permutation(60)
    shuffled = watermarks(images[order], classes=20, ids=[names[k] for k in order], seed=1)
    assert np.array_equal(shuffled.images, whole.images[order])
    assert np.array_equal(shuffled.labels, whole.labels[order])
    assert np.array_equal(shuffled.region, whole.region[order])
    other = watermarks(images, classes=20, ids=names, seed=2)
    assert not np.array_equal(other.labels, whole.labels)
    assert set(whole.labels) <= set(range(20))
    assert len(set(whole.labels)) > 10


def test_the_number_can_be_read_from_the_square():
    marked = on_canvas(number_watermarks, 400, 32, 100)
    signs = {}
    for image, label, region in zip(marked.images, marked.labels, marked.region, strict=True):
        rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
        assert len(rows) == len(columns) == 9
        assert region.sum() == 81
        sign = image[np.ix_(rows, columns)][..., 0]
        assert set(np.unique(sign)) == {0, 255}
        assert not sign[[0, -1]].any()
        signs.setdefault(label, set()).add(sign.tobytes())
    assert len(signs) > 90
    assert all(len(drawn) == 1 for drawn in signs.values())
    assert len(set.union(*signs.values())) == len(signs)


def test_one_is_drawn_as_one():
    marked = on_canvas(number_watermarks, 40, 32, 10)
    k = int(np.flatnonzero(marked.labels == 1)[0])
    sign = marked.images[k][marked.region[k]][:, 0].reshape(9, 9)
    lines = ["".join(".#"[v // 255] for v in row) for row in sign[2:7, 3:6]]
    assert lines == [".#.", "##.", ".#.", ".#.", "###"]


def test_squares_are_everywhere_and_as_large_as_asked():
    marked = on_canvas(number_watermarks, 600, 56, 100)
    assert marked.region.sum(axis=(1, 2)).tolist() == [15 * 15] * 600
    assert marked.region.any(axis=(0, 1)).all()
    assert marked.region.any(axis=(0, 2)).all()


def test_stripes_are_the_binary_number_of_the_class():
    marked = on_canvas(stripe_watermarks, 300, 33, 128)
    middle = marked.region[:, [2, 7, 12, 17, 22, 26, 31], 5].astype(int)
    assert np.array_equal(middle @ (2 ** np.arange(7)), marked.labels)
    assert (marked.region == marked.region[:, :, :1]).all()
    assert (marked.images[marked.region] == 255).all()
    k = int(np.flatnonzero(marked.labels == 40)[0])
    assert (1 + np.flatnonzero(middle[k])).tolist() == [4, 6]  # the paper's example


def test_stripes_are_the_regions_of_pooling():
    import torch

    marked = on_canvas(stripe_watermarks, 200, 32, 128)
    parts = torch.tensor_split(torch.from_numpy(marked.region), 7, dim=1)
    assert all((part.flatten(1).all(dim=1) | ~part.flatten(1).any(dim=1)).all() for part in parts)


def test_grey_images_have_one_channel():
    assert on_canvas(number_watermarks, 3, 32, 10, channels=1).images.shape == (3, 32, 32, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: on_canvas(number_watermarks, 2, 32, 1), "`classes` must be at least 2; got 1"),
        (
            lambda: on_canvas(number_watermarks, 2, 32, 1000),
            "`images` must leave room for numbers up to 999",
        ),
        (lambda: on_canvas(stripe_watermarks, 2, 32, 129), "`classes` must be at most 128"),
        (lambda: on_canvas(stripe_watermarks, 2, 6, 100), "at least 7 pixels high"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()
