"""Images and folders that cannot be evaluated, as the command line reports them."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.tiny import read_results


def bomb(path):
    """A PNG of a few bytes that claims to be enormous."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)


def rotated(path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (10, 10)).save(path, exif=exif)


def sliver(path):
    """A PNG of a few kilobytes that would take gigabytes once its shorter side is resized to 12 pixels."""
    Image.new("L", (1, 2_000_000)).save(path)


BAD = {
    "sliver": sliver,
    "unreadable": lambda p: p.write_bytes(b"no image"),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:60]),
    "bomb": bomb,
    "16-bit": lambda p: Image.fromarray(np.zeros((10, 10), np.uint16)).save(p),
    "transparent": lambda p: Image.new("RGBA", (10, 10)).save(p),
}


GOOD = {
    "palette": lambda p: Image.new("P", (10, 10)).save(p),
    "grey": lambda p: Image.new("L", (10, 10)).save(p),
    "EXIF-rotated": rotated,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_image_is_named_or_left_out(tmp_path, run, subject, kind):
    BAD[kind](tmp_path / "images" / "bee" / "2.png")
    command = (
        "evaluate", *subject, "--resize", "12", "--methods", "random", "--metrics", "deletion",
        "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
    code, output, error = run(*command)
    assert (code, output) == (2, "")
    assert "bee/2.png" in error
    assert error.count("\n") == 1
    code, _, error = run(*command, "--skip-bad")
    assert (code, error) == (0, "")
    data = read_results(tmp_path / "run")["data"]
    assert data["samples"] == 11
    assert [skipped["id"] for skipped in data["skipped"]] == ["bee/2.png"]
    assert data["skipped"][0]["reason"]


@pytest.mark.parametrize("kind", GOOD)
def test_unusual_images_are_read(tmp_path, run, subject, kind):
    GOOD[kind](tmp_path / "images" / "bee" / "2.png")
    code, _, error = run(
        "evaluate",
        *subject,
        "--methods",
        "random",
        "--metrics",
        "deletion",
        "--out",
        tmp_path / "run",
        "--quiet",
    )
    assert (code, error) == (0, "")


def test_bad_data_of_all_kinds(tmp_path, run, subject):
    images, names = tmp_path / "images", tmp_path / "names.txt"
    command = (
        "evaluate",
        *subject,
        "--methods",
        "random",
        "--metrics",
        "deletion",
        "--out",
        tmp_path / "run",
        "--quiet",
    )

    def refused(message, *more):
        code, output, error = run(*command, *more)
        assert (code, output) == (2, "")
        assert message in error
        assert error.count("\n") == 1
        assert not (tmp_path / "run").exists()

    names.write_text("ant\nbee\n")
    refused("'cow' is missing", "--classes", names)
    (images / "dog").mkdir()
    refused("class folder 'dog'")
    Image.new("RGB", (10, 10)).save(images / "dog" / "1.png")
    refused("4 class folders and the model knows 3 classes")
    (images / "dog" / "1.png").unlink()
    (images / "dog").rmdir()
    Image.new("RGB", (12, 12)).save(images / "ant" / "big.png")
    code, _, error = run(*command)
    assert code == 2
    assert "All inputs must have one size; sample 'ant/big.png'" in error
    (images / "ant" / "big.png").unlink()
    name = os.fsencode(images / "ant") + b"/\xff.png"
    Path(os.fsdecode(name)).write_bytes((images / "ant" / "0.png").read_bytes())
    code, _, error = run(*command[:-2], tmp_path / "other", "--quiet")
    assert code == 2
    assert r"\xff.png" in error
