"""A suite of one's own on the tiny model, which runs in moments."""

from tests.tiny import image_folder, model_file
from twinlens.suites.definition import find_suite, requested_methods
from twinlens.suites.running import run_suite
from twinlens.support.progress import Quiet

TEXT = """
name = "tiny"
version = 1
title = "Tiny images"
question = "Which methods explain the tiny model?"
methods = ["saliency", "random"]
metrics = ["soundness_rank", "completeness_share", "calibration"]
options = {{ resamples = 100, batch_size = 16, memory_format = "contiguous", imputer = "mean" }}

[tasks.images]
kind = "images"
model = "{model}"
data = "{data}"
"""


def suite_file(folder, old="", new=""):
    """Write the suite, its model and its images, with one text replaced by another."""
    images = folder / "images"
    if not images.exists():
        image_folder(images)
    text = TEXT.format(model=model_file(folder), data=images)
    assert old in text
    path = folder / "tiny.toml"
    path.write_text(text.replace(old, new) if old else text)
    return str(path)


def run_tiny(path, out, names=None):
    suite = find_suite(path)
    return run_suite(suite, suite.tasks, requested_methods(suite, names), str(out), Quiet())
