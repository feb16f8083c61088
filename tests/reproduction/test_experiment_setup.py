import re
from dataclasses import replace

import numpy as np
import pytest

from tests.tiny import image_folder, model_file
from twinlens.data.samples import from_arrays
from twinlens.reproduction import ExperimentOptions
from twinlens.reproduction.experiment_setup import EmbeddedSetup, find_setup, some_of_each_class

DEFAULT = EmbeddedSetup(model="mnist-cnn", data="mnist", limit=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paper": True}, "`data` is missing: the paper's settings need a folder of ImageNet images"),
        ({"weights": "w.pt"}, "`weights` needs your own model. Pass --model, too"),
        ({"classes": "c.txt"}, "`classes` needs your own data. Pass --data, too"),
    ],
)
def test_refusals(tmp_path, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        find_setup(ExperimentOptions(out=tmp_path, **options), DEFAULT)


def test_own_data_is_taken_whole_but_for_a_limit(tiny):
    assert len(find_setup(tiny, DEFAULT).samples) == 6
    assert len(find_setup(replace(tiny, limit=4), DEFAULT).samples) == 4
    assert not find_setup(tiny, DEFAULT).embedded


def test_the_paper_takes_five_images_of_each_class(tmp_path):
    data = image_folder(tmp_path / "many", per_class=7)
    options = ExperimentOptions(out=tmp_path, paper=True, data=data, model=model_file(tmp_path))
    assert np.bincount(find_setup(options, DEFAULT).samples.labels).tolist() == [5, 5, 5]


def test_which_samples_of_a_class_depends_on_the_seed_alone():
    samples = from_arrays(np.eye(40), np.arange(40) % 2)
    chosen = some_of_each_class(samples, 3, seed=0)
    shuffled = samples.take(np.random.default_rng(0).permutation(40))
    assert set(some_of_each_class(shuffled, 3, seed=0).ids) == set(chosen.ids)
    assert set(some_of_each_class(samples, 3, seed=1).ids) != set(chosen.ids)
