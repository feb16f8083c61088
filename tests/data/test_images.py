"""Image files are read as viewers show them, or refused by name."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile

from tests.data.folders import rejected, save
from twinlens.data.samples import check
from twinlens.data.sources import open_data
from twinlens.errors import DataError


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "tif", "webp", "bmp", "ppm"])
def test_truncated_images(birds, kind):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    path = birds / "jay" / f"t.{kind}"
    Image.fromarray(noise).save(path)
    check(open_data(str(birds)), skip_bad=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert f"'jay/t.{kind}' cannot be read: " in rejected(birds)


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
    assert "'jay/x.png' cannot be read: it is not a regular file" in rejected(birds)
    link.unlink()
    save(link)
    opening = Image.open

    def refuse(path, **options):
        if str(path).endswith("x.png"):
            raise PermissionError(13, "Permission denied", path)
        return opening(path, **options)

    monkeypatch.setattr(Image, "open", refuse)  # root may read everything, so that it has to be played
    assert "'jay/x.png' cannot be read: Permission denied. Replace" in rejected(birds)


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
