"""docs/coming-from.md: every line of its code runs, and what it says of other libraries is so."""

import json
import re
import shlex
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import quantus
import torch
from captum.metrics import infidelity, sensitivity_max
from PIL import Image
from pytorch_grad_cam.metrics.perturbation_confidence import RemoveLeastRelevantFirst, RemoveMostRelevantFirst
from pytorch_grad_cam.metrics.road import ROADMostRelevantFirst
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn

import twinlens as tl
from tests.tiny import image_folder, model_file
from twinlens.cli.main import main
from twinlens.integrations import captum, grad_cam

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning"),  # in pytorch-grad-cam
    pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients"),  # in Captum
]


def section(title):
    return PAGE.split(f"\n## {title}")[1].split("\n## ")[0]


def run_section(title, names):
    """Run its code, then both sides of each row of its table; return what the rows came to."""
    for code in re.findall(r"```python\n(.*?)```", section(title), flags=re.DOTALL):
        exec(code, names)
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", section(title), flags=re.MULTILINE)
    return [(eval(theirs, names), eval(ours, names)) for theirs, ours in rows]


@pytest.fixture
def grey():
    """Sixty images with one channel, and a model that knows the class of the first half."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    model = nn.Sequential(*model, nn.Linear(32, 3)).eval()
    images, maps = torch.randn(60, 1, 8, 8), torch.rand(60, 8, 8).numpy()
    labels = model(images).argmax(dim=1)
    labels[30:] = (labels[30:] + 1) % 3
    return {"model": model, "x_batch": images.numpy(), "y_batch": labels.numpy(), "a_batch": maps, "device": "cpu"}


def test_the_versions_of_the_page_are_those_here():
    for package, name in {
        "captum": "Captum",
        "quantus": "Quantus",
        "grad-cam": "pytorch-grad-cam",
        "torchmetrics": "torchmetrics",
    }.items():
        assert f"{name} {version(package)}" in PAGE


@pytest.mark.slow
def test_captum(model, images, labels):
    def perturb(inputs):
        noise = 0.01 * torch.randn_like(inputs)
        return noise, inputs - noise

    names = {"model": model, "inputs": images, "labels": labels, "perturb": perturb}
    (_, sound), (_, complete), (_, evaluation) = run_section("Captum", names)
    assert sound.isfinite().all()
    assert complete.shape == (6,)
    assert set(evaluation.summary()["method"]) == {"ig"}


def test_captums_metrics_answer_other_questions(model, images, labels):
    attributions = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(3))

    def perturb(inputs):
        noise = 0.1 * torch.randn(inputs.shape, generator=torch.Generator().manual_seed(4))
        return noise, inputs - noise

    def ours(given):
        return captum.soundness(model, images, given, target=labels, sign="positive", channels="sum")

    one, two = (infidelity(model, perturb, images, k * attributions, target=labels) for k in (1, 2))
    assert (two > 1.5 * one).all()
    torch.testing.assert_close(ours(2 * attributions), ours(attributions))
    constant = sensitivity_max(lambda inputs: (torch.ones_like(inputs[0]),), images)
    assert constant.tolist() == [0.0] * 6


@pytest.mark.filterwarnings("ignore:The settings for perturbing input")  # in Quantus
def test_quantus(grey):
    names = {name: value[:4] for name, value in grey.items() if name.endswith("_batch")} | {"model": grey["model"]}
    (_, road), (accuracies, ours), (_, deletion), (_, evaluated) = run_section("Quantus", names)
    assert len(road) == len(deletion) == len(evaluated["mine"]["soundness"]) == 4
    assert list(accuracies) == [10, 50]
    assert ours.shape == (2,)


@pytest.mark.filterwarnings("ignore:The settings for perturbing input")
def test_road_of_quantus(grey, model, images, labels, maps):
    coloured = {"model": model, "x_batch": images.numpy(), "y_batch": labels.numpy(), "a_batch": maps, "device": "cpu"}
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 64"):
        quantus.ROAD(percentages=[10])(**coloured)
    exactly = quantus.ROAD(percentages=[10], noise=0.0)
    found = [exactly(**grey, batch_size=size)[10] for size in (20, 30, 60)]
    assert f"20, 30 and 60, it returned {found[0]:.2f}, {found[1]:.2f} and {found[2]:.2f}" in " ".join(PAGE.split())
    shares = (0.1, 0.3, 0.5, 0.7, 0.9)
    accuracies = quantus.ROAD(percentages=[10, 30, 50, 70, 90], noise=0.0)(**grey)
    grey.pop("device")
    exact = tl.LinearImputer(noise=0.0, tolerance=1e-6)
    ours = tl.road(*grey.values(), levels=shares, imputer=exact, protocol="soco").performance
    np.testing.assert_allclose(list(accuracies.values()), ours, atol=1e-6)


def test_pytorch_grad_cam(model, images, labels, maps):
    names = {"model": model, "input_tensor": images, "grayscale_cams": maps}
    names["targets"] = [ClassifierOutputTarget(label) for label in labels.tolist()]
    rows = run_section("pytorch-grad-cam", names)
    assert len(rows) == 3
    for theirs, ours in rows:
        np.testing.assert_allclose(ours, theirs, atol=2e-3)  # both add noise of 0.01 to what they impute
        assert np.abs(theirs).max() > 0.02


def test_road_of_pytorch_grad_cam_removes_ties_together(model, images, labels):
    """A map of 100 pixels, of which 30 are above zero."""
    cam = torch.zeros(10, 10)
    cam[:3] = 0.1 + torch.rand(3, 10)

    def removed(remover, percentile):
        shares = []
        remover(percentile, lambda image, keep: shares.append(1 - keep.mean().item()))(torch.zeros(3, 10, 10), cam)
        return shares[0]

    assert removed(RemoveMostRelevantFirst, 40) == 1
    assert removed(RemoveMostRelevantFirst, 80) == pytest.approx(0.2)
    assert removed(RemoveLeastRelevantFirst, 90) == pytest.approx(0.7)
    inputs, targets = torch.randn(1, 3, 10, 10), [ClassifierOutputTarget(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of SciPy: the matrix is singular
        _, seen = ROADMostRelevantFirst(40)(inputs, cam[None].numpy(), targets, model, return_visualization=True)
    assert seen.abs().max() < 0.06  # nothing but noise of 0.01, where inputs were about 1
    schedule = tl.probing.Schedule(by="area", order="morf", levels=(0.1, 0.6))
    assert tl.probe(model, inputs, [0], cam[None], schedule=schedule).removed.tolist() == [[10, 60]]
    assert grad_cam.Road(levels=(0.6,))(inputs, cam[None], targets, model).shape == (1,)


@pytest.mark.slow
def test_soco(tmp_path, monkeypatch, capsys, model, images, labels, maps):
    run_section("soco", {"model": model, "inputs": images, "labels": labels, "maps": maps})
    monkeypatch.chdir(tmp_path)
    image_folder("images")
    Path("cls_to_ind.json").write_text(json.dumps({"ant": 0, "bee": 1, "cow": 2}))
    for path in Path("images").rglob("*.png"):
        smap = Path("smaps", *path.parts[1:])
        smap.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (10, 10), dtype=np.uint8)).save(smap)
    [command] = re.findall(r"```sh\ntwinlens (evaluate.*?)```", section("soco"), flags=re.DOTALL)
    words = shlex.split(command.replace("\\\n", " ").replace("torchvision:vgg16", model_file(tmp_path)))
    assert main([*words, "--quiet", "--resamples", "100"]) == 0
    found = tl.open_evaluation("runs/gradcam")
    assert set(found.summary()["metric"]) == {"soundness", "completeness", "road_morf", "road_lerf", "deletion"}
    assert found.curve("gradcam", "soundness").protocol.name == "soco"


def soco_layout(root):
    """Photographs of several sizes and their maps, as soco wants them: a map is as large as its photograph."""
    for folder, size in {"ant": (400, 300), "bee": (300, 400), "cow": (500, 333)}.items():
        for k in range(2):
            y, x = np.ogrid[: size[1], : size[0]]
            far = np.hypot(x / size[0] - 0.4 - 0.1 * k, y / size[1] - 0.45)
            grey = Image.fromarray(np.clip(255 * (1 - 3 * far), 0, 255).astype(np.uint8))
            for kind, image in (("images", grey.convert("RGB")), ("smaps", grey)):
                path = Path(root, kind, folder, f"{k}.{'jpg' if kind == 'images' else 'jpeg'}")
                path.parent.mkdir(parents=True, exist_ok=True)
                image.save(path, quality=95)
    Path(root, "cls_to_ind.json").write_text(json.dumps({"ant": 0, "bee": 1, "cow": 2}))


@pytest.mark.slow
def test_a_folder_of_soco_works_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    soco_layout(tmp_path)
    [command] = re.findall(r"```sh\ntwinlens (evaluate.*?)```", section("soco"), flags=re.DOTALL)
    words = shlex.split(command.replace("\\\n", " ").replace("torchvision:vgg16", model_file(tmp_path)))
    # VGG16 brings its own size; this model takes any. The normalisation is that of the page.
    [normalisation] = re.findall(r"`(--mean [^`]+ --std [^`]+)`", section("soco"))
    words += ["--resize", "32", "--crop", "28", *shlex.split(normalisation), "--option", "gradcam.resize=nearest"]
    assert main([*words, "--quiet", "--resamples", "100"]) == 0
    found = tl.open_evaluation("runs/gradcam")
    assert (found.manifest.model.preprocessing.mean, found.manifest.model.preprocessing.std) == (
        (0.485,) * 3,
        (0.229,) * 3,
    )
    data = tl.open_data("images", classes="cls_to_ind.json")
    for name, values in zip(found.ids(), found.maps("gradcam").numpy(), strict=True):
        image = data.read(data.ids.index(name))
        seen = tl.models.Preprocessing(resize=32, crop=28, mean=0.0, std=1.0)(image)[0].numpy()
        assert np.corrcoef(values.ravel(), seen.ravel())[0, 1] > 0.98  # the map is where the photograph is
    # The rest of the page's commands, on this run.
    for line in re.findall(r"^    twinlens (.*?)(?: +#.*)?$", section("soco"), flags=re.MULTILINE):
        assert main(shlex.split(line.replace("RUN", "runs/gradcam"))) == 0
    assert len(list(Path("masks/gradcam").glob("*.png"))) == 6
    assert Path("masks/gradcam/ant-0.png").exists()


def test_torchmetrics(model, images, labels, maps):
    names = {"model": model, "batches": [(images, labels, maps, range(6))]}
    run_section("torchmetrics", names)
    expected = tl.soundness(model, images, labels, maps, estimator="rank")
    assert names["value"].item() == pytest.approx(expected.area(), abs=1e-9)
    np.testing.assert_array_equal(names["curve"].values, expected.values)
