import json

import numpy as np
import pytest
import torch

from tests.small_runs import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.errors import RunError
from twinlens.evaluation import evaluate


def test_maps_with_signs_and_channels(tmp_path):
    rng = np.random.default_rng(1)
    inputs, labels = samples()
    values = rng.normal(size=(10, 3, 9, 9)).astype(np.float32)
    np.save(tmp_path / "maps.npy", values)

    def signed(model, inputs, targets, *, ids=None, seed=0):
        return torch.from_numpy(values)[[int(name) for name in ids]]

    asked = {"maps": {"stored": str(tmp_path / "maps.npy")}, "metrics": ["road_morf"], **OPTIONS}
    with pytest.raises(ValueError, match=r"Say how to resize it \(`resize`\) or to reduce its channels \(`channels`\)"):
        evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", **asked)
    with pytest.raises(ValueError, match="'positive' drops negative values"):
        evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", channels="sum", **asked)
    reading = {"sign": "absolute", "channels": "sum"}
    evaluation = evaluate(tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", **reading, **asked)
    for name in ("own", "stored"):
        torch.testing.assert_close(evaluation.maps(name), torch.from_numpy(values).sum(dim=1).abs())
    with pytest.raises(RunError, match=r"methods\.own\.options\.sign is 'absolute' there and 'positive' here"):
        evaluate(
            tiny_model(), (inputs, labels), {"own": signed}, out=tmp_path / "run", sign="positive", channels="sum",
            **asked,
        )  # fmt: skip


def test_a_method_of_ones_own_and_one_with_options(tmp_path):
    def bright(model, inputs, targets, *, ids=None, seed=0, power=1.0):
        return inputs.abs().sum(dim=1) ** power

    methods = {
        "bright": bright,
        "square": {"method": bright, "power": 2.0},
        "ig8": {"method": "integrated_gradients", "steps": 8},
    }
    evaluation = evaluate(tiny_model(), samples(), methods, metrics=["road_morf"], out=tmp_path / "run", **OPTIONS)
    inputs = torch.from_numpy(samples()[0])
    torch.testing.assert_close(evaluation.maps("bright"), inputs.abs().sum(dim=1))
    torch.testing.assert_close(evaluation.maps("square"), inputs.abs().sum(dim=1) ** 2)
    described = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]
    assert (described["ig8"]["method"], described["ig8"]["options"]) == ("integrated_gradients", {"steps": 8})
    assert described["bright"]["source"] == described["square"]["source"]
    # A function that was changed since is another method.
    with pytest.raises(RunError, match=r"methods\.bright\.source"):
        evaluate(
            tiny_model(),
            samples(),
            {"bright": lambda *a, **k: a[1][:, 0]},
            metrics=["road_morf"],
            out=tmp_path / "run",
            **OPTIONS,
        )


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["grad-cam"], "`methods` must be one of saliency, .*; got 'grad-cam'. Did you mean 'gradcam'"),
        ({"mine": {"method": "occlusion", "size": 3}}, "`size` is no option of occlusion; its options"),
        ({"../up": "random"}, "letters, digits"),
        ([], "`methods` must name at least one"),
        (3, "`methods` must"),
        ([3], "`methods"),
        ({"random": 3}, "`methods` must name a method or a function; 'random' is int"),
    ],
)
def test_methods_that_do_not_exist_are_refused_before_any_work(tmp_path, methods, message):
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(tiny_model(), samples(), methods, out=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()
