import numpy as np
import torch

from tests.report.runs import decoded
from twinlens.report.pictures import Shades, data_uri, false_picture, input_pictures, map_picture


def test_pictures_of_maps():
    values = torch.tensor([[0.0, 1.0], [0.5, 0.0]])
    drawn = map_picture(values)
    assert drawn[0, 1].tolist() == [252, 255, 164]
    assert drawn[0, 0].tolist() == drawn[1, 1].tolist() == [13, 8, 45]
    white = np.full((2, 2, 3), 255, np.uint8)
    over = false_picture(values, torch.tensor([[False, True], [False, False]]), white)
    assert over[0, 1].tolist() == [230, 80, 0]
    assert over[0, 0].tolist() == [255, 255, 255]
    assert over[1, 0, 2] > over[1, 0, 0]  # blue: it stands
    assert map_picture(torch.zeros(2, 2)).tolist() == [[[13, 8, 45]] * 2] * 2


def test_pictures_of_inputs_of_all_shapes():
    plain = Shades(scale=torch.tensor(1.0), shift=torch.tensor(0.0))
    assert input_pictures(torch.full((2, 1, 4, 5), 0.5), plain)[1].tolist() == [[[128] * 3] * 5] * 4
    assert input_pictures(torch.ones(1, 7), plain)[0].tolist() == [[[255] * 3] * 7]
    assert input_pictures(torch.zeros(1, 2, 6), plain)[0].shape == (1, 6, 3)
    assert input_pictures(torch.zeros(1, 1, 3, 4, 5), plain)[0].shape == (4, 5, 3)
    colours = torch.tensor([1.0, 0.0, 0.2]).reshape(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert input_pictures(colours, plain)[0].tolist() == [[[255, 0, 51]] * 2] * 2
    between = Shades.between_extremes(torch.tensor([-1.0, 0.0, 1.0]))
    assert input_pictures(torch.tensor([[-3.0, 0.2, 5.0]]), between)[0][0, :, 0].tolist() == [0, 153, 255]
    assert between.grey.item() == 0.0


def test_large_pictures_are_made_smaller_and_small_ones_kept_exact():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(data_uri(small, side=10, quality=50)), small)
    large = rng.integers(0, 256, (400, 200, 3), dtype=np.uint8)
    assert decoded(data_uri(large, side=100, quality=50)).shape == (100, 50, 3)
