"""A small run that several checks measure."""

import shutil

import pytest

import twinlens as tl
from tests.tiny import image_folder, model_file


@pytest.fixture(scope="package")
def measured_once(tmp_path_factory):
    """A run of a model that is code, and the spec of the model."""
    folder = tmp_path_factory.mktemp("measured")
    spec, data = model_file(folder), image_folder(folder / "images")
    tl.evaluate(
        spec, data, ["saliency", "integrated_gradients", "sobel", "random"],
        metrics=["headline", "calibration", "road_morf"], out=folder / "run", batch_size=16,
        memory_format="contiguous", resamples=50, control="none",
    )  # fmt: skip
    return folder / "run", spec


@pytest.fixture
def measured(measured_once, tmp_path):
    """A copy of the run, its model's spec, and what nobody may change."""
    run, spec = measured_once
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run", spec


def content_of_run(run):
    """The bytes of all files of a run except for its checks."""
    files = (path for path in run.rglob("*") if path.is_file() and "checks" not in path.relative_to(run).parts)
    return {str(path.relative_to(run)): path.read_bytes() for path in files}
