"""The contact sheet, read back as a picture."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.report.kinds import signal_run, table_run, text_run, volume_run
from tests.report.runs import EVIL, image_samples, loaded, make_run
from twinlens.report.pictures import map_picture
from twinlens.report.scene import original_answers
from twinlens.report.sheet import _CELL, _HEAD, _TEXT, _WIDEST, _band_width, _size
from twinlens.report.sheet_cells import clipped
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
            picture = map_picture(clipped(run.maps(method)[row])).astype(np.uint8)
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


def blue(part):
    """Where bars and areas are drawn."""
    return (part[..., 2] > part[..., 0] + 60) & (part[..., 2] > 120)


def whole_cell(sheet, row, column):
    top, left = round((_HEAD + _CELL * row + 0.06) * DPI), round((_TEXT + _CELL * column) * DPI)
    return sheet[top : top + round(0.94 * DPI), left : left + round(0.94 * DPI)]


def test_columns_are_bars_next_to_their_names(tmp_path):
    run = table_run(tmp_path / "run", columns=8, rows=3)
    sheet = read(tl.report.write_sheet(run, tmp_path / "sheet.png"))
    assert (whole_cell(sheet, 0, 0) < 128).any()  # names and values
    for row in range(3):
        values = run.maps("saliency")[row]
        bars = blue(whole_cell(sheet, row, 1))
        lengths = [bars[round((k + 0.5) / 10 * len(bars))].mean() for k in range(8)]
        assert lengths == pytest.approx((values / values.max()).tolist(), abs=0.03)


def test_words_are_listed_without_what_is_no_feature(tmp_path):
    run = text_run(tmp_path / "run")
    sheet = read(tl.report.write_sheet(run, tmp_path / "sheet.png"))
    for sample in read_selection(run.run).samples:
        row, words = sample.position, 7 - sample.position % 3
        bars = blue(whole_cell(sheet, row, 1))
        values = run.maps("saliency")[row, 1 : 1 + words]  # after the class token
        lengths = [bars[round((k + 0.5) / 10 * len(bars))].mean() for k in range(10)]
        assert lengths == pytest.approx([*(values / values.max()).tolist(), *[0] * (10 - words)], abs=0.03)


def test_signals_are_lines_and_their_maps_areas(tmp_path):
    run = signal_run(tmp_path / "run", steps=20, channels=2, rows=2)
    sheet = read(tl.report.write_sheet(run, tmp_path / "sheet.png"))
    lines = (whole_cell(sheet, 0, 0) < 160).all(axis=2).any(axis=0)
    assert lines.mean() > 0.8  # from the left to the right
    area, values = blue(whole_cell(sheet, 0, 1)), run.maps("saliency")[0]
    assert area.mean() == pytest.approx(float((values / values.max()).mean()) / 1.1 / 1.05, abs=0.06)


def test_volumes_are_shown_where_the_attribution_is(tmp_path):
    def deep(model, inputs, targets):
        maps = torch.zeros(len(inputs), 6, 5, 4)
        maps[:, 4] = 1.0
        return maps

    run = volume_run(tmp_path / "run", methods={"deep": deep})
    sheet = read(tl.report.write_sheet(run, tmp_path / "sheet.png"))
    assert cell(sheet, 0, 1, 4).mean(axis=(0, 1)) == pytest.approx([252, 255, 164], abs=2)


def test_samples_that_came_in_rounds_have_their_own_predictions(tmp_path):
    """Rounds end within shards: the position of a sample does not tell its shard by a division."""
    weights = torch.tensor([2.0, 1.0, 0.5])
    inputs = torch.randn(150, 3, generator=torch.manual_seed(0))

    def model(rows):
        return torch.stack([-(rows @ weights), rows @ weights], dim=1)

    labels = (inputs @ weights > 0).long()
    options = {"shard_size": 48, "resamples": 500, "metrics": ["soundness_rank"], "show": ["00149", "00003"]}
    run = tl.evaluate(model, (inputs, labels), ["random"], until=1e-9, out=tmp_path / "run", **options)
    assert len(run.manifest.rounds.sizes) > 1
    expected = model(inputs).softmax(dim=1)
    for opened in (run, tl.open_evaluation(tmp_path / "run")):
        for sample in read_selection(opened.run).samples:
            table, row = original_answers(opened, sample)
            assert table.ids[row] == sample.id
            probability = expected[int(sample.id), labels[int(sample.id)]].item()
            assert table.probability[row, 0] == pytest.approx(probability, abs=1e-5)
        assert tl.report.write_sheet(opened, tmp_path / "sheet.png").exists()


def test_what_is_no_picture_is_refused(drawn, tmp_path):
    for path in (tmp_path / "sheet.jpeg", tmp_path / "sheet", "memory://sheet.png"):
        with pytest.raises(ValueError, match=r"`path` must be a file on this machine that ends in \.png"):
            tl.report.write_sheet(drawn[0], path)
    with pytest.raises(ValueError, match="`samples` must be at least 1"):
        tl.report.write_sheet(drawn[0], tmp_path / "sheet.png", samples=0)
