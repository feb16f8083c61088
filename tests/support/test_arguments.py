from typing import Annotated, TypedDict

import numpy as np
import pytest

from twinlens.support.arguments import checked, fill_options
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import Default


class How(TypedDict, total=False):
    sign: Annotated[str, Default("error")]
    segments: Annotated[ArrayLike | None, Default(None)]
    batch_size: Annotated[int, Default(8)]


def test_options_are_checked_and_completed():
    values = np.ones(2)
    options = fill_options(How, {"sign": "positive", "segments": values})
    assert options == {"sign": "positive", "segments": values, "batch_size": 8}
    with pytest.raises(TypeError, match=r"^`batch_size` must be a whole number; got 1\.5\.$"):
        fill_options(How, {"batch_size": 1.5})
    with pytest.raises(TypeError, match=r"`options` must be one of sign, .*; got 'sgn'. Did you mean 'sign'\?"):
        fill_options(How, {"sgn": "positive"})


def test_arguments_are_checked_against_annotations():
    @checked
    def count(values: ArrayLike, *, steps: int = 3, ids: list[str] | None = None):
        return values, steps, ids

    assert count("any", steps=np.int64(2), ids=3) == ("any", 2, 3)  # arrays and ids are checked later
    with pytest.raises(TypeError, match=r"^`steps` must be a whole number; got '2'\.$"):
        count([], steps="2")
    with pytest.raises(TypeError, match="unexpected keyword argument 'step'"):
        count([], step=2)
