"""Files made to exhaust memory or to lead in circles are refused."""

import io
import os
import zipfile

import numpy as np
import pytest

from tests.tiny import image_folder, model_file
from twinlens.data.sources import open_data
from twinlens.data.stored_maps import open_maps
from twinlens.errors import DataError, ModelError
from twinlens.models.loading import load_model


def write_bomb(path, name, shape):
    """An archive of a few megabytes that would unpack to gigabytes of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(70):
                file.write(bytes(1 << 24))
        archive.writestr("labels.npy", b"")


@pytest.mark.slow
def test_archives_made_to_exhaust_memory(tmp_path, monkeypatch):
    images, model = image_folder(tmp_path / "images"), model_file(tmp_path)
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was unpacked"))
    write_bomb(tmp_path / "data.npz", "inputs", (1000, 3, 500, 1000))
    with pytest.raises(DataError, match=r"data\.npz' cannot be read: it has \d+ bytes and would unpack to \d+"):
        open_data(str(tmp_path / "data.npz"))
    write_bomb(tmp_path / "maps.npz", "maps", (12, 10_000, 10_000))
    with pytest.raises(DataError, match=r"maps\.npz' cannot be read: it has \d+ bytes and would unpack to \d+"):
        open_maps(str(tmp_path / "maps.npz"), open_data(images))
    os.rename(tmp_path / "maps.npz", tmp_path / "weights.pt")
    with pytest.raises(ModelError, match=r"weights\.pt' cannot be read: it has \d+ bytes and would unpack to \d+"):
        load_model(model, weights=str(tmp_path / "weights.pt"))
    os.rename(tmp_path / "weights.pt", tmp_path / "model.pt2")
    with pytest.raises(ModelError, match=r"it has \d+ bytes and would unpack to \d+"):
        load_model(str(tmp_path / "model.pt2"), allow_code=True)


def test_folders_very_deep_or_linked_in_circles(tmp_path):
    deep = tmp_path / "deep"
    (deep / "a").mkdir(parents=True)
    folder = os.open(deep / "a", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("x", dir_fd=folder)
        inner = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(DataError, match="`data` must have at most 100 folders in each other"):
        open_data(str(deep))
    names = "abcdefgh"
    for name in names:
        image_folder(tmp_path / "circle" / name, classes=["x"], per_class=1)
        for other in names:
            (tmp_path / "circle" / name / f"to_{other}").symlink_to(tmp_path / "circle" / other)
    with pytest.raises(DataError, match="`data` must lead to each folder by at most 3 links"):
        open_data(str(tmp_path / "circle"))
