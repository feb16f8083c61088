"""Weights and attributes of models that cannot be used are refused in one line."""

import pytest
import torch

from tests.tiny import model_file, tiny_model
from twinlens.errors import ModelError
from twinlens.models.loading import load_model

STATE = tiny_model().state_dict()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({0: torch.zeros(1)}, "must hold tensors by name; one is called 0"),
        ({**STATE, None: 1}, "must hold tensors by name; one is called None"),
        ({(1, 2): 1}, "must hold tensors by name"),
        ({name: value.to("meta") for name, value in STATE.items()}, "'0.weight' cannot be used.*device meta"),
        ({name: value.to_sparse() for name, value in STATE.items()}, "'0.weight' cannot be used.*sparse"),
        (
            {name: value.to(torch.complex64) for name, value in STATE.items()},
            "the model has no complex numbers in .0.weight.",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_weights(tmp_path, state, message):
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=message) as raised:
        load_model(model_file(tmp_path), weights=str(tmp_path / "w.pt"))
    assert len(str(raised.value).splitlines()) == 1


def test_attributes_of_a_model_that_make_no_sense(tmp_path):
    for attribute in ("preprocessing", "classes"):
        (tmp_path / "m.py").write_text(
            f"from torch import nn\ndef build():\n  m = nn.Flatten(); m.{attribute} = 3; return m\n"
        )
        with pytest.raises(ModelError, match="preprocessing must be a dict, and classes a list"):
            load_model(f"{tmp_path}/m.py:build")
