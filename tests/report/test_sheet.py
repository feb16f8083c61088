"""The contact sheet, read back as a picture."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.report.runs import EVIL, image_samples, loaded, make_run
from twinlens.report.pictures import map_picture
from twinlens.report.sheet import _CELL, _HEAD, _TEXT, _WIDEST, _band_width, _clipped, _size
from twinlens.run.sample_selection import read_selection

DPI = 130


def read(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(float)


def cell(sheet, row, column, rows, band=0):
    """The middle of a cell of a sheet; column 0 is the input."""
    top = band * (_HEAD + _CELL * rows) + _HEAD + _CELL * row
    left = _TEXT + _CELL * column
    inside = [slice(round((start + 0.2) * DPI), round((start + 0.75) * DPI)) for start in (top, left)]
    return sheet[inside[0], inside[1]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Three methods, one of which fails, on three samples."""

    def failing(model, inputs, targets):
        raise ValueError("no such layer")

    folder = tmp_path_factory.mktemp("sheet")
    with pytest.warns(UserWarning, match="broken fails and is left out"):
        run = make_run(
            folder / "run",
            samples=image_samples(3),
            methods={"centre": "centre", "broken": failing, "sobel": "sobel"},
            metrics=[],
        )
    return run, tl.report.write_sheet(run, folder / "sheet.png")


def test_every_cell_shows_its_map(drawn):
    run, path = drawn
    sheet = read(path)
    assert sheet.shape[:2] == tuple(int(side * DPI) for side in reversed(_size(3, 3, 3)))
    places = {sample.position: k for k, sample in enumerate(read_selection(run.run).samples)}
    inputs = read_selection(run.run).inputs
    for row in range(3):
        # Samples stand in their order, each a flat colour of its own: the mean of the cell is that of the input.
        shown = cell(sheet, row, 0, 3).mean(axis=(0, 1))
        mean, std = torch.tensor([0.4, 0.5, 0.6]), 0.25
        wanted = 255 * (inputs[places[row]].mean(dim=(1, 2)) * std + mean)
        assert shown.argmax() == row
        assert shown == pytest.approx(wanted.numpy(), abs=15)
        for column, method in ((1, "centre"), (3, "sobel")):
            picture = map_picture(_clipped(run.maps(method)[row])).astype(np.uint8)
            side = round(0.94 * DPI)
            larger = np.asarray(Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST)).astype(float)
            part = larger[round(0.14 * DPI) : round(0.69 * DPI), round(0.2 * DPI) : round(0.75 * DPI)]
            assert cell(sheet, row, column, 3).mean() == pytest.approx(part.mean(), abs=15)


def test_a_method_that_failed_has_its_reason_in_its_place(drawn):
    _, path = drawn
    sheet = read(path)
    for row in range(3):
        note = cell(sheet, row, 2, 3)
        grey = (np.abs(note - 242) < 2).all(axis=2).mean()
        assert 0.3 < grey < 1  # the background, with words on it
        top = sheet[round((_HEAD + row + 0.1) * DPI) : round((_HEAD + row + 0.4) * DPI), round((_TEXT + 2) * DPI) :][
            :, : round(0.9 * DPI)
        ]
        assert (np.abs(top - 242).max(axis=2) > 60).any()


def test_the_same_run_gives_the_same_bytes(drawn, tmp_path):
    run, path = drawn
    again = tl.report.write_sheet(run, tmp_path / "again.png")
    assert again.read_bytes() == path.read_bytes()
    one = read(tl.report.write_sheet(run, tmp_path / "one.png", samples=1))
    assert len(one) < len(read(path))
    assert tl.report.write_sheet(run, tmp_path / "sheet.PDF").read_bytes().startswith(b"%PDF")


def test_bands_are_evenly_filled():
    assert _band_width(1) == 1
    assert _band_width(7) == 7
    assert _band_width(30) == 10
    for methods in range(1, 60):
        wide = _band_width(methods)
        assert 1 <= wide <= _WIDEST
        assert -(-methods // wide) == -(-methods // _WIDEST)


def test_names_of_any_kind_are_written_as_they_are(tmp_path):
    model = dataclasses.replace(loaded(), classes=(EVIL, "$x^2$", "a very long name of a class, " * 9))
    run = make_run(tmp_path / "run", model=model, samples=image_samples(3), methods=["random"], metrics=[])
    assert tl.report.write_sheet(run, tmp_path / "sheet.svg").stat().st_size > 1000


def test_rows_and_signals_are_lines(tmp_path):
    rows = torch.rand(4, 12, generator=torch.Generator().manual_seed(0))
    run = tl.evaluate(torch.nn.Linear(12, 3), (rows, [0, 1, 2, 0]), ["saliency"], metrics=[], batch_size=4)
    sheet = read(tl.report.write_sheet(run, tmp_path / "sheet.png"))
    assert (cell(sheet, 0, 1, 4).std(axis=0) == 0).all()  # columns of one colour from top to bottom
    assert cell(sheet, 0, 1, 4).std(axis=1).max() > 0


def test_what_is_no_picture_is_refused(drawn, tmp_path):
    for path in (tmp_path / "sheet.jpeg", tmp_path / "sheet", "memory://sheet.png"):
        with pytest.raises(ValueError, match=r"`path` must be a file on this machine that ends in \.png"):
            tl.report.write_sheet(drawn[0], path)
    with pytest.raises(ValueError, match="`samples` must be at least 1"):
        tl.report.write_sheet(drawn[0], tmp_path / "sheet.png", samples=0)
