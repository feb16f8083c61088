import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.probing.model_call import check_inputs


def test_integers_are_taken_as_tokens_and_only_where_they_may_be():
    tokens, pixels = torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.uint8)
    assert check_inputs(tokens, None, tokens=True)[0] is not None
    for given, allowed in ((tokens, False), (pixels, True), (pixels, False)):
        with pytest.raises(TypeError, match="`inputs` must be floating-point, normalised as the model expects"):
            check_inputs(given, None, tokens=allowed)


@pytest.mark.parametrize("row", [[1.5, -0.5], [0.4, 0.4], [0.7, 0.7]])
def test_probabilities_are_not_negative_and_sum_to_one(row):
    with pytest.raises(ValueError, match=r"`model` must return probabilities, >= 0 and summing to 1 in each row"):
        tl.deletion(lambda x: np.tile(row, (len(x), 1)), np.ones((2, 3)), [0, 1], np.ones((2, 3)), levels=(0.5,))
