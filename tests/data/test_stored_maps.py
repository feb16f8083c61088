import os
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from twinlens.data.samples import from_arrays, subset
from twinlens.data.sources import open_data
from twinlens.data.stored_maps import StoredMaps, StoredReading, check_stored, maps_from_array, open_maps
from twinlens.errors import DataError
from twinlens.models.preprocessing import Preprocessing

VALUES = np.random.default_rng(0).random((3, 4, 6)).astype(np.float32)
IDS = ("cat/a.jpg", "cat/deep/b.c.png", "dog/a.jpg")


@pytest.fixture
def pictures(tmp_path):
    """Three pictures of 6 × 4 pixels."""
    for name in IDS:
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4)).save(path)
    return open_data(str(tmp_path / "pictures"))


@pytest.fixture
def arrays():
    return from_arrays(np.zeros((3, 4, 6), np.uint8), [0, 1, 2])


def save_folder(root, stems, values=VALUES):
    for stem, value in zip(stems, values, strict=True):
        path = root / f"{stem}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, value)
    return str(root)


def save_as(kind, path, samples):
    """Stores VALUES in one of the ways that can be opened."""
    if kind == "folder":
        return save_folder(path, [name.removesuffix(".jpg").removesuffix(".png") for name in samples.ids])
    by_id = dict(zip(samples.ids, VALUES, strict=True))
    if kind == "npy":
        np.save(f"{path}.npy", VALUES)
    elif kind == "npz":
        np.savez_compressed(f"{path}.npz", maps=VALUES)
    elif kind == "npz by id":
        np.savez(f"{path}.npz", **by_id, another=np.zeros(3))
    elif kind == "safetensors":
        save_file({"maps": torch.from_numpy(VALUES)}, f"{path}.safetensors")
    else:
        save_file({name: torch.from_numpy(value) for name, value in by_id.items()}, f"{path}.safetensors")
    return f"{path}.{kind.split()[0]}"


KINDS = ["folder", "npy", "npz", "npz by id", "safetensors", "safetensors by id"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", ["pictures", "arrays"])
def test_maps_are_read_for_their_sample_after_some_were_left_out(kind, data, tmp_path, request, monkeypatch):
    samples = request.getfixturevalue(data)
    path = save_as(kind, tmp_path / "maps", samples)
    monkeypatch.chdir(tmp_path)
    maps = open_maps(os.path.basename(path), samples)
    monkeypatch.chdir("/")
    for place in range(3):
        assert np.array_equal(maps.read(samples, place), VALUES[place])
    few = samples.take([2, 0])
    assert np.array_equal(maps.read(few, 0), VALUES[2])
    assert np.array_equal(maps.read(few, 1), VALUES[0])
    assert maps.read(few, 0).dtype == np.float32
    sent = pickle.loads(pickle.dumps(maps))
    assert np.array_equal(sent.read(few, 0), VALUES[2])
    assert len(pickle.dumps(maps)) < 2000  # not the maps themselves


def test_the_digest_depends_on_samples_and_values_but_not_on_how_they_are_stored(pictures, tmp_path):
    opened = [open_maps(save_as(kind, tmp_path / kind, pictures), pictures) for kind in KINDS]
    assert len({check_stored(maps, pictures, (4, 6)) for maps in opened}) == 1
    whole = check_stored(opened[0], pictures, (4, 6))
    assert check_stored(opened[0], pictures.take([0, 1]), (4, 6)) != whole
    changed = VALUES.copy()
    changed[2, 3, 5] += 1e-6
    np.save(tmp_path / "changed.npy", changed)
    assert check_stored(open_maps(str(tmp_path / "changed.npy"), pictures), pictures, (4, 6)) != whole
    renamed = from_arrays(np.zeros((3, 4, 6), np.uint8), [0, 1, 2], ids=["a", "b", "c"])
    assert check_stored(open_maps(str(tmp_path / "npy.npy"), renamed), renamed, (4, 6)) != whole


@given(st.permutations(range(5)), st.integers(1, 5), st.integers(0, 3))
def test_a_map_follows_its_sample_through_any_choice(order, limit, seed):
    samples = from_arrays(np.zeros((5, 2)), np.arange(5))
    rows = np.arange(10).reshape(5, 2)
    maps = StoredMaps(name="m", locations=dict(zip(samples.ids, range(5), strict=True)), reader=rows.__getitem__)
    chosen = subset(samples.take(order), limit, seed)
    for place, position in enumerate(chosen.positions):
        assert maps.read(chosen, place).tolist() == rows[position].tolist()


@pytest.mark.parametrize("mode", ["L", "I;16"])
def test_grey_pictures_are_read_as_whole_numbers(arrays, tmp_path, mode):
    values = np.random.default_rng(1).integers(0, 256 if mode == "L" else 65536, (3, 4, 6))
    for name, value in zip(arrays.ids, values, strict=True):
        Image.fromarray(value.astype(np.uint8 if mode == "L" else np.uint16)).save(tmp_path / f"{name}.png")
    maps = open_maps(str(tmp_path), arrays)
    assert [np.array_equal(maps.read(arrays, k), values[k]) for k in range(3)] == [True] * 3
    assert len(check_stored(maps, arrays, (4, 6))) == 64


@pytest.mark.parametrize("mode", ["RGB", "P", "1", "LA", "RGBA"])
def test_coloured_pictures_are_refused(arrays, tmp_path, mode):
    Image.new(mode, (6, 4)).save(tmp_path / "00000.png")
    with pytest.raises(
        DataError, match=rf"00000\.png' must be a grey image of 8 or 16 bits; its mode is {mode}, .*Store"
    ):
        open_maps(str(tmp_path), arrays).read(arrays, 0)


def test_broken_files_are_named(arrays, tmp_path):
    (tmp_path / "00000.png").write_bytes(b"no image")
    (tmp_path / "00001.npy").write_bytes(b"no array")
    np.save(tmp_path / "00002.npy", np.array([{}], dtype=object))
    maps = open_maps(str(tmp_path), arrays)
    with pytest.raises(DataError, match=r"00000\.png' cannot be read: it is not an image of a known format\. Replace"):
        maps.read(arrays, 0)
    for place, reason in ((1, "the magic string is not correct"), (2, ".*Python objects in dtype")):
        with pytest.raises(DataError, match=rf"0000{place}\.npy' cannot be read: {reason}.*Save the maps as plain"):
            maps.read(arrays, place)


def test_maps_in_memory():
    samples = from_arrays(np.zeros((2, 3)), [0, 1], ids=["a", "b"])
    assert maps_from_array(np.eye(2, 3), "mine", samples).read(samples, 1).tolist() == [0.0, 1.0, 0.0]


def test_a_sample_without_a_map(pictures, tmp_path):
    root = save_folder(tmp_path / "maps", ["cat/a"], VALUES[:1])
    maps = open_maps(root, pictures)
    with pytest.raises(
        DataError,
        match=r"maps' must hold a map of each of the 3 samples; 2 have none, the first is 'cat/deep/b.c.png'\. Add",
    ):
        check_stored(maps, pictures, (4, 6))
    assert len(check_stored(maps, pictures.take([0]), (4, 6))) == 64


def test_one_map_per_sample(pictures, tmp_path):
    root = save_folder(tmp_path / "maps", ["cat/a", "cat/deep/b.c", "dog/a"])
    Image.new("L", (6, 4)).save(tmp_path / "maps" / "dog" / "a.png")
    with pytest.raises(
        DataError, match=r"one map per sample; 'dog/a.jpg' has 'dog/a.npy' and 'dog/a.png'\. Remove one"
    ):
        open_maps(root, pictures)
    (tmp_path / "maps" / "dog" / "a.png").unlink()
    Image.new("RGB", (6, 4)).save(tmp_path / "pictures" / "dog" / "a.bmp")
    both = open_data(str(tmp_path / "pictures"))
    with pytest.raises(
        DataError, match=r"'dog/a.npy' would stand for both 'dog/a.bmp' and 'dog/a.jpg'\. Store the maps by"
    ):
        open_maps(root, both)


def test_an_id_with_a_full_stop_is_kept_whole(tmp_path):
    samples = from_arrays(np.zeros((2, 4, 6), np.uint8), [0, 1], ids=["v1.5", "v1.6"])
    maps = open_maps(save_folder(tmp_path, samples.ids, VALUES[:2]), samples)
    assert np.array_equal(maps.read(samples, 1), VALUES[1])


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "b/../../a"])
def test_a_folder_of_maps_is_not_left(tmp_path, name):
    samples = from_arrays(np.zeros((1, 4, 6), np.uint8), [0], ids=[name])
    with pytest.raises(DataError, match=r"lies outside of its data set.*Store the maps by sample id"):
        open_maps(str(tmp_path), samples)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
@pytest.mark.parametrize("shape", [(2, 4, 6), (4, 4, 6), ()])
def test_one_array_must_have_one_map_per_sample(arrays, tmp_path, kind, shape):
    path, values = f"{tmp_path}/m.{kind}", np.zeros(shape, np.float32)
    if kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez(path, maps=values)
    else:
        save_file({"maps": torch.from_numpy(values)}, path)
    expected = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(
        DataError, match=rf"m\.{kind}' must hold one map for each of the 3 samples of arrays.*{expected}\. S"
    ):
        open_maps(path, arrays)


def test_what_cannot_be_opened(arrays, tmp_path):
    with pytest.raises(
        DataError, match=r"a directory, or a .npy, .npz or .safetensors file; 'maps.mat' is none of them"
    ):
        open_maps("maps.mat", arrays)
    for kind in ("npy", "npz", "safetensors"):
        path = tmp_path / f"m.{kind}"
        with pytest.raises(DataError, match=rf"m\.{kind}' cannot be read: .*[Nn]o such file.*Save the maps as plain"):
            open_maps(str(path), arrays)
        path.write_bytes(b"PK\x03\x04 and nothing more")
        with pytest.raises(DataError, match=rf"m\.{kind}' cannot be read: .*Save the maps as plain"):
            open_maps(str(path), arrays)
    np.save(tmp_path / "m.npy", np.array([{}, {}, {}], dtype=object))
    with pytest.raises(DataError, match=r"m\.npy' cannot be read: .*Python objects"):
        open_maps(str(tmp_path / "m.npy"), arrays)
    np.savez(tmp_path / "m.npz", maps=np.array([{}, {}, {}], dtype=object))
    with pytest.raises(DataError, match=r"m\.npz' cannot be read: it holds Python objects"):
        open_maps(str(tmp_path / "m.npz"), arrays)
    np.savez(tmp_path / "m.npz", maps=VALUES, ids=np.array(["c", "b", "a"]))
    with pytest.raises(
        DataError, match=r"either one array 'maps' or one array per sample id; it holds 'maps' and 1 more"
    ):
        open_maps(str(tmp_path / "m.npz"), arrays)


def test_a_truncated_array_is_refused_when_it_is_opened(arrays, tmp_path):
    path = tmp_path / "m.npy"
    np.save(path, VALUES)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"m\.npy' cannot be read: .*Save the maps as plain"):
        open_maps(str(path), arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda v: v[:, :3],
            r"maps of size 4 × 6, as the model sees its inputs, or of the size of their images; that of sample "
            r"'00000' is 3 × 6\. Say how to resize",
        ),
        (
            lambda v: np.stack([v, v], axis=1),
            r"that of sample '00000' is 2 × 4 × 6\. .* reduce its channels \(`channels`\)",
        ),
        (lambda v: v[:, 0, 0], r"that of sample '00000' is a single number"),
        (
            lambda v: v - 10 * (np.arange(3) == 1)[:, None, None],
            r"not be negative; .*'00001' goes down to -9\..*positive",
        ),
        (
            lambda v: np.where(np.arange(3)[:, None, None] == 2, np.nan, v),
            r"be finite in float32; .*'00002' contains NaN",
        ),
        (lambda v: v.astype(complex), r"must hold real numbers; that of sample '00000' is complex128"),
    ],
)
def test_every_map_is_checked(arrays, tmp_path, change, message):
    np.save(tmp_path / "m.npy", change(VALUES))
    with pytest.raises(DataError, match=message):
        check_stored(open_maps(str(tmp_path / "m.npy"), arrays), arrays, (4, 6))


def test_channels_and_signs_are_accepted_where_it_is_said_what_they_mean(arrays, tmp_path):
    for name, values in {"one": VALUES[:, None], "two": np.stack([VALUES, VALUES], 1), "signed": -VALUES}.items():
        np.save(tmp_path / f"{name}.npy", values)
    one, two, signed = (open_maps(str(tmp_path / f"{name}.npy"), arrays) for name in ("one", "two", "signed"))
    check_stored(one, arrays, (4, 6))
    check_stored(two, arrays, (4, 6), StoredReading(channels="sum"))
    for sign in ("positive", "absolute"):
        check_stored(signed, arrays, (4, 6), StoredReading(sign=sign))
    with pytest.raises(DataError, match=r"goes down to .*Choose `sign`: 'positive' drops negative values, 'absolute'"):
        check_stored(signed, arrays, (4, 6))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float16, np.dtype(">f8")])
def test_all_real_numbers_are_read(tmp_path, dtype):
    samples = from_arrays(np.zeros((2, 3)), [0, 1])
    np.save(tmp_path / "m.npy", np.array([[0, 1, 1], [1, 0, 0]], dtype))
    read = open_maps(str(tmp_path / "m.npy"), samples).read(samples, 0)
    assert read.dtype == np.float32
    assert read.tolist() == [0, 1, 1]


def test_numbers_that_numpy_has_not(tmp_path):
    samples = from_arrays(np.zeros((2, 3)), [0, 1])
    save_file({"maps": torch.zeros(2, 3, dtype=torch.bfloat16)}, tmp_path / "m.safetensors")
    with pytest.raises(DataError, match=r"m\.safetensors' cannot be read: .*bfloat16.*such as float32"):
        open_maps(str(tmp_path / "m.safetensors"), samples).read(samples, 1)


@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_large_arrays_stay_on_disk(tmp_path, kind):
    samples = from_arrays(np.zeros((4, 1, 1), np.uint8), range(4))
    path, size = tmp_path / f"m.{kind}", 4 * 2**40  # four maps of a tebibyte each, all holes
    if kind == "npy":
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "|u1", "fortran_order": False, "shape": (4, 2**20, 2**20)}
            )
    else:
        header = f'{{"maps":{{"dtype":"U8","shape":[4,{2**20},{2**20}],"data_offsets":[0,{size}]}}}}'.encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)
    assert len(open_maps(str(path), samples).locations) == 4


def test_maps_that_change_after_they_were_checked_are_refused(tmp_path):
    samples = from_arrays(np.zeros((2, 1, 4, 4), np.float32), [0, 1])
    path = tmp_path / "maps.npy"
    np.save(path, np.ones((2, 4, 4), np.float32))
    maps = open_maps(str(path), samples)
    check_stored(maps, samples, (4, 4))
    assert maps.read(samples, 1).sum() == 16
    np.lib.format.open_memmap(path, mode="r+")[1] = 2
    with pytest.raises(DataError, match="the map of sample '00001' is not what it was when it was first read"):
        maps.read(samples, 1)


# A photograph of 300 × 400 pixels and its map, which is as bright as the photograph.
CROPPED = Preprocessing(resize=64, crop=56, mean=0.0, std=1.0)
SIZES = {"cat/wide.jpg": (400, 300), "cat/high.png": (300, 400), "dog/long.jpeg": (700, 301), "dog/small.png": (70, 66)}


def bright_disc(width, height):
    """A bright disc to the left of the middle and above it, on a dark ground."""
    y, x = np.ogrid[:height, :width]
    far = np.hypot(x / width - 0.45, y / height - 0.4)
    return np.clip(255 * (1 - 3 * far), 0, 255).astype(np.uint8)


def photographs(root):
    for name, size in SIZES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(bright_disc(*size)).save(path, quality=95)
    return open_data(str(root))


@pytest.mark.parametrize("kind", ["npy", "png", "jpg", "JPEG", "npz"])
def test_maps_of_the_size_of_photographs_are_cropped_with_them(tmp_path, kind):
    samples = photographs(tmp_path / "images")
    values = {name: bright_disc(*SIZES[name]) for name in samples.ids}
    path = tmp_path / "maps"
    if kind == "npz":
        path = tmp_path / "maps.npz"
        np.savez(path, **values)
    for name, value in values.items() if kind != "npz" else ():
        file = (path / name).with_suffix(f".{kind}")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, value) if kind == "npy" else Image.fromarray(value).save(file)
    maps = open_maps(str(path), samples)
    digest = check_stored(maps, samples, (56, 56), preprocessing=CROPPED)
    for index in range(len(samples)):
        seen = 255 * CROPPED(samples.read(index))[0].numpy()  # the photograph as the model sees it
        read = maps.read(samples, index)
        assert read.shape == (56, 56)
        assert np.abs(read - seen).max() < (12 if "J" in kind.upper() else 6)  # JPEG is lossy
        assert np.abs(read - seen).mean() < 1
    # Stretched onto the crop, as before, the disc would be elsewhere.
    wide = samples.ids.index("cat/wide.jpg")
    stretched = np.asarray(Image.fromarray(values["cat/wide.jpg"]).resize((56, 56)), float)
    assert np.abs(stretched - 255 * CROPPED(samples.read(wide))[0].numpy()).mean() > 5
    # The digest is of what is measured: another crop is another map.
    again = open_maps(str(path), samples)
    assert check_stored(again, samples, (56, 56), preprocessing=CROPPED) == digest
    assert pickle.loads(pickle.dumps(maps)).read(samples, wide).tolist() == maps.read(samples, wide).tolist()
    other = Preprocessing(resize=60, crop=56, mean=0.0, std=1.0)
    assert check_stored(open_maps(str(path), samples), samples, (56, 56), preprocessing=other) != digest


def test_channels_and_interpolation_of_cropped_maps(tmp_path):
    samples = photographs(tmp_path / "images").take([0])
    value = bright_disc(*SIZES[samples.ids[0]]).astype(np.float32)
    both = np.stack([value, -value])
    maps = maps_from_array(np.stack([both]), "mine", samples)
    reading = StoredReading(channels="absolute_sum", resize="nearest")
    check_stored(maps, samples, (56, 56), reading, CROPPED)
    read = maps.read(samples, 0)
    assert read.shape == (2, 56, 56)
    assert np.array_equal(read[0], -read[1])
    assert set(np.unique(read[0])) <= set(np.unique(value))  # none between two pixels
    squashed = Preprocessing(resize=20, squash=True, mean=0.0, std=1.0)
    check_stored(maps_from_array(np.stack([value]), "mine", samples), samples, (20, 20), preprocessing=squashed)


def test_maps_of_the_size_of_the_input_are_taken_as_they_are(tmp_path):
    samples = photographs(tmp_path / "images")
    values = np.random.default_rng(0).random((4, 56, 56), dtype=np.float32)
    maps = maps_from_array(values, "mine", samples)
    check_stored(maps, samples, (56, 56), preprocessing=CROPPED)
    assert not maps.frames
    assert np.array_equal(maps.read(samples, 3), values[3])
    # Coarse maps of another size still cover the input.
    coarse = maps_from_array(values[:, :7, :7], "mine", samples)
    check_stored(coarse, samples, (56, 56), StoredReading(resize="bilinear"), CROPPED)
    assert not coarse.frames
    with pytest.raises(
        DataError, match=r"or of the size of their images; that of sample 'cat/high.png' is 7 × 7\. Say"
    ):
        check_stored(coarse, samples, (56, 56), preprocessing=CROPPED)


def test_maps_of_photographs_that_are_as_large_as_the_input_are_ambiguous():
    samples = from_arrays(np.full((2, 56, 56), 7, np.uint8), [0, 1])
    values = np.random.default_rng(0).random((2, 56, 56), dtype=np.float32)

    def read(reading=None, preprocessing=CROPPED):
        maps = maps_from_array(values, "mine", samples)
        check_stored(maps, samples, (56, 56), reading or StoredReading(), preprocessing)
        return maps.read(samples, 0)

    with pytest.raises(
        DataError, match=r"the map of sample '00000' has 56 × 56 pixels, and so have .*Say what .*`size`"
    ):
        read()
    assert np.array_equal(read(StoredReading(size="input")), values[0])
    assert np.array_equal(read(StoredReading(size="image")), CROPPED.frame_map(values[0]))
    # Where the image is the input, there is nothing to ask.
    for same in (Preprocessing(), Preprocessing(resize=56, crop=56), Preprocessing(crop=56)):
        assert np.array_equal(read(preprocessing=same), values[0])
        assert np.array_equal(read(StoredReading(size="image"), same), values[0])


def test_maps_that_should_have_the_size_of_their_images_and_have_not(tmp_path):
    samples = photographs(tmp_path / "images")
    values = np.ones((4, 100, 90), np.float32)
    reading = StoredReading(size="image", resize="bilinear")
    with pytest.raises(DataError, match=r"'cat/high.png' is 100 × 90, and the sample has 400 × 300\. Scale the maps"):
        check_stored(maps_from_array(values, "mine", samples), samples, (56, 56), reading, CROPPED)
    rows = from_arrays(np.zeros((4, 1, 56, 56), np.float32), [0, 1, 2, 3])
    with pytest.raises(DataError, match=r"is 100 × 90, and the sample is an array"):
        check_stored(maps_from_array(values, "mine", rows), rows, (56, 56), reading, CROPPED)
